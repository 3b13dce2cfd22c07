/** What the chaos script's producers write: bytes that follow from producer id, counter and cell, so that any reader can check them. */
import { createHash } from "node:crypto";

/** The grid of the chaos namespace. */
export const chaosGrid = { rows: 4, chunks: 2 } as const;

/** The mesh of its ranks. */
export const chaosMesh = { dp: 2, cp: 2 } as const;

/** One slice. Its size varies, so that offsets do too. */
export function chaosSlice(producer: string, counter: number, row: number, chunk: number): Uint8Array {
  const name = `${producer}/${counter}/${row}/${chunk}`;
  const seed = createHash("sha256").update(name).digest();
  const length = 64 + (seed.readUInt16LE(0) % 448);
  return Buffer.concat(
    Array.from({ length: Math.ceil(length / 32) }, (_, i) =>
      createHash("sha256").update(seed).update(String(i)).digest(),
    ),
  ).subarray(0, length);
}

/** A whole batch in row-major order. */
export function chaosBatch(producer: string, counter: number): Uint8Array[] {
  const { rows, chunks } = chaosGrid;
  return Array.from({ length: rows * chunks }, (_, cell) =>
    chaosSlice(producer, counter, Math.floor(cell / chunks), cell % chunks),
  );
}

/** How slices are compared. */
export function digest(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("base64url").slice(0, 22);
}
