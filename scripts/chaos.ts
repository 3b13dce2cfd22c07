/**
 * `npm run chaos -- --rounds 100`: kill -9 of any process at any moment, again and again, real processes on a folder, or on a real S3 server
 * (`--store s3`), through a proxy that loses, delays, cuts and repeats (`--faults`). Three producers, two
 * processes that fight for one producer id, four ranks that register checkpoints, two eager reclaimers. Most kills are aimed at a phase (the
 * process sends itself SIGKILL somewhere in it), the others come from outside at a random moment; where each really hit is read from a file
 * that the victim wrote synchronously. Afterwards the log is verified, and what all processes saw and acknowledged must be one history.
 * `--python` runs `chaos-python.mjs` instead: producers of both languages on one namespace; with `--oracle`, on a simulated store with faults that
 * judges every write (`chaos-oracle.ts`). `--recreate` runs `chaos-recreate.ts`: the namespace
 * is deleted and made again under all processes. `--fleet` runs `chaos-exchange.ts`: loaders and constructors that come, go and die. `--power` runs `chaos-power.ts`: the power of their disk is cut.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createNamespace, makeCursor } from "../src/index.js";
import { chaosGrid } from "./chaos-content.js";
import { exchange } from "./chaos-exchange.js";
import { type Death, Fleet, type Role, roles } from "./chaos-fleet.js";
import { judge, judgeCheckpoints } from "./chaos-judge.js";
import { runOracle, runOraclePlanted } from "./chaos-oracle.js";
import { type Phase, phases } from "./chaos-phase.js";
import { power } from "./chaos-power.js";
import { recreate } from "./chaos-recreate.js";
import { openChaosStore } from "./chaos-store.js";
import { skippedStatus, whyNoPower } from "./power-disk.js";

/** mulberry32: kills are drawn from the seed; what the operating system makes of them is not. */
function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "100" },
    store: { type: "string", default: "file" },
    faults: { type: "boolean", default: false },
    python: { type: "boolean", default: false },
    oracle: { type: "boolean", default: false },
    planted: { type: "boolean", default: false },
    "rough-ms": { type: "string", default: "12000" },
    recreate: { type: "boolean", default: false },
    power: { type: "boolean", default: false },
    fleet: { type: "boolean", default: false },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    json: { type: "boolean", default: false },
    keep: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});
