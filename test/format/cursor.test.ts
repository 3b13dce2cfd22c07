/**
 * Properties of cursors: they survive JSON, any damage of what matters is refused, hand-edited ones without a check are taken, and
 * nonsense is one clear error. Method: random cursors, every character of their text changed.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isBatchWeaveError } from "../../src/errors.js";
import { makeCursor, parseCursor } from "../../src/format/index.js";
import * as any from "./arbitrary.js";

const cursor = fc
  .tuple(any.uuid, any.whole, any.whole)
  .map(([uuid, row, iteration]) => makeCursor(uuid, row, iteration));

describe("cursors", () => {
  test("survive JSON, as text and as objects", () => {
    fc.assert(
      fc.property(cursor, (c) => {
        expect(parseCursor(JSON.stringify(c))).toEqual(c);
        expect(parseCursor(JSON.parse(JSON.stringify(c)))).toEqual(c);
        const { check: _, ...edited } = c;
        expect(parseCursor(edited)).toEqual(c);
      }),
    );
  });

  test("no change of a character gives another position", () => {
    fc.assert(
      fc.property(cursor, fc.constantFrom(...'0123456789abcdef"{}:,x '), (c, char) => {
        const text = JSON.stringify(c);
        for (let at = 0; at < text.length; at++) {
          const damaged = text.slice(0, at) + char + text.slice(at + 1);
          let read: unknown = c;
          try {
            read = parseCursor(damaged);
          } catch (error) {
            expect(isBatchWeaveError(error, "INVALID_ARGUMENT") || isBatchWeaveError(error, "UNSUPPORTED_FORMAT")).toBe(
              true,
            );
          }
          // A damaged name of a field that may be absent (`check`) leaves a cursor that is still the same.
          expect(read).toEqual(c);
        }
      }),
      { numRuns: 30 },
    );
  });

  test("nonsense is INVALID_ARGUMENT, a newer version UNSUPPORTED_FORMAT", () => {
    fc.assert(
      fc.property(fc.anything(), (value) => {
        let code: unknown = "none";
        try {
          parseCursor(value);
        } catch (error) {
          code = isBatchWeaveError(error) ? error.code : error;
        }
        expect(code).toBe("INVALID_ARGUMENT");
      }),
    );
    expect(() => parseCursor({ ...makeCursor("x", 1, 1), batchweave: 2 })).toThrow(/version 2/);
  });
});
