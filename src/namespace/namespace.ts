/** A namespace handle: the log of batches behind one URI, and what users do with it. */
import { strict as assert } from "node:assert";
import { type CadenceSettings, createPublisher, openProducer, type Takeover } from "../cadence/index.js";
import {
  type Consumer,
  type ConsumerSettings,
  type JobEnvironment,
  openConsumer,
  type SlicePlace,
  StepReader,
} from "../consumer/index.js";
import { assertName, type Cursor, type Grid, type LineageSample, type Order } from "../format/index.js";
import {
  commitMaxLag,
  type FindNamespace,
  type FindResult,
  type FindSettings,
  type ForkSettings,
  findSample,
  forkLog,
  type LagSettings,
  type LiveCheckpoint,
  lagGate,
  liveCheckpoints,
  needsPins,
  type OpenLog,
  ReclaimLoop,
  type ReclaimLoopObserver,
  type ReclaimLoopSettings,
  type ReclaimReport,
  type ReclaimSettings,
  readSamples,
  reclaim,
  registerCheckpoint,
  releaseAbandonedPin,
  releaseCheckpoint,
  releasePins,
  starvationWatch,
  translateCursor,
  type VerifyReport,
  type VerifySettings,
  verifyLog,
} from "../lifecycle/index.js";
import { firstOwnStep, type Log, laneNumber } from "../log/index.js";
import type { Metrics } from "../observe/index.js";
import { Producer, type ProducerSettings } from "../producer/index.js";
import {
  type Pulse,
  type PulseEntry,
  PulseReader,
  type PulseSettings,
  removeGonePulses,
  startPulse,
} from "../pulse/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import { consumerMetrics } from "./consumer-metrics.js";
import { type CommitInfo, type InfoOptions, type NamespaceInfo, readCommit, readInfo } from "./info.js";
import { type BatchInfo, type BatchListing, inspectBatch, keyInPlace, listBatches, readSlice } from "./inspect.js";
import { lagMetrics, logMetrics, reclaimMetrics } from "./lifecycle-metrics.js";
import { producerMetrics, publisherMetrics } from "./producer-metrics.js";
import { reportLogUri, TrainerReports } from "./report-log.js";
import type { StoreHealth } from "./store-metrics.js";
import { aboutBytes, type Vitals, VitalsReader } from "./vitals.js";

