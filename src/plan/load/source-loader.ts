/**
 * One source, as one lane sees it: reads ahead, transforms in the pool, and holds ready samples in order within bounds. What it holds decides
 * nothing: a sample is used when it is taken, and a loader that starts again from a position gives the same samples in the same order.
 */
import { BatchWeaveError, type Env } from "../../index.js";
import type { ResolvedSource } from "../source/source.js";
import type { CursorItem, SourceCursor, SourcePosition } from "../source/source-cursor.js";
import type { BufferBudget } from "./buffer-budget.js";
import { attemptsOf, type Fault, stopFor, stopForSetup } from "./fault.js";
import type { DropLimits } from "./fault-tally.js";
import { orAborted } from "./or-aborted.js";
import { asPrepared, metaOf, type PreparedSample } from "./prepared-sample.js";
import type { SampleMeta } from "./sample-meta.js";
import { pieceId, splitSample } from "./sample-pieces.js";
import type { LoadedSample, SampleSupply, SuppliedSample, SupplyEnd } from "./sample-supply.js";
import type { FigureCounter } from "./source-figures.js";
import type { Transform } from "./transform.js";
import type { ChainOutput } from "./transform-chain.js";
import type { TransformPool } from "./transform-pool.js";

/** What is done with a sample that is longer than a sequence. `split`: pieces of it become samples. `truncate`, `skip`: the rest, or all, is dropped and recorded. */
export type TooLong = "split" | "truncate" | "skip" | "stop";

/** Bounds and rules of a {@link SourceLoader}. */
interface LoaderSettings extends DropLimits {
  /** Samples read ahead at most. */
  readonly bufferSamplesMax: number;
  /** Bytes read ahead, shared by all loaders of a process. */
  readonly budget: BufferBudget;
  readonly vocabSize?: number | undefined;
  readonly tooLong: TooLong;
}

interface Piece {
  readonly meta: SampleMeta;
  readonly value: PreparedSample;
}

interface Slot {
  readonly item: CursorItem;
  /** The source's position before it, where a document that is half used is found again. */
  readonly before: SourcePosition;
  /** The sample, or its pieces; or why it is left out. */
  readonly result: Promise<
    { readonly pieces: readonly Piece[]; readonly notes: readonly Fault[] } | { readonly fault: Fault }
  >;
}

/** Samples that go to a thread together: enough to make the way there worth it. */
const groupSamplesMax = 16;

/** Reads ahead for one lane of one source. */
export class SourceLoader implements SampleSupply {
  readonly #source: ResolvedSource;
  readonly #cursor: SourceCursor;
  readonly #pool: TransformPool;
  readonly #env: Env;
  readonly #settings: LoaderSettings;
  readonly #counter: FigureCounter;
  readonly #chain: readonly Transform[];
  readonly #slots: Slot[] = [];
  /** Pieces of one document that follow the head, in order. */
  #rest: LoadedSample[] = [];
  #used: number;
  #faults: Fault[] = [];
  #head: LoadedSample | undefined;
  #ended: SupplyEnd | undefined;
  #filling: Promise<void> | undefined;
  #failure: { readonly error: unknown } | undefined;
  #ahead = 4;
  #bytes = 0;
  #sourceEnded = false;

  constructor(
    parts: {
      readonly source: ResolvedSource;
      readonly cursor: SourceCursor;
      readonly pool: TransformPool;
      readonly env: Env;
      readonly counter: FigureCounter;
      /** Pieces that were used of the first document. */
      readonly used?: number | undefined;
    },
    settings: LoaderSettings,
  ) {
    this.#used = parts.used ?? 0;
    this.#source = parts.source;
    this.#cursor = parts.cursor;
    this.#pool = parts.pool;
    this.#env = parts.env;
    this.#counter = parts.counter;
    this.#settings = settings;
    settings.budget.join();
    this.#chain = (parts.source.settings.transforms ?? []).filter(({ at }) => at === "loader");
  }

  get buffered(): number {
    return this.#slots.length + this.#rest.length + (this.#head ? 1 : 0);
  }

  async fetch(samples: readonly SuppliedSample[]): Promise<PreparedSample[]> {
    return samples.map(({ handle }) => handle as PreparedSample);
  }

