/**
 * Properties of intents: all of a batch or an opening can be read from the name alone, the store accepts the name, and any changed character or
 * another namespace's intent is skipped. Method: random descriptors; every character of the name is changed.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { batchIntentKey, type Descriptor, openingIntentKey, parseIntentKey } from "../../src/format/index.js";
import { isKey } from "../../src/store/index.js";
import * as any from "./arbitrary.js";

const batch = any.descriptor.map(({ origin: _, rest: __, ...own }): Descriptor => own);

describe("intents", () => {
  test("say everything in their name, or there is none", () => {
    fc.assert(
      fc.property(any.uuid, batch, (namespace, descriptor) => {
        const key = batchIntentKey(namespace, descriptor);
        if (key === undefined) {
          // No value is returned: a property that returns false has failed, and what a matcher returns is its own business.
          expect(JSON.stringify(descriptor).length).toBeGreaterThan(200);
          return;
        }
        expect(isKey(key)).toBe(true);
        expect(parseIntentKey(namespace, key)).toEqual({ kind: "batch", batch: descriptor });
      }),
    );
    fc.assert(
      fc.property(any.uuid, any.batchName, (namespace, { producer, epoch, incarnation }) => {
        const opening = { producer, before: epoch, incarnation };
        const key = openingIntentKey(namespace, opening);
        expect(isKey(key)).toBe(true);
        expect(parseIntentKey(namespace, key)).toEqual({ kind: "opening", opening });
      }),
    );
  });

  test("are skipped when garbled or foreign", () => {
    fc.assert(
      fc.property(any.uuid, any.uuid, batch, fc.constantFrom(..."0a.-~"), (namespace, other, descriptor, char) => {
        const key = batchIntentKey(namespace, descriptor);
        fc.pre(key !== undefined && namespace !== other);
        expect(parseIntentKey(other, key)).toBeUndefined();
        // The shard in front is only a place to look.
        for (let at = "intent/0/".length; at < key.length; at++) {
          const garbled: string = key.slice(0, at) + char + key.slice(at + 1);
          if (garbled !== key) expect(parseIntentKey(namespace, garbled)).toBeUndefined();
          expect(parseIntentKey(namespace, key.slice(0, at))).toBeUndefined();
        }
      }),
      { numRuns: 50 },
    );
  });
});
