/** What every actor of a run shares: the plan, the oracle, the way to the namespace, and when to stop. */
import { isBatchWeaveError } from "../../src/errors.js";
import { decodeNamespace, type Manifest, namespaceKey } from "../../src/format/index.js";
import { createNamespace, Namespace } from "../../src/index.js";
import type { OpenLog } from "../../src/lifecycle/index.js";
import { Log } from "../../src/log/index.js";
import { Metrics } from "../../src/observe/index.js";
import { type ObjectStore, withHedging, withPrefix, withRetry } from "../../src/store/index.js";
import { ChainOracle } from "../oracle/chain-oracle.js";
import { Violation } from "../oracle/violation.js";
import { DecodedManifests } from "../store/decoded-manifests.js";
import type { Rng } from "../world/random.js";
import type { ProcessContext, Simulation } from "../world/simulation.js";
import type { SimProcess } from "../world/world.js";
import type { WeavePlan } from "./weave-settings.js";

/** Producers are moved to tables early, so that short runs see it. */
const silence = { silentVersions: 12, inlineProducersMin: 4, movedMin: 3 } as const;

/** Where the namespace is said to be; forks are below it. */
export const rootUri = "sim://run";

type Neighbours = NonNullable<ConstructorParameters<typeof Namespace>[3]>;

/** Counters of what actors lived through. */
export interface WeaveCounts {
  accepted: number;
  fencings: number;
  closings: number;
  expiredUploads: number;
  unavailable: number;
  restarts: number;
  shares: number;
  reclaimedReaders: number;
  damagedReads: number;
  checkpoints: number;
  jobRestarts: number;
  reclaims: number;
  forks: number;
  forkReads: number;
  /** Forks of forks whose parent let go of what both share. */
  heirs: number;
  tidiedPins: number;
  refusedCheckpoints: number;
  lagSettings: number;
  lagDeadlocks: number;
  refusedStores: number;
  tenants: number;
  litteredTenants: number;
  squatted: number;
  evictions: number;
  resurrections: number;
  /** Runs of a reclaimer that began while another's was under way. */
  reclaimRaces: number;
  refusedForRoom: number;
  /** Producers closed with batches that nobody had flushed. */
  unflushedClosings: number;
  lineages: number;
  lineageReads: number;
  spoiled: number;
  sweptAtLast: number;
}

/** One process's handle of the namespace. */
export interface Handle {
  readonly log: Log;
  readonly namespace: Namespace;
}

/** The stage of one run. */
export class WeaveStage {
  readonly sim: Simulation;
  readonly plan: WeavePlan;
  readonly rng: Rng;
  readonly oracle: ChainOracle;
  /** How every process of the run decodes manifests. */
  readonly decode: DecodedManifests["decode"] = new DecodedManifests().decode;
  readonly counts: WeaveCounts = {
    accepted: 0,
    fencings: 0,
    closings: 0,
    expiredUploads: 0,
    unavailable: 0,
    restarts: 0,
    shares: 0,
    reclaimedReaders: 0,
    damagedReads: 0,
    checkpoints: 0,
    jobRestarts: 0,
    reclaims: 0,
    forks: 0,
    forkReads: 0,
    heirs: 0,
    tidiedPins: 0,
    refusedCheckpoints: 0,
    lagSettings: 0,
    lagDeadlocks: 0,
    refusedStores: 0,
    tenants: 0,
    litteredTenants: 0,
    squatted: 0,
    evictions: 0,
    resurrections: 0,
    reclaimRaces: 0,
    refusedForRoom: 0,
    unflushedClosings: 0,
    lineages: 0,
    lineageReads: 0,
    spoiled: 0,
    sweptAtLast: 0,
  };
  /** Told when producers and ranks wait for each other, as they say. */
  onDeadlock: (() => void) | undefined;
  readonly #metrics: Metrics[] = [];
  readonly #logs = new WeakMap<SimProcess, Log>();
  /** True once the faults are over: finish and stop. */
  healed = false;

  constructor(sim: Simulation, plan: WeavePlan, rng: Rng) {
    this.sim = sim;
    this.plan = plan;
    this.rng = rng;
    this.oracle = new ChainOracle(sim.store, this.decode, plan.keepLast);
    this.oracle.versions.nowMs = () => sim.world.nowMs;
  }

