/**
 * A lane's way through a source. The seeded order is one endless sequence: epoch after epoch, shards in an order decided by the seed, windows
 * as they lie in a shard, samples within a window in an order decided by the seed. Lane k of K takes the positions p with p mod K = k, so the
 * lanes together take every sample once.
 */
import { type BatchWeaveError, type Env, isBatchWeaveError } from "../../index.js";
import { attemptsOf, type Fault, type FaultStage, reasonOf, stopFor } from "../load/fault.js";
import { hash32, permutation } from "../mix/random.js";
import type { ShardPool } from "./shard-pool.js";
import type { RawSample, ShardPlace, ShardWindow } from "./shard-reader.js";
import type { ResolvedSource } from "./source.js";

/** `[p, epoch, shard's turn, place of the window, samples of the window already passed]`: small JSON, good for the same source and seed. */
export type SourcePosition = readonly [
  p: number,
  epoch: number,
  turn: number,
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
export interface CursorPart {
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
  #order: { readonly epoch: number; readonly shards: Uint32Array } | undefined;
  #inWindow: { readonly key: string; readonly order: Uint32Array } | undefined;
  /** Where the current epoch began: an epoch without a sample ends the source, instead of looping for ever. */
  #epochStart: { readonly epoch: number; readonly p: number };
  #isGone = false;

  constructor(source: ResolvedSource, pool: ShardPool, env: Env, part: CursorPart, from?: SourcePosition | undefined) {
    this.#source = source;
    this.#pool = pool;
    this.#env = env;
    this.#part = part;
    this.#position = from ?? [0, 0, 0, null, 0];
    // A position inside an epoch was reached by reading, so that epoch had samples.
    this.#epochStart = { epoch: this.#position[1], p: from ? -1 : 0 };
  }

  /** Past what {@link next} returned last. */
  get position(): SourcePosition {
    return this.#position;
  }

  /** The lane's next sample or fault; undefined when the source is exhausted. */
  async next(signal?: AbortSignal | undefined): Promise<CursorItem | undefined> {
    const { lane, lanes } = this.#part;
    for (;;) {
      const [p, epoch, turn, place, passed] = this.#position;
      if (turn >= this.#source.shards.length) {
        const ended = this.#endEpoch(p, epoch);
        if (ended !== "more") return ended;
        continue;
      }
      const shard = this.#shards(epoch)[turn] as number;
      const read = await this.#window(shard, place ?? undefined, signal);
      if ("fault" in read) {
        this.#position = [p, epoch, turn + 1, null, 0];
        return { id: read.fault.id, fault: read.fault, after: this.#position };
      }
      const { samples, next } = read;
      if (passed >= samples.length) {
        this.#position = next === undefined ? [p, epoch, turn + 1, null, 0] : [p, epoch, turn, next, 0];
        continue;
      }
      // The next of this lane, without a look at the others.
      const skip = (((lane - p) % lanes) + lanes) % lanes;
      if (passed + skip >= samples.length) {
        this.#position = [p + samples.length - passed, epoch, turn, place, samples.length];
        continue;
      }
      const raw = samples[this.#windowOrder(epoch, shard, place, samples.length)[passed + skip] as number] as RawSample;
      this.#position = [p + skip + 1, epoch, turn, place, passed + skip + 1];
      return this.#item(raw, shard);
    }
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

  #endEpoch(p: number, epoch: number): CursorItem | undefined | "more" {
    const { epochs = Number.POSITIVE_INFINITY } = this.#source.settings;
    const isBarren = this.#epochStart.epoch === epoch && this.#epochStart.p === p;
    if (this.#isGone || (epoch + 1 >= epochs && !isBarren)) return undefined;
    if (isBarren) {
      this.#isGone = true;
      const fault = this.#fault("*", "source", "none of its shards has a sample that can be read", 1);
      return { id: "*", fault, after: this.#position };
    }
    this.#position = [p, epoch + 1, 0, null, 0];
    this.#epochStart = { epoch: epoch + 1, p };
    return "more";
  }

  async #window(
    shard: number,
    place: ShardPlace | undefined,
    signal: AbortSignal | undefined,
  ): Promise<ShardWindow | { readonly fault: Fault }> {
    const { attempts } = attemptsOf(this.#source.settings);
    let delayMs = this.#source.settings.retryDelayMs ?? 100;
    for (let attempt = 1; ; attempt++, delayMs *= 2) {
      try {
        return await this.#pool.window(this.#source, shard, place, signal);
      } catch (error) {
        signal?.throwIfAborted();
        // A package that is not installed, or a column that does not exist, is nobody's bad shard.
        if (isBatchWeaveError(error) && error.remedy === "fix") throw error;
        if (attempt < attempts) {
          await this.#env.sleep(delayMs, signal);
          continue;
        }
        const name = this.#source.shards[shard] as string;
        const id = `${name.slice(name.lastIndexOf("/") + 1)}${place === undefined ? "" : ` at ${JSON.stringify(place)}`}`;
        return { fault: this.#fault(id, "shard", reasonOf(error), attempt, error as BatchWeaveError) };
      }
    }
  }

  #shards(epoch: number): Uint32Array {
    if (this.#order?.epoch === epoch) return this.#order.shards;
    const count = this.#source.shards.length;
    const { shuffle = true } = this.#source.settings;
    const shards = shuffle
      ? permutation(count, this.#part.seed, this.#source.name, "shards", epoch)
      : Uint32Array.from({ length: count }, (_, i) => i);
    this.#order = { epoch, shards };
    return shards;
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
