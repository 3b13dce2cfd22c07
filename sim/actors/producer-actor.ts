/** Producers: real ones that append deterministic batches, die, come back, and meet another holder of their id. */

import type { CadenceSettings, Takeover } from "../../src/cadence/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import type { Producer } from "../../src/producer/index.js";
import { nextOf } from "../oracle/producer-truth.js";
import { Rng } from "../world/random.js";
import type { ProcessContext } from "../world/simulation.js";
import { type BatchIdentity, batchSlices, drawLength } from "./batch-content.js";
import type { Handle, WeaveStage } from "./weave-stage.js";

/** How far a producer has to go. */
export interface Errand {
  readonly id: string;
  /** Batches of the id in all after which it stops; asked before every append. */
  target(counter: number): number;
  /** In and out: append at once, commit at once. */
  readonly isVisit?: boolean | undefined;
}

/** What one opening of a producer does in its own way. */
interface Habits {
  readonly gapMs: number;
  readonly flushRate: number;
  readonly reopenRate: number;
  readonly streamRate: number;
  readonly extentBytesMax: number;
  readonly bufferedBatchesMax: number;
  readonly cadence: CadenceSettings;
}

/** Runs one producer process to the end of its errand. Resolves when there is nothing left to do here. */
export async function produce(stage: WeaveStage, context: ProcessContext, errand: Errand): Promise<void> {
  const { process } = context;
  const rng = new Rng(stage.sim.world.seed, `producer/${process.label}`);
  const handle = await stage.open(context);
  for (;;) {
    const again = await session(stage, context, handle, errand, rng);
    if (!again) return;
  }
}

/** From opening to closing. True: open again. */
async function session(
  stage: WeaveStage,
  context: ProcessContext,
  { namespace }: Handle,
  errand: Errand,
  rng: Rng,
): Promise<boolean> {
  const { id } = errand;
  const habits = drawHabits(stage, rng, errand.isVisit === true);
  const takeover = rng.pick(stage.plan.takeovers);
  const begunMs = stage.sim.world.nowMs;
  let producer: Producer | undefined;
  try {
    producer = await namespace.producer({
      id,
      takeover,
      cadence: habits.cadence,
      bufferedBatchesMax: habits.bufferedBatchesMax,
      extentBytesMax: habits.extentBytesMax,
      lag: { pollDelayMs: 200 },
    });
    stage.oracle.opened(id, producer.epoch, producer.nextSeq, producer.resumePoint);
    if (takeover === "when-quiet") stage.oracle.versions.openedQuietly(id, begunMs, stage.oracle.boundary);
    context.note("opened", `${id} epoch ${producer.epoch}`, producer.nextSeq);
    const accepted: BatchIdentity[] = [];
    const done = await appendAll(stage, context, producer, errand, habits, rng, accepted);
    if (producer.pendingBatches > 0) stage.counts.unflushedClosings++;
    await producer.close();
    // Closed means acknowledged, whether or not somebody flushed before.
    for (const batch of accepted) stage.oracle.requireIn(batch, producer.epoch, stage.oracle.head?.version ?? 0);
    return !done;
  } catch (error) {
    return judge(stage, context, errand, producer, takeover, error);
  }
}

async function appendAll(
  stage: WeaveStage,
  context: ProcessContext,
  producer: Producer,
  errand: Errand,
  habits: Habits,
  rng: Rng,
  accepted: BatchIdentity[],
): Promise<boolean> {
  let counter = nextOf(producer.resumePoint) ?? 0;
  while (counter < errand.target(counter)) {
    const batch: BatchIdentity = { producer: producer.id, counter, variant: context.process.label };
    stage.oracle.append(batch);
    const slices = batchSlices(batch, stage.plan.grid, () => drawLength(rng));
    const body = rng.chance(habits.streamRate) ? streamed(context, slices, rng) : slices;
    const options = { resumePoint: { next: counter + 1, note: rng.chance(0.05) ? "x".repeat(2000) : "" } };
    const known = stage.knownTo(context.process)?.version ?? 0;
    const ticket = await producer.append(body, options);
    stage.oracle.versions.accepted(producer.id, known, stage.knownTo(context.process)?.version ?? 0);
    accepted.push(batch);
    stage.counts.accepted++;
    counter++;
    const { epoch } = producer;
    ticket.committed.then(
      ({ version }) => {
        if (!context.process.alive) return;
        context.note("acknowledged", `${batch.producer}/${batch.counter}`, version);
        try {
          stage.oracle.acknowledge(batch, epoch, version);
        } catch (error) {
          stage.sim.world.fail(error);
        }
      },
      () => {},
    );
    if (rng.chance(habits.flushRate)) await producer.flush();
    if (rng.chance(habits.reopenRate)) return false;
    await context.env.sleep(rng.exponential(stage.healed ? 50 : habits.gapMs));
  }
  await producer.flush();
  return true;
}

async function* streamed(context: ProcessContext, slices: readonly Uint8Array[], rng: Rng): AsyncIterable<Uint8Array> {
  for (const slice of slices) {
    if (rng.chance(0.2)) await context.env.sleep(rng.exponential(100));
    yield slice;
  }
}

function drawHabits(stage: WeaveStage, rng: Rng, isVisit: boolean): Habits {
  return {
    gapMs: isVisit ? 5 : stage.plan.appendGapMs * rng.between(0.3, 1.7),
    flushRate: rng.chance(0.3) ? 0.2 : 0.02,
    reopenRate: 0.01,
    streamRate: rng.chance(0.3) ? 0.3 : 0,
    extentBytesMax: rng.chance(0.25) ? rng.pick([100, 250, 600]) : 1_000_000,
    bufferedBatchesMax: rng.pick([1, 4, 64]),
    cadence: isVisit && rng.chance(0.7) ? { kind: "interval", intervalMs: 20 } : drawCadence(stage, rng),
  };
}

function drawCadence(stage: WeaveStage, rng: Rng): CadenceSettings {
  const drawn = rng.pick(stage.plan.cadences);
  // The gap of DAC grows with the number of ids seen lately: with guests around, a single stalled commit keeps a producer quiet for an hour.
  const kind = drawn === "dac" && stage.plan.guests.length > 0 ? "interval" : drawn;
  if (kind === "interval") return { kind, intervalMs: rng.pick([50, 200, 800]) };
  if (kind === "dac") return { kind, epsilon: 0.9 };
  return { kind };
}

/** What a producer may fail with, each only when it is true. True: open again, in this same process. */
async function judge(
  stage: WeaveStage,
  context: ProcessContext,
  errand: Errand,
  producer: Producer | undefined,
  takeover: Takeover,
  error: unknown,
): Promise<boolean> {
  const { oracle, counts } = stage;
  if (isBatchWeaveError(error, "CLOSED") && oracle.head?.closed === true) {
    counts.closings++;
    return false;
  }
  if (isBatchWeaveError(error, "FENCED")) {
    counts.fencings++;
    context.note("fenced", errand.id);
    // Fenced between its opening and the reading of its resume point, or told so because it asked not to take over.
    const epoch = producer?.epoch ?? (takeover === true ? Number(error.details["epoch"]) : undefined);
    if (epoch !== undefined) oracle.fenced(errand.id, epoch);
    return false;
  }
  if (isBatchWeaveError(error, "UPLOAD_EXPIRED")) {
    counts.expiredUploads++;
    return true;
  }
  if (isBatchWeaveError(error, "CONTENDED") || stage.survives(error)) {
    await context.env.sleep(500);
    return true;
  }
  throw error;
}
