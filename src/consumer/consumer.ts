/** The consumer: one rank's view of the log, as an async iterable of shares. */
import { strict as assert } from "node:assert";
import { onAbort } from "../env/index.js";
import { type Cursor, makeCursor } from "../format/index.js";
import type { Log } from "../log/index.js";
import type { CallOptions } from "../store/index.js";
import type { ConsumerObserver } from "./consumer-observer.js";
import { type ConsumerLimits, type ConsumerSettings, consumerLimits } from "./consumer-settings.js";
import { type JobEnvironment, resolveMesh } from "./job-environment.js";
import type { Mesh, MeshPlace } from "./mesh.js";
import { type Front, type LoadedShare, Prefetch, type Slot } from "./prefetch.js";
import { assertProjection, type Projection, planIteration } from "./projection.js";
import type { Share } from "./share.js";
import { SliceReader } from "./slice-reader.js";
import { type AcceptCursor, type Position, startPosition } from "./start-position.js";
import { waitTimeout } from "./wait-timeout.js";

/** Components of a consumer, apart from its settings. */
export interface ConsumerParts {
  /** Where mesh and rank come from when the settings do not say. Default: nothing. */
  readonly environment?: JobEnvironment | undefined;
  readonly observer?: ConsumerObserver | undefined;
  /** Accepts cursors of other namespaces. Default: none. */
  readonly acceptCursor?: AcceptCursor | undefined;
  /** The training run that this rank belongs to. Default "default". */
  readonly group?: string | undefined;
  /** Registers a checkpoint in the log. Default: there are none. */
  readonly register?: RegisterCheckpoint | undefined;
  /** Tells producers numbers, as of a step. Default: they are told nothing. */
  readonly report?: ((step: number, values: Readonly<Record<string, number>>) => Promise<void>) | undefined;
  /** Asked now and then while a step is waited for; throws when it can never come. */
  readonly watchStarvation?: WatchStarvation | undefined;
  /** Told what is being waited for when `next()` has blocked for ten seconds, and again after twice as long, and so on. */
  readonly onLongWait?: ((message: string) => void) | undefined;
  /** Called when the consumer is closed or the log has ended. */
  readonly onEnd?: (() => void) | undefined;
  /** Ends the consumer: a pending and every later `next()` rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What goes with a checkpoint. */
export interface ConsumerCheckpointOptions extends CallOptions {
  /** The training run. Default "default". */
  readonly group?: string | undefined;
  /** Release all but the newest so many of the group in the same commit. */
  readonly keepLast?: number | undefined;
}

/** Registers a checkpoint. */
type RegisterCheckpoint = (id: string, cursor: Cursor, options: ConsumerCheckpointOptions) => Promise<void>;

/** Told what is waited for and for how long. */
type WatchStarvation = (
  starvation: { readonly step: number; readonly waitedMs: number },
  options: CallOptions,
) => Promise<void>;

/** What {@link openConsumer} worked out, for {@link Consumer}'s constructor. */
interface ConsumerOpening {
  readonly log: Log;
  readonly mesh: Mesh;
  readonly place: MeshPlace;
  readonly projection: Projection;
  readonly limits: ConsumerLimits;
  readonly start: Position;
  readonly observer: ConsumerObserver;
  readonly parts: Pick<ConsumerParts, "register" | "report" | "watchStarvation" | "onLongWait" | "onEnd">;
  readonly signal: AbortSignal | undefined;
}

/** A wait of so long is told, with what is waited for. */
const longWaitMs = 10_000;

/** How often a waiting rank asks whether the step can come at all. */
const starvationLookMs = 2_000;

/** Timers are set for at most this long, since the platform's cannot hold an unlimited wait. */
const timerMsMax = 60_000;

/** Opens a consumer: completes and checks mesh, projection and start against the newest manifest. Reading begins with the first `next()`. */
export async function openConsumer(
  log: Log,
  settings: ConsumerSettings = {},
  parts: ConsumerParts = {},
): Promise<Consumer> {
  const limits = consumerLimits(settings);
  const { mesh, place } = resolveMesh(settings, parts.environment ?? {});
  const projection: Projection = {
    grid: log.spec.grid,
    policy: settings.policy ?? "per-rank",
    layout: settings.layout ?? "contiguous",
    rowsPerRank: settings.rowsPerRank ?? 1,
    place,
  };
  assertProjection(projection);
  const call = { signal: parts.signal };
  const manifest = log.head.known ? await log.head.jump(call) : await log.head.load(call);
  const start = await startPosition(
    settings.from ?? "earliest",
    log.spec,
    manifest,
    parts.acceptCursor,
    parts.group ?? "default",
  );
  // A start that the policy cannot go on from is refused here, not at the first share.
  planIteration(projection, start.row, start.iteration);
  const observer = parts.observer ?? {};
  return new Consumer({ log, mesh, place, projection, limits, start, observer, parts, signal: parts.signal });
}

/**
 * Yields the shares of one rank in order, the same iterations on every rank, until a closed log has too few rows for one more.
 * A failed `next()` changes nothing: calling it again tries again from the same iteration.
 */
export class Consumer implements AsyncIterableIterator<Share>, AsyncDisposable {
  readonly mesh: Mesh;
  readonly place: MeshPlace;
  readonly #log: Log;
  readonly #projection: Projection;
  readonly #limits: ConsumerLimits;
  readonly #observer: ConsumerObserver;
  readonly #signal: AbortSignal | undefined;
  readonly #parts: ConsumerOpening["parts"];
  readonly #reader: SliceReader;
  #position: Position;
  #cursor: Cursor;
  #prefetch: Prefetch | undefined;
  #leftoverRows: number | undefined;
  #isClosed = false;
  /** One `next()` at a time, in the order of the calls. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(opening: ConsumerOpening) {
    this.mesh = opening.mesh;
    this.place = opening.place;
    this.#log = opening.log;
    this.#projection = opening.projection;
    this.#limits = opening.limits;
    this.#observer = opening.observer;
    this.#signal = opening.signal;
    this.#parts = opening.parts;
    this.#position = opening.start;
    this.#cursor = this.#cursorHere();
    this.#reader = new SliceReader(opening.log, opening.limits);
  }

  /** Where the next share begins: `share.next` of the last one, or the start. */
  get cursor(): Cursor {
    return this.#cursor;
  }

