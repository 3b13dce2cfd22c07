/** The real code on stage: producers, guests, training jobs, reclaimers and the closer of the log, watched by the oracle. */
import type { Env } from "../../src/env/index.js";
import { asVersion, batchPrefix, manifestKey } from "../../src/format/index.js";
import { Namespace } from "../../src/index.js";
import { ReclaimLoop, verifyLog } from "../../src/lifecycle/index.js";
import { Log } from "../../src/log/index.js";
import { Metrics } from "../../src/observe/index.js";
import { type ObjectStore, withPrefix } from "../../src/store/index.js";
import { requireNoLeak, requireNotice } from "../oracle/autopsy.js";
import { Violation } from "../oracle/violation.js";
import type { Cast } from "../scenarios/scenario.js";
import { keyInLife } from "../world/life-key.js";
import { Rng } from "../world/random.js";
import type { ProcessContext, Simulation } from "../world/simulation.js";
import type { SimProcess } from "../world/world.js";
import { forkAndRead, tidyPins } from "./fork-actor.js";
import { Job } from "./job-actor.js";
import { foundLine } from "./lineage-actor.js";
import { produce } from "./producer-actor.js";
import { releaseOne, setLag, survey, Tenant, tenantsPrefix } from "./side-actors.js";
import { drawPlan, type WeaveSettings } from "./weave-settings.js";
import { type Handle, rootUri, WeaveStage } from "./weave-stage.js";

/** Batches that every producer still has to commit once the faults are over. */
const batchesAfterFaults = 3;
const versionsKeptAfterFaults = 1000;
/** Processes that open the guests' ids in turn. */
const visitors = 3;

/** For the last check, which takes no time. */
const timelessEnv: Env = {
  now: () => 0,
  monotonic: () => 0,
  sleep: async () => {},
  random: () => 0.5,
  id: () => "000000000000",
  uuid: () => "00000000-0000-4000-8000-000000000000",
};

/** For what is done after the end: it has ids of its own, and still takes no time. */
function lastEnv(sim: Simulation): Env {
  let ids = 0;
  const id = (): string => (++ids).toString(16).padStart(12, "f");
  // Far enough in the future for every clock that was ever wrong.
  return { ...timelessEnv, now: () => 9e12, monotonic: () => sim.world.nowMs, id };
}

/** An actor that is always restarted until its part is over. */
interface Role {
  readonly name: string;
  readonly main: (context: ProcessContext) => Promise<void>;
  /** False while it has not finished; asked when nobody plays it any more. */
  readonly over: () => boolean;
  holders: number;
}

class Weave implements Cast {
  readonly #stage: WeaveStage;
  readonly #roles: Role[] = [];
  readonly #byProcess = new Map<SimProcess, Role>();
  readonly #jobs: Job[];
  readonly #done = new Set<string>();
  #targets: ReadonlyMap<string, number> | undefined;
  readonly #reclaiming = new Set<SimProcess>();
  #closed = false;
  #checks = 0;
  #places = 0;

