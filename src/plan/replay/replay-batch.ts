/** One recorded batch made again: its documents found and prepared anew, its samples in the rows and the order of the record, packed and encoded. */
import { BatchWeaveError, type LineageSample } from "../../index.js";
import { costColumns } from "../graph/cost.js";
import { DGraph } from "../graph/dgraph.js";
import { attemptsOf, type Fault, stopFor, stopForSetup } from "../load/fault.js";
import { orAborted } from "../load/or-aborted.js";
import { asPrepared, metaOf, type PreparedSample } from "../load/prepared-sample.js";
import type { LoadedSample } from "../load/sample-supply.js";
import type { FigureCounter } from "../load/source-figures.js";
import type { ChainOutput } from "../load/transform-chain.js";
import { type BatchNotes, lineageOf, notesOf } from "../run/batch-notes.js";
import { type BuiltBatch, buildSlices } from "../run/batch-slices.js";
import { finishSamples } from "../run/finished-sample.js";
import type { LaneParts } from "../run/lane-planner.js";
import type { RawSample } from "../source/shard-reader.js";
import type { ResolvedSource } from "../source/source.js";
import { replayedSample } from "./recorded-piece.js";
import type { FoundSample, RecordedWalk } from "./recorded-walk.js";
import { binsInOrder } from "./row-bins.js";

/** A batch of the earlier log. */
export interface RecordedBatch {
  readonly log: string;
  readonly step: number;
  readonly notes: Partial<BatchNotes> | undefined;
  /** Samples with a row, in their order. */
  readonly samples: readonly LineageSample[];
  /** By source: where it is walked, and the epoch it stood in behind the batch. */
  readonly walks: ReadonlyMap<string, { readonly walk: RecordedWalk; readonly epoch: number }>;
}

/** The same batch, made again. */
export interface ReplayedBatch {
  readonly body: BuiltBatch["body"];
  readonly lineage: readonly LineageSample[];
  readonly notes: BatchNotes;
  readonly faults: readonly Fault[];
}

/** A sample on its way into the batch. */
interface RowSample extends LoadedSample {
  readonly row: number;
}

type Parts = Pick<LaneParts, "pipeline" | "pool" | "builder" | "counters" | "env">;

/** Makes a batch again. */
export async function replayBatch(
  parts: Parts,
  recorded: RecordedBatch,
  signal: AbortSignal | undefined,
): Promise<ReplayedBatch> {
  const { pipeline } = parts;
  const { spec, graphs } = pipeline;
  const { tree, microbatches = 1, sequences = 1 } = graphs.backbone.place;
  const { axis, cost } = graphs.backbone.nodes;
  const faults: Fault[] = [];
  const arrived = await prepareAll(parts, recorded, faults, signal);
  const perRow = (axis === "dp" ? 1 : spec.namespace.grid.chunks) * microbatches * sequences;
  const columns = costColumns(
    arrived.map(({ meta }) => meta),
    cost,
  );
  const bins = new Int32Array(arrived.length).fill(-1);
  for (let row = 0; row < spec.namespace.grid.rows; row++) {
    const members = [...arrived.keys()].filter((i) => arrived[i]?.row === row);
    const sizes = members.map((i) => ({ tokens: columns.tokens[i] as number, memory: columns.memory[i] as number }));
    binsInOrder(sizes, perRow, pipeline.capacity).forEach((bin, k) => {
      if (bin !== -1) bins[members[k] as number] = row * perRow + bin;
    });
  }
  const [placed, start]: [LoadedSample[], number[]] = [[], []];
  arrived.forEach((sample, i) => {
    if (bins[i] !== -1) {
      placed.push(sample);
      start.push(bins[i] as number);
    } else faults.push(rowIsFull(parts, sample, tree.nodesAt(axis).length));
  });
  const finished = await finishSamples(parts, placed, Int32Array.from(start), signal);
  // Balanced by the record alone.
  const graph = new DGraph(graphs.backbone.place, {
    ...graphs.backbone.nodes,
    select: undefined,
    balance: [],
    raw: undefined,
  });
  const metas = finished.kept.map(({ meta }) => meta);
  const plan = graph.plan(metas, finished.start);
  const all = [...faults, ...finished.faults];
  const { phase = "all", mix, schedule } = recorded.notes ?? {};
  const slots = tree.nodesAt(axis).length * microbatches * sequences * spec.construct.seqLength;
  return {
    body: (await buildSlices(parts, finished.kept, plan)).body,
    lineage: lineageOf(plan, all, spec.namespace.grid.chunks),
    notes: {
      ...notesOf({ step: recorded.step, phase, mix, schedule }, metas, plan, slots, all),
      replayOf: { log: recorded.log, step: recorded.step },
    },
    faults: all,
  };
}

