/**
 * A source's samples out of its log, for one constructor lane: lane k of K takes the blocks b with b mod K = k, so that no block is read twice. Planning sees
 * tables alone; the bytes of a sample are read once it was chosen, neighbours in one read.
 */
import {
  BatchWeaveError,
  checkSample,
  decodeSampleTable,
  type Env,
  isBatchWeaveError,
  type SampleEntry,
  type SampleTable,
  type StepReader,
} from "../../index.js";
import type { Fault } from "../load/fault.js";
import { asPrepared, type PreparedSample } from "../load/prepared-sample.js";
import type { SampleSupply, SuppliedSample, SupplyEnd, SupplyStart } from "../load/sample-supply.js";
import type { FigureCounter } from "../load/source-figures.js";
import { decodeSample } from "./sample-codec.js";

/** Where a constructor lane stands in a source log. */
export type BlockPosition = readonly [block: number, passed: number];

/** By which the bytes of a sample are found. */
interface BlockHandle {
  readonly block: number;
  readonly entry: SampleEntry;
}

/** What a supply works with. */
interface BlockSupplyParts {
  readonly source: string;
  readonly reader: StepReader;
  readonly env: Env;
  /** Tokens of a sequence; a sample that has more was loaded for another pipeline. */
  readonly tokensMax?: number | undefined;
  readonly vocabSize?: number | undefined;
  /** Asked before the first block is read: throws where the log is of another pipeline. */
  readonly check?: ((block: number) => Promise<void>) | undefined;
  /** Where waits are counted. */
  readonly counter?: FigureCounter | undefined;
  /** Told when a block has been waited for for a while, and again now and then. */
  readonly onWanted?: ((block: number) => void) | undefined;
  /** Told when it has come. */
  readonly onGot?: (() => void) | undefined;
}

/** Blocks whose tables are read ahead, where they are in the log already. */
const tablesAhead = 2;
/** Samples with a smaller gap between them are read together, up to so many bytes. */
const gapBytesMax = 65_536;
const readBytesMax = 16_777_216;
/** A block that has not come by then is wanted. */
const wantedMs = 500;

/** Supplies one lane with one source's samples. */
export class BlockSupply implements SampleSupply {
  readonly #parts: BlockSupplyParts;
  readonly #lanes: number;
  /** Tables by block: the one in use, and those read ahead. */
  readonly #tables = new Map<number, Promise<SampleTable>>();
  #block: number;
  #passed: number;
  #table: SampleTable | undefined;
  #head: SuppliedSample | undefined;
  #ended: SupplyEnd | undefined;
  /** Of blocks that were passed since the last sample. */
  #faults: Fault[] = [];

