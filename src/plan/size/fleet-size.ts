/** `fleet size`: measures a pipeline's sources and its batches, and sizes a fleet for them. Writes nothing. */
import { BatchWeaveError, type Env } from "../../index.js";
import { sourceLanes } from "../exchange/exchange.js";
import { TransformPool } from "../load/transform-pool.js";
import { type Pipeline, type ResolvedPipeline, resolvePipeline } from "../run/pipeline.js";
import { isExternal } from "../source/external-source.js";
import { poolBytesDefault } from "../source/shard-pool.js";
import { profileConstruct } from "./construct-profile.js";
import { assertNeeds, type FleetCosts, type FleetPlan, planFleet, type SizeNeeds } from "./fleet-plan.js";
import { type DemandPhase, demandPhases } from "./mix-demand.js";
import { profileOwn } from "./own-profile.js";
import { type ProfiledSample, profileSource, type SourceProfile } from "./source-profile.js";

/** Bounds of the measurement. */
export interface MeasureSettings {
  /** Samples of a source at most. Default 64. */
  readonly samplesMax?: number | undefined;
  /** Of all sources together, about. Default 30,000. */
  readonly msMax?: number | undefined;
}

/** Components of {@link sizeFleet}. */
interface MeasureOptions {
  readonly env: Env;
  readonly signal?: AbortSignal | undefined;
  readonly onSource?: ((profile: SourceProfile, done: number, of: number) => void) | undefined;
  /** Only for tests of worker threads: where their program is. */
  readonly workerUrl?: URL | undefined;
}

/** Bytes that a process reads ahead, and what a block holds, where the pipeline does not say. */
const bufferBytesDefault = 268_435_456;
const bufferSamplesDefault = 64;
const blockBytesDefault = 4_194_304;
const blockSamplesDefault = 4_096;
/** A transform that hangs is found out sooner than in a run. */
const hangMsMax = 15_000;
/** A process of Node with this package, where this one is too young to tell. */
const processBytesMin = 60_000_000;

/** Measures everything that {@link planFleet} asks for. */
export async function measureFleet(
  pipeline: Pipeline,
  settings: MeasureSettings,
  options: MeasureOptions,
): Promise<FleetCosts> {
  const { env, signal } = options;
  const processBytes = Math.max(processBytesMin, process.memoryUsage.rss());
  const resolved = await resolvePipeline(pipeline, env);
  const { spec, sources } = resolved;
  const { samplesMax = 64, msMax = 30_000 } = settings;
  const limits = { samplesMax, msMax: Math.max(40, msMax / sources.length) };
  const timeoutMs = Math.min(hangMsMax, spec.workers?.timeoutMs ?? hangMsMax);
  const threads = spec.workers?.threads === 0 ? 0 : 1;
  await using pool = new TransformPool(env, { ...spec.workers, threads, timeoutMs }, options.workerUrl);
  const profiles: SourceProfile[] = [];
  const samples: (readonly ProfiledSample[])[] = [];
  let threadBytes = 0;
  for (const source of sources) {
    signal?.throwIfAborted();
    const measured = isExternal(source)
      ? await profileOwn(source, resolved, limits, signal)
      : await profileSource(source, resolved, { pool, env }, limits, signal);
    // The first source's transforms have started the thread.
    if (!isExternal(source) && pool.threads > 0 && threadBytes === 0)
      threadBytes = Math.max(1, process.memoryUsage.rss() - processBytes);
    profiles.push(resolved.exchange ? { lanes: sourceLanes(source), ...measured.profile } : measured.profile);
    samples.push(measured.samples);
    options.onSource?.(measured.profile, profiles.length, sources.length);
  }
  const phases = phasesOf(resolved);
  const construct = profileConstruct(resolved, samples, (phases[0] as DemandPhase).shares, env);
  return {
    profiles,
    construct,
    phases,
    isGuess: resolved.mix.kind === "callback",
    samplesPerStep: "samples" in resolved.batch ? resolved.batch.samples : undefined,
    lanes: resolved.lanes,
    processBytes,
    threadBytes,
    bufferSamplesMax: spec.buffers?.samplesMax ?? bufferSamplesDefault,
    bufferBytesMax: spec.buffers?.bytesMax ?? bufferBytesDefault,
    windowBytesMax: spec.buffers?.windowBytesMax ?? poolBytesDefault,
    blockBytes: resolved.exchange?.blockBytes ?? blockBytesDefault,
    blockSamples: resolved.exchange?.blockSamples ?? blockSamplesDefault,
  };
}

/** What a mixture takes, phase by phase. What a callback will say is unknown: the sources' own weights stand for it. */
function phasesOf({ mix, sources, spec }: Pick<ResolvedPipeline, "mix" | "sources" | "spec">): DemandPhase[] {
  const names = sources.map(({ name }) => name);
  const weights = Object.fromEntries(sources.map(({ name, settings }) => [name, settings.weight ?? 1]));
  const phases = demandPhases(mix, names, weights, spec.steps);
  if (phases.some(({ shares }) => shares.some((share) => share > 0))) return phases;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    "No source has a share of the mixture. Mend the weights in the pipeline's file.",
  );
}

/** Measures and sizes. */
export async function sizeFleet(
  pipeline: Pipeline,
  needs: SizeNeeds,
  settings: MeasureSettings,
  options: MeasureOptions,
): Promise<{ readonly plan: FleetPlan; readonly costs: FleetCosts }> {
  assertNeeds(needs);
  const costs = await measureFleet(pipeline, settings, options);
  return { plan: planFleet(costs, needs), costs };
}
