/**
 * One place, and one namespace after another: an owner deletes it and makes it again while producers, carriers, ranks, checkpoints and
 * reclaimers of every life are alive, stopped, or dead. The oracle sees every write and knows the true chain of each life.
 */
import { isBatchWeaveError } from "../../src/errors.js";
import { namespaceKey } from "../../src/format/index.js";
import { createNamespace, deleteNamespace, type Namespace, openNamespace } from "../../src/index.js";
import { verifyLog } from "../../src/lifecycle/index.js";
import { Log } from "../../src/log/index.js";
import { withRetry } from "../../src/store/index.js";
import { LivesOracle } from "../oracle/lives-oracle.js";
import { Violation } from "../oracle/violation.js";
import type { Cast } from "../scenarios/scenario.js";
import { Rng } from "../world/random.js";
import type { ProcessContext, Simulation } from "../world/simulation.js";
import type { SimProcess } from "../world/world.js";

const uri = "sim://lives";
const shape = { grid: { rows: 1, chunks: 1 } } as const;
/** Batches that every producer must get into the last life. */
const lastBatches = 5;
/** Longer than a process believes in its `namespace.json`: what a late request of the owner removed is put back by then. */
const lastMs = 45_000;

type Role = { readonly name: string; readonly main: (context: ProcessContext) => Promise<void> };
type Options = { readonly env: ProcessContext["env"]; readonly store: ProcessContext["store"] };

const optionsOf = ({ env, store }: ProcessContext): Options => ({ env, store: withRetry(store, env) });

