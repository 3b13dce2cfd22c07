/**
 * Property: a buffer that was filled again, or whose beginning or end changed, has another fingerprint; the same bytes have the same.
 * Method: sizes around the windows' edges, random refills.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { fingerprint } from "../../src/producer/fingerprint.js";

test("the same bytes, the same fingerprint; other ends, another", () => {
  for (const size of [1, 15, 16, 17, 31, 128, 129, 1_000, 100_003]) {
    const bytes = Uint8Array.from({ length: size }, (_, i) => i * 7);
    const before = fingerprint(bytes);
    expect(fingerprint(bytes.slice())).toBe(before);
    for (const at of [0, size - 1]) {
      const changed = bytes.slice();
      changed[at] = (changed[at] as number) ^ 1;
      expect(fingerprint(changed), `byte ${at} of ${size}`).not.toBe(before);
    }
  }
  expect(fingerprint(new Uint8Array(0))).toBe(fingerprint(new Uint8Array(0)));
});

test("up to 128 bytes every one counts", () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 128 }), fc.nat(), (bytes, at) => {
      const changed = bytes.slice();
      const i = at % bytes.length;
      changed[i] = (changed[i] as number) ^ 0x80;
      expect(fingerprint(changed)).not.toBe(fingerprint(bytes));
    }),
  );
});
