/** The optional call, passed through decorators. */
import type { CallOptions, ObjectStore } from "../object-store.js";

/** How a decorator makes a call that may be repeated. */
type Around = <T>(call: () => Promise<T>, options: CallOptions | undefined) => Promise<T>;

/** `abortUploads` of `store`, if it has it, made through `around`: a decorator spreads this into itself. */
export function withUploads(store: ObjectStore, around: Around = (call) => call()): Pick<ObjectStore, "abortUploads"> {
  if (!store.abortUploads) return {};
  const abort = store.abortUploads.bind(store);
  return {
    abortUploads: (prefix, olderThanMs, options) => around(() => abort(prefix, olderThanMs, options), options),
  };
}
