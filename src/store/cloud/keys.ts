/** Listing and deleting for stores whose SDK does less than we promise: the same for all of them. */
import { inParallel } from "../../flow/index.js";
import { listLimit } from "../arguments.js";
import { assertKey, isKey } from "../key.js";
import type { CallOptions, ListedObject, ListOptions, ListPage } from "../object-store.js";

const deletesInFlight = 32;

/** One page of keys, from listings that begin at a name instead of after it and may hold other people's objects. */
export class KeyPage {
  /** At most this many keys. */
  readonly limit: number;
  /** The full name to begin after; "" for the beginning. */
  readonly after: string;
  readonly #root: string;
  readonly #objects: ListedObject[] = [];

  /** `root`: what stands before every key of ours. */
  constructor(root: string, options: ListOptions | undefined) {
    this.limit = listLimit(options);
    this.after = options?.startAfter === undefined ? "" : `${root}${options.startAfter}`;
    this.#root = root;
  }

  /** Takes the next object of the listing; false: the page was full before, so there is more. */
  take(name: string, size: number): boolean {
    const key = name.slice(this.#root.length);
    if (name <= this.after || !isKey(key)) return true;
    if (this.#objects.length === this.limit) return false;
    this.#objects.push({ key, size });
    return true;
  }

  end(more: boolean): ListPage {
    return { objects: this.#objects, more };
  }
}

/** Deletes one by one, some at a time. `remove` takes what is absent for deleted; an abort's reason comes before its failure. */
export async function deleteEach(
  keys: readonly string[],
  options: CallOptions | undefined,
  remove: (key: string) => Promise<void>,
): Promise<void> {
  for (const key of keys) assertKey(key);
  options?.signal?.throwIfAborted();
  await inParallel(keys, deletesInFlight, async (key) => {
    options?.signal?.throwIfAborted();
    await remove(key).catch((e: unknown) => {
      options?.signal?.throwIfAborted();
      throw e;
    });
  });
}
