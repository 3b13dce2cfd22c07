/** Forks: a process that forks the log, perhaps forks the fork, reads what it inherited while the others reclaim, and lets it go again. */
import { isBatchWeaveError } from "../../src/errors.js";
import { crc32, makeCursor } from "../../src/format/index.js";
import { releasePins } from "../../src/lifecycle/index.js";
import { Violation } from "../oracle/violation.js";
import { Rng } from "../world/random.js";
import type { ProcessContext } from "../world/simulation.js";
import { type Handle, rootUri, type WeaveStage } from "./weave-stage.js";

const readsMax = 8;
const tidyRounds = 20;

/** Forks once, to a place of its own, and reads from it for a while. */
export async function forkAndRead(stage: WeaveStage, context: ProcessContext): Promise<void> {
  const rng = new Rng(stage.sim.world.seed, `fork/${context.process.label}`);
  const parent = await stage.open(context);
  const { trim, end } = (await parent.log.head.jump()).steps;
  if (end - trim < 2) return;
  const at = trim + 1 + rng.below(end - trim);
  const left = rng.chance(0.5) ? trim + rng.below(at - trim) : undefined;
  const skip = left === undefined || at - trim < 2 ? [] : [{ from: left, to: left + 1 }];
  const uri = `${rootUri}/forks/${context.process.label}`;
  try {
    await parent.namespace.fork(uri, { at, skip });
  } catch (error) {
    // The trim may pass the fork's first step again and again; then there is no fork, which is as good.
    if (isBatchWeaveError(error, "RECLAIMED") || isBatchWeaveError(error, "NOT_EMPTY")) return;
    throw error;
  }
  stage.counts.forks++;
  const fork = await stage.openAt(context, uri);
  const { uuid, fork: shape } = fork.log.spec;
  const pin = (await parent.log.head.jump()).pins.get(uuid);
  if (pin === undefined) {
    // The trim reached the very step of the fork: there is nothing to share.
    const { steps } = await fork.log.head.jump();
    if (steps.trim < steps.end) throw new Violation("fork", `${uri} was made, and nothing is pinned for it`);
    return;
  }
  stage.oracle.forked(uuid, pin);
  const skipped = skip[0]?.from;
  const heir = rng.chance(0.5) ? await handOver(stage, context, fork) : fork;
  await readInherited(stage, context, heir, skipped, rng);
  if (rng.chance(0.5)) return;
  stage.oracle.unfork(heir.log.spec.uuid);
  await releasePins(heir.log.spec, shape?.origins ?? [], async () => parent.log, { unconfirmed: false });
}

/** Forks the fork, and lets the first one go on until it needs nothing of what it inherited: its heir then holds that alone. */
async function handOver(stage: WeaveStage, context: ProcessContext, { namespace, log }: Handle): Promise<Handle> {
  const uri = `${namespace.uri}-heir`;
  try {
    await namespace.fork(uri);
  } catch (error) {
    // The janitor was faster.
    if (isBatchWeaveError(error, "RECLAIMED")) return { namespace, log };
    throw error;
  }
  const heir = await stage.openAt(context, uri);
  stage.oracle.forked(heir.log.spec.uuid, { heirOf: log.spec.uuid });
  const { rows, chunks } = stage.plan.grid;
  const first = (await log.head.jump()).steps.end;
  const id = stage.plan.producers[0] as string;
  const producer = await namespace.producer({ id, cadence: { kind: "interval", intervalMs: 50 } });
  await producer.append(Array.from({ length: rows * chunks }, () => Buffer.from("its own")));
  await producer.flush();
  await producer.close();
  await namespace.checkpoint("own", makeCursor(log.spec.uuid, first * rows, 0));
  stage.oracle.unfork(log.spec.uuid);
  await namespace.reclaim({ graceMs: 0, keepVersions: 1 });
  stage.counts.heirs++;
  return heir;
}

/** An operator who removes the pins of forks that do not exist, and is at it while they are made. */
export async function tidyPins(stage: WeaveStage, context: ProcessContext): Promise<void> {
  const { log, namespace } = await stage.open(context);
  for (let round = 0; round < tidyRounds && !stage.healed; round++) {
    await context.env.sleep(context.env.random() * 1000);
    for (const [fork, pin] of (await log.head.jump()).pins) {
      if (pin.confirmed) continue;
      try {
        await namespace.releaseFork(fork);
        stage.counts.tidiedPins++;
      } catch (error) {
        // It exists by now.
        if (!isBatchWeaveError(error, "INVALID_ARGUMENT")) throw error;
      }
    }
  }
}

async function readInherited(
  stage: WeaveStage,
  context: ProcessContext,
  { log, namespace }: Handle,
  skipped: number | undefined,
  rng: Rng,
): Promise<void> {
  const { grid } = stage.plan;
  for (let i = 0; i < readsMax; i++) {
    const { trim, end } = (await log.head.jump()).steps;
    if (end === trim) return;
    const step = trim + rng.below(end - trim);
    const row = rng.below(grid.rows);
    const chunk = rng.below(grid.chunks);
    let bytes: Uint8Array;
    try {
      bytes = await namespace.readSlice({ step, row, chunk });
    } catch (error) {
      if (!stage.isWireDamage(error)) throw error;
      continue;
    }
    // Also where the trim had passed the skipped step before the fork was made.
    const origin = skipped !== undefined && step >= skipped ? step + 1 : step;
    const truth = stage.oracle.steps[origin];
    if (truth === undefined || crc32(bytes) !== truth.cells[row * grid.chunks + chunk])
      throw new Violation("fork", `step ${step} of ${log.store.uri} is not step ${origin} of its parent`);
    stage.counts.forkReads++;
    await context.env.sleep(rng.exponential(stage.healed ? 100 : 2500));
  }
}
