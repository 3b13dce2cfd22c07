/**
 * Two pipelines that begin together on a log that neither created. A namespace that a pipeline creates says whose it is; a fork, or one made with `create`,
 * does not, and both find it empty. So each process looks at its neighbours again once a batch of its own is in the log. Commits have one order: whichever
 * of two committed later sees the other's, and stops with few batches of its own in the log.
 */
import { BatchWeaveError, isBatchWeaveError, type Namespace } from "../../index.js";
import { assertNeighbours, isMarked, type LaneLayout, laneId } from "./lane-layout.js";
import type { LaneParts } from "./lane-planner.js";

/** One for a process and its training log. */
export class SecondLook {
  readonly #ns: Namespace;
  readonly #parts: LaneParts;
  readonly #layout: LaneLayout;
  #isDone: boolean;

  constructor(ns: Namespace, parts: LaneParts, layout: LaneLayout) {
    this.#ns = ns;
    this.#parts = parts;
    this.#layout = layout;
    this.#isDone = isMarked(ns);
  }

  /** Before a lane's next batch. `seq`: what the lane had when this process took it. Costs nothing once it has looked. */
  async take(lane: number, seq: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.#isDone) return;
    const state = await this.#ns.producerState(laneId(this.#layout, lane), { signal });
    if ((state?.seq ?? 0) > seq) await this.finish(signal);
  }

  /** After the last commit of this process, for one that made few batches. */
  async finish(signal: AbortSignal | undefined): Promise<void> {
    if (this.#isDone) return;
    const { uri } = this.#ns;
    await assertNeighbours(this.#ns, this.#parts, this.#layout, signal).catch((error: unknown) => {
      if (!isBatchWeaveError(error, "INVALID_ARGUMENT")) throw error;
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `Another pipeline, or this one before it was changed, began to write ${uri} at the same time. What both wrote is in the log: stop them, fork it below the first step that is wrong (batchweave fork --at) and let one of them go on there. What differs: ${error.message}`,
        { uri },
        error,
      );
    });
    this.#isDone = true;
  }
}
