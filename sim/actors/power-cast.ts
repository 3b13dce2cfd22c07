/**
 * One machine with a file store, whose power goes again and again: producers, carriers, ranks with checkpoints and reclaimers all end at once, and what
 * was not synced is gone. After each cut an inspector looks at what is left: all that a process was told is there, and nothing is wrong with it. Chains go
 * back here, which they do in no other cast: readers may have seen a version that was not durable yet, and forget it as a job on that machine does.
 */
import { isBatchWeaveError } from "../../src/errors.js";
import {
  type Cursor,
  decodeNamespace,
  type Manifest,
  makeCursor,
  manifestPrefix,
  namespaceKey,
} from "../../src/format/index.js";
import { createNamespace, type Namespace, openNamespace } from "../../src/index.js";
import { verifyLog } from "../../src/lifecycle/index.js";
import { Log } from "../../src/log/index.js";
import { withRetry } from "../../src/store/index.js";
import { Violation } from "../oracle/violation.js";
import type { Cast } from "../scenarios/scenario.js";
import { keyInLife } from "../world/life-key.js";
import type { Rng } from "../world/random.js";
import type { ProcessContext, Simulation } from "../world/simulation.js";
import type { SimProcess } from "../world/world.js";

const uri = "sim://power";
const writers = ["carrier-0", "carrier-1", "solo-0"] as const;
const groups = ["run-0", "run-1"] as const;
/** Batches that every producer must still get in once the power stays. */
const lastBatches = 4;
const checkpointEvery = 3;

type Role = { readonly name: string; readonly main: (context: ProcessContext) => Promise<void> };

