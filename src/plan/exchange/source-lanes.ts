/** The lanes of a source's log, for processes that hold any of them. */
import type { Namespace } from "../../index.js";
import type { LaneLog } from "../fleet/index.js";
import type { SampleSupply, SupplyStart } from "../load/sample-supply.js";
import { hash32 } from "../mix/random.js";
import type { ResolvedPipeline } from "../run/pipeline.js";
import type { ResolvedSource } from "../source/source.js";
import { type Exchange, sourceLanes } from "./exchange.js";
import { SourceLane, startOfLane } from "./source-lane.js";

/** Opens what reads lane `lane` of `lanes` of the source itself. */
type OpenReading = (part: { readonly lane: number; readonly lanes: number }, from: SupplyStart) => SampleSupply;

/** A print of how a source is loaded, besides its shards: loaders and constructors of one log must agree. */
export function loadRule(
  source: Pick<ResolvedSource, "name" | "settings">,
  { construct, seed = 0 }: Pick<ResolvedPipeline["spec"], "construct" | "seed">,
  { blockBytes, blockSamples }: Exchange,
): number {
  const { seqLength, vocabSize = 0, tooLong = "split" } = construct;
  const { transforms = [], epochs = 0, shuffle = true } = source.settings;
  const chain = transforms.filter(({ at }) => at === "loader");
  // By the last part of a module's address: machines have it in other places.
  const made = chain.map(({ module, name, options }) => [module.slice(module.lastIndexOf("/") + 1), name, options]);
  const order = [sourceLanes(source), String(seed), Number.isFinite(epochs) ? epochs : 0, shuffle];
  return hash32(JSON.stringify([order, blockBytes, blockSamples, seqLength, vocabSize, tooLong, made]));
}

/** A source's log, whose blocks are made of what `read` gives. */
export function sourceLaneLog(
  ns: Namespace,
  { spec, sources }: ResolvedPipeline,
  index: number,
  exchange: Exchange,
  read: OpenReading,
): LaneLog {
  const source = sources[index] as ResolvedSource;
  const lanes = sourceLanes(source);
  const { blockBytes, blockSamples, aheadBlocks } = exchange;
  const bounds = { blockBytes, blockSamples };
  const rule = loadRule(source, spec, exchange);
  const shared = {
    source: source.name,
    print: hash32(source.fingerprint, rule),
    rule,
    lanes,
    hasEnd: Number.isFinite(source.settings.epochs ?? Number.POSITIVE_INFINITY),
    first: ns.firstOwnStep,
    ...bounds,
  };
  return {
    name: source.name,
    ns,
    lanes,
    steps: Number.POSITIVE_INFINITY,
    aheadMax: Math.max(aheadBlocks, 2 * lanes),
    open: async (lane, { seq, resumePoint }) => {
      const part = { ...shared, lane };
      const start = startOfLane(resumePoint, seq, part);
      return new SourceLane(part, read({ lane, lanes }, start), { ...start, seq });
    },
  };
}