if (values.help) {
  console.log("npm run chaos -- [--rounds 100] [--store file|s3|moto] [--faults] [--seed N] [--json] [--keep]");
  console.log("npm run chaos -- --python [--rounds 100] [--seed N]   Python and TypeScript producers on one namespace");
  console.log("npm run chaos -- --python --oracle [--rounds 100] [--seed N] [--rough-ms 12000] [--json] [--planted]");
  console.log(
    "                 Python and TypeScript on a simulated store; --planted: each planted bug within --rounds seeds",
  );
  console.log("npm run chaos -- --recreate [--rounds 20] [--seed N] [--json]   deleted and made again under everybody");
  console.log(
    "npm run chaos -- --fleet [--rounds 50] [--seed N] [--json] [--keep]   loaders and constructors come, go and die",
  );
  console.log(
    "npm run chaos -- --power [--rounds 10] [--seed N] [--json]   the power of the disk is cut; needs root on Linux",
  );
  process.exit(0);
}
if (values.python && values.oracle) {
  const command = {
    root: fileURLToPath(new URL("../..", import.meta.url)),
    rounds: Number(values.rounds),
    seed: Number(values.seed),
    roughMs: Number(values["rough-ms"]),
    json: values.json,
  };
  // Requests may still be under way that nobody waits for.
  process.exit(values.planted ? await runOraclePlanted(command) : await runOracle(command));
}
if (values.power) {
  const why = whyNoPower();
  if (why !== undefined) {
    console.log(values.json ? JSON.stringify({ skipped: why }) : `skipped: ${why}`);
    process.exit(skippedStatus);
  }
  // In a mount namespace of its own: whatever ends it, no mount is left.
  if (process.env["BATCHWEAVE_CHAOS_MOUNTS"] !== "own") {
    const env = { ...process.env, BATCHWEAVE_CHAOS_MOUNTS: "own" };
    const args = ["--mount", process.execPath, fileURLToPath(import.meta.url), ...process.argv.slice(2)];
    process.exit(spawnSync("unshare", args, { stdio: "inherit", env }).status ?? 1);
  }
  const parent = mkdtempSync(join(tmpdir(), "batchweave-power-"));
  const seed = Number(values.seed);
  const note = (text: string): void => void process.stderr.write(`${text}\n`);
  const report = await power(parent, Number(values.rounds), seed, seededRandom(seed), note);
  const { cuts, steps, acknowledged, checkpoints, control, problems } = report;
  if (values.json) console.log(JSON.stringify(report));
  else {
    for (const problem of problems.slice(0, 20)) console.log(`PROBLEM: ${problem}`);
    console.log(
      `${report.rounds} power cuts (seed ${seed}): ${cuts["page cache"]} took the page cache, ${cuts["disk cache"]} the disk's cache too; ${steps} steps, ${acknowledged} batches and ${checkpoints} checkpoints acknowledged and kept; ${problems.length === 0 ? "clean: nothing acknowledged was lost, and verify found nothing after any cut" : "NOT clean"}; without syncs, ${control.lost} of ${control.acknowledged} acknowledged batches were lost`,
    );
  }
  if (values.keep) console.error(`kept: ${parent}`);
  else rmSync(parent, { recursive: true, force: true });
  process.exit(problems.length === 0 ? 0 : 1);
}
if (values.fleet) {
  const parent = mkdtempSync(join(tmpdir(), "batchweave-fleet-"));
  const seed = Number(values.seed);
  const note = (text: string): void => void process.stderr.write(`${text}\n`);
  const report = await exchange(parent, Number(values.rounds), seed, seededRandom(seed), note);
  const { problems } = report;
  if (values.json) console.log(JSON.stringify(report));
  else {
    for (const problem of problems.slice(0, 20)) console.log(`PROBLEM: ${problem}`);
    console.log(
      `${report.rounds} rounds (seed ${seed}, ${report.seconds} s): ${report.kills} kills, ${report.stops} stops, ${report.leaves} told to leave, ${report.joins} added; ${report.steps} steps, ${report.blocks} blocks, ${report.checkpoints} checkpoints; three loaders read ${report.readShare.toFixed(3)} times the source bytes of one process; ${problems.length === 0 ? "clean: every log is that of one undisturbed process" : "NOT clean"}`,
    );
  }
  if (values.keep || problems.length > 0) console.error(`kept: ${parent}`);
  else rmSync(parent, { recursive: true, force: true });
  process.exit(problems.length === 0 ? 0 : 1);
}
if (values.python) {
  if (values.store !== "file" || values.faults || values.json || values.keep) {
    console.error("--python goes with --rounds and --seed only: it runs on a folder of its own");
    process.exit(2);
  }
  const script = fileURLToPath(new URL("../../scripts/chaos-python.mjs", import.meta.url));
  const args = [script, "--rounds", values.rounds, "--seed", values.seed];
  process.exit(spawnSync(process.execPath, args, { stdio: "inherit" }).status ?? 1);
}
if (values.recreate) {
  const parent = mkdtempSync(join(tmpdir(), "batchweave-recreate-"));
  const { problems, ...facts } = await recreate(
    parent,
    Number(values.rounds),
    Number(values.seed),
    seededRandom(Number(values.seed)),
  );
  if (values.json) console.log(JSON.stringify({ ...facts, problems }));
  else {
    for (const problem of problems) console.log(`PROBLEM: ${problem}`);
    const { rounds, lives, stops, evicted, acknowledged, deletersKilled } = facts;
    console.log(
      `${rounds} rounds (seed ${facts.seed}), ${lives} lives of one name: ${stops} processes stopped, ${evicted} ended with DELETED, ${deletersKilled} deleters killed, ${acknowledged} batches acknowledged; ${problems.length === 0 ? "clean: each is in the last version of its life, and no life was touched by another" : "NOT clean"}`,
    );
  }
  if (values.keep) console.error(`kept: ${parent}`);
  else rmSync(parent, { recursive: true, force: true });
  process.exit(problems.length === 0 ? 0 : 1);
}
const rounds = Number(values.rounds);
const seed = Number(values.seed);
const random = seededRandom(seed);
const folder = mkdtempSync(join(tmpdir(), "batchweave-chaos-"));
const place = await openChaosStore(values.store, values.faults, folder, random);
const { uri } = place;

