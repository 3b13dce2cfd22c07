/** Writes batches the way a producer does, without one: upload the objects, then commit their descriptors. */
import { openProducer } from "../../src/cadence/index.js";
import type { Env } from "../../src/env/index.js";
import {
  asStep,
  asVersion,
  type BatchName,
  batchKey,
  type Cursor,
  type Descriptor,
  encodeExtent,
  encodeNamespace,
  type Grid,
  type NamespaceSpec,
  namespaceKey,
  type Order,
  type StoredSlice,
} from "../../src/format/index.js";
import { type Holder, Log } from "../../src/log/index.js";
import type { ObjectStore } from "../../src/store/index.js";

export const uuid = "0d0c7a3e-5d1c-4f5e-9a53-2f4d2f6d8a11";

/** Says which cell of which batch these bytes are; the length differs from cell to cell. */
export function cellText(step: number, row: number, chunk: number): string {
  return `step ${step} row ${row} chunk ${chunk} ${"x".repeat((step * 7 + row * 3 + chunk) % 11)}`;
}

export function makeSpec(grid: Grid, order: Order = { kind: "commit" }): NamespaceSpec {
  return { format: 1, uuid, grid, order, created: 0, rest: {} };
}

export function openLog(store: ObjectStore, env: Env, spec: NamespaceSpec): Log {
  const openOrigin = async (): Promise<ObjectStore> => store;
  return new Log({ store, env, spec, openOrigin });
}

/** What a test may choose about a batch. */
export interface BatchChoice {
  /** Cells per object. Default: all in one. */
  cellsPerExtent?: number;
  slice?: (row: number, chunk: number) => StoredSlice;
}

/** One producer id. */
export class LogWriter {
  readonly log: Log;
  readonly #producer: string;
  #holder: Holder | undefined;
  #seq = 0;

  constructor(log: Log, producer = "p") {
    this.log = log;
    this.#producer = producer;
  }

  /** A committer looks now and then whether its namespace is still there. */
  async #open(): Promise<Holder> {
    await this.log.store.put(namespaceKey, encodeNamespace(this.log.spec));
    return (await openProducer(this.log, this.#producer)).holder;
  }

  /** Appends the batch that will be `step`, and returns its keys. */
  async append(step: number, choice: BatchChoice = {}): Promise<string[]> {
    this.#holder ??= await this.#open();
    const descriptor = await this.#upload(step, choice);
    for (let verdict: string | undefined; verdict !== "staged"; ) {
      const { result } = await this.log.attemptBatches(this.#holder, [descriptor], { fresh: true });
      verdict = result?.verdicts[0];
    }
    return descriptor.extents.map((_, extent) => batchKey(descriptor, extent));
  }

  async #upload(step: number, choice: BatchChoice): Promise<Descriptor> {
    const { grid } = this.log.spec;
    const slices: StoredSlice[] = [];
    for (let row = 0; row < grid.rows; row++)
      for (let chunk = 0; chunk < grid.chunks; chunk++)
        slices.push(choice.slice?.(row, chunk) ?? plain(Buffer.from(cellText(step, row, chunk))));
    const holder = this.#holder as Holder;
    const base = this.log.head.known?.version ?? asVersion(0);
    const name = { ...holder, seq: this.#seq++, attempt: 0, base } as BatchName;
    const size = choice.cellsPerExtent ?? slices.length;
    const extents: Descriptor["extents"][number][] = [];
    for (let firstCell = 0; firstCell < slices.length; firstCell += size) {
      const extent = extents.length;
      const cells = slices.slice(firstCell, firstCell + size);
      const { body, entry } = encodeExtent(uuid, name, { extent, firstCell }, cells, { resumePoint: step });
      await this.log.store.put(batchKey(name, extent), body);
      extents.push(entry);
    }
    return { ...name, extents };
  }
}

export function plain(bytes: Uint8Array): StoredSlice {
  return { bytes, rawLength: bytes.length, encoding: 0 };
}

/** Commits a new trim, as the reclaimer does first. */
export async function commitTrim(log: Log, step: number): Promise<void> {
  await log.commit(
    {
      by: "trim",
      kind: "own",
      stage: (draft) => {
        draft.trim = asStep(step);
        return { done: false, result: undefined };
      },
    },
    { fresh: true },
  );
}

/** JSON there and back, as a training checkpoint does it. */
export function saved(cursor: Cursor): string {
  return JSON.stringify(cursor);
}