  constructor(sim: Simulation, settings: WeaveSettings) {
    const rng = sim.world.rng("cast");
    const plan = drawPlan(settings, rng);
    const stage = new WeaveStage(sim, plan, rng);
    this.#stage = stage;
    sim.world.onExit = (process) => this.#onExit(process);
    stage.onDeadlock = () => this.#liftLag();
    sim.faults.leadsTo = (process, kind, key) => {
      if (kind === "create") return key;
      // A producer that uploads a batch commits it onto the version it knows. Of a writer who uploads after the sweep, a zombie's bytes are there, too.
      const local = keyInLife(key);
      const known = kind === "put" && local.startsWith(batchPrefix) ? stage.knownTo(process) : undefined;
      return known && key.replace(local, manifestKey(asVersion(known.version + 1)));
    };
    for (const id of plan.producers) this.#addProducer(id);
    if (plan.guests.length > 0) for (let i = 0; i < visitors; i++) this.#addVisitor(i);
    for (let i = 0; i < plan.reclaimers; i++) this.#addReclaimer(`reclaimer-${i}`);
    for (const role of this.#roles) sim.world.after(rng.exponential(300), () => this.#play(role));
    this.#jobs = [
      ...Array.from({ length: plan.jobs }, (_, i) => new Job(stage, `job-${i}`)),
      ...Array.from({ length: plan.stragglers }, (_, i) => new Job(stage, `straggler-${i}`, true)),
    ];
    for (const job of this.#jobs) sim.world.after(rng.exponential(2000), () => job.begin());
  }

  // Roles.

  #addProducer(id: string): void {
    const main = async (context: ProcessContext): Promise<void> => {
      const target = (counter: number): number => this.#targetOf(id, counter);
      await produce(this.#stage, context, { id, target });
      if (this.#stage.healed) this.#done.add(id);
    };
    this.#addRole(id, main, () => this.#reached(id) || this.#closed);
  }

  #addVisitor(number: number): void {
    const main = async (context: ProcessContext): Promise<void> => {
      const rng = new Rng(this.#stage.sim.world.seed, `visits/${context.process.label}`);
      const own = this.#stage.plan.guests.filter((_, i) => i % visitors === number);
      for (let visit = 0; !this.#stage.healed && this.#stage.oracle.head?.closed !== true; visit++) {
        // They come in rounds, with silence in between that is long enough for all of them to be moved out.
        if (visit > 0 && visit % own.length === 0) await context.env.sleep(rng.exponential(4000));
        const id = rng.chance(0.05) ? rng.pick(this.#stage.plan.guests) : (own[visit % own.length] as string);
        // Some only open: their resume point stays in the table they came from.
        const count = rng.below(3);
        let first: number | undefined;
        const target = (counter: number): number => {
          first ??= counter;
          return first + count;
        };
        await produce(this.#stage, context, { id, target, isVisit: true });
      }
    };
    this.#addRole(`visitor-${number}`, main, () => this.#stage.healed);
  }

  #addReclaimer(name: string): void {
    const { plan, counts } = this.#stage;
    const main = async (context: ProcessContext): Promise<void> => {
      const { log } = await this.#stage.open(context);
      // Once nothing goes wrong any more, nobody may be cut off by a clock that was set wrong before.
      const grace = this.#stage.healed
        ? { graceMs: 0, keepVersions: versionsKeptAfterFaults }
        : { graceMs: plan.graceMs, keepVersions: plan.keepVersions };
      const loop = new ReclaimLoop(log, { ...grace, fullEvery: 4 });
      while (!this.#closed) {
        await context.env.sleep(this.#reclaimDelayMs(context));
        const report = await this.#racing(context.process, () => loop.once());
        counts.reclaims++;
        context.note("reclaimed", `trim ${report.trim.after} cutoff ${report.cutoff.after}`, report.version);
      }
    };
    this.#addRole(name, main, () => this.#closed);
  }

  /** Counts the runs that begin while another's is under way. */
  async #racing<T>(process: SimProcess, run: () => Promise<T>): Promise<T> {
    for (const each of this.#reclaiming) if (!each.alive) this.#reclaiming.delete(each);
    if (this.#reclaiming.size > 0) this.#stage.counts.reclaimRaces++;
    this.#reclaiming.add(process);
    try {
      return await run();
    } finally {
      this.#reclaiming.delete(process);
    }
  }

  /** Half of the time by the clock, like a cron job, so that two reclaimers meet. */
  #reclaimDelayMs({ env }: ProcessContext): number {
    const { reclaimGapMs } = this.#stage.plan;
    if (env.random() < 0.5) return env.random() * 2 * reclaimGapMs;
    return reclaimGapMs - (this.#stage.sim.world.nowMs % reclaimGapMs) + env.random() * 100;
  }

  #addRole(name: string, main: Role["main"], over: Role["over"]): void {
    this.#roles.push({ name, main, over, holders: 0 });
  }

  /** One more process plays the role; there may be others. */
  #play(role: Role): void {
    role.holders++;
    const { skewMsMax } = this.#stage.plan;
    const skewMs = this.#stage.rng.between(-skewMsMax, skewMsMax);
    this.#byProcess.set(this.#stage.sim.spawn(role.name, role.main, { skewMs }), role);
  }

  #onExit(process: SimProcess): void {
    const job = this.#jobs.find((each) => each.owns(process));
    if (job !== undefined) {
      job.onExit(process);
      return;
    }
    const role = this.#byProcess.get(process);
    if (role === undefined) return;
    role.holders--;
    const exit = process.exit;
    if (exit?.reason === "threw" && !this.#stage.survives(exit.error)) {
      this.#stage.sim.world.fail(exit.error);
      return;
    }
    this.#replace(role);
  }

  /** A supervisor: an actor that is needed and not there is started again. */
  #replace(role: Role): void {
    if (role.holders > 0 || role.over()) return;
    this.#stage.sim.world.after(this.#stage.rng.exponential(800), () => {
      if (role.holders > 0 || role.over()) return;
      this.#stage.counts.restarts++;
      this.#play(role);
    });
  }

  // How a run ends.

  #targetOf(id: string, counter: number): number {
    if (this.#stage.oracle.head?.closed === true && this.#stage.plan.closesEarly) return counter + 1;
    return this.#targets?.get(id) ?? Number.POSITIVE_INFINITY;
  }

  #reached(id: string): boolean {
    const target = this.#targets?.get(id);
    return target !== undefined && (this.#stage.oracle.producers.get(id)?.seq ?? 0) >= target;
  }

  heal(): void {
    const { plan, oracle } = this.#stage;
    this.#stage.healed = true;
    const counters = plan.producers.map((id) => oracle.counterOf(id) + batchesAfterFaults);
    // Lanes must all reach the same step.
    const most = Math.max(...counters);
    this.#targets = new Map(
      plan.producers.map((id, i) => [id, plan.order === "lanes" ? most : (counters[i] as number)]),
    );
    for (const [process, role] of this.#byProcess) {
      if (role.name.startsWith("reclaimer")) this.#stage.sim.world.crash(process);
    }
    this.#addLagLifter();
    for (const role of this.#roles) this.#replace(role);
    if (plan.closesEarly) this.#close();
    else this.#closeWhenDone();
  }

  #closeWhenDone(): void {
    if (this.#stage.plan.producers.every((id) => this.#reached(id))) this.#close();
    else this.#stage.sim.world.after(500, () => this.#closeWhenDone());
  }

  #close(): void {
    const main = async (context: ProcessContext): Promise<void> => {
      const { namespace } = await this.#stage.open(context);
      const { end } = await namespace.endLog({ dropWaiting: this.#stage.plan.closesEarly });
      const { head } = this.#stage.oracle;
      if (head?.closed !== true || end !== head.steps.end) throw new Violation("closed", `closed at ${end}, and not`);
      this.#closed = true;
    };
    const role: Role = { name: "closer", main, over: () => this.#closed, holders: 0 };
    this.#roles.push(role);
    this.#play(role);
  }

  settled(): boolean {
    return (
      this.#closed && this.#jobs.every((job) => job.done) && this.#stage.sim.world.processes.every((p) => !p.alive)
    );
  }

  waitsFor(): string {
    const alive = this.#stage.sim.world.processes.filter((p) => p.alive).map((p) => p.label);
    const jobs = this.#jobs.filter((job) => !job.done).map((job) => job.waitsFor);
    const producers = this.#stage.plan.producers.filter((id) => !this.#reached(id));
    return [`closed: ${this.#closed}`, ...producers, ...jobs, "alive:", ...alive].join(" ");
  }

  // Verdict.

  async check(): Promise<void> {
    const { oracle, sim } = this.#stage;
    sim.store.assertUntouched();
    oracle.walk();
    const { spec, head } = oracle;
    if (spec === undefined || head === undefined) return;
    // A reader that comes tomorrow and knows nothing must find the very head of the true chain, and nothing wrong with it.
    const store = sim.store.direct();
    const openOrigin = async (uri: string): Promise<ObjectStore> => withPrefix(store, uri.slice(rootUri.length + 1));
    const log = new Log({ store, env: timelessEnv, spec, openOrigin, decode: this.#stage.decode });
    const found = await log.head.load();
    if (found.version !== head.version || found.commit.id !== head.commit.id)
      throw new Violation("head", `a newcomer finds version ${found.version}, the head is ${head.version}`);
    const { ok, problems } = await verifyLog(log);
    if (!ok) throw new Violation("verify", JSON.stringify(problems.slice(0, 3)));
    // Once, when nothing is on its way any more.
    if (this.#stage.plan.isAutopsied && this.#checks++ === 1) await this.#autopsy(openOrigin);
  }

  async #autopsy(openOrigin: (uri: string) => Promise<ObjectStore>): Promise<void> {
    const { oracle, sim, decode, counts } = this.#stage;
    const { spec } = oracle;
    if (spec === undefined) return;
    const env = lastEnv(sim);
    const open = async (): Promise<Handle> => {
      const log = new Log({ store: sim.store.direct(), env, spec, openOrigin, decode });
      return { log, namespace: new Namespace(rootUri, log, new Metrics()) };
    };
    const isOurs = (key: string): boolean => !key.startsWith(tenantsPrefix) && !key.startsWith("forks/");
    const autopsy = { store: sim.store, oracle, rng: new Rng(sim.world.seed, "autopsy"), open, isOurs };
    counts.sweptAtLast = await requireNoLeak(autopsy);
    counts.spoiled = await requireNotice(autopsy);
  }

  counters(): Readonly<Record<string, number>> {
    const { counts, oracle } = this.#stage;
    const { moved, returned } = oracle.producers;
    const { lagWaits } = this.#stage;
    return {
      ...counts,
      ...oracle.counts,
      ...oracle.versions.counts,
      lagWaits,
      silentMoved: moved,
      silentReturned: returned,
      steps: oracle.steps.length,
    };
  }

  /** A process that does one thing; it is not started again. */
  #once(name: string, main: Role["main"]): void {
    this.#byProcess.set(this.#stage.sim.spawn(name, main), { name, main, over: () => true, holders: 1 });
  }

  #rent(): void {
    const tenant = new Tenant(this.#stage, `place-${this.#places++}`);
    this.#once("tenant", (context) => tenant.own(context));
    this.#once("squatter", (context) => tenant.squat(context));
  }

  /** What an operator does about LAG_DEADLOCK, and in the end. */
  #liftLag(): void {
    this.#once("operator", (context) => setLag(this.#stage, context, undefined));
  }

  #addLagLifter(): void {
    const main = async (context: ProcessContext): Promise<void> => {
      while (!this.#closed) {
        // Somebody who slept while the faults were on may still set it.
        if (this.#stage.oracle.head?.settings?.maxLag !== undefined) await setLag(this.#stage, context, undefined);
        await context.env.sleep(1000);
      }
    };
    this.#addRole("operator", main, () => this.#closed);
  }

  /** A rack stands still and comes back bit by bit: writers in the middle of a commit, and readers that stand at the same version. */
  #freeze(rng: Rng): () => void {
    const { world } = this.#stage.sim;
    const isFrozen = world.processes.filter((p) => p.alive && !p.name.startsWith("reclaimer") && rng.chance(0.6));
    const baseMs = rng.between(5000, 40_000);
    const delays = isFrozen.map(() => baseMs + rng.exponential(1500));
    return () => {
      isFrozen.forEach((process, i) => {
        world.pause(process, delays[i] as number);
      });
    };
  }

  readonly strike = (kind: string, rng: Rng): (() => void) | undefined => {
    if (kind === "secondHolder") {
      const role = rng.pick(this.#roles);
      return role.over() ? undefined : () => this.#play(role);
    }
    if (kind === "freeze") return this.#freeze(rng);
    if (kind === "tenant") return () => this.#rent();
    if (kind === "survey") return () => this.#once("surveyor", (context) => survey(this.#stage, context));
    if (this.#stage.oracle.steps.length < 4) return undefined;
    if (kind === "fork") return () => this.#once("forker", (context) => forkAndRead(this.#stage, context));
    if (kind === "line") return () => this.#once("founder", (context) => foundLine(this.#stage, context));
    if (kind === "release") return () => this.#once("releaser", (context) => releaseOne(this.#stage, context));
    if (kind === "tidyPins") return () => this.#once("janitor", (context) => tidyPins(this.#stage, context));
    if (kind === "maxLag") {
      const maxLag = rng.pick([10, 40, 100]);
      return () => this.#once("operator", (context) => setLag(this.#stage, context, maxLag));
    }
    const job = this.#jobs.length > 0 ? rng.pick(this.#jobs) : undefined;
    if (job === undefined || this.#stage.oracle.head === undefined) return undefined;
    if (kind === "rollback") return () => job.restart("any");
    if (kind === "meshChange") return () => job.restart("newest", "other");
    throw new Error(`the cast knows no "${kind}"`);
  };
}

/** Builds the cast. */
export function weaveCast(sim: Simulation, settings: Readonly<Record<string, unknown>>): Cast {
  return new Weave(sim, settings as WeaveSettings);
}
