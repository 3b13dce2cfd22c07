/** What is shown of one namespace: few requests for each view, whatever the size of the log. */
import type { BatchInfo, Env, Namespace, NamespaceInfo, PulseEntry, Vitals } from "../index.js";
import type { Tokenizer } from "../plan/index.js";
import { sliceView } from "./preview.js";
import { costsOf, sourcesView } from "./sources-view.js";
import { holdsOf, samplePlaces } from "./storage-view.js";
import type { ViewCache } from "./view-cache.js";
import type {
  FleetView,
  HealthView,
  HistoryView,
  LogView,
  LookView,
  ProducerRow,
  SliceView,
  SourcesView,
  StepsView,
  StepView,
  StorageView,
} from "./views.js";

const lookMs = 1_000;
const healthMs = 4_000;
const ratesMs = 20_000;
const looksMax = 720;
const checkpointsMax = 100;
const forksMax = 100;
const historyPoints = 24;
const stepsMax = 96;
const producersPageSize = 50;
const pulsesMax = 200;
const sourceSteps = 8;
const samplesMax = 500;
const slicesMax = 512;
const keysMax = 16;
/** What is committed never changes. */
const foreverMs = 3_600_000;

/** Settings of all views. */
export interface ViewSettings {
  readonly tokenizer: Pick<Tokenizer, "decode"> | undefined;
  readonly dollarsPerGbMonth: number;
  readonly diagnose: Diagnose;
}

/** What holds a log up, from a look at it and one some seconds ago. */
export type Diagnose = (now: Vitals, before: Vitals | undefined) => HealthView;

/** The views of one namespace. */
export class LogViews {
  readonly #ns: Namespace;
  readonly #env: Env;
  readonly #cache: ViewCache;
  readonly #settings: ViewSettings;
  readonly #looks: LookView[] = [];
  readonly #vitals: Vitals[] = [];
  /** Of versions that were read: they never change. */
  readonly #commits = new Map<
    number,
    { readonly timeMs: number; readonly end: number; readonly by: string } | undefined
  >();

  constructor(ns: Namespace, env: Env, cache: ViewCache, settings: ViewSettings) {
    this.#ns = ns;
    this.#env = env;
    this.#cache = cache;
    this.#settings = settings;
  }

  /** The state at the head, at most once a second. */
  info(signal: AbortSignal): Promise<NamespaceInfo> {
    return this.#keep("info", lookMs, () => this.#ns.info({ signal }));
  }

  async log(signal: AbortSignal): Promise<LogView> {
    const info = await this.info(signal);
    const lag = lagOf(info);
    await this.#look(info, lag?.steps, signal);
    const { checkpoints, forks } = info;
    return {
      uri: info.uri,
      uuid: info.uuid,
      grid: info.grid,
      order: info.order.kind === "lanes" ? `${info.order.lanes} lane${info.order.lanes === 1 ? "" : "s"}` : "commit",
      createdMs: info.createdMs,
      version: info.version,
      closed: info.closed,
      steps: info.steps,
      lastCommit: info.lastCommit,
      waiting: info.waiting,
      maxLag: info.maxLag,
      boundary: info.boundary,
      warning: info.warning,
      producers: info.producers.length,
      silentTables: info.silentTables,
      checkpoints: checkpoints.slice(0, checkpointsMax),
      checkpointsMore: Math.max(0, checkpoints.length - checkpointsMax),
      forks: forks.slice(0, forksMax),
      forksMore: Math.max(0, forks.length - forksMax),
      origins: info.origins,
      lag,
      nowMs: this.#env.now(),
      looks: this.#looks,
    };
  }

