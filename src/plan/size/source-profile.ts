/**
 * What a source costs, measured by really reading some of it and running its transforms: time and memory of a sample, bytes and requests. Bounded in samples
 * and in time, one source at a time, so that the figures are those of a thread without neighbours.
 */
import { BatchWeaveError, type Env } from "../../index.js";
import { stopForSetup } from "../load/fault.js";
import { asPrepared, metaOf, type PreparedSample } from "../load/prepared-sample.js";
import type { SampleMeta } from "../load/sample-meta.js";
import { splitSample } from "../load/sample-pieces.js";
import type { ChainOutput } from "../load/transform-chain.js";
import type { TransformPool } from "../load/transform-pool.js";
import type { ResolvedPipeline } from "../run/pipeline.js";
import { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import { type CursorItem, SourceCursor } from "../source/source-cursor.js";

/** Costs of one source; times, bytes and requests are of one sample as its shards hold it (a document, not a piece of one). */
export interface SourceProfile {
  readonly source: string;
  readonly shards: number;
  /** Of all shards, as they are stored. */
  readonly shardBytes: number;
  /** So many lanes can read it side by side, each byte once. */
  readonly lanesMax: number;
  /** Lanes of its log, fixed by the pipeline's file: so many processes can hold it. Undefined: samples are exchanged in memory. */
  readonly lanes?: number | undefined;
  /** Samples that were measured, and those of them that cannot be used. */
  readonly samples: number;
  readonly faults: number;
  /** Tokens that come into batches, and samples there: a long document is several. */
  readonly tokens: number;
  readonly pieces: number;
  /** On the main thread of a process: reading, decompressing, parsing, handing to a thread. */
  readonly readMs: number;
  /** P: in a transform thread, before and after a sample is chosen. */
  readonly loaderMs: number;
  readonly constructorMs: number;
  readonly reads: number;
  readonly readBytes: number;
  /** M: bytes of a sample that is ready. */
  readonly readyBytes: number;
  /** Windows, row groups and read-ahead that a lane keeps of its shards. */
  readonly windowBytes: number;
  /** Processes of another kind load it: memory of one, and of each worker in it. */
  readonly own?: { readonly processBytes: number; readonly workerBytes: number } | undefined;
}

/** A sample of the profile, ready for a batch. */
export interface ProfiledSample {
  readonly meta: SampleMeta;
  readonly value: PreparedSample;
}

/** Bounds of a measurement. */
interface ProfileLimits {
  readonly samplesMax: number;
  readonly msMax: number;
}

/** A shard that can be divided is not worth dividing into parts smaller than this. */
const partBytesMin = 1_048_576;
const groupBytesMin = 33_554_432;

/** Lanes that can read a source side by side, each byte once. */
function lanesMaxOf({ format, shards, sizes }: Pick<ResolvedSource, "format" | "shards" | "sizes">): number {
  const lanes = shards.map((shard, i) => {
    const division = format.division(shard);
    const least = division === "anywhere" ? partBytesMin : groupBytesMin;
    return division === "none" ? 1 : Math.max(1, Math.floor((sizes[i] ?? 0) / least));
  });
  return lanes.reduce((a, b) => a + b, 0);
}

/** Counts of a walk so far. */
interface Walked {
  readonly samples: number;
  readonly ms: number;
  readonly reads: number;
  readonly readBytes: number;
}

/** Windows of a source that are walked at most, and samples. */
const windowsMax = 3;
const walkedMax = 16_384;

/** The cost of whole windows. Of their times the middle one counts: opening a shard, or a busy machine, slows a single one. */
function costOf(marks: readonly Walked[]): Walked {
  const last = marks.at(-1) as Walked;
  const perSample = marks
    .slice(1)
    .map((mark, i) => (mark.ms - (marks[i] as Walked).ms) / Math.max(1, mark.samples - (marks[i] as Walked).samples))
    .sort((x, y) => x - y);
  return { ...last, ms: (perSample[Math.floor((perSample.length - 1) / 2)] ?? 0) * last.samples };
}

/** Reads the first samples of a source: whole windows where there is time, because a window is read at once. */
async function walk(
  source: ResolvedSource,
  { spec, seed, lanes }: ResolvedPipeline,
  env: Env,
  { msMax }: Pick<ProfileLimits, "msMax">,
  signal: AbortSignal | undefined,
): Promise<{ readonly items: readonly CursorItem[]; readonly cost: Walked; readonly windowBytes: number }> {
  let [reads, readBytes, windowBytes] = [0, 0, 0];
  await using shards = new ShardPool({ env, storeSettings: spec.storeSettings }, spec.buffers, (_, bytes) => {
    reads++;
    readBytes += bytes;
  });
  // The first lane that has a sample: of many lanes, some have none in a small source.
  for (let lane = 0; lane < lanes; lane++) {
    const cursor = new SourceCursor({ ...source, settings: { ...source.settings, epochs: 1 } }, shards, env, {
      seed,
      lane,
      lanes,
    });
    const items: CursorItem[] = [];
    const begun = env.monotonic();
    const counted = (): Walked => ({ samples: items.length, ms: env.monotonic() - begun, reads, readBytes });
    const marks: Walked[] = [counted()];
    let place: string | undefined;
    // A window that was begun is walked to its end, whatever the time: what it cost is all in its first sample.
    // A second one tells whether the first was slow by chance.
    const hasTime = (): boolean => env.monotonic() - begun < (marks.length <= 2 ? 20 : 1) * msMax;
    while (marks.length === 1 || (marks.length <= windowsMax && hasTime())) {
      const before = counted();
      const item = items.length < walkedMax ? await cursor.next(signal) : undefined;
      windowBytes = Math.max(windowBytes, shards.held.windowBytes);
      const here = item && JSON.stringify(item.after.slice(0, 4));
      if (here !== place && items.length > 0) marks.push(before);
      place = here;
      if (!item) break;
      items.push(item);
    }
    const cost = costOf(marks);
    if (items.length > 0) return { items, cost, windowBytes };
  }
  return { items: [], cost: { samples: 0, ms: 0, reads, readBytes }, windowBytes };
}

/** What transforms made of samples, with the time on the way to their thread. */
interface Transformed {
  readonly outputs: readonly ChainOutput[];
  readonly wayMs: number;
}

/** Runs samples through a chain, more at a time as long as there is time. The first does not count where there are others: it loads what the thread needs. */
async function transform(
  pool: TransformPool,
  source: ResolvedSource,
  at: "loader" | "constructor",
  inputs: readonly { readonly id: string; readonly value: unknown }[],
  env: Env,
  msMax: number,
): Promise<Transformed> {
  const chain = (source.settings.transforms ?? []).filter((one) => one.at === at);
  const outputs: ChainOutput[] = [];
  let [wayMs, begun] = [0, Number.POSITIVE_INFINITY];
  for (let size = 1; outputs.length < inputs.length; size = Math.min(16, 2 * size)) {
    const group = inputs.slice(outputs.length, outputs.length + size);
    const sentMs = env.monotonic();
    const made = await pool.run(
      chain,
      group.map(({ id, value }) => ({ source: source.name, id, value })),
    );
    const [failed] = made.filter((output) => output.setup);
    if (failed?.setup) throw stopForSetup(source.name, failed.setup, failed.error as string);
    const ms = made.reduce((sum, output) => sum + output.ms, 0);
    if (outputs.length > 0) wayMs += Math.max(0, env.monotonic() - sentMs - ms);
    if (outputs.length === 0) begun = env.monotonic();
    outputs.push(...made);
    if (env.monotonic() - begun > msMax) break;
  }
  return { outputs, wayMs: wayMs / Math.max(1, outputs.length - 1) };
}

const meanMs = (outputs: readonly ChainOutput[]): number => {
  const counted = outputs.length > 1 ? outputs.slice(1) : outputs;
  return counted.reduce((sum, { ms }) => sum + ms, 0) / Math.max(1, counted.length);
};

/** Measures a source. */
export async function profileSource(
  source: ResolvedSource,
  pipeline: ResolvedPipeline,
  { pool, env }: { readonly pool: TransformPool; readonly env: Env },
  limits: ProfileLimits,
  signal?: AbortSignal | undefined,
): Promise<{ readonly profile: SourceProfile; readonly samples: readonly ProfiledSample[] }> {
  assertShards(source);
  const { items, cost, windowBytes } = await walk(
    source,
    pipeline,
    env,
    { ...limits, msMax: limits.msMax / 2 },
    signal,
  );
  const readable = items.filter(({ raw }) => raw !== undefined).slice(0, limits.samplesMax);
  const inputs = readable.map(({ id, raw }) => ({ id, value: raw?.value }));
  const loaded = await transform(pool, source, "loader", inputs, env, limits.msMax / 2);
  const { vocabSize, seqLength, tooLong = "split" } = pipeline.spec.construct;
  const samples: ProfiledSample[] = [];
  let [tokens, pieces, readyBytes, why] = [0, 0, 0, items.find(({ fault }) => fault)?.fault?.reason];
  loaded.outputs.forEach(({ value, error, bytes }, i) => {
    const id = readable[i]?.id as string;
    const made = error === undefined ? asPrepared(value, { source: source.name, id, vocabSize }) : { garbage: error };
    if ("garbage" in made) why ??= made.garbage;
    const split = "garbage" in made || made.tokens.length === 0 ? [] : (splitSample(made, seqLength) ?? []);
    const kept = split.length <= 1 || tooLong === "split" ? split : tooLong === "truncate" ? split.slice(0, 1) : [];
    const size = bytes.at(-1) ?? 0;
    if (kept.length > 0) readyBytes += size;
    pieces += kept.length;
    for (const piece of kept) {
      tokens += piece.tokens.length;
      samples.push({ meta: metaOf(piece, source.name, id, Math.ceil(size / kept.length)), value: piece });
    }
  });
  const used = loaded.outputs.length;
  if (samples.length === 0) throw noSamples(source, items.length, why);
  const chosen = await transform(
    pool,
    source,
    "constructor",
    samples.slice(0, 32).map(({ meta, value }) => ({ id: meta.id, value })),
    env,
    limits.msMax / 4,
  );
  const finished = samples.map((sample, i): ProfiledSample => {
    const output = chosen.outputs[i];
    return output?.value === undefined ? sample : { ...sample, value: output.value as PreparedSample };
  });
  const profile: SourceProfile = {
    source: source.name,
    shards: source.shards.length,
    shardBytes: source.sizes.reduce((a, b) => a + b, 0),
    lanesMax: lanesMaxOf(source),
    samples: used,
    faults:
      items.filter(({ fault }) => fault).length + loaded.outputs.filter(({ error }) => error !== undefined).length,
    tokens: tokens / used,
    pieces: pieces / used,
    readMs: cost.ms / Math.max(1, cost.samples) + loaded.wayMs,
    loaderMs: meanMs(loaded.outputs),
    constructorMs: meanMs(chosen.outputs) * (pieces / used),
    reads: cost.reads / Math.max(1, cost.samples),
    readBytes: cost.readBytes / Math.max(1, cost.samples),
    readyBytes: readyBytes / used,
    windowBytes,
  };
  return { profile, samples: finished };
}

function assertShards({ name, missing, shards }: ResolvedSource): void {
  if (missing.length === 0) return;
  throw new BatchWeaveError(
    "MISSING_OBJECT",
    `Source ${name} cannot be measured: ${missing.length} of the files of its ${shards.length} shards are not there, first ${missing[0]}. Put them back, or leave them out of the source.`,
    { source: name, missing: missing.slice(0, 10) },
  );
}

function noSamples({ name, shards }: ResolvedSource, looked: number, why: string | undefined): BatchWeaveError {
  const what = looked === 0 ? `its ${shards.length} shards hold none` : `of ${looked} looked at, none can be used`;
  const reason = why === undefined ? "" : `: ${why.replace(/\.$/, "")}`;
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `Source ${name} has no samples, so nothing can be measured (${what}${reason}). Mend the source, or leave it out of the pipeline.`,
    { source: name, looked },
  );
}
