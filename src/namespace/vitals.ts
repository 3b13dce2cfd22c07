/** How a log and the processes on it fare, for people who look again and again. Reads only; nothing is decided by it. */
import { asStep, asVersion, hasLeft, type Manifest } from "../format/index.js";
import { type Log, listIntents } from "../log/index.js";
import { type PulseEntry, PulseReader } from "../pulse/index.js";
import type { CallOptions } from "../store/index.js";
import { type NamespaceInfo, readInfo } from "./info.js";

/** One producer, as manifests know it. */
export interface ProducerVitals {
  readonly id: string;
  readonly epoch: number;
  /** Batches of it in the log. */
  readonly seq: number;
  /** Since its state changed last: as this reader saw it, else by the committer's clock; undefined when that version is reclaimed. */
  readonly commitAgeMs: number | undefined;
  /** Between two of its batches lately, as far as this reader saw it commit; undefined: it has not. */
  readonly paceMs: number | undefined;
  /** Batches that are uploaded and announced, and not committed. */
  readonly pending: number;
  /** Its holder closed it. */
  readonly hasLeft: boolean;
}

/** One training run, by its newest checkpoint. */
export interface GroupVitals {
  readonly group: string;
  readonly checkpoint: string;
  readonly step: number;
  /** From there to the end of the log. */
  readonly lagSteps: number;
  /** Undefined when the version that registered it is reclaimed. */
  readonly ageMs: number | undefined;
}

/** A look at a namespace. */
export interface Vitals {
  readonly info: NamespaceInfo;
  /** Wall clock in ms of this look, and how long it took. */
  readonly atMs: number;
  readonly tookMs: number;
  /** Since the newest version was committed. */
  readonly commitAgeMs: number;
  /** Bytes of the steps that can be read: those of the newest batches, times their number. */
  readonly aboutBytes: number;
  readonly producers: readonly ProducerVitals[];
  readonly groups: readonly GroupVitals[];
  readonly pulses: readonly PulseEntry[];
}

/** Producers and groups whose last commit is looked up: the latest. */
const looksMax = 64;

/** Looks again and again. */
export class VitalsReader {
  readonly #uri: string;
  readonly #log: Log;
  readonly #pulses: PulseReader;
  /** When versions were committed. They never change. */
  #times = new Map<number, number | undefined>();
  #paces = new Map<string, Pace>();

  constructor(uri: string, log: Log) {
    this.#uri = uri;
    this.#log = log;
    this.#pulses = new PulseReader(log.env, log.store, log.spec.uuid);
  }

  async read({ signal }: CallOptions = {}): Promise<Vitals> {
    const { env, store, spec } = this.#log;
    const begun = env.monotonic();
    const info = await readInfo(this.#uri, this.#log, { signal });
    const manifest = this.#log.head.known as Manifest;
    const [{ batches }, pulses] = await Promise.all([
      info.closed
        ? { batches: new Map<string, readonly { producer: string; seq: number }[]>() }
        : listIntents(store, spec.uuid, { signal }),
      this.#pulses.read({ signal }),
    ]);
    const newest = info.checkpoints.filter(({ group }, i, all) => all.findIndex((one) => one.group === group) === i);
    const looked = [...info.producers.slice(0, looksMax), ...newest.slice(0, looksMax)];
    const times = await this.#commitTimes(
      looked.map(({ version }) => version),
      info,
      signal,
    );
    const atMs = env.now();
    const ageOf = (version: number): number | undefined => {
      const time = times.get(version);
      return time === undefined ? undefined : Math.max(0, atMs - time);
    };
    const announced = new Map<string, Set<number>>();
    for (const { producer, seq } of [...batches.values()].flat()) {
      const known = announced.get(producer);
      if (known) known.add(seq);
      else announced.set(producer, new Set([seq]));
    }
    this.#paces = new Map(info.producers.map(({ id, seq }) => [id, paceOf(this.#paces.get(id), seq, atMs)]));
    return {
      info,
      atMs,
      tookMs: env.monotonic() - begun,
      commitAgeMs: Math.max(0, atMs - info.lastCommit.timeMs),
      aboutBytes: await aboutBytes(this.#log, manifest, { signal }),
      producers: info.producers.map(({ id, epoch, seq, version }) => {
        const state = manifest.producers.get(id);
        const pace = this.#paces.get(id);
        const pending = [...(announced.get(id) ?? [])].filter((one) => one >= seq);
        return {
          id,
          epoch,
          seq,
          // Clocks of others may be wrong.
          commitAgeMs: pace?.everyMs === undefined ? ageOf(version) : atMs - pace.atMs,
          paceMs: pace?.everyMs,
          pending: pending.length,
          hasLeft: info.closed || (state !== undefined && hasLeft(state)),
        };
      }),
      groups: newest.map(({ group, id, step, version }) => ({
        group,
        checkpoint: id,
        step,
        lagSteps: info.steps.end - step,
        ageMs: ageOf(version),
      })),
      pulses,
    };
  }

  async #commitTimes(
    versions: readonly number[],
    info: NamespaceInfo,
    signal: AbortSignal | undefined,
  ): Promise<ReadonlyMap<number, number | undefined>> {
    const known = this.#times;
    const times = new Map<number, number | undefined>([[info.version, info.lastCommit.timeMs]]);
    await Promise.all(
      [...new Set(versions)].map(async (version) => {
        if (times.has(version)) return;
        if (known.has(version)) times.set(version, known.get(version));
        else times.set(version, (await this.#log.head.read(asVersion(version), { signal }))?.commit.time);
      }),
    );
    this.#times = times;
    return times;
  }
}

/** How quickly a producer commits: when it was first seen where it stands, and the time for each batch until then. */
interface Pace {
  readonly seq: number;
  readonly atMs: number;
  readonly everyMs: number | undefined;
}

/** Commits come in bursts: the last figure counts as much as all before it. */
function paceOf(known: Pace | undefined, seq: number, atMs: number): Pace {
  if (!known || seq < known.seq) return { seq, atMs, everyMs: undefined };
  if (seq === known.seq) return known;
  const everyMs = (atMs - known.atMs) / (seq - known.seq);
  return { seq, atMs, everyMs: known.everyMs === undefined ? everyMs : (known.everyMs + everyMs) / 2 };
}

/** What the readable steps hold, judged by the newest of them. */
export async function aboutBytes(log: Log, manifest: Manifest, { signal }: CallOptions = {}): Promise<number> {
  const { tail, steps } = manifest;
  const count = steps.end - steps.trim;
  if (count === 0) return 0;
  const newest = tail.batches.filter((_, i) => tail.start + i >= steps.trim);
  // A run was sealed this very moment: the last batch of it must do.
  const batches =
    newest.length > 0 ? newest : [(await log.index.locate(manifest, asStep(steps.end - 1), { signal })).descriptor];
  const bytes = batches.reduce((sum, { extents }) => sum + extents.reduce((all, { size }) => all + size, 0), 0);
  return Math.round((bytes / batches.length) * count);
}
