/** Tells an observer about every call. */
import type { Env } from "../../env/index.js";
import { isBatchWeaveError } from "../../errors.js";
import { bodyBytes } from "../body.js";
import type { ObjectStore } from "../object-store.js";
import { withOptionalCalls } from "./optional-calls.js";

/** The six calls. */
export type StoreOp = "create" | "put" | "get" | "getRange" | "list" | "delete";

/** One finished call. */
export interface StoreCall {
  readonly op: StoreOp;
  /** The key; the prefix of a list; the first key of a delete. */
  readonly key: string;
  /** Payload bytes sent to the store. */
  readonly bytesOut: number;
  /** Payload bytes received from it. */
  readonly bytesIn: number;
  readonly durationMs: number;
  /** `created`, `exists`, `unknown`, `ok`, `absent`, `aborted`, or the code of the error. */
  readonly outcome: string;
}

/** Receives every finished call. Must not block. */
export interface StoreObserver {
  /** Told when a call begins. Each ends in one `onCall`. */
  onBegin?(op: StoreOp): void;
  onCall(call: StoreCall): void;
}

interface Seen {
  readonly bytesIn?: number;
  readonly outcome: string;
}

/** `store`, with every call reported to `observer` when it ends, however it ends. */
export function withMetrics(store: ObjectStore, env: Env, observer: StoreObserver): ObjectStore {
  const report = (op: StoreOp, key: string, bytesOut: number, begun: number, seen: Seen): void => {
    const durationMs = env.monotonic() - begun;
    try {
      observer.onCall({ op, key, bytesOut, bytesIn: seen.bytesIn ?? 0, durationMs, outcome: seen.outcome });
    } catch {
      // An observer's failure must not turn a create that happened into one that failed.
    }
  };
  const watch = async <T>(
    op: StoreOp,
    key: string,
    bytesOut: number,
    call: () => Promise<T>,
    see: (result: T) => Seen,
  ): Promise<T> => {
    const begun = env.monotonic();
    observer.onBegin?.(op);
    let result: T;
    try {
      result = await call();
    } catch (e) {
      report(op, key, bytesOut, begun, { outcome: isBatchWeaveError(e) ? e.code : "aborted" });
      throw e;
    }
    report(op, key, bytesOut, begun, see(result));
    return result;
  };
  const read = (bytes: Uint8Array | undefined): Seen =>
    bytes === undefined ? { outcome: "absent" } : { outcome: "ok", bytesIn: bytes.byteLength };
  return {
    ...withOptionalCalls(store),
    uri: store.uri,
    create: (key, body, options) =>
      watch(
        "create",
        key,
        bodyBytes(body),
        () => store.create(key, body, options),
        (outcome) => ({ outcome }),
      ),
    put: (key, body, options) =>
      watch(
        "put",
        key,
        bodyBytes(body),
        () => store.put(key, body, options),
        () => ({ outcome: "ok" }),
      ),
    get: (key, options) => watch("get", key, 0, () => store.get(key, options), read),
    getRange: (key, start, length, options) =>
      watch("getRange", key, 0, () => store.getRange(key, start, length, options), read),
    list: (prefix, options) =>
      watch(
        "list",
        prefix,
        0,
        () => store.list(prefix, options),
        () => ({ outcome: "ok" }),
      ),
    delete: (keys, options) =>
      watch(
        "delete",
        keys[0] ?? "",
        0,
        () => store.delete(keys, options),
        () => ({ outcome: "ok" }),
      ),
  };
}
