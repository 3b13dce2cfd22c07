/** The training log's lanes, for processes that hold any of them. */
import { type Namespace, safetensorsType } from "../../index.js";
import type { LaneBatch, LaneLog, LaneWriter } from "../fleet/index.js";
import { inheritedPoints, type LaneLayout, startOf } from "./lane-layout.js";
import { type LaneParts, LanePlanner, type PlannedBatch } from "./lane-planner.js";
import type { SecondLook } from "./second-look.js";

/** What is appended of a batch as it was planned. */
export function appendOf({ resumePoint, lineage, notes }: PlannedBatch): LaneBatch["append"] {
  return { resumePoint, lineage, contentType: safetensorsType, user: notes };
}

class PlannedLane implements LaneWriter {
  readonly #planner: LanePlanner;
  readonly #look: (signal: AbortSignal | undefined) => Promise<void>;

  constructor(planner: LanePlanner, look: (signal: AbortSignal | undefined) => Promise<void>) {
    this.#planner = planner;
    this.#look = look;
  }

  get nextSeq(): number {
    return this.#planner.nextSeq;
  }

  get nextStep(): number {
    return this.#planner.nextStep;
  }

  async isOver(signal?: AbortSignal | undefined): Promise<boolean> {
    return await this.#planner.isOver(signal);
  }

  async next(options: Parameters<LaneWriter["next"]>[0]): Promise<LaneBatch | undefined> {
    await this.#look(options?.signal);
    const batch = await this.#planner.next(options);
    return batch && { slices: batch.body, append: appendOf(batch), note: batch };
  }

  async close(): Promise<void> {}
}

/** The lanes of a training log, whose batches `parts` make. */
export function trainingLanes(ns: Namespace, parts: LaneParts, steps: number, look: SecondLook): LaneLog {
  const count = parts.pipeline.lanes;
  return {
    name: "training",
    ns,
    lanes: count,
    steps,
    open: async (lane, at, signal) => {
      const layout: LaneLayout = { isLanes: true, count, held: [lane] };
      const inherited = await inheritedPoints(ns, layout, signal);
      const planner = new LanePlanner(parts, { lane, lanes: count }, startOf(ns, layout, lane, at, inherited));
      return new PlannedLane(planner, (own) => look.take(lane, at.seq, own));
    },
  };
}
