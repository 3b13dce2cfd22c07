/** Time of one training step in a 1F1B pipeline whose microbatches cost differently. Pure. */

/** What a stage does next: a forward or a backward pass of a microbatch. */
interface Pass {
  readonly isForward: boolean;
  readonly microbatch: number;
}

/** The order of passes at a stage: enough forwards to fill the pipeline behind it, then one of each in turn, then the backwards that are left. */
function passesOf(stage: number, stages: number, microbatches: number): Pass[] {
  const ahead = Math.min(microbatches, stages - 1 - stage);
  const passes: Pass[] = [];
  for (let i = 0; i < microbatches; i++) {
    passes.push({ isForward: true, microbatch: i });
    if (i >= ahead) passes.push({ isForward: false, microbatch: i - ahead });
  }
  for (let i = microbatches - ahead; i < microbatches; i++) passes.push({ isForward: false, microbatch: i });
  return passes;
}

/**
 * From the first pass to the last, for microbatches of the given costs divided evenly over `stages`. Backward takes twice as long as forward.
 * Every stage keeps its order and waits for what it needs, so one long microbatch holds up all stages.
 */
export function pipelineTime(costs: ArrayLike<number>, stages: number): number {
  const count = costs.length;
  const orders = Array.from({ length: stages }, (_, stage) => passesOf(stage, stages, count));
  const ends = {
    forward: new Float64Array(stages * count).fill(-1),
    backward: new Float64Array(stages * count).fill(-1),
  };
  const at = new Int32Array(stages);
  const clocks = new Float64Array(stages);
  // When the input of a pass was ready; negative while it is not.
  const inputOf = (stage: number, { isForward, microbatch }: Pass): number => {
    if (isForward) return stage === 0 ? 0 : (ends.forward[(stage - 1) * count + microbatch] as number);
    const from = stage === stages - 1 ? ends.forward : ends.backward;
    return from[Math.min(stage + 1, stages - 1) * count + microbatch] as number;
  };
  for (let left = 2 * stages * count; left > 0; ) {
    for (let stage = 0; stage < stages; stage++) {
      const order = orders[stage] as Pass[];
      for (let next = order[at[stage] as number]; next; next = order[at[stage] as number]) {
        const input = inputOf(stage, next);
        if (input < 0) break;
        const cost = (costs[next.microbatch] as number) / stages;
        const end = Math.max(clocks[stage] as number, input) + (next.isForward ? cost / 3 : (2 * cost) / 3);
        clocks[stage] = end;
        (next.isForward ? ends.forward : ends.backward)[stage * count + next.microbatch] = end;
        at[stage] = (at[stage] as number) + 1;
        left--;
      }
    }
  }
  return Math.max(...clocks);
}
