/** A memory store whose calls can be changed one by one, and are counted. */
import { BatchWeaveError, type ErrorDetails } from "../../src/errors.js";
import { MemoryStore, type ObjectStore, type StoreOp } from "../../src/store/index.js";

export function unavailable(details: ErrorDetails = {}): BatchWeaveError {
  return new BatchWeaveError("STORE_UNAVAILABLE", "the store is away; try again", details);
}

/** `calls` counts by kind; `override` replaces single calls. */
export interface ScriptedStore {
  readonly store: ObjectStore;
  readonly memory: MemoryStore;
  readonly calls: Record<StoreOp, number>;
}

export function scriptedStore(override: Partial<ObjectStore>, memory: MemoryStore = new MemoryStore()): ScriptedStore {
  const calls: Record<StoreOp, number> = { create: 0, put: 0, get: 0, getRange: 0, list: 0, delete: 0 };
  const store = { uri: "memory:scripted" } as unknown as Record<string, unknown>;
  for (const op of Object.keys(calls) as StoreOp[]) {
    store[op] = async (...args: unknown[]) => {
      calls[op]++;
      const call = (override[op] ?? memory[op].bind(memory)) as (...args: unknown[]) => Promise<unknown>;
      return call(...args);
    };
  }
  return { store: store as unknown as ObjectStore, memory, calls };
}
