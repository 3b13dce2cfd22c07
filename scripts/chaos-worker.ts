/**
 * One process of the chaos script: a producer, a rank or a reclaimer. Arguments: `producer|rank|reclaimer URI FOLDER NAME ID SETTINGS`. It can be killed at any instant; what it
 * acknowledged or saw is in files that were written synchronously before it went on.
 */
import { appendFileSync, existsSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import {
  type Cursor,
  isBatchWeaveError,
  type Namespace,
  openNamespace,
  openStore,
  parseCursor,
  systemEnv,
  withRetry,
} from "../src/index.js";
import { chaosBatch, chaosMesh, digest } from "./chaos-content.js";
import type { WorkerSettings } from "./chaos-fleet.js";
import { checkpointFile, heldCheckpoints } from "./chaos-judge.js";
import { type Aim, PhaseMarker, withPhases } from "./chaos-phase.js";

const [kind, uri, folder, name, id, told] = process.argv.slice(2) as [string, string, string, string, string, string];
const { durability, isCooperative } = JSON.parse(told) as WorkerSettings;
// Without a parent there is nobody left to be killed by.
process.on("disconnect", () => process.exit(3));
if (!process.connected) process.exit(3);
const marker = new PhaseMarker(join(folder, `${name}.phase`));
const finish = new AbortController();
process.on("message", (order: { readonly aim?: Aim; readonly finish?: boolean }) => {
  if (order.finish) finish.abort();
  else marker.arm(order.aim);
});
const store = withRetry(withPhases(await openStore(uri, { durability }, systemEnv), marker), systemEnv, {
  budgetMax: 500,
});

/** Checkpoints that a rank keeps. */
const checkpointsKept = 2;

/** Status of a producer that somebody else fenced: start it again. */
const fencedStatus = 75;

async function produce(): Promise<void> {
  const ns = await openNamespace(uri, { store });
  const interval = { kind: "interval", intervalMs: 20 + 40 * systemEnv.random() } as const;
  const producer = await ns.producer({ id, cadence: isCooperative ? undefined : interval });
  let counter = (producer.resumePoint as { next: number } | undefined)?.next ?? 0;
  const acknowledged = join(folder, `${name}.acknowledged`);
  while (!finish.signal.aborted) {
    const made = counter;
    const ticket = await producer.append(chaosBatch(id, made), { resumePoint: { next: made + 1 } });
    void ticket.committed.then(
      () => appendFileSync(acknowledged, `${made}\n`),
      () => {},
    );
    counter++;
    await systemEnv.sleep(80 * systemEnv.random());
  }
  await producer.close();
}

async function consume(): Promise<void> {
  const cursorPath = join(folder, `${name}.cursor`);
  const log = openSync(join(folder, `${name}.seen`), "a");
  const ns = await openNamespace(uri, { store });
  const saved = existsSync(cursorPath) ? readFileSync(cursorPath, "utf8") : undefined;
  const from = saved === undefined ? { row: 0 } : parseCursor(saved);
  await assertHeld(ns);
  const consumer = await ns.consumer({
    mesh: chaosMesh,
    rank: Number(id),
    from,
    group: name,
    pollDelayMs: 20,
    waitTimeoutMs: 60_000,
  });
  // A line that a kill cut off ends here.
  writeSync(log, "\n");
  // Whoever died between saving and registering does it now, or a second time.
  if (saved !== undefined) await register(ns, JSON.parse(saved) as Cursor);
  let dueAtMs = 0;
  for await (const share of consumer) {
    const cells = share.slices.map(({ step, row, chunk, bytes }) => [step, row, chunk, digest(bytes)]);
    writeSync(log, `${JSON.stringify({ iteration: share.iteration, cells })}\n`);
    if (share.iteration % 7 !== 6 || systemEnv.monotonic() < dueAtMs) continue;
    const begunMs = systemEnv.monotonic();
    writeFileSync(`${cursorPath}.next`, JSON.stringify(share.next));
    renameSync(`${cursorPath}.next`, cursorPath);
    await register(ns, share.next);
    // Ranks that register all the time never reach the end of a log that grew faster than they read: commits on a busy disk take long.
    dueAtMs = systemEnv.monotonic() + 3 * (systemEnv.monotonic() - begunMs);
  }
}

/** Whatever was acknowledged to an earlier life of this rank must still be there. */
async function assertHeld(ns: Namespace): Promise<void> {
  const held = heldCheckpoints(folder, name);
  const live = new Set((await ns.checkpoints()).filter(({ group }) => group === name).map((c) => c.id));
  const lost = [...held.keys()].filter((id) => !live.has(id));
  if (lost.length > 0) throw new Error(`registered, acknowledged and not listed: ${lost.join(", ")}`);
}

/**
 * Registers and then releases older ones, and notes both: what came after the acknowledgement, and what before the request. Each rank is a run
 * of its own here, because each is rolled back alone. Only what all of them have behind them may go.
 */
async function register(ns: Namespace, cursor: Cursor): Promise<void> {
  const noted = checkpointFile(folder, name);
  const id = `iter-${cursor.iteration}`;
  marker.commitPhase = "checkpoint commit";
  await ns.checkpoint(id, cursor, { group: name });
  appendFileSync(noted, `+ ${id} ${cursor.row}\n`);
  const older = (await ns.checkpoints()).filter(({ group }) => group === name).slice(checkpointsKept);
  marker.commitPhase = "release commit";
  for (const { id: old } of older) {
    appendFileSync(noted, `- ${old}\n`);
    await ns.releaseCheckpoint(old, { group: name });
  }
}

/** Deletes as eagerly as it may: no grace for slow uploads, hardly any versions kept. */
async function reclaim(): Promise<void> {
  marker.commitPhase = "trim commit";
  const ns = await openNamespace(uri, { store });
  while (!finish.signal.aborted) {
    await ns.reclaim({ graceMs: 0, keepVersions: 2 });
    await systemEnv.sleep(100 * systemEnv.random());
  }
}

const work = { producer: produce, rank: consume, reclaimer: reclaim }[kind] as () => Promise<void>;
try {
  await work();
  process.exit(0);
} catch (error) {
  if (isBatchWeaveError(error, "FENCED")) process.exit(fencedStatus);
  process.stderr.write(`${name}: ${error instanceof Error ? error.stack : String(error)}\n`);
  process.exit(1);
}
