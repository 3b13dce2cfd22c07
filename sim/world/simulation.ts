/** A world, a store and faults put together: what every scenario and every measurement starts from. */
import type { ObjectStore } from "../../src/store/index.js";
import { type CallStats, emptyCallStats, SimClient } from "../store/sim-client.js";
import { SimStore, type SimStoreOptions } from "../store/sim-store.js";
import { type FaultFilter, FaultInjector, type FaultProfile } from "./faults.js";
import { type LatencyModel, type LatencyName, latencyModels } from "./latency.js";
import type { SimEnv } from "./sim-env.js";
import type { TraceOptions } from "./trace.js";
import { type SimProcess, type SpawnOptions, World } from "./world.js";

/** Options of {@link Simulation}. */
export interface SimulationOptions {
  readonly seed: number;
  readonly faults?: FaultProfile | undefined;
  readonly filter?: FaultFilter | undefined;
  /** A name of `latencyModels` or a model; `wide` unless told. */
  readonly latency?: LatencyName | LatencyModel | undefined;
  readonly store?: SimStoreOptions | undefined;
  readonly timeoutMs?: number | undefined;
  readonly connectionsMax?: number | undefined;
  readonly trace?: TraceOptions | undefined;
  readonly drain?: "tick" | "immediate" | undefined;
}

/** What a simulated process is given. */
export interface ProcessContext {
  readonly process: SimProcess;
  readonly env: SimEnv;
  readonly store: ObjectStore;
  /** The process's own word in the trace. Ignored once it is dead, so an oracle fed from here hears nothing from the grave. */
  note(what: string, subject?: string, result?: string | number): void;
}

/** One run. */
export class Simulation {
  readonly world: World;
  readonly store: SimStore;
  readonly faults: FaultInjector;
  readonly stats: CallStats = emptyCallStats();
  readonly #latency: LatencyModel;
  readonly #options: SimulationOptions;

  constructor(options: SimulationOptions) {
    const { latency = "wide" } = options;
    this.#options = options;
    this.world = new World(options);
    this.store = new SimStore({ copies: "in", ...options.store });
    this.store.clock = () => this.world.nowMs;
    this.faults = new FaultInjector(this.world, options.faults, options.filter);
    this.#latency = typeof latency === "string" ? latencyModels[latency] : latency;
  }

  /** Store calls made so far. */
  get calls(): number {
    return Object.values(this.stats.calls).reduce((a, b) => a + b, 0);
  }

  /** Starts a process with an env and a store client of its own. */
  spawn(name: string, main: (context: ProcessContext) => Promise<void>, options?: SpawnOptions): SimProcess {
    return this.world.spawn(name, (process) => main(this.#context(process)), options);
  }

  /** Nothing new goes wrong from here on. Requests already on their way still land, however late. */
  heal(): void {
    this.faults.enabled = false;
  }

  #context(process: SimProcess): ProcessContext {
    const { world, store, faults, stats } = this;
    const { timeoutMs, connectionsMax } = this.#options;
    const client = new SimClient(process, { store, latency: this.#latency, faults, stats, timeoutMs, connectionsMax });
    return {
      process,
      env: process.env,
      store: client,
      note: (what, subject, result) => world.note(process, what, subject, result),
    };
  }
}
