/** Reads slices by step, whole or in parts: for readers that are no rank of a mesh, such as those that take a log's batches apart. */
import { isBatchWeaveError } from "../errors.js";
import { asStep, type Manifest } from "../format/index.js";
import type { Log } from "../log/index.js";
import type { CallOptions } from "../store/index.js";
import type { Slice } from "./share.js";
import { SliceReader } from "./slice-reader.js";
import { reclaimed } from "./start-position.js";
import { untilVisible } from "./visibility.js";

/** One slice of the log. */
export interface SlicePlace {
  readonly step: number;
  readonly row: number;
  readonly chunk: number;
}

const polling = { pollDelayMs: 20, pollDelayMsMax: 1_000 };
/** Who waits for seconds may wait for a process that takes a dead one's place: its own delay is not to be added. */
const soonMsMax = 150;

/** Reads a log's slices in any order. Keeps the tables of the batches it read last. */
export class StepReader {
  readonly #log: Log;
  readonly #reader: SliceReader;

  constructor(log: Log) {
    this.#log = log;
    this.#reader = new SliceReader(log, { readsInFlightMax: 8, footerBytesMax: 1_048_576 });
  }

  /** The first step that the newest manifest seen so far does not have: steps below it can be read without waiting. */
  get end(): number {
    return this.#log.head.known?.steps.end ?? 0;
  }

  /** Waits until a step is in the log. False: the log was closed before it. */
  async reach(step: number, options: CallOptions = {}): Promise<boolean> {
    const row = step * this.#log.spec.grid.rows;
    const steps = { first: step, last: step, row };
    return (await untilVisible(this.#log, steps, polling, { ...options, soonMsMax })) !== undefined;
  }

  /** The bytes of a slice, checked and decoded. Its step must have been reached. */
  async slice(place: SlicePlace, options: CallOptions = {}): Promise<Uint8Array> {
    return await this.#guard(place, options, async (manifest) => {
      const prepared = await this.#reader.prepare(manifest, [{ ...place, step: asStep(place.step) }], call(options));
      const [slice] = await this.#reader.fetch(prepared, call(options));
      return (slice as Slice).bytes;
    });
  }

  /** How many bytes a slice has. */
  async sliceBytes(place: SlicePlace, options: CallOptions = {}): Promise<number> {
    return await this.#guard(place, options, async (manifest) => {
      const prepared = await this.#reader.prepare(manifest, [{ ...place, step: asStep(place.step) }], call(options));
      return prepared.parts[0]?.wanted[0]?.entry.rawLength as number;
    });
  }

  /** Parts of a slice, without a check: the caller has checksums of its own. */
  async parts(
    place: SlicePlace,
    parts: readonly { readonly offset: number; readonly length: number }[],
    options: CallOptions = {},
  ): Promise<Uint8Array[]> {
    return await this.#guard(place, options, async (manifest) => {
      const prepared = await this.#reader.prepare(manifest, [{ ...place, step: asStep(place.step) }], call(options));
      return await this.#reader.fetchParts(prepared, parts, call(options));
    });
  }

  /** What is missing may have been reclaimed since: the newest manifest tells. */
  async #guard<T>(
    { step, row }: SlicePlace,
    options: CallOptions,
    read: (manifest: Manifest) => Promise<T>,
  ): Promise<T> {
    const { head, spec } = this.#log;
    const manifest = await head.newest(options);
    try {
      return await read(manifest);
    } catch (error) {
      if (!isBatchWeaveError(error, "MISSING_OBJECT")) throw error;
      const newest = await head.jump(options);
      if (step < newest.steps.trim) throw reclaimed(step * spec.grid.rows + row, newest, spec.grid.rows);
      if (newest.version === manifest.version) throw error;
      return await read(newest);
    }
  }
}

function call({ signal }: CallOptions): { readonly priority: number; readonly signal: AbortSignal | undefined } {
  return { priority: 0, signal };
}
