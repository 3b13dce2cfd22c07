/**
 * Synthetic batches. Content follows from (producer id, counter) alone, so that a batch that is built again has the very same bytes, and a
 * reader can tell which batch each slice came from without trusting the log.
 */
import { createHash } from "node:crypto";
import { encodeSafetensors, type Grid } from "../index.js";

/** Which batch, and how large its slices are. */
interface SyntheticBatch {
  readonly producer: string;
  /** Counts the batches of a producer from 0. */
  readonly counter: number;
  readonly grid: Grid;
  /** Bytes of each slice. */
  readonly sliceBytes: number;
  /** True: slices are safetensors files with `input_ids` and `labels`, of about `sliceBytes`. */
  readonly asTensors?: boolean | undefined;
}

/** All slices of a batch in row-major order. */
export function syntheticBatch(batch: SyntheticBatch): Uint8Array[] {
  const { rows, chunks } = batch.grid;
  return Array.from({ length: rows * chunks }, (_, cell) =>
    syntheticSlice(batch, Math.floor(cell / chunks), cell % chunks),
  );
}

/** One slice: a line that says what it is, if there is room, then bytes that look random. */
export function syntheticSlice(batch: SyntheticBatch, row: number, chunk: number): Uint8Array {
  const { producer, counter } = batch;
  const seed = createHash("sha256").update(`${producer}/${counter}/${row}/${chunk}`).digest();
  if (batch.asTensors) return tensorSlice(batch, seed);
  const line = Buffer.from(`${JSON.stringify({ producer, batch: counter, row, chunk })}\n`);
  const bytes = fill(batch.sliceBytes, seed);
  if (line.length <= bytes.length) bytes.set(line);
  return bytes;
}

/** xoshiro128** over the whole slice: fast enough that storing is what takes the time. */
function fill(length: number, seed: Buffer): Uint8Array {
  const words = new Uint32Array(Math.ceil(length / 4));
  let [a, b, c, d] = [seed.readInt32LE(0), seed.readInt32LE(4), seed.readInt32LE(8), seed.readInt32LE(12) | 1];
  for (let i = 0; i < words.length; i++) {
    const x = Math.imul(b, 5);
    words[i] = Math.imul((x << 7) | (x >>> 25), 9);
    const t = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= t;
    d = (d << 11) | (d >>> 21);
  }
  return new Uint8Array(words.buffer, 0, length);
}

const vocabulary = 50_304;

function tensorSlice({ sliceBytes }: SyntheticBatch, seed: Buffer): Uint8Array {
  const tokens = Math.max(1, Math.floor(sliceBytes / 8));
  const random = new Uint32Array(fill(tokens * 4, seed).slice().buffer);
  const ids = Int32Array.from(random, (word) => word % vocabulary);
  const labels = Int32Array.from(ids, (_, i) => ids[i + 1] ?? -100);
  const shape = [1, tokens];
  return encodeSafetensors({
    input_ids: { dtype: "I32", shape, data: ids },
    labels: { dtype: "I32", shape, data: labels },
  });
}