/** Kills by the phase they hit; "between" is none of them. */
const kills: Record<Phase | "between", number> = {
  upload: 0,
  sealing: 0,
  "before commit": 0,
  "during commit": 0,
  "after commit": 0,
  reading: 0,
  "checkpoint commit": 0,
  "release commit": 0,
  "trim commit": 0,
  announcing: 0,
  deleting: 0,
  between: 0,
};
/** Of the kills during the PUT of a commit: how many commits were there afterwards. */
const landed = { "during commit": 0, "checkpoint commit": 0, "release commit": 0, "trim commit": 0 };

function isCommit(phase: string): phase is keyof typeof landed {
  return phase in landed;
}

/** The phase a kill counts for: the one it was aimed at if it hit that, else the most delicate one under way. */
function phaseOf({ phases: { active } }: Death, aimed: Phase | undefined): Phase | "between" {
  if (aimed !== undefined && active[aimed]) return aimed;
  const delicate: readonly Phase[] = [
    "checkpoint commit",
    "release commit",
    "trim commit",
    "during commit",
    "sealing",
    "before commit",
    "after commit",
    "announcing",
    "deleting",
    "upload",
    "reading",
  ];
  return delicate.find((phase) => active[phase]) ?? "between";
}

/** Phases that no kill hit, if there were enough rounds to hit all of them. */
function missedPhases(): readonly Phase[] {
  return rounds >= phases.length ? phases.filter((phase) => kills[phase] === 0) : [];
}

function count(death: Death, aimed: Phase | undefined): void {
  const phase = phaseOf(death, aimed);
  kills[phase]++;
  if (isCommit(phase) && death.hasLanded) landed[phase]++;
}

/** Who does what the phase is. */
function killedIn(phase: Phase): Role["kind"] {
  if (phase === "reading" || phase === "checkpoint commit" || phase === "release commit") return "rank";
  return phase === "trim commit" || phase === "announcing" || phase === "deleting" ? "reclaimer" : "producer";
}

/** One round: a kill aimed at the phase that was hit least, or, every fourth time, at anybody at any moment. */
async function playRound(fleet: Fleet, round: number): Promise<void> {
  if (round % 4 === 3) {
    await new Promise((resolve) => setTimeout(resolve, random() * 400));
    let victim = roles[Math.floor(random() * roles.length)]?.name as string;
    while (!fleet.kill(victim)) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      victim = roles[Math.floor(random() * roles.length)]?.name as string;
    }
    const death = await fleet.death(10_000);
    if (death) count(death, undefined);
    return;
  }
  const phase = phases.reduce((least, one) => (kills[one] < kills[least] ? one : least));
  const kind = killedIn(phase);
  for (let attempt = 0; ; attempt++) {
    // Anywhere in the phase, and every second time in its last fifth, where the object has its name already and nobody was told. That can
    // miss, so later attempts come earlier.
    const isLate = attempt === 0 && random() < 0.5;
    fleet.arm(kind, { phase, fraction: isLate ? 0.8 + 0.2 * random() : random() / (attempt + 1) });
    const death = await fleet.death(3_000);
    if (!death && attempt < 20) continue;
    fleet.arm(kind, undefined);
    if (death) count(death, phase);
    return;
  }
}