  /** The namespace as a process of its own opens it: created by whoever comes first, with the store put together as `open.ts` does. */
  async open(context: ProcessContext): Promise<Handle> {
    const { env } = context;
    const store = this.#storeOf(context);
    const { grid, order, producers } = this.plan;
    if (this.oracle.head === undefined || env.random() < 0.1)
      await createNamespace(rootUri, { grid, order, lanes: producers.length }, { env, store });
    const handle = await this.#handle(context, rootUri, store);
    this.#logs.set(context.process, handle.log);
    this.#watch(handle.log.head);
    return handle;
  }

  /** A fork, as the process that made it opens it. */
  openAt(context: ProcessContext, uri: string): Promise<Handle> {
    return this.#handle(context, uri, this.#storeOf(context));
  }

  /** The newest manifest that a process has verified. */
  knownTo(process: SimProcess): Manifest | undefined {
    return this.#logs.get(process)?.head.known;
  }

  /** Another place of the same store. */
  storeAt(context: ProcessContext, prefix: string): ObjectStore {
    return withPrefix(this.#storeOf(context), prefix);
  }

  /** Times a producer waited for a checkpoint. */
  get lagWaits(): number {
    return this.#metrics.reduce((sum, each) => sum + each.value("batchweave_producer_lag_waits_total"), 0);
  }

  #storeOf({ store, env }: ProcessContext): ObjectStore {
    const retried = withRetry(store, env);
    return env.random() < 0.3 ? withHedging(retried, env) : retried;
  }

  /** Whatever the head gives out for verified is compared with the true chain, whether or not anybody comes to harm by it. */
  #watch(head: Log["head"]): void {
    let newest = 0;
    const watched =
      (find: Log["head"]["jump"]): Log["head"]["jump"] =>
      async (options) => {
        const manifest = await find.call(head, options);
        try {
          this.oracle.verified(manifest);
          // Verified is not newest, but nobody goes back behind what it verified itself.
          if (manifest.version < newest)
            throw new Violation("backwards", `version ${manifest.version} is given out after ${newest}`);
          newest = manifest.version;
        } catch (error) {
          this.sim.world.fail(error);
        }
        return manifest;
      };
    head.advance = watched(head.advance);
    head.jump = watched(head.jump);
    head.load = watched(head.load);
  }

  async #handle({ env }: ProcessContext, uri: string, root: ObjectStore): Promise<Handle> {
    const openStore = async (at: string): Promise<ObjectStore> => withPrefix(root, at.slice(rootUri.length + 1));
    const openLog: OpenLog = async (at) => await logAt(await openStore(at));
    const logAt = async (store: ObjectStore): Promise<Log> => {
      const bytes = await store.get(namespaceKey);
      if (bytes === undefined) throw new Violation("namespace", `there is none at ${store.uri}`);
      const spec = decodeNamespace(bytes, namespaceKey);
      return new Log({ store, env, spec, openOrigin: openStore, silence, decode: this.decode });
    };
    const log = await logAt(await openStore(uri));
    await log.head.newest();
    const neighbours: Neighbours = {
      openStore,
      openLog,
      find: async (at) => {
        const bytes = await (await openStore(at)).get(namespaceKey);
        return bytes && decodeNamespace(bytes, namespaceKey).uuid;
      },
      prepareTarget: openStore,
      open: async (at) => new Namespace(at, await openLog(at, ""), new Metrics()),
    };
    const metrics = new Metrics();
    this.#metrics.push(metrics);
    return { log, namespace: new Namespace(uri, log, metrics, neighbours) };
  }

  /** What any process may die of while the store is bad, and then simply comes back. */
  survives(error: unknown): boolean {
    if (isBatchWeaveError(error, "LAG_DEADLOCK") && this.oracle.versions.counts.starvations > 0) {
      this.counts.lagDeadlocks++;
      this.onDeadlock?.();
      return true;
    }
    if (isBatchWeaveError(error, "STORE_FULL") && (this.sim.faults.counts.get("full") ?? 0) > 0) {
      this.counts.refusedForRoom++;
      return true;
    }
    if (!isBatchWeaveError(error, "STORE_UNAVAILABLE")) return this.isWireDamage(error);
    this.counts.unavailable++;
    return true;
  }

  /** Bits that flip on the wire again and again end in CORRUPT; the next read is as good as ever. */
  isWireDamage(error: unknown): boolean {
    const { counts } = this.sim.faults;
    const isDamaged = counts.has("corrupted") || counts.has("truncated") || counts.has("damagedGet");
    if (!isBatchWeaveError(error, "CORRUPT") || !isDamaged) return false;
    this.counts.damagedReads++;
    return true;
  }
}
