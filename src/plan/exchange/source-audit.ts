/** Whether a source's log holds what the source gave to its loaders. */
import { decodeSampleTable, type Env, type Namespace } from "../../index.js";
import type { Fault } from "../load/fault.js";
import type { ResolvedPipeline } from "../run/pipeline.js";
import { balanceSamples, countSample, type LaneMark, type SampleBalance } from "../run/sample-balance.js";
import type { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import { SourceCursor } from "../source/source-cursor.js";
import { isLeftOut } from "./block-walk.js";
import { sourceLanes } from "./exchange.js";
import type { SourceLanePoint } from "./source-lane.js";

/** Audits the log of one source: reads all its tables, and the source up to where its lanes stand. */
export async function auditSourceLog(
  ns: Namespace,
  { sources, seed }: ResolvedPipeline,
  index: number,
  pool: ShardPool,
  { env, signal }: { readonly env: Env; readonly signal?: AbortSignal | undefined },
): Promise<SampleBalance> {
  const source = sources[index] as ResolvedSource;
  const held = new Map<string, number>();
  const byLane = new Map<number, LaneMark[]>();
  const reader = ns.stepReader();
  const { trim, end } = (await ns.info({ signal })).steps;
  const lanes = sourceLanes(source);
  for (let step = trim; step < end; step++) {
    const [{ resumePoint, seq }, table, bytes] = await Promise.all([
      ns.inspect(step, { signal }),
      reader.slice({ step, row: 0, chunk: 0 }, { signal }),
      reader.sliceBytes({ step, row: 0, chunk: 1 }, { signal }),
    ]);
    const { samples, faults } = decodeSampleTable(table, bytes, `Block ${step} of source ${source.name}`);
    for (const { id } of samples) countSample(held, { source: source.name, id });
    for (const [, fault] of faults)
      if (isLeftOut(fault as Fault)) countSample(held, { source: source.name, id: (fault as Fault).id });
    const { lane, at, used } = resumePoint as SourceLanePoint;
    const marks = byLane.get(lane[0]) ?? [];
    byLane.set(lane[0], marks);
    marks.push({ positions: [at === 0 ? undefined : at], used: [used], isAfterGap: marks.length === 0 && seq > 0 });
  }
  const walk = (lane: number): SourceCursor => new SourceCursor(source, pool, env, { seed, lane, lanes });
  return await balanceSamples([{ name: source.name, walk }], { byLane, changed: new Map() }, held, signal);
}
