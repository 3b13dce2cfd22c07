/** Transforms that were put off until a sample is chosen, so that buffers hold its smaller input. */
import { attemptsOf, type Fault, stopFor, stopForSetup } from "../load/fault.js";
import { orAborted } from "../load/or-aborted.js";
import { asPrepared, type PreparedSample } from "../load/prepared-sample.js";
import type { LoadedSample, SampleSupply, SuppliedSample } from "../load/sample-supply.js";
import type { FigureCounter } from "../load/source-figures.js";
import type { ChainOutput } from "../load/transform-chain.js";
import type { LaneParts } from "./lane-planner.js";

/** The payloads of the samples of a batch: chosen by their metadata alone, fetched only now. */
export async function fetchSamples(
  samples: readonly SuppliedSample[],
  names: readonly string[],
  supplies: readonly SampleSupply[],
  signal: AbortSignal | undefined,
): Promise<LoadedSample[]> {
  const loaded = new Array<LoadedSample>(samples.length);
  await Promise.all(
    names.map(async (name, s) => {
      const members = [...samples.keys()].filter((i) => samples[i]?.meta.source === name);
      if (members.length === 0) return;
      const chosen = members.map((i) => samples[i] as SuppliedSample);
      const values = await (supplies[s] as SampleSupply).fetch(chosen, signal);
      members.forEach((i, k) => {
        loaded[i] = { ...(chosen[k] as SuppliedSample), value: values[k] as LoadedSample["value"] };
      });
    }),
  );
  return loaded;
}

/** Runs them on the samples of a batch, each with the bin it is in. What fails leaves the batch, recorded. */
export async function finishSamples(
  { pool, pipeline, counters }: Pick<LaneParts, "pool" | "pipeline" | "counters">,
  samples: readonly LoadedSample[],
  assignment: Int32Array,
  signal: AbortSignal | undefined,
): Promise<{ kept: LoadedSample[]; start: Int32Array; faults: Fault[] }> {
  const { vocabSize } = pipeline.spec.construct;
  const outputs = new Array<ChainOutput | undefined>(samples.length);
  await Promise.all(
    pipeline.sources.map(async (source, s) => {
      const transforms = source.settings.transforms ?? [];
      const chain = transforms.filter(({ at }) => at === "constructor");
      const members =
        chain.length === 0 ? [] : [...samples.keys()].filter((i) => samples[i]?.meta.source === source.name);
      if (members.length === 0) return;
      const inputs = members.map((i) => ({
        source: source.name,
        id: samples[i]?.meta.id as string,
        value: samples[i]?.value,
      }));
      const results = await orAborted(pool.run(chain, inputs, source.settings.inFlightMax), signal);
      const first = transforms.findIndex(({ at }) => at === "constructor");
      results.forEach((output, k) => {
        outputs[members[k] as number] = output;
        (counters[s] as FigureCounter).transformMs += output.ms;
        if (output.error === undefined) counters[s]?.addStages(first, output.bytes);
      });
    }),
  );
  const [kept, start, faults]: [LoadedSample[], number[], Fault[]] = [[], [], []];
  samples.forEach((sample, i) => {
    const output = outputs[i];
    const value = output ? finished(output, sample, vocabSize) : sample.value;
    if ("garbage" in value) {
      const { source, id } = sample.meta;
      const fault: Fault = { source, id, stage: "transform", reason: value.garbage, attempts: 1 };
      const at = pipeline.sources.findIndex(({ name }) => name === source);
      if (!attemptsOf(pipeline.sources[at]?.settings).isSkipped) throw stopFor(fault);
      counters[at]?.tally.add(fault);
      faults.push(fault);
      return;
    }
    kept.push({ ...sample, value });
    start.push(assignment[i] as number);
  });
  return { kept, start: Int32Array.from(start), faults };
}

/** What a transform in the constructor made of a sample: its place in a sequence was given away before, so its length must be the same. */
function finished(
  { value, error, setup }: ChainOutput,
  { meta: { source, id, tokens }, value: { nextToken } }: LoadedSample,
  vocabSize: number | undefined,
): PreparedSample | { readonly garbage: string } {
  if (setup) throw stopForSetup(source, setup, error as string);
  if (error !== undefined) return { garbage: error };
  const checked = asPrepared(value, { source, id, vocabSize });
  if ("garbage" in checked) return checked;
  if (checked.tokens.length === tokens) return { ...checked, nextToken };
  return {
    garbage: `it has ${checked.tokens.length} tokens after the transforms in the constructor and had ${tokens} before`,
  };
}