  /** Remembers a look: what the charts of the page begin with. */
  async #look(info: NamespaceInfo, lag: number | undefined, signal: AbortSignal): Promise<void> {
    const before = this.#looks.at(-1);
    const atMs = this.#env.now();
    if (before && atMs - before.atMs < lookMs) return;
    const isNew = before?.end !== info.steps.end && info.steps.end > info.steps.trim;
    // How fresh batches are is told by the newest one: when it was made, and when the version that holds it was committed.
    const newest = isNew ? await this.#batch(info.steps.end - 1, signal).catch(() => undefined) : undefined;
    const freshMs =
      newest?.createdMs === undefined || info.lastCommit.kind === "checkpoint"
        ? undefined
        : Math.max(0, info.lastCommit.timeMs - newest.createdMs);
    if (this.#looks.at(-1) !== before) return;
    this.#looks.push({ atMs, end: info.steps.end, version: info.version, lag, freshMs });
    if (this.#looks.length > looksMax) this.#looks.shift();
  }

  /** Versions spread evenly over what is left of the log's past. */
  async history(signal: AbortSignal): Promise<HistoryView> {
    const { version, boundary } = await this.info(signal);
    const first = Math.max(1, boundary + 1);
    const count = Math.min(historyPoints, version - first + 1);
    const versions = Array.from({ length: Math.max(0, count) }, (_, i) =>
      Math.round(first + ((version - first) * i) / Math.max(1, count - 1)),
    );
    const commits = await Promise.all(
      versions.map(async (at) => ({ version: at, commit: await this.#commit(at, signal) })),
    );
    return {
      commits: commits.flatMap(({ version: at, commit }) =>
        commit ? [{ version: at, timeMs: commit.timeMs, end: commit.end }] : [],
      ),
    };
  }

  async #commit(
    version: number,
    signal: AbortSignal,
  ): Promise<{ readonly timeMs: number; readonly end: number; readonly by: string } | undefined> {
    if (this.#commits.has(version)) return this.#commits.get(version);
    const found = await this.#ns.commitAt(version, { signal });
    const commit = found && { timeMs: found.timeMs, end: found.steps.end, by: found.by };
    if (this.#commits.size > 4_096) this.#commits.clear();
    this.#commits.set(version, commit);
    return commit;
  }

  /** Batches in a row, by default the newest. */
  async steps(from: number | undefined, signal: AbortSignal): Promise<StepsView> {
    const { trim, end } = (await this.info(signal)).steps;
    const first = Math.min(Math.max(trim, from ?? end - stepsMax), Math.max(trim, end - 1));
    return await this.#keep(`steps ${first} ${Math.min(end, first + stepsMax)}`, foreverMs, async () => {
      const batches: StepsView["batches"][number][] = [];
      for await (const { step, producer, seq, storedBytes, origin } of this.#ns.batches(
        { from: first, to: first + stepsMax },
        { signal },
      ))
        batches.push({ step, producer, seq, bytes: storedBytes, origin });
      return { from: first, batches };
    });
  }

  /** Producers that match, a page of them, and pulses. */
  async fleet(query: string, page: number, signal: AbortSignal): Promise<FleetView> {
    const [info, pulses] = await Promise.all([this.info(signal), this.#pulses(signal)]);
    const wanted = query.toLowerCase();
    const matching = info.producers.filter(({ id }) => id.toLowerCase().includes(wanted));
    const at = Math.min(page, Math.max(0, Math.ceil(matching.length / producersPageSize) - 1));
    const shown = matching.slice(at * producersPageSize, (at + 1) * producersPageSize);
    const producers = await Promise.all(
      shown.map(async ({ id, epoch, seq, version }): Promise<ProducerRow> => {
        const commit = await this.#commit(version, signal);
        const carriedBy = commit && commit.by !== id ? commit.by : undefined;
        return {
          id,
          epoch,
          seq,
          version,
          lastCommitMs: commit?.timeMs,
          carriedBy,
          isMissing: info.waiting?.lane === id,
        };
      }),
    );
    const found = pulses.filter(({ name }) => name.toLowerCase().includes(wanted));
    const roles = new Map<string, { count: number; late: number }>();
    for (const { role, isLate, isDead } of pulses) {
      const known = roles.get(role) ?? { count: 0, late: 0 };
      roles.set(role, { count: known.count + 1, late: known.late + (isLate || isDead ? 1 : 0) });
    }
    return {
      total: info.producers.length,
      matching: matching.length,
      page: at,
      pageSize: producersPageSize,
      producers,
      // The ones that are late come first: they are what one looks for.
      pulses: [...found]
        .sort((a, b) => Number(b.isLate || b.isDead) - Number(a.isLate || a.isDead))
        .slice(0, pulsesMax)
        .map(({ role, name, atMs, everyMs, isLate, isDead, host, startedMs, facts }) => ({
          role,
          name,
          atMs,
          everyMs,
          isLate,
          isDead,
          host,
          startedMs,
          facts,
        })),
      pulsesMore: Math.max(0, found.length - pulsesMax),
      roles: [...roles].map(([role, counts]) => ({ role, ...counts })),
    };
  }

  /** What holds the log up. Rates are those of about twenty seconds, or of as long as this server has looked. */
  health(signal: AbortSignal): Promise<HealthView> {
    return this.#keep("health", healthMs, async () => {
      const now = await this.#ns.vitals({ signal });
      this.#vitals.push(now);
      while (this.#vitals.length > 2 && (this.#vitals[1] as Vitals).atMs < now.atMs - ratesMs) this.#vitals.shift();
      const { sentence, warnings, etaMs, sources } = this.#settings.diagnose(
        now,
        this.#vitals.at(-2) && this.#vitals[0],
      );
      return { sentence, warnings: warnings.slice(0, 8), etaMs, sources: sources.slice(0, 64) };
    });
  }

  #pulses(signal: AbortSignal): Promise<readonly PulseEntry[]> {
    return this.#keep("pulses", 5_000, () => this.#ns.pulses({ signal }));
  }

  async sources(signal: AbortSignal): Promise<SourcesView> {
    const info = await this.info(signal);
    const { trim, end } = info.steps;
    const from = Math.max(trim, end - sourceSteps);
    const steps = Array.from({ length: end - from }, (_, i) => from + i);
    const batches = await Promise.all(
      steps.map(async (step) => ({
        step,
        user: (await this.#batch(step, signal)).user,
        samples: await this.#samples(step, signal),
      })),
    );
    return sourcesView(batches, info);
  }

  async storage(signal: AbortSignal): Promise<StorageView> {
    const info = await this.info(signal);
    const { trim, end } = info.steps;
    const places = samplePlaces(trim, end);
    const sizes = (
      await Promise.all(
        places.map(({ from, to }) =>
          this.#keep(`sizes ${from} ${to}`, foreverMs, async () => {
            const found: number[] = [];
            for await (const { storedBytes } of this.#ns.batches({ from, to }, { signal })) found.push(storedBytes);
            return found;
          }),
        ),
      )
    ).flat();
    const sampled = sizes.length;
    const bytesPerStep = sampled === 0 ? 0 : sizes.reduce((sum, size) => sum + size, 0) / sampled;
    const bytes = Math.round(bytesPerStep * (end - trim));
    const { dollarsPerGbMonth } = this.#settings;
    return {
      steps: { trim, end },
      bytesPerStep,
      sampledSteps: sampled,
      isExact: sampled === end - trim,
      bytes,
      dollarsPerGbMonth,
      dollarsPerMonth: (bytes / 1e9) * dollarsPerGbMonth,
      holds: holdsOf(info, bytesPerStep),
      boundary: info.boundary,
      warning: info.warning,
    };
  }

  async step(step: number, signal: AbortSignal): Promise<StepView> {
    const [batch, samples] = await Promise.all([this.#batch(step, signal), this.#samples(step, signal)]);
    return {
      step,
      producer: batch.producer,
      epoch: batch.epoch,
      seq: batch.seq,
      contentType: batch.contentType,
      createdMs: batch.createdMs,
      storedBytes: batch.storedBytes,
      keys: batch.keys.slice(0, keysMax),
      keysMore: Math.max(0, batch.keys.length - keysMax),
      origin: batch.origin,
      user: batch.user,
      slices: batch.slices
        .slice(0, slicesMax)
        .map(({ row, chunk, bytes, storedBytes, encoding }) => ({ row, chunk, bytes, storedBytes, encoding })),
      slicesMore: Math.max(0, batch.slices.length - slicesMax),
      samples: samples?.slice(0, samplesMax),
      samplesTotal: samples?.length ?? 0,
      costs: costsOf(batch.user),
    };
  }

  async slice(place: { step: number; row: number; chunk: number }, signal: AbortSignal): Promise<SliceView> {
    const { step, row, chunk } = place;
    const { contentType, slices } = await this.#batch(step, signal);
    const bytes = await this.#ns.readSlice(place, { signal });
    const payload = chunk === 0 ? slices.find((one) => one.row === row && one.chunk === 1)?.bytes : undefined;
    const where = `Slice ${row},${chunk} of step ${step}`;
    return sliceView(bytes, contentType, where, payload, this.#settings.tokenizer);
  }

  #batch(step: number, signal: AbortSignal): Promise<BatchInfo> {
    return this.#keep(`batch ${step}`, foreverMs, () => this.#ns.inspect(step, { signal }));
  }

  #samples(step: number, signal: AbortSignal): ReturnType<Namespace["samples"]> {
    return this.#keep(`samples ${step}`, foreverMs, () => this.#ns.samples(step, { signal }));
  }

  #keep<T>(what: string, keepMs: number, make: () => Promise<T>): Promise<T> {
    return this.#cache.get(`${this.#ns.uuid} ${what}`, keepMs, make);
  }
}

/** How far the log is ahead of the slowest group's newest checkpoint. */
function lagOf({ checkpoints, steps }: NamespaceInfo): LogView["lag"] {
  const newest = new Map<string, number>();
  for (const { group, step } of checkpoints) newest.set(group, Math.max(step, newest.get(group) ?? 0));
  const [slowest] = [...newest].sort(([, a], [, b]) => a - b);
  return slowest && { group: slowest[0], steps: steps.end - slowest[1] };
}
