/** What simulated producers put into batches: bytes that say who made them, as what, and for which cell. */
import type { Grid } from "../../src/format/index.js";
import { Violation } from "../oracle/violation.js";
import { mix, type Rng } from "../world/random.js";

/** One batch as a producer process means it. `variant` names the process: another holder builds other bytes for the same counter. */
export interface BatchIdentity {
  readonly producer: string;
  readonly counter: number;
  readonly variant: string;
}

const separator = "|";
const encoder = new TextEncoder();
const decoder = new TextDecoder("latin1");

/** Bytes of one cell: a readable head, then filling that depends on all of it. */
export function sliceBytes(batch: BatchIdentity, cell: number, length: number): Uint8Array {
  const head = encoder.encode([batch.producer, batch.counter, batch.variant, cell, length, ""].join(separator));
  const out = new Uint8Array(Math.max(head.length, length));
  out.set(head);
  let state = mix(cell + 1);
  for (const byte of head) state = Math.imul(state ^ byte, 0x01000193);
  for (let i = head.length; i < out.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    out[i] = state >>> 24;
  }
  return out;
}

/** Every slice of a batch, row-major. */
export function batchSlices(batch: BatchIdentity, grid: Grid, lengthOf: (cell: number) => number): Uint8Array[] {
  return Array.from({ length: grid.rows * grid.chunks }, (_, cell) => sliceBytes(batch, cell, lengthOf(cell)));
}

/** Mostly a few dozen bytes, now and then some thousands: extents and ranges of every shape. */
export function drawLength(rng: Rng): number {
  return rng.chance(0.05) ? rng.below(3000) : 24 + rng.below(40);
}

/** Reads a slice back and checks that every byte is what its own head says. */
export function readSlice(bytes: Uint8Array, where: string): BatchIdentity & { readonly cell: number } {
  const text = decoder.decode(bytes.subarray(0, 120)).split(separator);
  const [producer = "", counter = "", variant = "", cell = "", length = ""] = text;
  const identity = { producer, counter: Number(counter), variant };
  const expected = sliceBytes(identity, Number(cell), Number(length));
  if (Buffer.compare(bytes, expected) !== 0)
    throw new Violation("content", `${where} holds bytes that no producer made: ${text.slice(0, 5).join(separator)}`);
  return { ...identity, cell: Number(cell) };
}

/** One string per identity. */
export function identityKey({ producer, counter, variant }: BatchIdentity): string {
  return `${producer}/${counter}/${variant}`;
}
