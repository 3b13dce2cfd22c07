/**
 * Property: of two puts of one object, the one that is given up does not take the other's object with it: neither is made in place, where a file store
 * removes what it could not finish. Method: a store that notes how it was asked.
 */
import { expect, test } from "vitest";
import { hedgedPutBytesMax, withHedging } from "../../src/store/index.js";
import { scriptedStore } from "./scripted-store.js";
import { VirtualEnv } from "./virtual-env.js";

test("a put that may be made twice is not made in place", async () => {
  const seen: unknown[] = [];
  const { store } = scriptedStore({
    put: async (_key, _body, options) => {
      seen.push(options?.unknownKey);
    },
  });
  const hedged = withHedging(store, new VirtualEnv());
  await hedged.put("k", new Uint8Array(1_000_000), { unknownKey: true });
  await hedged.put("k", new Uint8Array(hedgedPutBytesMax + 1), { unknownKey: true });
  expect(seen).toEqual([undefined, true]);
});