class Lives implements Cast {
  readonly #sim: Simulation;
  readonly #oracle: LivesOracle;
  readonly #roles = new Map<SimProcess, Role>();
  readonly #counts = {
    lives: 0,
    evictions: 0,
    resurrections: 0,
    shares: 0,
    checkpoints: 0,
    reclaims: 0,
    unavailable: 0,
  };
  readonly #finished = new Set<string>();
  readonly #writers: readonly string[];
  #healed = false;
  #settledAtMs = Number.POSITIVE_INFINITY;
  #closed = false;

  constructor(sim: Simulation) {
    this.#sim = sim;
    this.#oracle = new LivesOracle(sim.store);
    this.#writers = ["carrier-0", "carrier-1", "solo-0"];
    sim.world.onExit = (process) => this.#onExit(process);
    const roles: Role[] = [
      { name: "owner", main: (context) => this.#own(context) },
      ...this.#writers.map((name) => ({
        name,
        main: (c: ProcessContext) => this.#live(c, (ns) => this.#write(c, name, ns)),
      })),
      ...[0, 1].map((i) => ({
        name: `rank-${i}`,
        main: (c: ProcessContext) => this.#live(c, (ns) => this.#read(c, `run-${i}`, ns)),
      })),
      ...[0, 1].map((i) => ({
        name: `reclaimer-${i}`,
        main: (c: ProcessContext) => this.#live(c, (ns) => this.#reclaim(c, ns)),
      })),
    ];
    for (const role of roles) this.#play(role);
  }

  #play(role: Role): void {
    this.#roles.set(this.#sim.spawn(role.name, role.main), role);
  }

  #onExit(process: SimProcess): void {
    const role = this.#roles.get(process);
    const { exit } = process;
    if (role === undefined || exit?.reason === "returned") return;
    if (exit?.reason === "threw" && !this.#survives(exit.error)) {
      this.#sim.world.fail(exit.error);
      return;
    }
    this.#sim.world.after(500, () => this.#play(role));
  }

  #survives(error: unknown): boolean {
    if (!isBatchWeaveError(error, "STORE_UNAVAILABLE") && !isBatchWeaveError(error, "UPLOAD_EXPIRED")) return false;
    this.#counts.unavailable++;
    return true;
  }

  // Roles.

  /** Deletes and makes again, until the faults are over; then it leaves one that stays. */
  async #own(context: ProcessContext): Promise<void> {
    const options = optionsOf(context);
    const rng = new Rng(this.#sim.world.seed, `owner/${context.process.label}`);
    for (;;) {
      try {
        await createNamespace(uri, shape, options);
        if (this.#healed) break;
        await context.env.sleep(rng.exponential(2500));
        await deleteNamespace(uri, options);
        this.#counts.lives++;
      } catch (error) {
        // A create of an earlier life that was lost on its way may land after its deletion; then that is deleted again.
        const told = (["DELETED", "NO_NAMESPACE", "NOT_EMPTY"] as const).find((code) => isBatchWeaveError(error, code));
        if (told === undefined) throw error;
        this.#counts.resurrections++;
        // NOT_EMPTY: a late delete took the namespace.json of a life that goes on; whoever commits there puts it back.
        if (told === "NOT_EMPTY") await context.env.sleep(5000);
        else if (told === "DELETED")
          await deleteNamespace(uri, options).catch((again) => {
            if (!isBatchWeaveError(again)) throw again;
          });
      }
    }
    this.#settledAtMs = this.#sim.world.nowMs;
    this.#closeWhenDone();
  }

  /** Works in whatever life there is, then in the next. */
  async #live(context: ProcessContext, work: (ns: Namespace) => Promise<boolean>): Promise<void> {
    for (let isDone = false; !isDone; ) {
      let ns: Namespace | undefined;
      try {
        ns = await openNamespace(uri, optionsOf(context));
        isDone = await work(ns);
      } catch (error) {
        if (isBatchWeaveError(error, "NO_NAMESPACE")) await context.env.sleep(200);
        else if (isBatchWeaveError(error, "DELETED")) {
          if (ns) this.#counts.evictions++;
          await context.env.sleep(100);
        } else if (!isBatchWeaveError(error, "RECLAIMED")) throw error;
      }
    }
  }

  async #write({ env, process }: ProcessContext, id: string, ns: Namespace): Promise<boolean> {
    const cadence = id.startsWith("solo") ? ({ kind: "interval", intervalMs: 100 } as const) : undefined;
    const producer = await ns.producer({ id, cadence });
    let last = 0;
    for (let seq = producer.nextSeq; ; seq++) {
      const ticket = await producer.append([Buffer.from(`${ns.uuid} ${id} ${seq}`)], {
        resumePoint: { next: seq + 1 },
      });
      const told = ticket.committed.then(({ version }) => {
        if (process.alive) this.#oracle.acknowledge(ns.uuid, id, seq, version);
      });
      told.catch((error) => {
        if (error instanceof Violation) this.#sim.world.fail(error);
      });
      if (this.#sim.world.nowMs > this.#settledAtMs) {
        await told;
        last++;
      }
      if (last >= lastBatches && this.#sim.world.nowMs > this.#settledAtMs + lastMs) break;
      await env.sleep(env.random() * 500);
    }
    await producer.close();
    this.#finished.add(id);
    return true;
  }

  async #read({ env, process }: ProcessContext, group: string, ns: Namespace): Promise<boolean> {
    const consumer = await ns.consumer({
      mesh: { dp: 1 },
      rank: 0,
      from: "earliest",
      pollDelayMs: 200,
      environment: {},
      onWait: () => {},
    });
    for await (const share of consumer) {
      for (const { step, bytes } of share.slices) {
        const text = Buffer.from(bytes).toString();
        if (!text.startsWith(ns.uuid)) throw new Violation("namesake", `step ${step} of ${ns.uuid} holds "${text}"`);
      }
      this.#counts.shares++;
      if (share.iteration % 4 !== 3) continue;
      await ns.checkpoint(`${process.label}-${share.iteration}`, share.next, { group, keepLast: 1 });
      this.#counts.checkpoints++;
      await env.sleep(20);
    }
    return true;
  }

  async #reclaim({ env }: ProcessContext, ns: Namespace): Promise<boolean> {
    while (!this.#closed) {
      await ns.reclaim({ graceMs: 0, keepVersions: 2 });
      this.#counts.reclaims++;
      await env.sleep(env.random() * 1500);
    }
    return true;
  }

  // How a run ends.

  #closeWhenDone(): void {
    if (!this.#writers.every((id) => this.#finished.has(id))) {
      this.#sim.world.after(500, () => this.#closeWhenDone());
      return;
    }
    const main = (context: ProcessContext): Promise<void> =>
      this.#live(context, async (ns) => {
        await ns.endLog();
        this.#closed = true;
        return true;
      });
    this.#play({ name: "closer", main });
  }

  heal(): void {
    this.#healed = true;
  }

  settled(): boolean {
    return this.#closed && this.#sim.world.processes.every((p) => !p.alive);
  }

  waitsFor(): string {
    const alive = this.#sim.world.processes.filter((p) => p.alive).map((p) => p.label);
    return [`closed: ${this.#closed}`, `settled: ${this.#settledAtMs}`, ...this.#finished, "alive:", ...alive].join(
      " ",
    );
  }

  async check(): Promise<void> {
    const spec = this.#oracle.newest;
    if (spec === undefined) throw new Violation("activity", `${namespaceKey} was never created`);
    const openOrigin = (): Promise<never> => Promise.reject(new Error("no ancestors"));
    const store = this.#sim.store.direct();
    const env = (this.#sim.world.processes[0] as SimProcess).env;
    const log = new Log({ store, env, spec, openOrigin });
    const found = await log.head.load();
    this.#oracle.requireHead(spec.uuid, found);
    const { ok, problems } = await verifyLog(log);
    if (!ok) throw new Violation("verify", JSON.stringify(problems.slice(0, 3)));
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#counts, ...this.#oracle.counts };
  }
}

/** Builds the cast. */
export function livesCast(sim: Simulation): Cast {
  return new Lives(sim);
}
