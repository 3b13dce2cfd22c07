/**
 * A lane's way through a source. Epoch after epoch it takes its part of the shards (`shard-part.ts`): the shards of an epoch in an order decided by
 * the seed, windows as they lie in a shard, samples within a window in an order decided by the seed. The lanes together take every sample
 * once an epoch, and every byte is read by one of them; only a shard that cannot be divided, where there are too few of them, is read by several.
 */
import { type BatchWeaveError, type Env, isBatchWeaveError } from "../../index.js";
import { attemptsOf, type Fault, type FaultStage, reasonOf, stopFor } from "../load/fault.js";
import { hash32, permutation } from "../mix/random.js";
import { type Division, isWhole, ownsWindow, partsOf, type ShardPart } from "./shard-part.js";
import type { ShardPool } from "./shard-pool.js";
import type { RawSample, ShardPlace, ShardWindow } from "./shard-reader.js";
import type { ResolvedSource } from "./source.js";

/** `[epoch, which of the lane's parts, number of the window in it, its place, samples of it already passed]`: small JSON, good for the same source, seed and number of lanes. */
export type SourcePosition = readonly [
  epoch: number,
  turn: number,
  window: number,
  place: ShardPlace | null,
  passed: number,
];

/** What a cursor comes upon: a sample, or something that had to be left out. `after` is the position past it. */
export interface CursorItem {
  readonly id: string;
  readonly raw?: RawSample | undefined;
  readonly fault?: Fault | undefined;
  readonly after: SourcePosition;
}

/** Which part of a source a cursor takes. */
interface CursorPart {
  readonly seed: number | string;
  readonly lane: number;
  readonly lanes: number;
}

/** Reads a lane's samples in order. */
export class SourceCursor {
  readonly #source: ResolvedSource;
  readonly #pool: ShardPool;
  readonly #env: Env;
  readonly #part: CursorPart;
  #position: SourcePosition;
  #parts: { readonly epoch: number; readonly list: readonly ShardPart[] } | undefined;
  #inWindow: { readonly key: string; readonly order: Uint32Array } | undefined;
  /** Epochs in a row in which this lane found no sample: when every part of the source was tried, it has none, and the cursor does not loop for ever. */
  #dryEpochs = 0;
  #isDry = true;
  #isGone = false;

  constructor(source: ResolvedSource, pool: ShardPool, env: Env, part: CursorPart, from?: SourcePosition | undefined) {
    this.#source = source;
    this.#pool = pool;
    this.#env = env;
    this.#part = part;
    this.#position = from ?? [0, 0, 0, null, 0];
    // A position inside an epoch was reached by reading, so that epoch had samples.
    this.#isDry = from === undefined;
  }

  /** Past what {@link next} returned last. */
  get position(): SourcePosition {
    return this.#position;
  }

