/**
 * One lane's planner: the next batch from the state after the last. Every batch is a function of the pipeline, the seed, the lane and the
 * state, so that a replacement which starts from a resume point makes the very batches its predecessor would have made.
 */
import { BatchWeaveError, type Env, type LineageSample } from "../../index.js";
import type { SliceThread } from "../construct/slice-thread.js";
import { FillBins } from "../graph/fill-bins.js";
import type { LoadPlan } from "../graph/load-plan.js";
import type { Fault } from "../load/fault.js";
import { orAborted } from "../load/or-aborted.js";
import type { LoadedSample, SampleSupply, SupplyStart } from "../load/sample-supply.js";
import type { FigureCounter } from "../load/source-figures.js";
import type { TransformPool } from "../load/transform-pool.js";
import { mixPosition, type Weights } from "../mix/mix-schedule.js";
import { FillSelector, SampleSelector, type SelectionParts } from "../mix/sample-selection.js";
import { type BatchNotes, lineageOf, notesOf, scheduleOf } from "./batch-notes.js";
import { type BuiltBatch, buildSlices } from "./batch-slices.js";
import { fetchSamples, finishSamples } from "./finished-sample.js";
import { decodeLaneState, encodeLaneState, type LaneState, nextStepOf } from "./lane-state.js";
import type { ResolvedPipeline } from "./pipeline.js";

/** A batch that is ready to be appended. */
export interface PlannedBatch {
  readonly seq: number;
  readonly step: number;
  /** To append: all slices, or what gives them one after another. */
  readonly body: BuiltBatch["body"];
  /** All slices. Of a batch that is appended one by one, they are built for the asking. */
  readonly slices: readonly Uint8Array[];
  readonly lineage: readonly LineageSample[];
  readonly resumePoint: unknown;
  readonly notes: BatchNotes;
  readonly faults: readonly Fault[];
  readonly plans: { readonly backbone: LoadPlan; readonly encoder?: LoadPlan | undefined };
}

/** Makes the supply of a source for a lane, or a part, from a position on. */
export type OpenSupply = (
  source: number,
  part: { readonly lane: number; readonly lanes: number },
  from: SupplyStart,
) => SampleSupply;

/** Components of a {@link LanePlanner}; what supplies read with and the threads are shared by the lanes of a process. */
export interface LaneParts {
  readonly pipeline: ResolvedPipeline;
  readonly supply: OpenSupply;
  readonly pool: TransformPool;
  readonly builder: SliceThread;
  readonly env: Env;
  readonly counters: readonly FigureCounter[];
}

/** Where a lane goes on. */
export interface LaneStart {
  /** As its last batch left it. Default: the beginning of the sources. */
  readonly resumePoint?: unknown;
  /** The log it writes to: the producer's next seq, the log's first own step, and whether lanes decide the order. Default: the log of the resume point. */
  readonly log?: { readonly seq: number; readonly first: number; readonly isLanes: boolean } | undefined;
}

/** Makes the batches of one lane, one after another. */
export class LanePlanner {
  readonly #parts: LaneParts;
  readonly #lane: number;
  readonly #lanes: number;
  readonly #selector: SampleSelector | FillSelector;
  readonly #supplies: readonly SampleSupply[];
  readonly #first: number;
  readonly #base: number;
  #seq: number;
  #age: number;
  #positions: LaneState["positions"];
  #used: LaneState["used"];
  #debt: readonly number[];
  /** What the mix owed after the last batch that is no filler: asking a lane that has ended changes nothing. */
  #owed: { readonly at: number; readonly owed: readonly number[] };
  #isOver: boolean;

