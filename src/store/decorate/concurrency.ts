/** At most so many calls at once. */
import { onAbort } from "../../env/index.js";
import { BatchWeaveError } from "../../errors.js";
import type { CallOptions, ObjectStore } from "../object-store.js";
import { withUploads } from "./uploads.js";

/** First come, first served; whoever aborts leaves the queue. */
class Gate {
  #free: number;
  readonly #queue = new Set<() => void>();

  constructor(max: number) {
    this.#free = max;
  }

  async pass<T>(call: () => Promise<T>, options: CallOptions | undefined): Promise<T> {
    await this.#enter(options?.signal);
    try {
      return await call();
    } finally {
      this.#leave();
    }
  }

  async #enter(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const admit = (): void => {
        unlisten?.();
        resolve();
      };
      this.#queue.add(admit);
      const unlisten =
        signal &&
        onAbort(signal, () => {
          this.#queue.delete(admit);
          reject(signal.reason);
        });
    });
  }

  /** The place goes straight to the next in line. */
  #leave(): void {
    const [admit] = this.#queue;
    if (!admit) {
      this.#free++;
      return;
    }
    this.#queue.delete(admit);
    admit();
  }
}

/** `store`, with at most `callsMax` calls under way; the others wait their turn. */
export function withConcurrency(store: ObjectStore, callsMax: number): ObjectStore {
  if (!Number.isInteger(callsMax) || callsMax < 1) {
    throw new BatchWeaveError("INVALID_ARGUMENT", `a limit of ${callsMax} calls is not a whole number of at least 1`, {
      callsMax,
    });
  }
  const gate = new Gate(callsMax);
  return {
    ...withUploads(store, (call, options) => gate.pass(call, options)),
    uri: store.uri,
    create: (key, body, options) => gate.pass(() => store.create(key, body, options), options),
    put: (key, body, options) => gate.pass(() => store.put(key, body, options), options),
    get: (key, options) => gate.pass(() => store.get(key, options), options),
    getRange: (key, start, length, options) => gate.pass(() => store.getRange(key, start, length, options), options),
    list: (prefix, options) => gate.pass(() => store.list(prefix, options), options),
    delete: (keys, options) => gate.pass(() => store.delete(keys, options), options),
  };
}