async function main(): Promise<number> {
  const ns = await createNamespace(uri, { grid: chaosGrid }, { storeSettings: place.settings });
  const fleet = new Fleet(uri, place.store, folder, random);
  const begun = performance.now();
  // Also when this process fails in a way that nobody catches.
  process.on("exit", () => fleet.stop());
  try {
    // A rank that is slow to start must find row 0: it is held for everyone until each has a checkpoint of its own.
    for (const { name, kind } of roles)
      if (kind === "rank") await ns.checkpoint("start", makeCursor(ns.uuid, 0, 0), { group: name });
    fleet.start();
    await new Promise((resolve) => setTimeout(resolve, 500));
    // A kill can miss what it was aimed at; then there are some more rounds, until every phase was hit.
    const isDone = (round: number): boolean => round >= rounds && (missedPhases().length === 0 || round >= 3 * rounds);
    for (let round = 0; !isDone(round) && fleet.failures.length === 0; round++) {
      await playRound(fleet, round);
      if (!values.json && process.stderr.isTTY) process.stderr.write(`\rround ${round + 1} of ${rounds} `);
    }
    await fleet.finishWriters();
    // Kills that came together with an aimed one are kills too.
    for (let death = await fleet.death(0); death; death = await fleet.death(0)) count(death, undefined);
    await ns.endLog();
    place.calm();
    await fleet.finishRanks();
  } finally {
    fleet.stop();
  }
  const info = await ns.info();
  const judgement = judge(folder, info);
  const checkpoints = await judgeCheckpoints(folder, ns);
  const verified = await ns.verify({ level: "bytes" });
  const found = verified.problems.map(({ severity, code, message }) => `verify: ${severity}[${code}] ${message}`);
  const problems = [...fleet.failures, ...judgement.problems, ...checkpoints.problems, ...found];
  for (const phase of missedPhases()) problems.push(`no kill hit the phase "${phase}"; run more rounds`);
  const total = Object.values(kills).reduce((sum, n) => sum + n, 0);
  const seconds = Math.round((performance.now() - begun) / 1_000);
  const { steps, acknowledged, reread } = judgement;
  const facts = {
    rounds,
    seed,
    seconds,
    kills: total,
    ...kills,
    landed,
    checkpoints: checkpoints.held,
    fenced: fleet.fenced,
    steps,
    acknowledged,
    reread,
    verified: verified.ok,
    trim: info.steps.trim,
    ...(values.faults && { faults: place.faults }),
  };
  if (values.json) console.log(JSON.stringify({ ...facts, problems }));
  else {
    for (const [phase, n] of Object.entries(kills)) {
      const note = isCommit(phase) ? `  (${landed[phase]} of them landed)` : "";
      console.log(`${phase.padEnd(17)} ${String(n).padStart(4)} kills${note}`);
    }
    console.log(
      `${total} kills in ${rounds} rounds and ${seconds} s (seed ${seed}); ${fleet.fenced} times a twin was fenced; ${steps} steps, ${info.steps.trim} of them reclaimed, ${acknowledged} acknowledged, ${reread} slices read again after a kill; ${checkpoints.held} checkpoints acknowledged and kept`,
    );
    if (values.faults) {
      const list = Object.entries(place.faults).map(([kind, n]) => `${kind === "none" ? "unharmed" : kind} ${n}`);
      console.log(`requests through the fault proxy: ${list.join("; ")}`);
    }
    for (const problem of problems) console.log(`PROBLEM: ${problem}`);
    console.log(
      problems.length === 0 ? "consistent: nothing lost, repeated or reordered, and verify is clean" : "NOT consistent",
    );
  }
  if (values.keep) console.error(`kept: ${folder}`);
  else rmSync(folder, { recursive: true, force: true });
  return problems.length === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} finally {
  await place.stop();
}
