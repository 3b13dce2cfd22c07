/**
 * Property: a buffer that was filled again, or whose beginning or end changed, has another fingerprint; the same bytes have the same.
 * Method: sizes around the windows' edges, random refills.
 */
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

test("up to 48 bytes every one counts; of more, sixteen at each end and in the middle", () => {
  for (const size of [1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 100, 1_001]) {
    const bytes = Uint8Array.from({ length: size }, (_, i) => i * 7);
    const middle = Math.floor((size - 16) / 2);
    for (let at = 0; at < size; at++) {
      if (size > 48 && at >= 16 && at < size - 16 && (at < middle || at >= middle + 16)) continue;
      const changed = bytes.slice();
      changed[at] = (changed[at] as number) ^ 0x80;
      expect([size, at, fingerprint(changed) === fingerprint(bytes)]).toEqual([size, at, false]);
    }
  }
});
