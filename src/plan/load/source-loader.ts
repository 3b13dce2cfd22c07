/**
 * One source, as one lane sees it: reads ahead, transforms in the pool, and holds ready samples in order within bounds. What it holds decides
 * nothing: a sample is used when it is taken, and a loader that starts again from a position gives the same samples in the same order.
 */
import type { Env } from "../../index.js";
import type { ResolvedSource } from "../source/source.js";
import type { CursorItem, SourceCursor, SourcePosition } from "../source/source-cursor.js";
import { attemptsOf, type Fault, stopFor, stopForSetup } from "./fault.js";
import { orAborted } from "./or-aborted.js";
import { asPrepared, metaOf, type PreparedSample } from "./prepared-sample.js";
import type { SampleMeta } from "./sample-meta.js";
import type { FigureCounter } from "./source-figures.js";
import type { Transform } from "./transform.js";
import type { ChainOutput } from "./transform-chain.js";
import type { TransformPool } from "./transform-pool.js";

/** A sample that is ready to be planned, with what was left out since the one before it. */
export interface LoadedSample {
  readonly meta: SampleMeta;
  readonly value: PreparedSample;
  readonly faults: readonly Fault[];
  /** The source's position past it. */
  readonly after: SourcePosition;
}

/** The end of a source, with what was left out before it. */
export interface LoadedEnd {
  readonly meta?: undefined;
  readonly faults: readonly Fault[];
  readonly after: SourcePosition;
}

/** What is done with a sample that is longer than a sequence. Either way it is recorded. */
export type TooLong = "truncate" | "skip" | "stop";

/** Bounds and rules of a {@link SourceLoader}. */
export interface LoaderSettings {
  /** Samples read ahead at most. */
  readonly bufferSamplesMax: number;
  /** Bytes read ahead at most (one group of samples is always allowed). */
  readonly bufferBytesMax: number;
  readonly tokensMax: number;
  readonly vocabSize?: number | undefined;
  readonly tooLong: TooLong;
}

interface Slot {
  readonly item: CursorItem;
  result: Promise<{ meta: SampleMeta; value: PreparedSample; notes: readonly Fault[] } | { fault: Fault }>;
}

/** Samples that go to a thread together: enough to make the way there worth it. */
const groupSamplesMax = 16;

