/** What a consumer hands to the trainer. */
import { type Cursor, decodeSafetensors, type JoinOptions, joinTensors, type Tensor } from "../format/index.js";
import type { Cell } from "./projection.js";

/** The bytes of one cell. They may be a view into a larger buffer: copy them to keep one slice of many for long. */
export interface Slice extends Cell {
  readonly bytes: Uint8Array;
}

/** What one rank gets in one iteration. */
export interface Share {
  /** The same number on every rank, whatever the mesh. */
  readonly iteration: number;
  /** Rows ascending, chunks within a row in the order of the sequence. */
  readonly slices: readonly Slice[];
  /** How many rows are in `slices`. */
  readonly rows: number;
  /** Where this iteration began: start from it to get this very share again. */
  readonly cursor: Cursor;
  /** Where the next iteration begins: save it with the training checkpoint. The same on every rank. */
  readonly next: Cursor;
}

/**
 * The tensors of a share by name: chunks of a row joined, then rows, along the axes that the slices name. A field that no slice holds is absent.
 * Refuses a field whose slices do not say how, unless their shape leaves one way only: name the `fields` you want.
 */
export function joinShare(share: Share, options: JoinOptions = {}): Map<string, Tensor> {
  const files = share.slices.map(({ bytes, step, row, chunk }) =>
    decodeSafetensors(bytes, `slice ${step}/${row}/${chunk}`),
  );
  return joinTensors(files, share.rows, options);
}