/** Options of {@link Namespace.producer}. */
export interface ProducerOptions extends ProducerSettings {
  /** Stable id; the process that opened it last holds it. In lanes order: `lane-0`, `lane-1`… */
  readonly id: string;
  /**
   * False: refuse with FENCED when another process opens the id at the same time, instead of fencing it. `"when-quiet"`: also when the id was opened
   * or wrote within the last 30 seconds, so that a job which is started twice by mistake does not fence itself. With an epoch: refuse unless the id is
   * still held by that epoch, as `info()` showed it (0: never opened).
   */
  readonly takeover?: Takeover | undefined;
  readonly cadence?: CadenceSettings | undefined;
  /** How the producer waits while it is `maxLag` steps ahead of the checkpoints. */
  readonly lag?: LagSettings | undefined;
  /** Told, in a sentence, when the producer begins to wait for a checkpoint. */
  readonly onLagWait?: ((message: string) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link Namespace.checkpoint}. */
export interface CheckpointOptions {
  /** One per training run, so that runs do not disturb each other. Default "default". */
  readonly group?: string | undefined;
  /** Release all but the newest so many of the group in the same commit. */
  readonly keepLast?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link Namespace.consumer}. */
export interface ConsumerOptions extends ConsumerSettings {
  /** The training run this rank belongs to: where its checkpoints go unless they say otherwise. Default "default". */
  readonly group?: string | undefined;
  /** When a rank that waits for a step that no producer may build gives up. */
  readonly lag?: LagSettings | undefined;
  /** Told what `next()` waits for when it has blocked for ten seconds, and again now and then. Default: a warning on stderr. */
  readonly onWait?: ((message: string) => void) | undefined;
  /** Told, in a sentence, when this rank begins to wait for a step that no producer may build before a checkpoint is registered. */
  readonly onLagWait?: ((message: string) => void) | undefined;
  /** Rank 0 of the job also reclaims, for as long as its consumer is open. Default: no rank does. */
  readonly reclaim?: ReclaimLoopSettings | boolean | undefined;
  /** Where mesh and rank come from when they are not given. Default: the process's own environment. */
  readonly environment?: JobEnvironment | undefined;
  /** Ends the consumer: a pending and every later `next()` rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** How a namespace reaches others: its ancestors, and the places it is forked to. */
export interface Neighbours {
  readonly openStore: (uri: string) => Promise<ObjectStore>;
  readonly openLog: OpenLog;
  readonly find: FindNamespace;
  /** The store of a place where a namespace can be created; refuses one that is taken. */
  readonly prepareTarget: (uri: string, options?: CallOptions) => Promise<ObjectStore>;
  readonly open: (uri: string, options?: CallOptions) => Promise<Namespace>;
  /** A log of one cell a step, opened or created. */
  readonly createReports?: ((uri: string) => Promise<Namespace>) | undefined;
}

/** How often a reclaim loop looks for pulses of processes that are long gone. */
const gonePulsesMs = 600_000;

/** One namespace. Cheap; holds no connection and no lock. */
export class Namespace {
  readonly uri: string;
  readonly metrics: Metrics;
  /** For how long the store has not answered, in ms; 0 while it does, and while no call is made. */
  get storeUnreachableMs(): number {
    return this.#health?.unreachableMs ?? 0;
  }

  readonly #log: Log;
  readonly #labelled: Metrics;
  readonly #health: StoreHealth | undefined;
  readonly #neighbours: Neighbours | undefined;
  #hasReleasedPins = false;
  #pulses: PulseReader | undefined;
  #vitals: VitalsReader | undefined;

  /** Without `neighbours` it cannot be forked, nor check other namespaces. */
  constructor(uri: string, log: Log, metrics: Metrics, neighbours?: Neighbours, health?: StoreHealth) {
    this.uri = uri;
    this.metrics = metrics;
    this.#labelled = metrics.with({ namespace: log.place.uri });
    this.#health = health;
    this.#log = log;
    this.#neighbours = neighbours;
  }

  get uuid(): string {
    return this.#log.spec.uuid;
  }

  get grid(): Grid {
    return this.#log.spec.grid;
  }

  /** What its creator said of it; undefined: nothing. */
  get user(): unknown {
    return this.#log.spec.rest["user"];
  }

  get order(): Order {
    return this.#log.spec.order;
  }

  /** Commit order: into how many parts the sources are divided. */
  get parts(): number {
    return this.#log.spec.parts ?? 1;
  }

