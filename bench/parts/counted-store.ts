/** A store that counts what goes through it. */
import type { ObjectStore } from "../../src/index.js";
import { systemEnv, withMetrics } from "../../src/index.js";

/** What went through so far. */
export interface StoreTally {
  requests: number;
  bytesSent: number;
  bytesReceived: number;
}

/** Wraps `store`; the tally is live, and {@link taken} reads and clears it. */
export function countCalls(store: ObjectStore): { readonly store: ObjectStore; readonly tally: StoreTally } {
  const tally: StoreTally = { requests: 0, bytesSent: 0, bytesReceived: 0 };
  const counted = withMetrics(store, systemEnv, {
    onCall: ({ bytesOut, bytesIn }) => {
      tally.requests++;
      tally.bytesSent += bytesOut;
      tally.bytesReceived += bytesIn;
    },
  });
  return { store: counted, tally };
}

/** What was counted since the last time. */
export function taken(tally: StoreTally): StoreTally {
  const copy = { ...tally };
  Object.assign(tally, { requests: 0, bytesSent: 0, bytesReceived: 0 });
  return copy;
}
