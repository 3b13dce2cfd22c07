/** The error for waiting too long: it must tell an operator whom to look at. */
import type { Env } from "../env/index.js";
import { BatchWeaveError } from "../errors.js";
import type { Manifest, NamespaceSpec } from "../format/index.js";
import { firstOwnStep } from "../log/index.js";

const producersNamedMax = 5;

/** WAIT_TIMEOUT: `lastStep` is the last step the iteration needs, `waitedMs` how long `next()` blocked. */
export function waitTimeout(
  env: Env,
  spec: NamespaceSpec,
  manifest: Manifest,
  wanted: { readonly iteration: number; readonly firstStep: number; readonly lastStep: number },
  waitedMs: number,
): BatchWeaveError {
  const missing = Math.max(manifest.steps.end, wanted.firstStep);
  const idleMs = Math.max(0, env.now() - manifest.commit.time);
  const lane = laneOf(spec, manifest.steps.end);
  const until = wanted.lastStep > missing ? ` to ${wanted.lastStep}` : "";
  return new BatchWeaveError(
    "WAIT_TIMEOUT",
    `Waited ${seconds(waitedMs)} for step ${missing}${until} (iteration ${wanted.iteration}): the head is version ${manifest.version} with ${manifest.steps.end > 0 ? `steps up to ${manifest.steps.end - 1}` : "no step yet"}, and nothing was committed for ${seconds(idleMs)}. ${describeProducers(manifest)} ${hint(manifest, lane)}`,
    {
      missing,
      lastStep: wanted.lastStep,
      iteration: wanted.iteration,
      version: manifest.version,
      idleMs,
      waitedMs,
      producers: manifest.producers.size,
      ...(lane === undefined ? {} : { lane }),
    },
  );
}

/** Lanes order: the producer whose batch the first missing step is. */
function laneOf(spec: NamespaceSpec, step: number): string | undefined {
  if (spec.order.kind !== "lanes") return undefined;
  return `lane-${(step - firstOwnStep(spec)) % spec.order.lanes}`;
}

function describeProducers(manifest: Manifest): string {
  if (manifest.producers.size === 0) return "No producer has ever opened this namespace.";
  const latest = [...manifest.producers].sort(([, a], [, b]) => b.at - a.at).slice(0, producersNamedMax);
  const named = latest.map(([id, state]) => `${id} (version ${state.at})`).join(", ");
  const more = manifest.producers.size - latest.length;
  return `Producers, by their last commit: ${named}${more > 0 ? ` and ${more} more` : ""}.`;
}

function hint(manifest: Manifest, lane: string | undefined): string {
  if (lane === undefined)
    return "Check that producers run and can write, raise waitTimeoutMs if they are slow, or close the log if it is complete.";
  const waiting = manifest.waiting.size > 0 ? `${manifest.waiting.size} batches of other lanes wait behind it. ` : "";
  const seen = manifest.producers.get(lane);
  const state = seen ? `committed last at version ${seen.at}` : "has never committed";
  return `${waiting}The missing step is ${lane}'s, which ${state}: restart its producer or let another process open ${lane}.`;
}

function seconds(ms: number): string {
  return ms < 10_000 ? `${(ms / 1_000).toFixed(1)} s` : `${Math.round(ms / 1_000)} s`;
}
