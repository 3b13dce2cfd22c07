/**
 * Whether `namespace.json` is still there and still this namespace's. Nothing depends on it: the chain tells every process that a namespace was
 * deleted. It is for two things that no chain tells: a folder that was removed by hand, and a deleter of an earlier life that was
 * stopped right before its last request, and has now removed the `namespace.json` of this one.
 */
import type { Env } from "../env/index.js";
import { isBatchWeaveError } from "../errors.js";
import {
  asVersion,
  decodeNamespace,
  encodeNamespace,
  manifestKey,
  manifestPrefix,
  type NamespaceSpec,
  namespaceKey,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import type { Head } from "./head.js";
import { deletedError, lifeStore } from "./life.js";

/** How long a process believes that its namespace is still there. */
const believedMs = 30_000;

/** Looks after one namespace's `namespace.json`. */
export class Presence {
  readonly #place: ObjectStore;
  readonly #env: Env;
  readonly #head: Head;
  readonly #spec: NamespaceSpec;
  #seenAtMs: number;

  /** `seenAtMs`: before `namespace.json` was read. */
  constructor(place: ObjectStore, env: Env, head: Head, spec: NamespaceSpec, seenAtMs: number = env.monotonic()) {
    this.#place = place;
    this.#env = env;
    this.#head = head;
    this.#spec = spec;
    this.#seenAtMs = seenAtMs;
  }

  /** Asks when it was not asked for a while. */
  async check(options?: CallOptions): Promise<void> {
    if (this.#env.monotonic() - this.#seenAtMs >= believedMs) await this.ask(options);
  }

  /** Throws DELETED unless the namespace is there. */
  async ask(options?: CallOptions): Promise<void> {
    const now = this.#env.monotonic();
    const bytes = await this.#place.get(namespaceKey, options);
    if (bytes ? decodeNamespace(bytes, namespaceKey).uuid !== this.#spec.uuid : !(await this.#restore(options)))
      throw deletedError(this.#place.uri, this.#spec.uuid);
    this.#seenAtMs = now;
  }

  /**
   * It is gone, and a deletion removes it last, long after the chain has ended: so if the chain goes on and the newest version known, or a later one, is there,
   * this life was not deleted. False: it was, by hand.
   */
  async #restore(options?: CallOptions): Promise<boolean> {
    if (this.#spec.format === 1) return false;
    const { known } = this.#head;
    const startAfter = manifestKey(asVersion(Math.max(0, (known?.version ?? 0) - 1)));
    const life = lifeStore(this.#place, this.#spec);
    const { objects } = await life.list(manifestPrefix, { ...options, startAfter, limit: 1 });
    await this.#head.boundary.look(options);
    if (objects.length === 0) return false;
    // Whatever the answer was: it is asked again later. A process without the right to write it leaves it to others.
    await this.#place.create(namespaceKey, encodeNamespace(this.#spec), options).catch((error) => {
      if (!isBatchWeaveError(error, "STORE_DENIED")) throw error;
    });
    return true;
  }
}
