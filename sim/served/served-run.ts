/**
 * Python inside the simulation's oracle. This process owns the store and judges every write; Python producers and ranks work on it through a
 * socket, beside TypeScript producers and a reclaimer, in real time. Some Python processes are killed, some stopped until they are zombies. The
 * faults follow from the seed; how the processes meet does not, so a seed that failed is likely to fail again, not certain to.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { StoreServer } from "../../harness/store-server.js";
import { systemEnv } from "../../src/env/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { decodeManifest, parseManifestKey } from "../../src/format/index.js";
import { createNamespace, type Namespace, openNamespace } from "../../src/index.js";
import { withRetry } from "../../src/store/index.js";
import { batchSlices, drawLength } from "../actors/batch-content.js";
import type { JobShape } from "../actors/job-shape.js";
import { ChainOracle } from "../oracle/chain-oracle.js";
import { nextOf } from "../oracle/producer-truth.js";
import { propertyOf, Violation } from "../oracle/violation.js";
import { SimStore } from "../store/sim-store.js";
import { keyInLife } from "../world/life-key.js";
import { Rng } from "../world/random.js";
import { PythonCast } from "./python-cast.js";
import { RoughStore } from "./rough-store.js";

/** What a run is made of. */
export interface ServedSettings {
  /** The repository. */
  readonly root: string;
  /** The Python package under test; that of the repository unless told. */
  readonly pythonPath?: string | undefined;
  readonly seed: number;
  /** How long things go wrong. */
  readonly roughMs: number;
  /** How long nothing at all may happen while everybody finishes afterwards. Default 90 s: a busy machine is slow, but it goes on. */
  readonly patienceMs?: number | undefined;
}

/** What came of a run. */
export interface ServedResult {
  readonly seed: number;
  readonly failure: { readonly property: string; readonly message: string } | undefined;
  readonly counters: Readonly<Record<string, number>>;
}

const uri = "served://run/ns";
const grid = { rows: 2, chunks: 2 };
const keepLast = 2;
const retry = { firstDelayMs: 10, delayMaxMs: 200 };
const parts = ["py-0", "py-1", "py-duel", "rank-0", "rank-1"];
const shapes: readonly JobShape[] = [
  { mesh: { dp: 2, cp: 1, tp: 1 }, policy: "per-rank", layout: "contiguous", rowsPerRank: 1 },
  { mesh: { dp: 1, cp: 2, tp: 1 }, policy: "per-rank", layout: "contiguous", rowsPerRank: 3 },
];

/** Errors that a bad store excuses. */
const passing = ["CONTENDED", "STORE_UNAVAILABLE", "CORRUPT", "UPLOAD_EXPIRED"] as const;
const isPassing = (error: unknown): boolean => passing.some((code) => isBatchWeaveError(error, code));

