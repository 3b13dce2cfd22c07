/**
 * A fleet on stage: loaders and constructors that hold lanes, a rank that trains, a reclaimer. The real code with sources that are known. Whichever process dies, stands
 * still, leaves or comes: the training log must be, byte for byte, the one that a single undisturbed process writes, which holds every sample once.
 */
import { createHash } from "node:crypto";
import {
  type Cursor,
  isBatchWeaveError,
  type Namespace,
  openNamespace,
  withPrefix,
  withRetry,
} from "../../src/index.js";
import { type FleetOptions, runConstructors, runLoaders } from "../../src/plan/index.js";
import { Violation } from "../oracle/violation.js";
import type { Cast } from "../scenarios/scenario.js";
import type { Rng } from "../world/random.js";
import { type ProcessContext, Simulation } from "../world/simulation.js";
import type { SimProcess } from "../world/world.js";
import { allSamples, drawFleet, type FleetPlan, fleetPipeline, toyTokens, trainingUri } from "./fleet-plan.js";

/** Processes of one role at most. */
const membersMax = 6;
const reclaimGapMs = 4_000;

/** What a log holds, step by step. */
interface Contents {
  readonly trim: number;
  readonly closed: boolean;
  readonly steps: readonly string[];
  readonly samples: readonly string[];
  readonly tokens: number;
}

function storeAt({ store, env }: ProcessContext): (uri: string) => ReturnType<typeof withRetry> {
  return (uri) => withRetry(withPrefix(store, `${uri.slice("memory:".length)}/`), env);
}

function optionsOf(context: ProcessContext): FleetOptions {
  return { env: context.env, storeAt: storeAt(context) };
}

async function openLog(context: ProcessContext, uri: string): Promise<Namespace> {
  return await openNamespace(uri, { env: context.env, store: storeAt(context)(uri), waitMs: 3_600_000 });
}

/** Everything of a log that must not depend on who wrote it. */
async function readLog(ns: Namespace): Promise<Contents> {
  const { steps: range, closed } = await ns.info();
  const [steps, samples]: [string[], string[]] = [[], []];
  let tokens = 0;
  for (let step = range.trim; step < range.end; step++) {
    const { producer, seq, resumePoint, user } = await ns.inspect(step);
    const lineage = (await ns.samples(step)) ?? [];
    const point = { ...(resumePoint as object), sources: undefined };
    const hash = createHash("sha256").update(JSON.stringify([producer, seq, user, point, lineage]));
    for (let row = 0; row < ns.grid.rows; row++)
      for (let chunk = 0; chunk < ns.grid.chunks; chunk++) hash.update(await ns.readSlice({ step, row, chunk }));
    steps.push(hash.digest("hex"));
    samples.push(...lineage.map(({ source, id }) => `${source} ${id}`));
    tokens += (user as { readonly tokens?: number } | undefined)?.tokens ?? 0;
  }
  return { trim: range.trim, closed, steps, samples, tokens };
}

class Fleet implements Cast {
  readonly #sim: Simulation;
  readonly #plan: FleetPlan;
  readonly #rng: Rng;
  readonly #members = new Map<SimProcess, AbortController>();
  readonly #counts: Record<string, number> = {};
  /** What the rank has seen of a step, whichever of its lives saw it. */
  readonly #seen = new Map<number, string>();
  #saved: Cursor | undefined;
  #isRankDone = false;
  #healed = false;
  #names = 0;

