/** Forks: a process that forks the log, reads what the fork inherited while the parent goes on and reclaims, and lets it go again. */
import { isBatchWeaveError } from "../src/errors.js";
import { crc32 } from "../src/format/index.js";
import { releasePins } from "../src/lifecycle/index.js";
import { Rng } from "./random.js";
import type { ProcessContext } from "./simulation.js";
import { Violation } from "./violation.js";
import { type Handle, rootUri, type WeaveStage } from "./weave-stage.js";

const readsMax = 8;

/** Forks once, to a place of its own, and reads from it for a while. */
export async function forkAndRead(stage: WeaveStage, context: ProcessContext): Promise<void> {
  const rng = new Rng(stage.sim.world.seed, `fork/${context.process.label}`);
  const parent = await stage.open(context);
  const { trim, end } = (await parent.log.head.jump()).steps;
  if (end - trim < 2) return;
  const at = trim + 1 + rng.below(end - trim);
  const skipped = rng.chance(0.5) ? trim + rng.below(at - trim) : undefined;
  const skip = skipped === undefined || at - trim < 2 ? [] : [{ from: skipped, to: skipped + 1 }];
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
  await readInherited(stage, context, fork, skip[0]?.from, rng);
  if (rng.chance(0.5)) return;
  const { spec } = fork.log;
  await releasePins(spec, spec.fork?.origins ?? [], async () => parent.log, { unconfirmed: false });
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