  /** The first step that is this namespace's own: 0, or where it was forked. */
  get firstOwnStep(): number {
    return firstOwnStep(this.#log.spec);
  }

  /** Where a producer stands in the log, without opening it: its next seq and its resume point; undefined when there is none of this id. */
  async producerState(
    id: string,
    options: CallOptions = {},
  ): Promise<{ readonly seq: number; readonly resumePoint: unknown } | undefined> {
    return await this.#log.peek(id, options);
  }

  /** Opens a producer id, fencing its holder, and reads its resume point. */
  async producer(options: ProducerOptions): Promise<Producer> {
    const { id, takeover, cadence, lag, onLagWait, signal, ...settings } = options;
    assertName(id, "Producer id");
    const { order } = this.#log.spec;
    if (order.kind === "lanes") laneNumber(id, order.lanes);
    const opening = await openProducer(this.#log, id, { signal, takeover });
    const lane: Record<string, string> = order.kind === "lanes" ? { lane: String(laneNumber(id, order.lanes)) } : {};
    const metrics = this.#labelled.with({ role: "producer", producer: id, ...lane });
    const publisher = createPublisher(this.#log, cadence, publisherMetrics(metrics));
    const gate = lagGate(this.#log, lag, lagMetrics(metrics, onLagWait));
    const observer = producerMetrics(metrics, this.#log.env, id);
    return new Producer({ log: this.#log, opening, publisher, observer, gate }, settings);
  }

  async #openReports(): Promise<Namespace> {
    assert(this.#neighbours?.createReports, "a namespace that was opened by its uri can have reports");
    return await this.#neighbours.createReports(reportLogUri(this.uri));
  }

  /** Opens one rank's view of the log. Mesh and rank default to what the launcher of the job says in the environment. */
  async consumer(options: ConsumerOptions = {}): Promise<Consumer> {
    const {
      environment = process.env,
      signal,
      group,
      lag,
      onLagWait,
      onWait,
      reclaim: reclaiming,
      ...settings
    } = options;
    // Which rank it is, is known once it is open.
    const observer = consumerMetrics(this.#labelled, this.#log.env, this.grid);
    const watch = starvationWatch(this.#log, lag, { onStarve: ({ message }) => onLagWait?.(message) });
    const ended = new AbortController();
    const reports = new TrainerReports(
      () => this.#openReports(),
      group ?? "default",
      () => this.#log.env.monotonic(),
      ended.signal,
    );
    const consumer = await openConsumer(this.#log, settings, {
      environment,
      signal,
      observer,
      group,
      register: async (id, cursor, own) => {
        await this.checkpoint(id, cursor, { group, ...own });
      },
      report: (step, values) => reports.report(step, values),
      watchStarvation: (starvation, call) => watch({ ...starvation, group }, call),
      // A program that did not ask to be told finds it on stderr: a job that stands still must say why.
      onLongWait: onWait ?? ((message) => process.emitWarning(message, "BatchWeaveWait")),
      onEnd: () => {
        ended.abort();
        observer.end();
      },
      // A checkpoint of an ancestor goes on here, where its row is shared.
      acceptCursor: (cursor) => translateCursor(this.#log.spec, cursor),
    });
    observer.begin(consumer.place.rank, group ?? "default");
    if (reclaiming && consumer.place.rank === 0) {
      const stop = signal ? AbortSignal.any([signal, ended.signal]) : ended.signal;
      // It ends with the consumer, by its signal; failed runs are told by the metrics and tried again.
      this.watchReclaim(reclaiming === true ? {} : reclaiming, { signal: stop }).catch(() => {});
    }
    return consumer;
  }

  /**
   * Registers a checkpoint: the data from `cursor` on stays until it is released. Every rank may call it with the same id and cursor;
   * another cursor is CHECKPOINT_CONFLICT, an id that was released CHECKPOINT_RELEASED, a cursor below the trim RECLAIMED.
   */
  async checkpoint(id: string, cursor: Cursor | string, options: CheckpointOptions = {}): Promise<LiveCheckpoint> {
    const { signal, ...request } = options;
    return await registerCheckpoint(this.#log, { id, cursor, ...request }, { signal });
  }

  /** Releases a checkpoint: the next reclaim may delete what only it kept. */
  async releaseCheckpoint(id: string, options: Omit<CheckpointOptions, "keepLast"> = {}): Promise<void> {
    await releaseCheckpoint(this.#log, { id, group: options.group }, { signal: options.signal });
  }

  /** The live checkpoints, by group, the newest first. */
  async checkpoints(options?: CallOptions): Promise<readonly LiveCheckpoint[]> {
    return liveCheckpoints(await this.#log.head.jump(options), this.grid.rows);
  }

  /**
   * Deletes what no reader, producer or fork needs any more: trims to the lowest live checkpoint, then removes trimmed batches, uploads
   * that were never committed, unreferenced index objects and old manifests. With `dryRun` it only says exactly what would go, and why.
   */
  async reclaim(settings: ReclaimSettings = {}, options: CallOptions = {}): Promise<ReclaimReport> {
    const report = await reclaim(this.#log, settings, { signal: options.signal });
    if (report.dryRun) {
      const { spec } = this.#log;
      return { ...report, dead: report.dead?.map((object) => ({ ...object, key: keyInPlace(spec, object.key) })) };
    }
    reclaimMetrics(this.#labelled.with({ role: "reclaimer" })).onRun(report);
    await this.#releaseOutlivedPins(report, options);
    return report;
  }

  /** A fork that has trimmed everything it inherited gives its ancestors free. */
  async #releaseOutlivedPins({ trim }: ReclaimReport, options: CallOptions): Promise<void> {
    const { spec } = this.#log;
    // Once per handle: an earlier process may have died before it got here.
    if (this.#hasReleasedPins || !spec.fork || needsPins(spec, trim.after) || !this.#neighbours) return;
    await releasePins(spec, spec.fork.origins, this.#neighbours.openLog, { ...options, unconfirmed: false });
    this.#hasReleasedPins = true;
  }

  /** Reclaims again and again until the signal aborts, then rejects with its reason. A run that fails is told and tried again. */
  async watchReclaim(
    settings: ReclaimLoopSettings,
    options: Pick<ReclaimLoopObserver, "onRun" | "onFailure"> & { readonly signal: AbortSignal },
  ): Promise<never> {
    const metrics = reclaimMetrics(this.#labelled.with({ role: "reclaimer" }));
    const { env } = this.#log;
    let pulsesSweptMs = env.monotonic();
    const observer: ReclaimLoopObserver = {
      onRun: (report) => {
        metrics.onRun(report);
        if (env.monotonic() - pulsesSweptMs >= gonePulsesMs) {
          pulsesSweptMs = env.monotonic();
          this.removeGonePulses(options).catch((error) => options.onFailure?.(error));
        }
        this.#releaseOutlivedPins(report, options).catch((error) => options.onFailure?.(error));
        options.onRun?.(report);
      },
      onFailure: (error) => {
        metrics.onFailure(error);
        options.onFailure?.(error);
      },
    };
    return await new ReclaimLoop(this.#log, settings, observer).run(options.signal);
  }

  /**
   * Makes a new namespace that shares this one's batches below step `at` (default: all), without copying them, minus the skipped ones. It has
   * its own producers and steps from there on, and keeps what it shares alive here until it is deleted.
   */
  async fork(uri: string, settings: ForkSettings = {}, options: CallOptions = {}): Promise<Namespace> {
    assert(this.#neighbours, "a namespace that was opened by its uri can be forked");
    const { openLog, prepareTarget, open } = this.#neighbours;
    const store = await prepareTarget(uri, options);
    const parent = { log: this.#log, uri: this.uri };
    const { env } = this.#log;
    await forkLog({ parent, target: { uri, store }, env, openLog, signal: options.signal }, settings);
    return await open(uri, options);
  }

  /** Removes what a fork that does not exist (any more) holds here; `info` and `verify` name it. Refused while the fork exists. */
  async releaseFork(fork: string, options?: CallOptions): Promise<void> {
    assert(this.#neighbours, "a namespace that was opened by its uri can find its forks");
    await releaseAbandonedPin(this.#log, fork, this.#neighbours.find, options);
  }

  /** Walks everything live and proves every reference, checksum and sequence. With `repair` it removes what is provably unreachable. */
  async verify(settings: VerifySettings = {}, options: CallOptions = {}): Promise<VerifyReport> {
    const { openLog, find } = this.#neighbours ?? {};
    return await verifyLog(this.#log, settings, { openLog, find, signal: options.signal });
  }

  /** The samples that the batch at a step was made of, in its order; undefined when its producer recorded none. */
  async samples(step: number, options?: CallOptions): Promise<readonly LineageSample[] | undefined> {
    return await readSamples(this.#log, await this.#log.head.jump(options), step, options);
  }

  /** The steps that held a sample. It reads the lineage of every step in the range. */
  async find(sampleId: string, settings: FindSettings = {}, options?: CallOptions): Promise<FindResult> {
    return await findSample(this.#log, await this.#log.head.jump(options), sampleId, settings, options);
  }

  /** Steps that producers may be ahead of the slowest group's newest checkpoint; undefined removes the limit. */
  async setMaxLag(maxLag: number | undefined, options?: CallOptions): Promise<void> {
    await commitMaxLag(this.#log, maxLag, options);
  }

  /** Leaves small hints of life beside the log until it is stopped, for `batchweave top` and the dashboard. Seldom, never in the way, and nothing depends on them. */
  pulse(settings: PulseSettings): Pulse {
    return startPulse(this.#log.env, this.#log.store, this.uuid, settings);
  }

  /** What processes told of themselves last. Cheap to ask again: a listing, and what is new. */
  async pulses(options?: CallOptions): Promise<readonly PulseEntry[]> {
    this.#pulses ??= new PulseReader(this.#log.env, this.#log.store, this.uuid);
    return await this.#pulses.read(options);
  }

  /** Deletes the pulses of processes that have been gone for an hour and more; gives their number. */
  async removeGonePulses(options?: CallOptions): Promise<number> {
    return await removeGonePulses(this.#log.env, this.#log.store, options);
  }

  /** The state of the log at its head. */
  async info(options?: InfoOptions): Promise<NamespaceInfo> {
    return await readInfo(this.uri, this.#log, options);
  }

  /** Who made a version of the log, when, and where the log ended then; undefined when it is reclaimed, or not there yet. One small read. */
  async commitAt(version: number, options?: CallOptions): Promise<CommitInfo | undefined> {
    return await readCommit(this.#log, version, options);
  }

  /** About how many bytes the readable steps hold: those of the newest, times their number. */
  async aboutBytes(options?: CallOptions): Promise<number> {
    return await aboutBytes(this.#log, this.#log.head.known ?? (await this.#log.head.jump(options)), options);
  }

  /** How the log and the processes on it fare now. Cheap to ask again and again: what cannot change is read once. Sets the metrics of the log, too. */
  async vitals(options?: CallOptions): Promise<Vitals> {
    this.#vitals ??= new VitalsReader(this.uri, this.#log);
    const vitals = await this.#vitals.read(options);
    logMetrics(this.#labelled, vitals);
    return vitals;
  }

  /** The batches of the log in order, from step `from` up to, not including, `to`. */
  batches(
    range: { readonly from?: number | undefined; readonly to?: number | undefined } = {},
    options?: CallOptions,
  ): AsyncIterable<BatchListing> {
    return listBatches(this.#log, range, options);
  }

  /** What the batch at a step is: who made it, where it is stored, and its slices without their bytes. */
  async inspect(step: number, options?: CallOptions): Promise<BatchInfo> {
    return await inspectBatch(this.#log, step, options);
  }

  /** Reads slices by step, whole or in parts, and waits for steps to come: for readers that are no rank of a mesh. */
  stepReader(): StepReader {
    return new StepReader(this.#log);
  }

  /** The bytes of one slice, checked and decoded. */
  async readSlice(place: SlicePlace, options?: CallOptions): Promise<Uint8Array> {
    return await readSlice(this.#log, place, options);
  }

  /** Ends the log for all producers and ranks: no batch after the current end, and ranks stop there. Lanes: batches above a missing step are refused unless dropped. */
  async endLog(
    options: { readonly dropWaiting?: boolean | undefined; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<{ readonly end: number }> {
    const manifest = await this.#log.close(options);
    return { end: manifest.steps.end };
  }
}
