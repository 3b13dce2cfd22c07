/** The optional call, passed through decorators. */
import type { ObjectStore } from "./object-store.js";

/** `abortUploads` of `store`, if it has it: a decorator spreads this into itself. */
export function withUploads(store: ObjectStore): Pick<ObjectStore, "abortUploads"> {
  if (!store.abortUploads) return {};
  return {
    abortUploads: (prefix, olderThanMs, options) =>
      (store.abortUploads as Abort).call(store, prefix, olderThanMs, options),
  };
}

type Abort = NonNullable<ObjectStore["abortUploads"]>;
