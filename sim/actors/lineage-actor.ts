/** Generations: a fork, its fork and so on, each with batches of its own and steps left out, read as a whole while their ancestors reclaim. */
import { isBatchWeaveError } from "../../src/errors.js";
import { crc32, indexFanout, makeCursor } from "../../src/format/index.js";
import { Violation } from "../oracle/violation.js";
import { Rng } from "../world/random.js";
import type { ProcessContext } from "../world/simulation.js";
import { type Handle, rootUri, type WeaveStage } from "./weave-stage.js";

/** CRC-32 of every cell of a step. */
type StepCells = readonly number[];

const readsMax = 12;

/** Founds a line of two or three generations and reads the youngest, whose elders let go of what they share. */
export async function foundLine(stage: WeaveStage, context: ProcessContext): Promise<void> {
  const rng = new Rng(stage.sim.world.seed, `line/${context.process.label}`);
  let elder = await stage.open(context);
  let steps: StepCells[] = stage.oracle.steps.map(({ cells }) => cells);
  const generations = 2 + rng.below(2);
  for (let generation = 1; generation <= generations; generation++) {
    const child = await forkFrom(stage, context, elder, steps, rng, `${context.process.label}-${generation}`);
    if (child === undefined) return;
    steps = [...child.steps, ...(await appendOwn(stage, child.handle, rng, generation))];
    if (generation > 1 && rng.chance(0.5)) await letGo(stage, elder);
    elder = child.handle;
  }
  stage.counts.lineages++;
  await read(stage, context, elder, steps, rng);
  stage.oracle.unfork(elder.log.spec.uuid);
}

/** One generation on: a fork at some step, perhaps without some. Undefined: the trim was faster. */
async function forkFrom(
  stage: WeaveStage,
  context: ProcessContext,
  elder: Handle,
  steps: readonly StepCells[],
  rng: Rng,
  name: string,
): Promise<{ handle: Handle; steps: StepCells[] } | undefined> {
  const { trim, end } = (await elder.log.head.jump()).steps;
  if (end - trim < 4 || end > steps.length) return undefined;
  // Mostly near the end, so that much is inherited, and through several objects of the index.
  const at = end - rng.below(Math.min(end - trim - 2, indexFanout));
  const from = trim + rng.below(at - trim - 1);
  const skip = rng.chance(0.5) ? [{ from, to: from + 1 + rng.below(Math.min(3, at - from - 1) + 1) }] : [];
  const uri = `${rootUri}/forks/${name}`;
  try {
    await elder.namespace.fork(uri, { at, skip });
  } catch (error) {
    if (["RECLAIMED", "NOT_EMPTY", "CONTENDED"].some((code) => isBatchWeaveError(error) && error.code === code))
      return undefined;
    throw error;
  }
  const handle = await stage.openAt(context, uri);
  const { uuid } = handle.log.spec;
  const pin = (await elder.log.head.jump()).pins.get(uuid);
  // An elder that has trimmed all it inherited leaves nothing of the first log to its heirs.
  const sharesFirst = handle.log.spec.fork?.origins.some((origin) => origin.uuid === stage.oracle.spec?.uuid) ?? false;
  if (elder.log.spec.fork !== undefined) {
    if (sharesFirst) stage.oracle.forked(uuid, { heirOf: elder.log.spec.uuid });
  } else if (pin !== undefined) stage.oracle.forked(uuid, pin);
  const isKept = (_: unknown, step: number): boolean => step < at && !skip.some((s) => step >= s.from && step < s.to);
  return { handle, steps: steps.filter(isKept) };
}

/** Some batches of its own: enough for a segment or two, and then some. */
async function appendOwn(stage: WeaveStage, { namespace }: Handle, rng: Rng, generation: number): Promise<StepCells[]> {
  const { grid, order, producers } = stage.plan;
  const own: StepCells[] = [];
  const ids = order === "lanes" ? producers : producers.slice(0, 1);
  const rounds = Math.ceil((1 + rng.below(2 * indexFanout + 3)) / ids.length);
  const writers = [];
  for (const id of ids) writers.push(await namespace.producer({ id, cadence: { kind: "interval", intervalMs: 30 } }));
  for (let round = 0; round < rounds; round++) {
    for (const writer of writers) {
      const cells = Array.from({ length: grid.rows * grid.chunks }, (_, cell) =>
        Buffer.from(`generation ${generation} of ${namespace.uri}: ${writer.id}/${round}/${cell}`),
      );
      await writer.append(cells);
      own.push(cells.map((cell) => crc32(cell)));
    }
  }
  // Left to close: it flushes.
  for (const writer of writers) await writer.close();
  return own;
}

/** An elder goes on to its very end and needs nothing any more; what its child shares stays for the child. */
async function letGo(stage: WeaveStage, { namespace, log }: Handle): Promise<void> {
  const { end } = (await log.head.jump()).steps;
  await namespace.checkpoint("end", makeCursor(log.spec.uuid, end * stage.plan.grid.rows, 0));
  stage.oracle.unfork(log.spec.uuid);
  await namespace.reclaim({ graceMs: 0, keepVersions: 1 });
  stage.counts.heirs++;
}

async function read(
  stage: WeaveStage,
  context: ProcessContext,
  { log, namespace }: Handle,
  steps: readonly StepCells[],
  rng: Rng,
): Promise<void> {
  const { grid } = stage.plan;
  for (let i = 0; i < readsMax; i++) {
    const { trim, end } = (await log.head.jump()).steps;
    if (end !== steps.length) throw new Violation("fork", `${namespace.uri} ends at ${end}, not ${steps.length}`);
    if (trim === end) return;
    const step = trim + rng.below(end - trim);
    const row = rng.below(grid.rows);
    const chunk = rng.below(grid.chunks);
    try {
      const bytes = await namespace.readSlice({ step, row, chunk });
      if (crc32(bytes) !== steps[step]?.[row * grid.chunks + chunk])
        throw new Violation("fork", `step ${step} of ${namespace.uri} is not what its line left there`);
      stage.counts.lineageReads++;
    } catch (error) {
      if (!stage.isWireDamage(error)) throw error;
    }
    await context.env.sleep(rng.exponential(stage.healed ? 100 : 1500));
  }
}