/** Runs one seed. */
export async function runServed(settings: ServedSettings): Promise<ServedResult> {
  const folder = mkdtempSync(join(tmpdir(), "batchweave-served-"));
  try {
    return await new ServedRun(settings, join(folder, "store")).run();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

class ServedRun {
  readonly #settings: ServedSettings;
  readonly #socket: string;
  readonly #rng: Rng;
  readonly #store = new SimStore();
  readonly #oracle: ChainOracle;
  readonly #rough: RoughStore;
  readonly #cast: PythonCast;
  readonly #failed: Promise<never>;
  #fail: (error: unknown) => void = () => {};
  #isFailed = false;
  readonly #counts = { tsAcknowledged: 0, tsFenced: 0, reclaims: 0 };

  constructor(settings: ServedSettings, socket: string) {
    this.#settings = settings;
    this.#socket = socket;
    const { seed, root } = settings;
    this.#rng = new Rng(seed, "served");
    this.#oracle = new ChainOracle(this.#store, decodeManifest, keepLast);
    this.#failed = new Promise((_, reject) => {
      this.#fail = (error) => {
        this.#isFailed = true;
        reject(error);
      };
    });
    this.#failed.catch(() => {});
    const isFreeAgain = (key: string): boolean =>
      (parseManifestKey(keyInLife(key)) ?? Number.POSITIVE_INFINITY) <= this.#oracle.boundary &&
      this.#store.sizeOf(key) === undefined;
    this.#rough = new RoughStore(this.#store, seed, isFreeAgain, this.#fail);
    this.#cast = new PythonCast(
      {
        root,
        pythonPath: settings.pythonPath ?? join(root, "python"),
        socket,
        seed,
        shape: this.#rng.pick(shapes),
        keepLast,
        onFailure: this.#fail,
      },
      this.#oracle,
    );
  }

  async run(): Promise<ServedResult> {
    const server = new StoreServer({
      storeOf: (who) => this.#rough.client(who),
      onReport: (request) => this.#cast.hear(request),
      onError: this.#fail,
    });
    let failure: ServedResult["failure"];
    try {
      await server.listen(this.#socket);
      await createNamespace(uri, { grid }, { store: this.#store.direct() });
      await Promise.race([this.#play(), this.#failed]);
    } catch (error) {
      failure = { property: propertyOf(error), message: error instanceof Error ? error.message : String(error) };
    }
    this.#isFailed = true;
    await this.#cast.killAll();
    await server.close();
    const { commits, conflicts, zombieManifests, boundaries, reclaimed } = this.#oracle.counts;
    const faults = Object.fromEntries(this.#rough.counts);
    const oracle = { commits, conflicts, zombieManifests, boundaries, reclaimed, steps: this.#oracle.steps.length };
    return {
      seed: this.#settings.seed,
      failure,
      counters: { ...this.#cast.counts, ...this.#counts, ...oracle, ...faults },
    };
  }

  async #play(): Promise<void> {
    const { roughMs, patienceMs = 90_000 } = this.#settings;
    for (const part of [...parts, "py-duel"]) this.#cast.start(part);
    const producers = ["ts-0", "ts-1"].map((id) => this.#produce(id));
    const reclaimer = this.#reclaim();
    // Nobody is tormented before everybody is there.
    const isReady = (): boolean => parts.every((part) => this.#cast.isHeard(part));
    for (const until = performance.now() + patienceMs; !isReady() && !this.#isFailed && performance.now() < until; )
      await systemEnv.sleep(50);
    await this.#torment(roughMs);
    this.#rough.isRough = false;
    this.#cast.isGoingOn = false;
    await this.#within(patienceMs, "the producers finish", Promise.all([...producers, this.#cast.ended("producers")]));
    await this.#within(patienceMs, "the reclaimer finishes", reclaimer);
    const { namespace } = await this.#open("closer");
    await namespace.endLog();
    this.#cast.replace(parts);
    await this.#within(patienceMs, "the ranks read to the end", this.#cast.ended("all"));
    while (this.#rough.underWay > 0) await systemEnv.sleep(50);
    this.#oracle.walk();
    const { problems } = await namespace.verify();
    if (problems.length > 0) throw new Violation("verify", problems.map((problem) => problem.message).join("; "));
  }

  /** Kills and stops until the time is up. */
  async #torment(forMs: number): Promise<void> {
    const until = performance.now() + forMs;
    const blows: Promise<void>[] = [];
    while (performance.now() < until && !this.#isFailed) {
      await systemEnv.sleep(this.#rng.between(300, 1_400));
      if (this.#rng.chance(0.45)) await this.#cast.kill(this.#rng);
      else blows.push(this.#cast.stop(this.#rng));
      this.#cast.replace(parts);
    }
    await Promise.all(blows);
  }

  /** Whatever anybody has got done. */
  get #done(): number {
    const counts = [...Object.values(this.#cast.counts), ...Object.values(this.#counts)];
    return this.#oracle.counts.commits + counts.reduce((sum, count) => sum + count, 0);
  }

  async #within(ms: number, what: string, work: Promise<unknown>): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const watch = (before: number): void => {
        timer = setTimeout(() => {
          const done = this.#done;
          if (done !== before) return watch(done);
          const alive = this.#cast.names.join(", ");
          reject(new Violation("liveness", `${what}: nothing has happened for ${ms} ms; alive: ${alive}`));
        }, ms);
      };
      watch(this.#done);
    });
    await Promise.race([work, late, this.#failed]).finally(() => clearTimeout(timer));
  }

  async #open(who: string): Promise<{ namespace: Namespace }> {
    const store = withRetry(this.#rough.client(who), systemEnv, retry);
    return { namespace: await openNamespace(uri, { store }) };
  }

  /** A TypeScript producer: opens, appends for a while, closes or dies without closing, opens again. */
  async #produce(id: string): Promise<void> {
    const rng = new Rng(this.#settings.seed, id);
    for (let life = 0; this.#cast.isGoingOn && !this.#isFailed; life++) {
      try {
        await this.#session(id, `${id}.${life}`, rng);
      } catch (error) {
        if (isBatchWeaveError(error, "FENCED")) this.#counts.tsFenced++;
        else if (!isPassing(error)) {
          this.#fail(error);
          return;
        }
      }
      await systemEnv.sleep(rng.between(0, 200));
    }
  }

  async #session(id: string, variant: string, rng: Rng): Promise<void> {
    const { namespace } = await this.#open(variant);
    const producer = await namespace.producer({ id, bufferedBatchesMax: rng.pick([1, 4, 64]) });
    this.#oracle.opened(id, producer.epoch, producer.nextSeq, producer.resumePoint);
    let counter = nextOf(producer.resumePoint) ?? 0;
    while (this.#cast.isGoingOn && !this.#isFailed && !rng.chance(0.03)) {
      const batch = { producer: id, counter, variant };
      this.#oracle.append(batch);
      const slices = batchSlices(batch, grid, () => drawLength(rng));
      const ticket = await producer.append(slices, { resumePoint: { next: counter + 1 } });
      counter++;
      ticket.committed.then(
        ({ version }) => {
          this.#counts.tsAcknowledged++;
          try {
            this.#oracle.acknowledge(batch, producer.epoch, version);
          } catch (error) {
            this.#fail(error);
          }
        },
        () => {},
      );
      await systemEnv.sleep(rng.exponential(40));
    }
    await producer.close();
  }

  /** Deletes as eagerly as it may, so that names are free again while somebody is still on his way to them. */
  async #reclaim(): Promise<void> {
    const rng = new Rng(this.#settings.seed, "reclaimer");
    const graceMs = rng.pick([0, 0, 500]);
    const { namespace } = await this.#open("reclaimer");
    while (this.#cast.isGoingOn && !this.#isFailed) {
      await systemEnv.sleep(rng.between(50, 400));
      try {
        await namespace.reclaim({ graceMs, keepVersions: 2 });
        this.#counts.reclaims++;
      } catch (error) {
        if (!isPassing(error)) {
          this.#fail(error);
          return;
        }
      }
    }
  }
}
