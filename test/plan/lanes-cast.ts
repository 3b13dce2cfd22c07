/**
 * Very many processes that hold lanes of very many logs: only the holder, with batches that count, so that hundreds of sources and a thousand processes fit
 * into one run. Every log must end, closed, with every batch of every lane once and in its place, whichever process died.
 */

import { Violation } from "../../sim/oracle/violation.js";
import type { Cast } from "../../sim/scenarios/scenario.js";
import { DecodedManifests } from "../../sim/store/decoded-manifests.js";
import type { ProcessContext, Simulation } from "../../sim/world/simulation.js";
import type { SimProcess } from "../../sim/world/world.js";
import { encodeNamespace, type NamespaceSpec, namespaceKey } from "../../src/format/index.js";
import { isBatchWeaveError, Namespace, withPrefix, withRetry } from "../../src/index.js";
import { Log } from "../../src/log/index.js";
import { Metrics } from "../../src/observe/index.js";
import { FleetHints, holdLanes, type LaneLog, type LaneWriter } from "../../src/plan/fleet/index.js";

/** Between two looks of the judge. */
const judgeMs = 2_000;

class CountingLanes implements Cast {
  readonly #sim: Simulation;
  readonly #logs: readonly NamespaceSpec[];
  readonly #lanes: number;
  readonly #batches: number;
  readonly #lanesMax: number;
  readonly #workMs: number;
  readonly #decode = new DecodedManifests().decode;
  readonly #open = new Set<number>();
  readonly #counts: Record<string, number> = { batches: 0, closedLogs: 0 };
  readonly #stop = new AbortController();
  #healed = false;

  constructor(sim: Simulation, settings: Readonly<Record<string, unknown>>) {
    const {
      logs = 20,
      lanes = 4,
      batches = 3,
      processes = 50,
      lanesMax = 3,
      workMs = 500,
    } = settings as Record<string, number>;
    this.#sim = sim;
    this.#lanes = lanes;
    this.#batches = batches;
    this.#lanesMax = lanesMax;
    this.#workMs = workMs;
    this.#logs = Array.from({ length: logs }, (_, i) => ({
      format: 2 as const,
      uuid: `00000000-0000-4000-8000-${String(i).padStart(12, "0")}`,
      grid: { rows: 1, chunks: 1 },
      order: { kind: "lanes" as const, lanes },
      created: 0,
      rest: {},
    }));
    for (const [i, spec] of this.#logs.entries()) {
      this.#open.add(i);
      void sim.store.direct().put(`log-${i}/${namespaceKey}`, encodeNamespace(spec));
    }
    sim.world.onExit = (process) => this.#onExit(process);
    for (let i = 0; i < processes; i++) this.#spawn(`process-${i}`);
    sim.spawn("judge", (context) => this.#judge(context));
  }

  #spawn(name: string): void {
    this.#sim.spawn(name, (context) => this.#hold(context));
  }

  #onExit({ name, exit }: SimProcess): void {
    const isPassing = exit?.reason === "threw" && isBatchWeaveError(exit.error) && exit.error.remedy === "retry";
    if (exit?.reason === "threw" && !isPassing) this.#sim.world.fail(exit.error);
    if (exit?.reason === "returned" || this.#stop.signal.aborted) return;
    const delayMs = this.#sim.world.rng(`again/${name}/${this.#sim.world.nowMs}`).between(500, 5_000);
    this.#sim.world.after(delayMs, () =>
      name === "judge" ? this.#sim.spawn(name, (c) => this.#judge(c)) : this.#spawn(name),
    );
  }

  #log(context: ProcessContext, i: number): LaneLog {
    const { env, store } = context;
    const [lanes, batches, workMs] = [this.#lanes, this.#batches, this.#workMs];
    let ns: Namespace | undefined;
    const spec = this.#logs[i] as NamespaceSpec;
    const decode = this.#decode;
    return {
      name: `log-${i}`,
      // Only what a process looks at costs it anything.
      get ns() {
        const place = withRetry(withPrefix(store, `log-${i}/`), env);
        ns ??= new Namespace(
          `memory:log-${i}`,
          new Log({ store: place, env, spec, openOrigin: async () => place, decode }),
          new Metrics(),
        );
        return ns;
      },
      lanes,
      steps: Number.POSITIVE_INFINITY,
      open: async (lane, { seq }): Promise<LaneWriter> => {
        let next = seq;
        return {
          get nextSeq() {
            return next;
          },
          get nextStep() {
            return next * lanes + lane;
          },
          isOver: async () => next >= batches,
          next: async ({ signal } = {}) => {
            if (next >= batches) return undefined;
            await env.sleep(workMs, signal);
            const text = `log-${i}/${lane}/${next++}`;
            const resumePoint = { next, ...(next >= batches ? { over: 1 } : {}) };
            return { slices: [new TextEncoder().encode(text)], append: { resumePoint } };
          },
          close: async () => {},
        };
      },
    };
  }

  async #hold(context: ProcessContext): Promise<void> {
    const hints = new FleetHints(context.env, withRetry(withPrefix(context.store, "fleet/"), context.env));
    const logs = this.#logs.map((_, i) => this.#log(context, i));
    await holdLanes(context.env, logs, {
      lanesMax: this.#lanesMax,
      hints,
      signal: this.#stop.signal,
      onBatch: () => this.#count("batches"),
      onHandover: ({ kind }) => this.#count(kind),
    });
  }

  #count(name: string): void {
    this.#counts[name] = (this.#counts[name] ?? 0) + 1;
  }

  /** Looks at every log until it is closed, and then at all it holds; at many at a time, or it would be what the run waits for. */
  async #judge(context: ProcessContext): Promise<void> {
    const logs = this.#logs.map((_, i) => this.#log(context, i));
    while (this.#open.size > 0) {
      await Promise.all([...this.#open].map((i) => this.#judgeLog(i, logs[i] as LaneLog)));
      await context.env.sleep(judgeMs);
    }
    this.#stop.abort(new Error("all logs are closed"));
  }

  async #judgeLog(i: number, { ns }: LaneLog): Promise<void> {
    const { closed, steps } = await ns.info();
    if (!closed) return;
    const expected = this.#lanes * this.#batches;
    if (steps.end !== expected) throw new Violation("end", `log-${i} ends at ${steps.end}, not ${expected}`);
    const read = Array.from({ length: expected }, (_, step) => ns.readSlice({ step, row: 0, chunk: 0 }));
    for (const [step, bytes] of (await Promise.all(read)).entries()) {
      const text = new TextDecoder().decode(bytes);
      const must = `log-${i}/${step % this.#lanes}/${Math.floor(step / this.#lanes)}`;
      if (text !== must) throw new Violation("same log", `step ${step} of log-${i} is ${text}, not ${must}`);
    }
    this.#open.delete(i);
    this.#count("closedLogs");
  }

  heal(): void {
    this.#healed = true;
  }

  settled(): boolean {
    return this.#healed && this.#open.size === 0;
  }

  waitsFor(): string {
    return `${this.#open.size} logs, first log-${[...this.#open][0]}`;
  }

  async check(): Promise<void> {
    if (this.#open.size > 0) throw new Violation("end", this.waitsFor());
  }

  counters(): Readonly<Record<string, number>> {
    return this.#counts;
  }
}

/** Builds it: `logs`, `lanes` of each, `batches` of each lane, `processes`, `lanesMax`, `workMs`. */
export function lanesCast(sim: Simulation, settings: Readonly<Record<string, unknown>>): Cast {
  return new CountingLanes(sim, settings);
}
