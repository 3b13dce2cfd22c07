/**
 * Properties of intents: all of the batches or the opening can be read from the names alone, the store accepts them, and any changed character or
 * another namespace's intent is skipped. Method: random descriptors; every character of the name is changed.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  asEpoch,
  asSeq,
  asVersion,
  batchIntents,
  type Descriptor,
  type Extent,
  openingIntentKey,
  parseIntentKey,
} from "../../src/format/index.js";
import { isKey } from "../../src/store/index.js";
import * as any from "./arbitrary.js";

const batch = any.descriptor.map(({ origin: _, rest: __, ...own }): Descriptor => own);
/** Mostly as a producer makes them: one after another, alike but for their extents. Now and then an upload again, or a gap. */
const batches = fc
  .array(fc.tuple(batch, fc.constantFrom("next", "next", "next", "alike", "again", "gap")), {
    minLength: 1,
    maxLength: 12,
  })
  .map((drawn) => {
    const made: Descriptor[] = [];
    for (const [own, kind] of drawn) {
      const last = made.at(-1);
      if (!last) made.push(own);
      else {
        const extents =
          kind === "alike" ? last.extents.map((e) => ({ ...e, check: (e.check ^ 1) >>> 0 })) : own.extents;
        const attempt = kind === "again" ? last.attempt + 1 : last.attempt;
        made.push({ ...last, seq: asSeq(last.seq + (kind === "gap" ? 2 : 1)), attempt, extents });
      }
    }
    return made;
  });

function named(namespace: string, keys: readonly string[]): Descriptor[] {
  return keys.flatMap((key) => {
    const intent = parseIntentKey(namespace, key);
    if (intent?.kind !== "batches") throw new Error(`not readable: ${key}`);
    return intent.batches;
  });
}

describe("intents", () => {
  test("say everything in their name, or there is none", () => {
    fc.assert(
      fc.property(any.uuid, batches, (namespace, descriptors) => {
        const { keys, unnamed } = batchIntents(namespace, descriptors);
        for (const key of keys) expect(isKey(key)).toBe(true);
        for (const large of unnamed) expect(JSON.stringify(large).length).toBeGreaterThan(200);
        const inOrder = [...named(namespace, keys), ...unnamed].sort((a, b) => a.seq - b.seq);
        expect(inOrder).toEqual(descriptors);
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

  test("share a name as long as it has room", () => {
    const first: Descriptor = {
      producer: "producer-17",
      epoch: asEpoch(3),
      seq: asSeq(120_000),
      incarnation: "0123456789ab",
      attempt: 0,
      base: asVersion(40_960),
      extents: [{ cells: 8, size: 1_000_272, table: 1_000_000, check: 4_294_967_295 }],
    };
    const many = Array.from({ length: 40 }, (_, i) => ({ ...first, seq: asSeq(first.seq + i) }));
    const alike = many.map((one, i) => ({
      ...one,
      extents: [{ ...(first.extents[0] as Extent), check: 4_000_000_000 + i }],
    }));
    const { keys } = batchIntents("n", alike);
    expect(keys.length).toBe(4);
    for (const key of keys) expect(key.length - "intent/0/".length).toBeLessThanOrEqual(240);
  });

  test("are skipped when garbled or foreign", () => {
    fc.assert(
      fc.property(any.uuid, any.uuid, batch, fc.constantFrom(..."0a.-_~"), (namespace, other, descriptor, char) => {
        const [key] = batchIntents(namespace, [descriptor]).keys;
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