  /** At the end of a closed log: how many rows were too few for one more iteration. Undefined before. */
  get leftoverRows(): number | undefined {
    return this.#leftoverRows;
  }

  /**
   * Registers a checkpoint: the data from `cursor` on stays until it is released. Call it after the framework's own checkpoint is
   * durable. Every rank may call it: the same id with the same cursor is registered once.
   */
  async checkpoint(id: string, cursor: Cursor = this.cursor, options: ConsumerCheckpointOptions = {}): Promise<void> {
    assert(this.#parts.register, "a consumer opened from a namespace can register checkpoints");
    await this.#parts.register(id, cursor, options);
  }

  /**
   * Tells the pipeline's producers numbers, such as the loss of each source: `callbackMix` gets them as `metrics`. Only rank 0's are sent, at most every five
   * seconds; what comes sooner goes with the next. A store that fails costs the report, never the training.
   */
  async report(values: Readonly<Record<string, number>>): Promise<void> {
    assert(this.#parts.report, "a consumer opened from a namespace can report");
    if (this.place.rank === 0)
      await this.#parts.report(Math.floor(this.#cursor.row / this.#log.spec.grid.rows), values);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next share. A signal passed here ends only this wait, not the consumer. */
  next(options: CallOptions = {}): Promise<IteratorResult<Share, undefined>> {
    const result = this.#turn.then(() => this.#next(options.signal));
    this.#turn = result.catch(() => {});
    return result;
  }

  /** Ends the consumer and cancels what is in flight; leaving a `for await` loop does this. */
  async return(): Promise<IteratorResult<Share, undefined>> {
    this.#isClosed = true;
    this.#parts.onEnd?.();
    await this.#stop(new Error("the consumer was closed"));
    return { done: true, value: undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  async #next(signal: AbortSignal | undefined): Promise<IteratorResult<Share, undefined>> {
    if (this.#isClosed || this.#leftoverRows !== undefined) return { done: true, value: undefined };
    const begun = this.#log.env.monotonic();
    const prefetch = this.#follow();
    this.#observer.onNext?.();
    try {
      const front = await this.#front(prefetch, begun, signal);
      if (front.kind === "failure") throw front.error;
      if (front.kind === "end") {
        this.#leftoverRows = front.leftoverRows;
        this.#parts.onEnd?.();
        await this.#stop(new Error("the log has ended"));
        return { done: true, value: undefined };
      }
      const loaded = await orAborted(front.slot.loaded, [signal, this.#signal]);
      prefetch.take();
      return { done: false, value: this.#hand(front.slot, loaded, begun) };
    } catch (error) {
      if (this.#isClosed) return { done: true, value: undefined };
      if (!signal?.aborted) await this.#stop(error);
      throw error;
    } finally {
      this.#observer.onNextEnd?.();
    }
  }

  #follow(): Prefetch {
    this.#signal?.throwIfAborted();
    const parts = {
      log: this.#log,
      reader: this.#reader,
      projection: this.#projection,
      observer: this.#observer,
      signal: this.#signal,
    };
    this.#prefetch ??= new Prefetch(parts, this.#limits, this.#position);
    return this.#prefetch;
  }

  async #stop(reason: unknown): Promise<void> {
    const prefetch = this.#prefetch;
    this.#prefetch = undefined;
    await prefetch?.stop(reason);
  }

  /** Waits until it is known what comes next. */
  async #front(prefetch: Prefetch, begun: number, signal: AbortSignal | undefined): Promise<Front> {
    const { env, spec, head } = this.#log;
    let hasTold = false;
    let tellAtMs = longWaitMs;
    for (;;) {
      const front = prefetch.front;
      if (front) return front;
      const waitedMs = env.monotonic() - begun;
      const { wanted } = prefetch;
      const manifest = head.known;
      if (wanted && manifest && waitedMs >= this.#limits.waitTimeoutMs)
        throw waitTimeout(env, spec, manifest, wanted, waitedMs);
      if (wanted && manifest && !hasTold && wanted.lastStep >= manifest.steps.end) {
        hasTold = true;
        const step = Math.max(manifest.steps.end, wanted.firstStep);
        this.#observer.onWait?.({ iteration: wanted.iteration, step });
      }
      if (wanted && manifest && wanted.lastStep >= manifest.steps.end)
        await this.#parts.watchStarvation?.({ step: wanted.lastStep, waitedMs }, { signal: signal ?? this.#signal });
      if (wanted && manifest && waitedMs >= tellAtMs) {
        tellAtMs *= 2;
        this.#parts.onLongWait?.(`Still waiting. ${waitTimeout(env, spec, manifest, wanted, waitedMs).message}`);
      }
      const leftMs = Math.max(1, Math.min(this.#limits.waitTimeoutMs, tellAtMs) - waitedMs);
      const lookMs = this.#parts.watchStarvation ? starvationLookMs : timerMsMax;
      await this.#changeOrTimer(prefetch, Math.min(leftMs, lookMs), signal);
    }
  }

  async #changeOrTimer(prefetch: Prefetch, delayMs: number, signal: AbortSignal | undefined): Promise<void> {
    const timer = new AbortController();
    const slept = this.#log.env.sleep(delayMs, timer.signal).catch(() => {});
    try {
      await orAborted(Promise.race([prefetch.changed(), slept]), [signal, this.#signal]);
    } finally {
      timer.abort();
    }
  }

  #hand({ plan }: Slot, { slices, readMs }: LoadedShare, begun: number): Share {
    const cursor = this.#cursor;
    this.#position = { row: plan.nextRow, iteration: plan.iteration + 1 };
    this.#cursor = this.#cursorHere();
    this.#observer.onShare?.({
      iteration: plan.iteration,
      bytes: slices.reduce((sum, { bytes }) => sum + bytes.length, 0),
      waitMs: this.#log.env.monotonic() - begun,
      readMs,
      lagRows: Math.max(0, (this.#log.head.known?.steps.end ?? 0) * this.#projection.grid.rows - plan.nextRow),
      step: Math.floor(plan.nextRow / this.#projection.grid.rows),
    });
    return { iteration: plan.iteration, slices, rows: plan.rows, cursor, next: this.cursor };
  }

  #cursorHere(): Cursor {
    return makeCursor(this.#log.spec.uuid, this.#position.row, this.#position.iteration);
  }
}

/** `work`, unless one of the signals aborts first: then its reason. */
async function orAborted<T>(work: Promise<T>, signals: readonly (AbortSignal | undefined)[]): Promise<T> {
  if (signals.every((signal) => signal === undefined)) return await work;
  const unlisten: (() => void)[] = [];
  const aborted = new Promise<never>((_, reject) => {
    for (const signal of signals) {
      if (!signal) continue;
      if (signal.aborted) return reject(signal.reason);
      unlisten.push(onAbort(signal, () => reject(signal.reason)));
    }
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    for (const one of unlisten) one();
  }
}