class Power implements Cast {
  readonly #sim: Simulation;
  readonly #roles: readonly Role[];
  readonly #running = new Map<SimProcess, Role>();
  /** What was told and must stay: the namespace, the next seq of each producer, each group's newest checkpoint. */
  #isCreated = false;
  readonly #told = new Map<string, number>();
  readonly #saved = new Map<string, Cursor>();
  /** Slices by step, as ranks read them. */
  readonly #seen: string[] = [];
  readonly #finished = new Set<string>();
  #healed = false;
  #closed = false;
  readonly #counts = {
    commits: 0,
    acknowledged: 0,
    checkpoints: 0,
    shares: 0,
    reclaims: 0,
    unavailable: 0,
    inspections: 0,
    /** Names that cuts took or brought back, and cuts after which the chain was shorter than before. */
    unsyncedNames: 0,
    lostVersions: 0,
  };

  constructor(sim: Simulation) {
    this.#sim = sim;
    this.#roles = [
      ...writers.map((name) => ({ name, main: (c: ProcessContext) => this.#write(c, name) })),
      ...groups.map((name) => ({ name, main: (c: ProcessContext) => this.#read(c, name) })),
      ...["reclaimer-0", "reclaimer-1"].map((name) => ({ name, main: (c: ProcessContext) => this.#reclaim(c) })),
    ];
    sim.world.onExit = (process) => this.#onExit(process);
    for (const role of this.#roles) this.#play(role);
  }

  #play(role: Role): void {
    if (this.#finished.has(role.name) || [...this.#running.values()].includes(role)) return;
    this.#running.set(this.#sim.spawn(role.name, role.main), role);
  }

  #onExit(process: SimProcess): void {
    const role = this.#running.get(process);
    this.#running.delete(process);
    const { exit } = process;
    if (role === undefined) return;
    if (exit?.reason === "returned") this.#finished.add(role.name);
    else if (exit?.reason === "threw" && !this.#survives(exit.error)) this.#sim.world.fail(exit.error);
    else {
      const { cuts } = this.#sim.store;
      this.#sim.world.after(300, () => {
        if (cuts === this.#sim.store.cuts) this.#play(role);
      });
    }
  }

  #survives(error: unknown): boolean {
    if (!isBatchWeaveError(error, "STORE_UNAVAILABLE") && !isBatchWeaveError(error, "UPLOAD_EXPIRED")) return false;
    this.#counts.unavailable++;
    return true;
  }

  // Roles.

  async #open({ env, store }: ProcessContext): Promise<Namespace> {
    const options = { env, store: withRetry(store, env) };
    if (!this.#isCreated) await createNamespace(uri, { grid: { rows: 1, chunks: 1 } }, options);
    this.#isCreated = true;
    return await openNamespace(uri, options);
  }

  async #write(context: ProcessContext, id: string): Promise<void> {
    const { env, process } = context;
    const cadence = id.startsWith("solo") ? ({ kind: "interval", intervalMs: 100 } as const) : undefined;
    const producer = await (await this.#open(context)).producer({ id, cadence });
    for (let last = 0, seq = producer.nextSeq; last < lastBatches; seq++) {
      const { committed } = await producer.append([Buffer.from(`${id} ${seq}`)], { resumePoint: { next: seq + 1 } });
      const told = committed.then(() => {
        if (!process.alive) return;
        this.#told.set(id, Math.max(seq + 1, this.#told.get(id) ?? 0));
        this.#counts.acknowledged++;
      });
      told.catch(() => {});
      if (this.#healed) {
        await told;
        last++;
      }
      await env.sleep(env.random() * 400);
    }
    await producer.close();
  }

  /** Begins where its last checkpoint is, of which it was told. */
  async #read(context: ProcessContext, group: string): Promise<void> {
    const { env, process } = context;
    const ns = await this.#open(context);
    // One that it was never told of may be there, and has let go of those before.
    const held = (await ns.info()).checkpoints.filter((checkpoint) => checkpoint.group === group);
    const last = held.sort((a, b) => b.row - a.row)[0];
    const from = last ? makeCursor(ns.uuid, last.row, last.iteration) : "earliest";
    const consumer = await ns.consumer({ mesh: { dp: 1 }, rank: 0, from, environment: {}, onWait: () => {} });
    for await (const share of consumer) {
      for (const { step, bytes } of share.slices) this.#see(step, Buffer.from(bytes).toString());
      this.#counts.shares++;
      if (share.iteration % checkpointEvery !== 0) continue;
      await ns.checkpoint(`at-${share.iteration}`, share.next, { group, keepLast: 1 });
      if (!process.alive) return;
      this.#saved.set(group, share.next);
      this.#counts.checkpoints++;
      await env.sleep(20);
    }
  }

  #see(step: number, text: string): void {
    const before = this.#seen[step];
    if (before !== undefined && before !== text)
      throw new Violation("order", `step ${step} was "${before}", now "${text}"`);
    this.#seen[step] = text;
  }

  async #reclaim(context: ProcessContext): Promise<void> {
    const ns = await this.#open(context);
    while (!this.#closed) {
      // Not before every group holds something: data goes with the oldest checkpoint of all.
      if (this.#saved.size === groups.length) {
        await ns.reclaim({ graceMs: 0, keepVersions: 1 });
        this.#counts.reclaims++;
      }
      await context.env.sleep(context.env.random() * 1200);
    }
  }

  // The power.

  readonly strike = (kind: string, rng: Rng): (() => void) | undefined => {
    if (kind !== "power") throw new Error(`the cast knows no "${kind}"`);
    return () => {
      // Nobody comes back before the inspector has looked.
      this.#running.clear();
      for (const process of this.#sim.world.processes) this.#sim.world.crash(process);
      const before = this.#versions();
      this.#counts.unsyncedNames += this.#sim.store.cut(rng);
      if (this.#versions() < before) this.#counts.lostVersions++;
      this.#sim.spawn("inspector", async () => {
        try {
          await this.#inspect();
        } catch (error) {
          this.#sim.world.fail(error);
        }
        for (const role of this.#roles) this.#play(role);
      });
    };
  };

  #versions(): string {
    return this.#sim.store.keys("life/").findLast((key) => keyInLife(key).startsWith(manifestPrefix)) ?? "";
  }

  /** What all processes were told is there. */
  async #inspect(): Promise<void> {
    this.#counts.inspections++;
    const head = await this.#load();
    if (head === undefined) {
      if (this.#isCreated) throw new Violation("durability", "the namespace is gone");
      return;
    }
    this.#counts.commits = Math.max(this.#counts.commits, head.version);
    for (const [id, next] of this.#told)
      if ((head.producers.get(id)?.seq ?? 0) < next)
        throw new Violation("durability", `${id} was told of seq ${next - 1}; version ${head.version} has less`);
    for (const [group, { row }] of this.#saved) {
      const rows = [...(head.checkpoints.get(group)?.live.values() ?? [])].map((mark) => mark.row);
      if (!rows.some((found) => found >= row))
        throw new Violation(
          "durability",
          `${group} was told of its checkpoint at row ${row}; there are ${rows.join(", ")}`,
        );
    }
    this.#seen.length = Math.min(this.#seen.length, head.steps.end);
  }

  async #load(): Promise<Manifest | undefined> {
    const store = this.#sim.store.direct();
    const bytes = await store.get(namespaceKey);
    if (bytes === undefined) return undefined;
    const spec = decodeNamespace(bytes, namespaceKey);
    const { env } = this.#sim.world.processes[0] as SimProcess;
    const log = new Log({ store, env, spec, openOrigin: () => Promise.reject(new Error("no ancestors")) });
    const head = await log.head.load();
    const { ok, problems } = await verifyLog(log);
    if (!ok) throw new Violation("verify", JSON.stringify(problems.slice(0, 3)));
    return head;
  }

  // How a run ends.

  heal(): void {
    this.#healed = true;
    this.#closeWhenDone();
  }

  #closeWhenDone(): void {
    if (!writers.every((id) => this.#finished.has(id))) {
      this.#sim.world.after(500, () => this.#closeWhenDone());
      return;
    }
    const main = async (context: ProcessContext): Promise<void> => {
      await (await this.#open(context)).endLog();
      this.#closed = true;
    };
    this.#play({ name: "closer", main });
  }

  settled(): boolean {
    return this.#closed && this.#roles.every(({ name }) => this.#finished.has(name));
  }

  waitsFor(): string {
    return this.#roles
      .filter(({ name }) => !this.#finished.has(name))
      .map(({ name }) => name)
      .join(" ");
  }

  /** Every step was seen, and every producer's batches are there in order and once. */
  async check(): Promise<void> {
    await this.#inspect();
    const next = new Map<string, number>();
    for (let step = 0; step < this.#seen.length; step++) {
      const [id = "", seq = ""] = (this.#seen[step] ?? "").split(" ");
      if (Number(seq) !== (next.get(id) ?? 0))
        throw new Violation("sequence", `step ${step} holds "${this.#seen[step]}"`);
      next.set(id, Number(seq) + 1);
    }
    for (const [id, told] of this.#told)
      if ((next.get(id) ?? 0) < told)
        throw new Violation("durability", `ranks saw ${next.get(id)} of ${told} of ${id}`);
  }

  counters(): Readonly<Record<string, number>> {
    return this.#counts;
  }
}

/** Builds the cast. */
export function powerCast(sim: Simulation): Cast {
  return new Power(sim);
}