  async peek(signal?: AbortSignal | undefined): Promise<LoadedSample | SupplyEnd> {
    if (this.#head) this.#prefetch();
    if (this.#head || this.#ended) return this.#head ?? (this.#ended as SupplyEnd);
    const stopWaiting = this.#counter.wait(this.#env);
    try {
      return await this.#await(signal);
    } finally {
      stopWaiting();
    }
  }

  async #await(signal: AbortSignal | undefined): Promise<LoadedSample | SupplyEnd> {
    while (!this.#head) {
      if (this.#ended) return this.#ended;
      const slot = this.#slots[0];
      if (!slot) {
        await this.#refill(signal);
        continue;
      }
      const result = await orAborted(slot.result, signal);
      this.#slots.shift();
      if ("fault" in result) {
        this.#faults.push(result.fault);
        this.#counter.tally.add(result.fault);
        if (result.fault.tokens) this.#counter.tally.drop(result.fault.tokens, this.#settings);
        continue;
      }
      this.#begin(slot, result.pieces, result.notes);
    }
    this.#prefetch();
    return this.#head;
  }

  /** The pieces of a sample, which has one or many, are next. */
  #begin({ before, item }: Slot, pieces: readonly Piece[], notes: readonly Fault[]): void {
    const used = this.#used;
    this.#used = 0;
    if (used >= pieces.length) {
      throw new BatchWeaveError(
        "CORRUPT",
        `Source ${this.#source.name} has changed: sample ${item.id} has ${pieces.length} pieces now, and ${used} of more were used. Continue with the source as it was, or write to a new namespace.`,
        { source: this.#source.name, id: item.id },
      );
    }
    this.#counter.tally.good(pieces.reduce((sum, { meta }) => sum + meta.tokens, 0));
    if (pieces.length > 1) this.#counter.split++;
    for (const note of notes) this.#counter.tally.drop(note.tokens ?? 0, this.#settings);
    const loaded = pieces.map((piece, k) => ({
      ...piece,
      handle: piece.value,
      faults: k === 0 ? [...this.#faults, ...notes] : [],
      after: k + 1 < pieces.length ? { at: before, used: k + 1 } : { at: item.after, used: 0 },
    }));
    this.#faults = [];
    for (const { meta } of loaded.splice(0, used)) this.#release(meta);
    [this.#head, ...this.#rest] = loaded;
  }

  #hold(bytes: number): void {
    this.#bytes += bytes;
    this.#settings.budget.add(bytes);
  }

  #hasRoom(more = 0): boolean {
    return this.#settings.budget.hasRoom(this.#bytes + more);
  }

  #release(meta: SampleMeta): void {
    const bytes = meta.bytes ?? 0;
    this.#hold(-bytes);
    this.#counter.buffer(-bytes);
  }

  take(): void {
    if (this.#ended) this.#ended = { faults: [], after: this.#ended.after };
    if (!this.#head) return;
    this.#release(this.#head.meta);
    this.#counter.samples++;
    this.#counter.tokens += this.#head.meta.tokens;
    this.#head = this.#rest.shift();
    this.#prefetch();
  }

  /** Nothing was ready: reads, and from now on reads further ahead. */
  async #refill(signal: AbortSignal | undefined): Promise<void> {
    if (this.#failure) throw this.#failure.error;
    if (this.#sourceEnded) {
      this.#counter.tally.judgeDropped(this.#settings, true);
      this.#ended = { faults: this.#faults, after: { at: this.#cursor.position, used: 0 } };
      return;
    }
    if (!this.#filling) this.#ahead = Math.min(this.#settings.bufferSamplesMax, 2 * this.#ahead);
    await orAborted(this.#filling ?? this.#fill(signal), signal);
  }

  /** In the background, when half of what is allowed has been used. A failure waits until the sample is needed. */
  #prefetch(): void {
    const isLow = 2 * this.#slots.length < this.#ahead && this.#hasRoom();
    if (isLow && !this.#filling && !this.#sourceEnded && !this.#failure) void this.#fill(undefined);
  }

  #fill(signal: AbortSignal | undefined): Promise<void> {
    this.#filling = this.#fillOnce(signal)
      .catch((error: unknown) => {
        this.#failure = { error };
      })
      .finally(() => {
        this.#filling = undefined;
      });
    return this.#filling;
  }

  async #fillOnce(signal: AbortSignal | undefined): Promise<void> {
    do {
      const group: Pick<Slot, "item" | "before">[] = [];
      const count = Math.min(groupSamplesMax, Math.max(1, this.#ahead - this.#slots.length));
      // However full it is, one sample is always allowed.
      for (let bytes = 0; group.length < count && (group.length === 0 || this.#hasRoom(bytes)); ) {
        const before = this.#cursor.position;
        const begunMs = this.#env.monotonic();
        const item = await this.#cursor.next(signal);
        this.#counter.readMs += this.#env.monotonic() - begunMs;
        if (!item) {
          this.#sourceEnded = true;
          break;
        }
        group.push({ item, before });
        bytes += item.raw?.bytes ?? 0;
      }
      this.#transform(group);
    } while (!this.#sourceEnded && this.#slots.length < this.#ahead && this.#hasRoom());
  }

  #transform(group: readonly Pick<Slot, "item" | "before">[]): void {
    const readable = group.map(({ item }) => item).filter((item) => item.raw);
    const inputs = readable.map((item) => ({ source: this.#source.name, id: item.id, value: item.raw?.value }));
    const outputs = this.#pool.run(this.#chain, inputs, this.#source.settings.inFlightMax);
    outputs.catch(() => {});
    for (const { item, before } of group) {
      const { fault } = item;
      const result = fault
        ? Promise.resolve({ fault })
        : outputs.then((list) => this.#finish(item, list[readable.indexOf(item)] as ChainOutput));
      const rawBytes = item.raw?.bytes ?? 0;
      this.#hold(rawBytes);
      const made = (): void => this.#hold(-rawBytes);
      result.then(made, made);
      this.#slots.push({ item, before, result });
    }
  }

  async #finish(item: CursorItem, first: ChainOutput): ReturnType<() => Slot["result"]> {
    const { attempts } = attemptsOf(this.#source.settings);
    let output = first;
    let delayMs = this.#source.settings.retryDelayMs ?? 100;
    let attempt = 1;
    for (; output.error !== undefined && !output.setup && attempt < attempts; attempt++, delayMs *= 2) {
      await this.#env.sleep(delayMs);
      const input = { source: this.#source.name, id: item.id, value: item.raw?.value };
      output = (await this.#pool.run(this.#chain, [input], this.#source.settings.inFlightMax))[0] as ChainOutput;
    }
    if (output.setup) throw stopForSetup(this.#source.name, output.setup, output.error as string);
    if (output.error !== undefined) return { fault: this.#leaveOut(item.id, "transform", output.error, attempt) };
    this.#counter.transformMs += output.ms;
    return this.#prepare(item, output);
  }

  #prepare(item: CursorItem, output: ChainOutput): Awaited<Slot["result"]> {
    const { tokensMax, tooLong: rule, vocabSize } = this.#settings;
    const checked = asPrepared(output.value, { source: this.#source.name, id: item.id, vocabSize });
    if ("garbage" in checked) return { fault: this.#leaveOut(item.id, "transform", checked.garbage, 1) };
    const fault = { source: this.#source.name, id: item.id, attempts: 1 };
    const length = checked.tokens.length;
    if (length === 0) return { fault: { ...fault, stage: "empty", reason: "it has no tokens" } };
    const bytes = output.bytes.at(-1) ?? 0;
    if (length <= tokensMax) return { pieces: [this.#piece(checked, item.id, output, bytes)], notes: [] };
    const reason = `${length} tokens do not fit into a sequence of ${tokensMax}`;
    const tooLong = { ...fault, stage: "length" as const, reason };
    if (rule === "stop") throw stopFor(tooLong);
    if (rule === "skip") return { fault: { ...tooLong, tokens: length } };
    const pieces = splitSample(checked, tokensMax, rule === "truncate" ? 1 : undefined);
    if (!pieces) return { fault: { ...tooLong, reason: `${reason}, nor does one of its images`, tokens: length } };
    if (rule === "split") {
      const share = (piece: PreparedSample): number => Math.ceil((bytes * piece.tokens.length) / length);
      const named = pieces.map((piece, i) =>
        this.#piece(piece, pieceId(item.id, i + 1, pieces.length), i === 0 ? output : undefined, share(piece)),
      );
      return { pieces: named, notes: [] };
    }
    const { nextToken: _, ...first } = pieces[0] as PreparedSample;
    this.#counter.truncated++;
    const tokens = length - first.tokens.length;
    return {
      pieces: [this.#piece(first, item.id, output, bytes)],
      notes: [{ ...tooLong, reason: `${reason}: truncated`, tokens }],
    };
  }

  /** A sample that is ready, or a piece of one. Sizes are counted once, with the first. */
  #piece(value: PreparedSample, id: string, output: ChainOutput | undefined, bytes: number): Piece {
    if (output) this.#counter.addStages(0, output.bytes);
    this.#hold(bytes);
    this.#counter.buffer(bytes);
    return { meta: metaOf(value, this.#source.name, id, bytes), value };
  }

  #leaveOut(id: string, stage: Fault["stage"], reason: string, attempts: number): Fault {
    const fault = { source: this.#source.name, id, stage, reason, attempts };
    if (!attemptsOf(this.#source.settings).isSkipped) throw stopFor(fault);
    return fault;
  }
}
