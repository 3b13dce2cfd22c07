/**
 * Replay: the batches of an earlier log once more, from its lineage. The same samples in the same rows and the same order, prepared by the pipeline as it is
 * now: another tokenizer, other images, longer sequences. One process writes it; it can be killed and goes on where its log says.
 */
import {
  BatchWeaveError,
  createNamespace,
  isBatchWeaveError,
  openNamespace,
  type Producer,
  safetensorsType,
  systemEnv,
} from "../../index.js";
import type { SourceFigures } from "../load/source-figures.js";
import { OpenPipeline } from "../run/open-pipeline.js";
import type { Pipeline } from "../run/pipeline.js";
import type { RunOptions, RunSettings } from "../run/run-pipeline.js";
import { ShardPool } from "../source/shard-pool.js";
import { isDealt, RecordedLog } from "./recorded-log.js";
import { type ReplayedBatch, replayBatch } from "./replay-batch.js";

/** What is replayed, and where to. */
export interface ReplaySettings extends Pick<RunSettings, "uri" | "steps" | "batchesMax" | "close" | "producer"> {
  /** The earlier log. */
  readonly log: string;
}

/** Events of a replay. */
export interface ReplayOptions extends Omit<RunOptions, "onBatch"> {
  readonly onBatch?: ((batch: ReplayedBatch, made: number, of: number) => void) | undefined;
}

/** What a replay has done. */
export interface ReplayResult {
  readonly batches: number;
  /** Steps of the earlier log that are in the new one now: `[from, to)`. */
  readonly from: number;
  readonly to: number;
  /** Samples made here, those that the record has and the batch does not, and tokens then and now. */
  readonly samples: number;
  readonly leftOut: number;
  readonly recordedTokens: number;
  readonly tokens: number;
  readonly closed: boolean;
  readonly wallMs: number;
  readonly sources: readonly SourceFigures[];
}

/** Where a replay stands. */
interface ReplayPoint {
  readonly v: 1;
  readonly kind: "replay";
  readonly of: string;
  readonly from: number;
  readonly next: number;
}

const producerId = "replay";

/** Makes the batches of an earlier log again. */
export async function replayPipeline(
  pipeline: Pipeline,
  settings: ReplaySettings,
  options: ReplayOptions = {},
): Promise<ReplayResult> {
  const env = options.env ?? systemEnv;
  const { signal } = options;
  const begun = env.monotonic();
  const { namespace, storeSettings, buffers } = pipeline.spec;
  const recorded = await openNamespace(settings.log, options);
  const { grid } = namespace;
  if (recorded.grid.rows !== grid.rows || recorded.grid.chunks !== grid.chunks)
    throw new BatchWeaveError(
      "GRID_MISMATCH",
      `${settings.log} has ${recorded.grid.rows} rows and ${recorded.grid.chunks} chunks, and the pipeline ${grid.rows} and ${grid.chunks}. A replay keeps rows: give the pipeline the log's grid.`,
      { log: recorded.grid, pipeline: grid },
    );
  const uri = settings.uri ?? namespace.uri;
  const held = await openNamespace(uri, options).catch((error: unknown) => {
    if (!isBatchWeaveError(error, "NO_NAMESPACE")) throw error;
  });
  if (held?.uuid === recorded.uuid)
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `A replay of ${settings.log} cannot be written into itself. Name another place with --namespace.`,
      { log: settings.log },
    );
  await using open = await OpenPipeline.open(pipeline, env, options);
  const target = held ?? (await createNamespace(uri, { grid }, options));
  if (target.order.kind !== "commit") throw notOurs(settings.log);
  const found = await recorded.info({ signal });
  const end = Math.min(
    found.steps.end,
    settings.steps === undefined ? Number.POSITIVE_INFINITY : settings.steps + found.steps.trim,
  );
  const figures = { batches: 0, samples: 0, leftOut: 0, recordedTokens: 0, tokens: 0 };
  const result = (closed: boolean, from: number, to: number): ReplayResult => ({
    ...figures,
    from,
    to,
    closed,
    wallMs: env.monotonic() - begun,
    sources: open.figures,
  });
  await using producer = await target.producer({ ...settings.producer, id: producerId, signal });
  const { from, next } = startOf(
    producer,
    recorded.uuid,
    settings.log,
    await firstStep(recorded, found.steps.trim, signal),
  );
  await using shards = new ShardPool({ env, storeSettings }, buffers);
  const log = new RecordedLog(recorded, open.resolved, { shards, env }, from);
  const last = Math.min(end, next + (settings.batchesMax ?? Number.POSITIVE_INFINITY));
  let step = next;
  for (; step < last && !signal?.aborted; step++) {
    const record = await log.batch(step, signal);
    const batch = await replayBatch(open.parts, record, signal);
    const resumePoint: ReplayPoint = { v: 1, kind: "replay", of: recorded.uuid, from, next: step + 1 };
    await producer.append(batch.body, {
      resumePoint,
      lineage: batch.lineage,
      contentType: safetensorsType,
      user: batch.notes,
      signal,
    });
    figures.batches++;
    figures.samples += batch.notes.samples;
    figures.leftOut += batch.lineage.filter(({ row }) => row === undefined).length;
    figures.tokens += batch.notes.tokens;
    figures.recordedTokens += record.samples.reduce((sum, { tokens }) => sum + tokens, 0);
    options.onBatch?.(batch, step + 1 - from, end - from);
  }
  await producer.flush();
  const isComplete = step >= end && (found.closed || settings.steps !== undefined) && settings.close !== false;
  await producer.close();
  if (isComplete && !signal?.aborted) await target.endLog({ signal });
  return result(isComplete && !signal?.aborted, from, step);
}

/** The first step that can be replayed: of a log that was trimmed, the first whose part stood somewhere that is still known. */
async function firstStep(
  recorded: Awaited<ReturnType<typeof openNamespace>>,
  trim: number,
  signal: AbortSignal | undefined,
): Promise<number> {
  if (trim === 0) return 0;
  const { resumePoint } = await recorded.inspect(trim, { signal });
  if (isDealt(resumePoint)) return trim;
  const { lane } = (resumePoint ?? {}) as { readonly lane?: readonly number[] };
  return trim + (lane?.[1] ?? 1);
}

function startOf(
  { resumePoint }: Producer,
  uuid: string,
  log: string,
  first: number,
): { readonly from: number; readonly next: number } {
  if (resumePoint === undefined || resumePoint === null) return { from: first, next: first };
  const point = resumePoint as Partial<ReplayPoint>;
  if (point.kind === "replay" && point.v === 1 && point.of === uuid)
    return { from: point.from as number, next: point.next as number };
  throw notOurs(log);
}

function notOurs(log: string): BatchWeaveError {
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The log to write to holds something other than a replay of ${log}. Name another place with --namespace.`,
    { log },
  );
}