  /** The lane's next sample or fault; undefined when the source is exhausted. */
  async next(signal?: AbortSignal | undefined): Promise<CursorItem | undefined> {
    for (;;) {
      const [epoch, turn, number, place, passed] = this.#position;
      const part = this.#partsOf(epoch)[turn];
      if (!part) {
        const ended = this.#endEpoch(epoch);
        if (ended !== "more") return ended;
        continue;
      }
      const read = await this.#window(part, place ?? undefined, signal);
      if ("fault" in read) {
        this.#position = [epoch, turn + 1, 0, null, 0];
        return { id: read.fault.id, fault: read.fault, after: this.#position };
      }
      const { samples, next } = read;
      const isShared = this.#isShared(part);
      if (passed >= samples.length || (isShared && !ownsWindow(part, number))) {
        // No other lane reads it.
        if (!isShared) this.#pool.release(this.#source, part, place ?? undefined);
        this.#position = next === undefined ? [epoch, turn + 1, 0, null, 0] : [epoch, turn, number + 1, next, 0];
        continue;
      }
      const raw = samples[this.#windowOrder(epoch, part.shard, place, samples.length)[passed] as number] as RawSample;
      this.#position = [epoch, turn, number, place, passed + 1];
      this.#isDry = false;
      return this.#item(raw, part.shard);
    }
  }

  /** A shard that cannot be divided and is not all this lane's: its windows are dealt out. */
  #isShared(part: ShardPart): boolean {
    const { format, shards } = this.#source;
    return !isWhole(part) && format.division(shards[part.shard] as string) === "none";
  }

  #item(raw: RawSample, shard: number): CursorItem {
    const id = `${shard}:${raw.id}`;
    if (raw.error === undefined) return { id, raw, after: this.#position };
    const fault = this.#fault(id, "sample", raw.error, 1);
    return { id, fault, after: this.#position };
  }

  #fault(id: string, stage: FaultStage, reason: string, attempts: number, cause?: unknown): Fault {
    const fault = { source: this.#source.name, id, stage, reason, attempts };
    if (!attemptsOf(this.#source.settings).isSkipped) throw stopFor(fault, cause);
    return fault;
  }

  #endEpoch(epoch: number): CursorItem | undefined | "more" {
    const { epochs = Number.POSITIVE_INFINITY } = this.#source.settings;
    const { lanes } = this.#part;
    this.#dryEpochs = this.#isDry ? this.#dryEpochs + 1 : 0;
    // A lane may find nothing in one epoch, where it has another lane's part of the next.
    const hasNone = this.#dryEpochs >= (lanes === 1 ? 1 : 4 * lanes);
    if (this.#isGone || (epoch + 1 >= epochs && !hasNone)) return undefined;
    if (hasNone) {
      this.#isGone = true;
      const fault = this.#fault("*", "source", "none of its shards has a sample that can be read", 1);
      return { id: "*", fault, after: this.#position };
    }
    this.#position = [epoch + 1, 0, 0, null, 0];
    this.#isDry = true;
    return "more";
  }

  async #window(
    part: ShardPart,
    place: ShardPlace | undefined,
    signal: AbortSignal | undefined,
  ): Promise<ShardWindow | { readonly fault: Fault }> {
    const { attempts } = attemptsOf(this.#source.settings);
    let delayMs = this.#source.settings.retryDelayMs ?? 100;
    for (let attempt = 1; ; attempt++, delayMs *= 2) {
      try {
        return await this.#pool.window(this.#source, part, place, signal);
      } catch (error) {
        signal?.throwIfAborted();
        // A package that is not installed, or a column that does not exist, is no bad shard.
        if (isBatchWeaveError(error) && error.remedy === "fix") throw error;
        if (attempt < attempts) {
          await this.#env.sleep(delayMs, signal);
          continue;
        }
        const name = this.#source.shards[part.shard] as string;
        const id = `${name.slice(name.lastIndexOf("/") + 1)}${place === undefined ? "" : ` at ${JSON.stringify(place)}`}`;
        return { fault: this.#fault(id, "shard", reasonOf(error), attempt, error as BatchWeaveError) };
      }
    }
  }

  #partsOf(epoch: number): readonly ShardPart[] {
    if (this.#parts?.epoch === epoch) return this.#parts.list;
    const { shards, sizes, format, name, settings } = this.#source;
    const { seed, lane, lanes } = this.#part;
    const order =
      (settings.shuffle ?? true)
        ? permutation(shards.length, seed, name, "shards", epoch)
        : Uint32Array.from({ length: shards.length }, (_, i) => i);
    // Shards of one source are of one kind; were they not, all would be treated as the one that can be divided least.
    const division = divisionOf(shards.map((shard) => format.division(shard)));
    this.#parts = { epoch, list: partsOf(sizes, order, { lane, lanes, epoch }, division) };
    return this.#parts.list;
  }

  #windowOrder(epoch: number, shard: number, place: ShardPlace | null, count: number): Uint32Array {
    const key = `${epoch} ${shard} ${JSON.stringify(place)}`;
    if (this.#inWindow?.key === key) return this.#inWindow.order;
    const { shuffle = true } = this.#source.settings;
    const order = shuffle
      ? permutation(count, this.#part.seed, this.#source.name, "window", hash32(key))
      : Uint32Array.from({ length: count }, (_, i) => i);
    this.#inWindow = { key, order };
    return order;
  }
}

function divisionOf(divisions: readonly Division[]): Division {
  return divisions.find((one) => one === "none") ?? divisions.find((one) => one === "groups") ?? "anywhere";
}