  constructor(sim: Simulation) {
    this.#sim = sim;
    this.#rng = sim.world.rng("fleet");
    this.#plan = drawFleet(this.#rng);
    sim.world.onExit = (process) => this.#onExit(process);
    for (let i = 0; i < this.#plan.loaders; i++) this.#spawn("loader");
    for (let i = 0; i < this.#plan.constructors; i++) this.#spawn("constructor");
    this.#spawn("rank");
    this.#spawn("reclaimer");
  }

  #count(name: string, by = 1): void {
    this.#counts[name] = (this.#counts[name] ?? 0) + by;
  }

  #spawn(role: string): void {
    const stop = new AbortController();
    const process = this.#sim.spawn(`${role}-${this.#names++}`, async (context) => {
      try {
        if (role === "rank") await this.#train(context);
        else if (role === "reclaimer") await this.#reclaim(context);
        else await this.#work(role, context, stop.signal);
      } catch (error) {
        // Told to leave before it had begun.
        if (error !== stop.signal.reason) throw error;
      }
    });
    this.#members.set(process, stop);
  }

  #roleOf({ name }: SimProcess): string {
    return name.slice(0, name.indexOf("-"));
  }

  #alive(role: string): SimProcess[] {
    return [...this.#members.keys()].filter((process) => process.alive && this.#roleOf(process) === role);
  }

  #onExit(process: SimProcess): void {
    const stop = this.#members.get(process);
    this.#members.delete(process);
    const role = this.#roleOf(process);
    if (process.exit?.reason === "threw") {
      const { error } = process.exit;
      const isPassing = isBatchWeaveError(error) && error.remedy === "retry";
      if (!isPassing) this.#sim.world.fail(error);
      this.#count("passingFailures");
    }
    const isDone = process.exit?.reason === "returned" && !stop?.signal.aborted;
    if (isDone || role === "judge") return;
    // One that left is not replaced for a while, one that died is started again soon.
    const delayMs = this.#rng.between(300, stop?.signal.aborted ? 6_000 : 2_000);
    this.#sim.world.after(delayMs, () => this.#spawn(role));
  }

  async #work(role: string, context: ProcessContext, signal: AbortSignal): Promise<void> {
    const settings = { shadow: this.#rng.chance(0.3), patienceMs: 1_500 };
    const options: FleetOptions = {
      ...optionsOf(context),
      signal,
      onHandover: ({ kind, log, lane }) => {
        context.note(kind, `${log.name}/${lane}`);
        this.#count(kind);
      },
      onBlock: () => this.#count("blocks"),
      onBatch: () => this.#count("batches"),
    };
    const pipeline = fleetPipeline(this.#plan);
    if (role === "loader") await runLoaders(pipeline, settings, options);
    else await runConstructors(pipeline, settings, options);
  }

  /** One rank of the whole mesh, with a checkpoint now and then. */
  async #train(context: ProcessContext): Promise<void> {
    const ns = await openLog(context, trainingUri);
    const from = this.#saved ?? "earliest";
    const consumer = await ns.consumer({
      mesh: { dp: 1 },
      rank: 0,
      policy: "global-batch",
      from,
      environment: {},
      onWait: () => {},
    });
    let left = this.#plan.checkpointEvery;
    for await (const { slices, next } of consumer) {
      const step = slices[0]?.step as number;
      const hash = createHash("sha256");
      for (const { bytes } of slices) hash.update(bytes);
      const digest = hash.digest("hex");
      const before = this.#seen.get(step);
      if (before !== undefined && before !== digest)
        throw new Violation("rank", `step ${step} is another than before the rank died`);
      this.#seen.set(step, digest);
      this.#count("trained");
      await context.env.sleep(this.#plan.trainMs);
      if (--left > 0) continue;
      left = this.#plan.checkpointEvery;
      this.#saved = next;
      await consumer.checkpoint(`step-${step}-${context.process.label}`, next, { keepLast: 2 });
      this.#count("checkpoints");
    }
    this.#isRankDone = true;
  }

  async #reclaim(context: ProcessContext): Promise<void> {
    const uris = [trainingUri, ...this.#plan.sources.map(({ name }) => `${trainingUri}.sources/${name}`)];
    const logs = await Promise.all(uris.map((uri) => openLog(context, uri)));
    while (!this.#isRankDone) {
      await context.env.sleep(reclaimGapMs);
      for (const [i, ns] of logs.entries()) {
        const { trim } = await ns.reclaim({ graceMs: 2_000, keepVersions: 8 });
        this.#count(i === 0 ? "trimmedSteps" : "trimmedBlocks", trim.after - trim.before);
      }
      this.#count("reclaims");
    }
  }

  /** `leave`: a process is told to stop; `join`: one more process comes. */
  readonly strike = (kind: string, rng: Rng): (() => void) | undefined => {
    const role = rng.pick(["loader", "constructor"]);
    const alive = this.#alive(role);
    if (kind === "join") return alive.length >= membersMax ? undefined : () => this.#spawn(role);
    if (kind !== "leave" || alive.length === 0) return undefined;
    const process = rng.pick(alive);
    return () => this.#members.get(process)?.abort(new Error("told to leave"));
  };

  heal(): void {
    this.#healed = true;
  }

  settled(): boolean {
    return this.#healed && this.#isRankDone && this.#members.size === 0;
  }

  waitsFor(): string {
    return `${[...this.#members.keys()].map(({ label }) => label).join(", ")}; the rank saw ${this.#seen.size} steps`;
  }

  counters(): Readonly<Record<string, number>> {
    return this.#counts;
  }

  async check(): Promise<void> {
    const { sources } = this.#plan;
    const found = await judge(this.#sim, this.#plan);
    const alone = await undisturbed(this.#plan);
    const training = (found.get(trainingUri) as Contents) ?? undefined;
    const expected = alone.get(trainingUri) as Contents;
    const samples = allSamples(this.#plan);
    const tokens = samples.reduce((sum, sample) => {
      const [source = "", id = ""] = sample.split(" ");
      return sum + toyTokens(source, id).length;
    }, 0);
    if ([...expected.samples].sort().join() !== [...samples].sort().join())
      throw new Violation("exactly once", `${expected.samples.length} samples are in the log, of ${samples.length}`);
    if (expected.tokens !== tokens)
      throw new Violation("honest tables", `batches count ${expected.tokens} tokens, samples have ${tokens}`);
    for (const uri of [trainingUri, ...sources.map(({ name }) => `${trainingUri}.sources/${name}`)]) {
      const [is, must] = [found.get(uri) as Contents, alone.get(uri) as Contents];
      if (!is.closed) throw new Violation("end", `${uri} is not closed`);
      if (is.trim + is.steps.length !== must.steps.length)
        throw new Violation("same log", `${uri} ends at ${is.trim + is.steps.length}, not ${must.steps.length}`);
      const wrong = is.steps.findIndex((step, i) => step !== must.steps[is.trim + i]);
      if (wrong !== -1)
        throw new Violation("same log", `${uri}: step ${is.trim + wrong} is not what one process writes`);
    }
    const missed = expected.steps.findIndex((_, step) => !this.#seen.has(step));
    if (missed !== -1) throw new Violation("rank", `the rank did not see step ${missed}`);
    this.#counts["steps"] = training.trim + training.steps.length;
  }
}

/** Reads and verifies all logs of a simulation, in a process of its own. */
async function judge(sim: Simulation, { sources }: FleetPlan): Promise<Map<string, Contents>> {
  const found = new Map<string, Contents>();
  const process = sim.spawn(`judge-${sim.world.processes.length}`, async (context) => {
    for (const uri of [trainingUri, ...sources.map(({ name }) => `${trainingUri}.sources/${name}`)]) {
      const ns = await openLog(context, uri);
      const { problems } = await ns.verify({ level: "bytes" });
      if (problems[0]) throw new Violation("verify", `${uri}: ${problems[0].message}`);
      found.set(uri, await readLog(ns));
    }
  });
  await sim.world.run({ until: () => !process.alive });
  if (process.exit?.reason === "threw") throw process.exit.error;
  return found;
}

const alone = new Map<string, Promise<Map<string, Contents>>>();

/** The logs as one undisturbed process writes them. */
function undisturbed(plan: FleetPlan): Promise<Map<string, Contents>> {
  const name = JSON.stringify(plan);
  const known = alone.get(name);
  if (known) return known;
  const made = (async () => {
    const sim = new Simulation({ seed: 1, latency: "constant" });
    const process = sim.spawn("alone", async (context) => {
      const pipeline = fleetPipeline(plan);
      await Promise.all([
        runConstructors(pipeline, {}, optionsOf(context)),
        runLoaders(pipeline, {}, optionsOf(context)),
      ]);
    });
    await sim.world.run({ until: () => !process.alive, untilMs: 3_600_000 });
    if (process.exit?.reason !== "returned")
      throw process.exit?.reason === "threw"
        ? process.exit.error
        : new Violation("end", "one process alone does not end");
    return await judge(sim, plan);
  })();
  if (alone.size > 8) alone.clear();
  alone.set(name, made);
  return made;
}

/** Builds a fleet. */
export function fleetCast(sim: Simulation): Cast {
  return new Fleet(sim);
}
