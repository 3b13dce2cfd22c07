/** A pipeline with everything its lanes share in a process: files, threads, memory, figures. */
import type { Env } from "../../index.js";
import { SliceThread } from "../construct/slice-thread.js";
import { BufferBudget } from "../load/buffer-budget.js";
import { type LoaderParts, openLoader } from "../load/direct-supply.js";
import type { Fault } from "../load/fault.js";
import { FigureCounter, type SourceFigures } from "../load/source-figures.js";
import { TransformPool } from "../load/transform-pool.js";
import { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import { type LaneParts, LanePlanner, type OpenSupply } from "./lane-planner.js";
import { type Pipeline, type ResolvedPipeline, resolvePipeline } from "./pipeline.js";
import { RunReport } from "./run-report.js";

/** Bytes of samples that a process reads ahead, where the pipeline does not say. */
const bufferBytesDefault = 268_435_456;

/** Sources whose samples come from their logs. */
interface LoggedSources {
  readonly uuids: readonly string[];
  readonly supply: OpenSupply;
}

/** Components and events of an open pipeline. */
interface OpenOptions {
  readonly workerUrl?: URL | undefined;
  readonly onFault?: ((fault: Fault) => void) | undefined;
  readonly logs?: LoggedSources | undefined;
}

/** A pipeline that is being planned, with everything its lanes share. Dispose it. */
export class OpenPipeline implements AsyncDisposable {
  readonly resolved: ResolvedPipeline;
  readonly #parts: LaneParts;
  readonly #shards: ShardPool;

  private constructor(resolved: ResolvedPipeline, parts: LaneParts, shards: ShardPool) {
    this.resolved = resolved;
    this.#parts = parts;
    this.#shards = shards;
  }

  static async open(
    pipeline: Pipeline,
    env: Env,
    { workerUrl, onFault, logs }: OpenOptions = {},
  ): Promise<OpenPipeline> {
    const resolved = await resolvePipeline(pipeline, env, logs?.uuids);
    const { spec, sources } = resolved;
    const counters = sources.map((source) => new FigureCounter(source, onFault));
    const shards = new ShardPool({ env, storeSettings: spec.storeSettings }, spec.buffers, (source, bytes) => {
      (counters[sources.indexOf(source)] as FigureCounter).readBytes += bytes;
    });
    const pool = new TransformPool(env, spec.workers, workerUrl);
    const shape = { grid: spec.namespace.grid, mesh: resolved.tree.mesh, settings: spec.construct };
    const sliceUrl = workerUrl && new URL("../construct/slice-worker.js", workerUrl);
    const builder = new SliceThread(resolved.construct, shape, spec.workers?.threads === 0, sliceUrl);
    const budget = new BufferBudget(spec.buffers?.bytesMax ?? bufferBytesDefault);
    const { seed } = resolved;
    const loading: LoaderParts = { shards, pool, env, budget, seed, buffers: spec.buffers, construct: spec.construct };
    const direct: OpenSupply = (i, part, from) =>
      openLoader(loading, sources[i] as ResolvedSource, counters[i] as FigureCounter, part, from);
    return new OpenPipeline(
      resolved,
      { pipeline: resolved, supply: logs?.supply ?? direct, pool, builder, env, counters },
      shards,
    );
  }

  /** A planner of lane (or part) `lane` of `lanes`, from a resume point or from the beginning. */
  planner(lane: number, lanes: number, resumePoint?: unknown): LanePlanner {
    return new LanePlanner(this.#parts, { lane, lanes }, { resumePoint });
  }

  /** What all lanes share. */
  get parts(): LaneParts {
    return this.#parts;
  }

  /** What each source has cost so far. */
  get figures(): SourceFigures[] {
    return this.#parts.counters.map((counter) => counter.snapshot());
  }

  /** A new report of the kind this pipeline needs. */
  report(): RunReport {
    const { sources, mix, batch } = this.resolved;
    return new RunReport(
      sources.map(({ name }) => name),
      mix,
      "samples" in batch ? "samples" : "tokens",
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.pool[Symbol.asyncDispose]();
    await this.#parts.builder[Symbol.asyncDispose]();
    await this.#shards[Symbol.asyncDispose]();
  }
}
