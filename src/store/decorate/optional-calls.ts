/** The optional calls, passed through decorators. */
import type { CallOptions, ObjectStore } from "../object-store.js";

/** How a decorator makes a call that may be repeated. */
type Around = <T>(call: () => Promise<T>, options: CallOptions | undefined) => Promise<T>;

/** `sync` and `abortUploads` of `store`, those that it has, made through `around`: a decorator spreads this into itself. */
export function withOptionalCalls(
  store: ObjectStore,
  around: Around = (call) => call(),
): Pick<ObjectStore, "abortUploads" | "sync"> {
  const abort = store.abortUploads?.bind(store);
  const sync = store.sync?.bind(store);
  return {
    ...(abort && { abortUploads: (prefix, age, options) => around(() => abort(prefix, age, options), options) }),
    ...(sync && { sync: (key, options) => around(() => sync(key, options), options) }),
  };
}