  /** `part`: lane k of K, or part k of K producers in commit order. */
  constructor(parts: LaneParts, part: { readonly lane: number; readonly lanes: number }, start: LaneStart = {}) {
    const { pipeline, env } = parts;
    const { sources, seed, batch, mix, spec } = pipeline;
    assertShards(sources);
    this.#parts = parts;
    this.#lane = part.lane;
    this.#lanes = part.lanes;
    const state = stateOf(pipeline, part, start);
    this.#first = state.first;
    this.#base = state.base;
    this.#seq = state.seq;
    this.#age = state.age;
    this.#positions = state.positions;
    this.#used = sources.map((_, i) => state.used[i] ?? 0);
    this.#debt = state.debt;
    this.#isOver = state.isOver;
    this.#supplies = sources.map((_, i) => parts.supply(i, part, { at: this.#positions[i], used: this.#used[i] ?? 0 }));
    const names = sources.map(({ name }) => name);
    const selection: SelectionParts = { names, supplies: this.#supplies, mix, seed, env };
    this.#owed = { at: state.owedAt, owed: state.owed };
    this.#selector =
      "samples" in batch
        ? new SampleSelector(selection, batch.samples, this.#owed)
        : new FillSelector(
            selection,
            { slots: this.#bins() * spec.construct.seqLength, lookahead: batch.lookahead ?? 8 },
            this.#owed,
          );
  }

  /** The step of the next batch. In commit order it is where the batch would be if all producers kept pace. */
  get nextStep(): number {
    return nextStepOf({ base: this.#base, seq: this.#seq, lane: this.#lane, lanes: this.#lanes });
  }

  get nextSeq(): number {
    return this.#seq;
  }

  /** Whether the sources have nothing left for this lane. Asks the sources, where the last batch did not say so. */
  async isOver(signal?: AbortSignal | undefined): Promise<boolean> {
    this.#isOver ||= await this.#isOverAt(this.nextStep, signal);
    return this.#isOver;
  }

  async #isOverAt(step: number, signal: AbortSignal | undefined): Promise<boolean> {
    if (!this.#parts.pipeline.hasEnd || this.#debt.some((count) => count > 0)) return false;
    return await this.#selector.isOver(step, signal);
  }

  #bins(): number {
    const { graphs } = this.#parts.pipeline;
    const { tree, microbatches = 1, sequences = 1 } = graphs.backbone.place;
    return tree.nodesAt(graphs.backbone.nodes.axis).length * microbatches * sequences;
  }

  /**
   * The next batch; undefined when the sources have ended. `recorded`: the weights that were stored with the batch, when it is made again.
   * With `isFiller` the batch may be empty: padding for a lane whose sources ended before those of others.
   */
  async next(
    options: {
      readonly recorded?: Weights | undefined;
      readonly isFiller?: boolean | undefined;
      readonly signal?: AbortSignal | undefined;
    } = {},
  ): Promise<PlannedBatch | undefined> {
    const { pipeline } = this.#parts;
    const { graphs, capacity, spec, mix } = pipeline;
    const step = this.nextStep;
    if (this.#isOver) return options.isFiller ? await this.#filler(step, options.signal) : undefined;
    const bins = new FillBins(this.#bins(), capacity, spec.construct.packing ?? "best-fit", graphs.backbone.nodes.cost);
    const metrics = mix.kind === "callback" && !options.recorded ? ((await spec.metrics?.(step)) ?? {}) : {};
    const context = { metrics, recorded: options.recorded };
    const selection =
      this.#selector instanceof SampleSelector
        ? await this.#selector.select(step, bins, this.#debt, context, options.signal)
        : await this.#selector.select(step, bins, context, options.signal);
    const isEmpty = selection.samples.length === 0;
    const owes = selection.debt.some((count) => count > 0);
    if (isEmpty && owes && !options.isFiller) throw tooMany(step, pipeline);
    if (isEmpty && !owes) {
      // What is faulty after the last good sample is in no batch: the log ends before it. With no good sample at all there is no log to end.
      if (selection.faults.length > 0 && this.#age === 0 && !options.isFiller) throw emptyBatch(step, selection.faults);
      this.#isOver = true;
      return options.isFiller ? await this.#filler(step, options.signal) : undefined;
    }
    this.#positions = this.#positions.map((position, i) => selection.positions.get(i)?.at ?? position);
    this.#used = this.#used.map((used, i) => selection.positions.get(i)?.used ?? used);
    this.#debt = selection.debt;
    this.#assertDebt(step);
    const names = pipeline.sources.map(({ name }) => name);
    const loaded = await fetchSamples(selection.samples, names, this.#supplies, options.signal);
    const { kept, start, faults } = await finishSamples(this.#parts, loaded, bins.assignment, options.signal);
    if (kept.length === 0 && !options.isFiller) throw emptyBatch(step, faults);
    this.#owed = { at: this.#selector.owedAt, owed: this.#selector.owed };
    // Said with the last batch, so that every process knows from the log alone which lanes have ended.
    this.#isOver ||= await this.#isOverAt(step + this.#lanes, options.signal);
    return await this.#build(step, kept, start, [...selection.faults, ...faults], selection.decided, options.signal);
  }

  /** An empty batch behind a lane's end. It says the same whether or not the lane was asked for a batch before, and whichever process makes it. */
  async #filler(step: number, signal: AbortSignal | undefined): Promise<PlannedBatch> {
    return await this.#build(step, [], new Int32Array(0), [], undefined, signal);
  }

  #assertDebt(step: number): void {
    const debt = this.#debt.reduce((a, b) => a + b, 0);
    const perStep = this.#selector instanceof SampleSelector ? this.#selector.perStep : Infinity;
    if (debt > 4 * perStep) throw tooMany(step, this.#parts.pipeline);
  }

  async #build(
    step: number,
    samples: readonly LoadedSample[],
    start: Int32Array,
    faults: readonly Fault[],
    decided: Weights | undefined,
    signal: AbortSignal | undefined,
  ): Promise<PlannedBatch> {
    const { pipeline } = this.#parts;
    const { graphs, spec, mix } = pipeline;
    const metas = samples.map(({ meta }) => meta);
    const backbone = graphs.backbone.plan(metas, start);
    const built = await orAborted(buildSlices(this.#parts, samples, backbone), signal);
    const seq = this.#seq++;
    this.#age++;
    const position = mixPosition(mix, step);
    const weights = decided ?? (mix.kind === "callback" ? undefined : mix.weightsAt({ step, position, metrics: {} }));
    const notes = notesOf(
      {
        step,
        phase: mix.phases[mix.phaseAt(position)] ?? "all",
        mix: decided,
        schedule:
          weights && scheduleOf(weights, pipeline.print.names, "samples" in pipeline.batch ? "samples" : "tokens"),
      },
      metas,
      backbone,
      this.#bins() * spec.construct.seqLength,
      faults,
    );
    return {
      seq,
      step,
      body: built.body,
      get slices() {
        return built.slices;
      },
      lineage: lineageOf(backbone, faults, spec.namespace.grid.chunks),
      resumePoint: encodeLaneState(this.#state(), pipeline.print),
      notes,
      faults,
      plans: { backbone, encoder: built.encoder },
    };
  }

  #state(): LaneState {
    return {
      seq: this.#seq,
      age: this.#age,
      first: this.#first,
      base: this.#base,
      lane: this.#lane,
      lanes: this.#lanes,
      positions: this.#positions,
      used: this.#used,
      owed: this.#owed.owed,
      owedAt: this.#owed.at,
      debt: this.#debt,
      isOver: this.#isOver,
    };
  }
}

/**
 * The state a lane starts from. In a fork, the lane goes on behind what the fork shares: positions stay, the mixture begins anew at the fork's first own
 * step, the same for all lanes, and the pipeline may be another.
 */
function stateOf(
  { sources, print }: ResolvedPipeline,
  part: { readonly lane: number; readonly lanes: number },
  { resumePoint, log }: LaneStart,
): LaneState {
  const [seq, first] = [log?.seq ?? 0, log?.first ?? 0];
  const base = first - (log && !log.isLanes ? seq * part.lanes : 0);
  const fresh = { seq, first, base, owed: [], owedAt: first };
  if (resumePoint === undefined || resumePoint === null)
    return {
      ...fresh,
      ...part,
      seq: 0,
      age: 0,
      positions: sources.map(() => undefined),
      used: [],
      debt: [],
      isOver: false,
    };
  const point = resumePoint as Partial<LaneState>;
  // Lanes count from 0 again in a fork; one whose own steps were all left out begins at the same step as its parent did.
  const isFork =
    log !== undefined && (point.first !== first || (log.isLanes && seq === 0 && (point.seq as number) > 0));
  const state = decodeLaneState(resumePoint, print, { ...part, isFork });
  return isFork ? { ...state, ...fresh } : state;
}

/** A shard that is not there before the first sample is read is a slip in the pipeline or in the copy of its data, and no policy leaves it out. */
function assertShards(sources: ResolvedPipeline["sources"]): void {
  for (const { name, missing, shards } of sources) {
    if (missing.length === 0) continue;
    throw new BatchWeaveError(
      "MISSING_OBJECT",
      `Source ${name}: ${missing.length} of the files of its ${shards.length} shards are not there, first ${missing[0]}. Put them back, or leave them out of the source.`,
      { source: name, missing: missing.slice(0, 10) },
    );
  }
}

function emptyBatch(step: number, faults: readonly Fault[]): BatchWeaveError {
  const [first] = faults;
  return new BatchWeaveError(
    "LIMIT",
    `Step ${step} would have an empty batch: all ${faults.length} samples for it are faulty, first ${first?.source} ${first?.id} (${first?.stage}: ${first?.reason.replace(/\.$/, "")}). Mend the source or its transforms.`,
    { step, faults: faults.length },
  );
}

function tooMany(step: number, { batch, spec }: ResolvedPipeline): BatchWeaveError {
  const draws = "samples" in batch ? batch.samples : 0;
  return new BatchWeaveError(
    "LIMIT",
    `Step ${step} has more draws left over than four batches take: ${draws} samples a batch do not fit into its sequences of ${spec.construct.seqLength} tokens. Take fewer samples, or more microbatches.`,
    { step, samples: draws },
  );
}