/** Reads ahead for one lane of one source. */
export class SourceLoader {
  readonly #source: ResolvedSource;
  readonly #cursor: SourceCursor;
  readonly #pool: TransformPool;
  readonly #env: Env;
  readonly #settings: LoaderSettings;
  readonly #counter: FigureCounter;
  readonly #chain: readonly Transform[];
  readonly #slots: Slot[] = [];
  #faults: Fault[] = [];
  #head: LoadedSample | undefined;
  #ended: LoadedEnd | undefined;
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
    },
    settings: LoaderSettings,
  ) {
    this.#source = parts.source;
    this.#cursor = parts.cursor;
    this.#pool = parts.pool;
    this.#env = parts.env;
    this.#counter = parts.counter;
    this.#settings = settings;
    this.#chain = (parts.source.settings.transforms ?? []).filter(({ at }) => at === "loader");
  }

  /** Metadata of what is buffered and ready, without payloads; the head first. */
  get buffered(): number {
    return this.#slots.length + (this.#head ? 1 : 0);
  }

  /** The next sample, which stays until {@link take}; or the end. Nothing is opened before the first call. */
  async peek(signal?: AbortSignal | undefined): Promise<LoadedSample | LoadedEnd> {
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
        continue;
      }
      this.#counter.tally.good();
      this.#head = {
        meta: result.meta,
        value: result.value,
        faults: [...this.#faults, ...result.notes],
        after: slot.item.after,
      };
      this.#faults = [];
    }
    this.#prefetch();
    return this.#head;
  }

  /** Uses what {@link peek} showed: the sample, or at the end of the source the faults before it, which are then told only once. */
  take(): void {
    if (this.#ended) this.#ended = { faults: [], after: this.#ended.after };
    if (!this.#head) return;
    const bytes = this.#head.meta.bytes ?? 0;
    this.#bytes -= bytes;
    this.#counter.buffer(-bytes);
    this.#counter.samples++;
    this.#counter.tokens += this.#head.meta.tokens;
    this.#head = undefined;
    this.#prefetch();
  }

  /** Nothing was ready: reads, and from now on reads further ahead. */
  async #refill(signal: AbortSignal | undefined): Promise<void> {
    if (this.#failure) throw this.#failure.error;
    if (this.#sourceEnded) {
      this.#ended = { faults: this.#faults, after: this.#cursor.position };
      return;
    }
    if (!this.#filling) this.#ahead = Math.min(this.#settings.bufferSamplesMax, 2 * this.#ahead);
    await orAborted(this.#filling ?? this.#fill(signal), signal);
  }

  /** In the background, when half of what is allowed has been used. A failure waits until somebody needs the sample. */
  #prefetch(): void {
    const isLow = 2 * this.#slots.length < this.#ahead && this.#bytes < this.#settings.bufferBytesMax;
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
      const group: CursorItem[] = [];
      const count = Math.min(groupSamplesMax, Math.max(1, this.#ahead - this.#slots.length));
      while (group.length < count) {
        const item = await this.#cursor.next(signal);
        if (!item) {
          this.#sourceEnded = true;
          break;
        }
        group.push(item);
      }
      this.#transform(group);
    } while (!this.#sourceEnded && this.#slots.length < this.#ahead && this.#bytes < this.#settings.bufferBytesMax);
  }

  #transform(group: readonly CursorItem[]): void {
    const readable = group.filter((item) => item.raw);
    const inputs = readable.map((item) => ({ source: this.#source.name, id: item.id, value: item.raw?.value }));
    const outputs = this.#pool.run(this.#chain, inputs);
    outputs.catch(() => {});
    for (const item of group) {
      const { fault } = item;
      const result = fault
        ? Promise.resolve({ fault })
        : outputs.then((list) => this.#finish(item, list[readable.indexOf(item)] as ChainOutput));
      result.catch(() => {});
      this.#slots.push({ item, result });
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
      output = (await this.#pool.run(this.#chain, [input]))[0] as ChainOutput;
    }
    if (output.setup) throw stopForSetup(this.#source.name, output.setup, output.error as string);
    if (output.error !== undefined) return { fault: this.#leaveOut(item.id, "transform", output.error, attempt) };
    this.#counter.transformMs += output.ms;
    return this.#prepare(item, output);
  }

  #prepare(item: CursorItem, output: ChainOutput): Awaited<Slot["result"]> {
    const { tokensMax, tooLong, vocabSize } = this.#settings;
    const checked = asPrepared(output.value, { source: this.#source.name, id: item.id, vocabSize });
    if ("garbage" in checked) return { fault: this.#leaveOut(item.id, "transform", checked.garbage, 1) };
    let value = checked;
    if (value.tokens.length === 0)
      return {
        fault: { source: this.#source.name, id: item.id, stage: "empty", reason: "it has no tokens", attempts: 1 },
      };
    const notes: Fault[] = [];
    if (value.tokens.length > tokensMax) {
      const fault = { source: this.#source.name, id: item.id, stage: "length" as const, attempts: 1 };
      const reason = `${value.tokens.length} tokens do not fit into a sequence of ${tokensMax}`;
      if (tooLong === "stop") throw stopFor({ ...fault, reason });
      if (tooLong === "skip") return { fault: { ...fault, reason } };
      notes.push({ ...fault, reason: `${reason}: truncated` });
      this.#counter.truncated++;
      value = truncate(value, tokensMax);
      if (value.tokens.length === 0) return { fault: { ...fault, reason: `${reason}, nor does its first image` } };
    }
    const bytes = output.bytes.at(-1) ?? 0;
    this.#counter.addStages(0, output.bytes);
    this.#bytes += bytes;
    this.#counter.buffer(bytes);
    return { meta: metaOf(value, this.#source.name, item.id, bytes), value, notes };
  }

  #leaveOut(id: string, stage: Fault["stage"], reason: string, attempts: number): Fault {
    const fault = { source: this.#source.name, id, stage, reason, attempts };
    if (!attemptsOf(this.#source.settings).isSkipped) throw stopFor(fault);
    return fault;
  }
}

/** The first `tokensMax` tokens. An image that would be cut goes as a whole, and its placeholders with the rest. */
function truncate(value: PreparedSample, tokensMax: number): PreparedSample {
  const images = value.images?.filter((image) => image.at + image.tokens <= tokensMax);
  const cut = value.images?.find((image) => image.at < tokensMax && image.at + image.tokens > tokensMax);
  const length = cut ? cut.at : tokensMax;
  const { lossMask } = value;
  return {
    ...value,
    tokens: value.tokens.slice(0, length),
    ...(lossMask ? { lossMask: lossMask.slice(0, length) } : {}),
    ...(images ? { images } : {}),
  };
}