/** Samples of all sources, in the order of the record. */
async function prepareAll(
  parts: Parts,
  recorded: RecordedBatch,
  faults: Fault[],
  signal: AbortSignal | undefined,
): Promise<RowSample[]> {
  const { pipeline, counters } = parts;
  const bySource = new Map<string, (readonly RowSample[])[]>();
  await Promise.all(
    pipeline.sources.map(async (source, s) => {
      const own = recorded.samples.filter((sample) => sample.source === source.name);
      if (own.length === 0) return;
      const { walk, epoch } = recorded.walks.get(source.name) as { walk: RecordedWalk; epoch: number };
      const { samples, documents } = await walk.find(
        own.map(({ id }) => id),
        epoch,
        signal,
      );
      const prepared = await prepare(parts, source, documents, samples, signal);
      const counter = counters[s] as FigureCounter;
      bySource.set(
        source.name,
        samples.map((found, i) =>
          oneSample(parts, counter, source.name, found, own[i]?.row as number, prepared.get(found.document), faults),
        ),
      );
    }),
  );
  return recorded.samples.flatMap(({ source }) => bySource.get(source)?.shift() ?? []);
}

function oneSample(
  { pipeline }: Parts,
  counter: FigureCounter,
  source: string,
  { id, k, n }: FoundSample,
  row: number,
  document: PreparedSample | Fault | undefined,
  faults: Fault[],
): RowSample[] {
  const { seqLength: tokensMax, tooLong = "split", droppedShareMax = 0.1 } = pipeline.spec.construct;
  const limits = { tokensMax, droppedShareMax };
  if (!document || "stage" in document) {
    const fault: Fault = { ...(document as Fault), id };
    faults.push(fault);
    counter.tally.add(fault);
    return [];
  }
  const made = replayedSample(source, id, { k, n }, document, { tokensMax, tooLong });
  for (const fault of made.faults) {
    faults.push(fault);
    if (made.samples.length === 0) counter.tally.add(fault);
    if (fault.tokens) counter.tally.drop(fault.tokens, limits);
  }
  return made.samples.map(({ id: own, value }) => {
    counter.samples++;
    counter.tokens += value.tokens.length;
    counter.tally.good(value.tokens.length);
    const meta = metaOf(value, source, own, 4 * value.tokens.length);
    return { meta, value, row, faults: [], after: { at: [], used: 0 }, handle: undefined };
  });
}

/** Runs the loader's transforms on documents. What fails is a fault, or the end, as the source's policy says. */
async function prepare(
  { pool, pipeline, counters, env }: Parts,
  source: ResolvedSource,
  documents: ReadonlyMap<string, RawSample>,
  samples: readonly FoundSample[],
  signal: AbortSignal | undefined,
): Promise<Map<string, PreparedSample | Fault>> {
  const { settings, name } = source;
  const ids = [...new Set(samples.map(({ document }) => document))];
  const inputs = ids.map((id) => ({ source: name, id, value: documents.get(id)?.value }));
  const chain = (settings.transforms ?? []).filter(({ at }) => at === "loader");
  const outputs = [...(await orAborted(pool.run(chain, inputs, settings.inFlightMax), signal))];
  const { attempts, isSkipped } = attemptsOf(settings);
  const counter = counters[pipeline.sources.indexOf(source)] as FigureCounter;
  const prepared = new Map<string, PreparedSample | Fault>();
  for (const [i, id] of ids.entries()) {
    let output = outputs[i] as ChainOutput;
    let delayMs = settings.retryDelayMs ?? 100;
    let attempt = 1;
    for (; output.error !== undefined && !output.setup && attempt < attempts; attempt++, delayMs *= 2) {
      await env.sleep(delayMs, signal);
      output = (await pool.run(chain, [inputs[i] as (typeof inputs)[0]], settings.inFlightMax))[0] as ChainOutput;
    }
    if (output.setup) throw stopForSetup(name, output.setup, output.error as string);
    counter.transformMs += output.ms;
    counter.addStages(0, output.bytes);
    const made =
      output.error === undefined
        ? asPrepared(output.value, { source: name, id, vocabSize: pipeline.spec.construct.vocabSize })
        : { garbage: output.error };
    if (!("garbage" in made)) {
      prepared.set(id, made);
      continue;
    }
    const fault: Fault = { source: name, id, stage: "transform", reason: made.garbage, attempts: attempt };
    if (!isSkipped) throw stopFor(fault);
    prepared.set(id, fault);
  }
  return prepared;
}

/** The samples of a row take more tokens than when it was recorded, and more than it has. */
function rowIsFull({ pipeline, counters }: Parts, { meta, row }: RowSample, rows: number): Fault {
  const { seqLength: tokensMax, tooLong = "split", droppedShareMax = 0.1 } = pipeline.spec.construct;
  const { source, id, tokens } = meta;
  const reason = `its row ${row} of ${rows} has no room for its ${tokens} tokens any more`;
  const fault: Fault = { source, id, stage: "length", reason, attempts: 1, tokens };
  if (tooLong === "stop")
    throw new BatchWeaveError(
      "LIMIT",
      `Sample ${id} of ${source} cannot be replayed: ${reason}. Use longer sequences or more microbatches, or say tooLong: "skip" in construct.`,
      { source, id, row },
    );
  const counter = counters[pipeline.sources.findIndex(({ name }) => name === source)];
  counter?.tally.add(fault);
  counter?.tally.drop(tokens, { tokensMax, droppedShareMax });
  return fault;
}
