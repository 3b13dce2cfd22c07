/** A store that counts its requests, takes a while for each, and can be told to fail or to hang. */
import { BatchWeaveError, type ObjectStore, systemEnv } from "../../src/index.js";

export class WatchedStore {
  requests = 0;
  delayMs = 0;
  mode: "well" | "failing" | "hanging" = "well";
  readonly store: ObjectStore;

  constructor(inner: ObjectStore) {
    this.store = new Proxy(inner, {
      get: (target, name) => {
        const value = Reflect.get(target, name, target) as unknown;
        if (typeof value !== "function") return value;
        return async (...args: unknown[]): Promise<unknown> => {
          this.requests++;
          if (this.mode === "failing") throw new BatchWeaveError("STORE_UNAVAILABLE", "The store refuses connections.");
          if (this.mode === "hanging") return await new Promise(() => {});
          if (this.delayMs > 0) await systemEnv.sleep(this.delayMs);
          return await (value as (...given: unknown[]) => Promise<unknown>).apply(target, args);
        };
      },
    });
  }
}