  constructor(parts: BlockSupplyParts, part: { readonly lane: number; readonly lanes: number }, { at }: SupplyStart) {
    this.#parts = parts;
    this.#lanes = part.lanes;
    [this.#block, this.#passed] = (at as BlockPosition | undefined) ?? [part.lane, 0];
  }

  get buffered(): number {
    if (this.#ended) return 0;
    return Math.max(0, (this.#table?.samples.length ?? 0) - this.#passed);
  }

  async peek(signal?: AbortSignal | undefined): Promise<SuppliedSample | SupplyEnd> {
    while (!this.#head) {
      if (this.#ended) return this.#ended;
      this.#table ??= await this.#next(signal);
      if (!this.#table) {
        this.#ended = { faults: this.#faults, after: { at: [this.#block, 0] satisfies BlockPosition, used: 0 } };
        continue;
      }
      const { samples, faults } = this.#table;
      const here = faults.filter(([at]) => at === this.#passed).map(([, fault]) => fault as Fault);
      const entry = samples[this.#passed];
      if (!entry) {
        this.#faults.push(...here);
        this.#tables.delete(this.#block);
        [this.#block, this.#passed, this.#table] = [this.#block + this.#lanes, 0, undefined];
        continue;
      }
      this.#head = this.#sample(entry, [...this.#faults, ...here]);
      this.#faults = [];
    }
    return this.#head;
  }

  #sample(entry: SampleEntry, faults: readonly Fault[]): SuppliedSample {
    const { id, tokens, images, features, length } = entry;
    const { tokensMax = Number.POSITIVE_INFINITY, source } = this.#parts;
    if (tokens > tokensMax)
      throw new BatchWeaveError(
        "LIMIT",
        `Sample ${JSON.stringify(id)} in block ${this.#block} of source ${source} has ${tokens} tokens, and a sequence of this pipeline ${tokensMax}. Load the source for sequences of that length into another log (exchange.uri); in Python with tokens_max=${tokensMax}.`,
        { source, block: this.#block, id, tokens },
      );
    return {
      meta: {
        source: this.#parts.source,
        id,
        tokens,
        bytes: length,
        ...(images ? { images } : {}),
        ...(features ? { features } : {}),
      },
      faults,
      after: { at: [this.#block, this.#passed + 1] satisfies BlockPosition, used: 0 },
      handle: { block: this.#block, entry } satisfies BlockHandle,
    };
  }

  take(): void {
    if (this.#ended) this.#ended = { faults: [], after: this.#ended.after };
    if (!this.#head) return;
    this.#head = undefined;
    this.#passed++;
  }

  /** The table of the block at hand; undefined when the log was closed before it. Those behind it that are in the log already are begun. */
  async #next(signal: AbortSignal | undefined): Promise<SampleTable | undefined> {
    const { reader } = this.#parts;
    if (this.#block >= reader.end && !(await this.#reach(signal))) return undefined;
    await this.#parts.check?.(this.#block);
    const table = this.#read(this.#block);
    for (let i = 1; i <= tablesAhead; i++) {
      const ahead = this.#block + i * this.#lanes;
      if (ahead < reader.end) this.#read(ahead);
    }
    return await table;
  }

  async #reach(signal: AbortSignal | undefined): Promise<boolean> {
    const { reader, env, counter, onWanted, onGot } = this.#parts;
    const stopWaiting = counter?.wait(env);
    const reached = new AbortController();
    let isTold = false;
    const tell = async (): Promise<void> => {
      for (let waitMs = wantedMs; ; waitMs = Math.min(10_000, 2 * waitMs)) {
        await env.sleep(waitMs, reached.signal);
        isTold = true;
        onWanted?.(this.#block);
      }
    };
    if (onWanted) tell().catch(() => {});
    try {
      return await reader.reach(this.#block, { signal });
    } finally {
      reached.abort();
      stopWaiting?.();
      if (isTold) onGot?.();
    }
  }

  #read(block: number): Promise<SampleTable> {
    const held = this.#tables.get(block);
    if (held) return held;
    const table = this.#readTable(block);
    this.#tables.set(block, table);
    // Not remembered: who needs it tries again.
    table.catch(() => this.#tables.delete(block));
    return table;
  }

  async #readTable(block: number): Promise<SampleTable> {
    const { reader, source } = this.#parts;
    const where = `Block ${block} of source ${source}`;
    const [bytes, payloadBytes] = await Promise.all([
      reader.slice({ step: block, row: 0, chunk: 0 }),
      reader.sliceBytes({ step: block, row: 0, chunk: 1 }),
    ]);
    const table = decodeSampleTable(bytes, payloadBytes, where);
    if (table.source === source) return table;
    throw new BatchWeaveError(
      "CORRUPT",
      `${where} is of source ${JSON.stringify(table.source)}: another log lies in its place.`,
      { block },
    );
  }

  async fetch(samples: readonly SuppliedSample[], signal?: AbortSignal | undefined): Promise<PreparedSample[]> {
    const handles = samples.map(({ handle }) => handle as BlockHandle);
    const values = new Array<PreparedSample>(samples.length);
    const blocks = new Set(handles.map(({ block }) => block));
    await Promise.all(
      [...blocks].map(async (block) => {
        const members = [...handles.keys()].filter((i) => handles[i]?.block === block);
        const entries = members.map((i) => (handles[i] as BlockHandle).entry);
        const found = await this.#fetchBlock(block, entries, signal);
        members.forEach((i, k) => {
          values[i] = found[k] as PreparedSample;
        });
      }),
    );
    return values;
  }

  /** Its writer may not have looked as closely as our loaders do. */
  #checked(value: PreparedSample, { id, tokens }: SampleEntry, where: string): PreparedSample {
    const { source, vocabSize } = this.#parts;
    const found = asPrepared(value, { source, id, vocabSize });
    const garbage =
      "garbage" in found
        ? found.garbage
        : found.tokens.length === tokens
          ? undefined
          : `it has ${found.tokens.length} tokens, and its table says ${tokens}`;
    if (garbage === undefined) return found as PreparedSample;
    const message = `${where} holds a sample that cannot be used, ${JSON.stringify(id)}: ${garbage}. Mend its loader, and load into another log (exchange.uri).`;
    throw new BatchWeaveError("CORRUPT", message, { source, id });
  }

  async #fetchBlock(
    block: number,
    entries: readonly SampleEntry[],
    signal: AbortSignal | undefined,
  ): Promise<PreparedSample[]> {
    const where = `Block ${block} of source ${this.#parts.source}`;
    const runs = runsOf(entries);
    // Bytes can be damaged on their way: one more read before the block is called corrupt.
    for (let isSecond = false; ; isSecond = true) {
      const read = await this.#parts.reader.parts({ step: block, row: 0, chunk: 1 }, runs, { signal });
      try {
        return entries.map((entry) => {
          const r = runs.findIndex(
            ({ offset, length }) => entry.offset >= offset && entry.offset + entry.length <= offset + length,
          );
          const start = entry.offset - (runs[r] as Run).offset;
          const bytes = (read[r] as Uint8Array).subarray(start, start + entry.length);
          return this.#checked(decodeSample(checkSample(bytes, entry, where), where, entry.features), entry, where);
        });
      } catch (error) {
        if (isSecond || !isBatchWeaveError(error, "CORRUPT")) throw error;
      }
    }
  }
}

interface Run {
  readonly offset: number;
  readonly length: number;
}

/** As few reads as possible that hold all entries. Entries are in the order of their block, or nearly. */
function runsOf(entries: readonly SampleEntry[]): Run[] {
  const runs: Run[] = [];
  for (const { offset, length } of [...entries].sort((a, b) => a.offset - b.offset)) {
    const last = runs.at(-1);
    const end = last ? last.offset + last.length : 0;
    if (last && offset - end <= gapBytesMax && offset + length - last.offset <= readBytesMax)
      runs[runs.length - 1] = { offset: last.offset, length: Math.max(end, offset + length) - last.offset };
    else runs.push({ offset, length });
  }
  return runs;
}
