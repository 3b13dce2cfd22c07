/**
 * When batches become visible, and at what cost: real producers, publishers and log on the simulated store with S3 Standard's
 * latencies (sim/cadence-run.ts). `--figure policies` (default), `freshness` (by producers), `time` (the paper's Figure 7), `payloads` (Figure 6),
 * `elastic`, `intents`.
 */
import { type CadenceMinute, type CadenceRun, runCadence } from "../sim/index.js";
import type { CadenceSettings } from "../src/cadence/index.js";
import { number, numbers, readOptions } from "./harness/options.js";
import { type Cell, Report } from "./harness/report.js";

export const summary = "visibility, success and requests of every commit policy, simulated on S3 latencies";

const policies: Readonly<Record<string, CadenceSettings>> = {
  cooperative: { kind: "cooperative" },
  dac: { kind: "dac" },
  naive: { kind: "naive" },
  "fixed-10": { kind: "fixed", batches: 10 },
  "fixed-100": { kind: "fixed", batches: 100 },
  incr: { kind: "incr" },
  "aimd-paper": { kind: "aimd", variant: "paper" },
  "aimd-inverse": { kind: "aimd", variant: "inverse" },
};

interface Figure {
  readonly report: Report;
  readonly names: readonly string[];
  readonly producers: readonly number[];
  readonly minutes: number;
  readonly seed: number;
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["figure", "producers", "minutes", "policy", "seed"]);
  const name = options.figure ?? "policies";
  const draw = Object.hasOwn(figures, name) ? figures[name] : undefined;
  if (!draw) throw new Error(`There is no figure ${name}; there are ${Object.keys(figures).join(", ")}.`);
  const report = new Report(name === "policies" ? "cadence" : `cadence-${name}`, options.json);
  await draw({
    report,
    names: options.policy?.split(",") ?? Object.keys(policies),
    producers: numbers(options.producers, producersOf[name] ?? [128]),
    minutes: number(options.minutes, 30),
    seed: number(options.seed, 1),
  });
  report.end();
}

const producersOf: Readonly<Record<string, readonly number[]>> = {
  freshness: [8, 32, 128, 512],
  time: [32],
  payloads: [8, 32, 128],
};

const figures: Readonly<Record<string, (figure: Figure) => Promise<void>>> = {
  policies: (figure) => drawPolicies(figure, outline),
  freshness: (figure) => drawPolicies(figure, cells),
  time: drawTime,
  payloads: drawPayloads,
  elastic: drawElastic,
  intents: drawIntents,
};

function policyNamed(name: string): CadenceSettings {
  const policy = policies[name];
  if (!policy) throw new Error(`There is no policy ${name}; there are ${Object.keys(policies).join(", ")}.`);
  return policy;
}

/** DAC needs its long gaps, about 6 s per producer, before producers that started together are out of step. */
function warmUpSeconds(policy: string, producers: number): number {
  if (policy === "cooperative") return 60;
  return policy === "dac" ? Math.max(300, 8 * producers) : 300;
}

/** What is compared between policies. */
function outline(run: CadenceRun): Record<string, Cell> {
  const { visibleMax: _max, leastShare: _least, ...rest } = cells(run);
  return rest;
}

function cells(run: CadenceRun): Record<string, Cell> {
  return {
    batches: run.batches,
    throughput: run.mbPerS,
    success: run.success,
    visibleP50: run.visibleP50,
    visibleP99: run.visibleP99,
    visibleMax: run.visibleMax,
    requestsPerBatch: run.requestsPerBatch,
    leastShare: run.leastShare,
  };
}

async function drawPolicies(
  { report, names, producers, minutes, seed }: Figure,
  show: (run: CadenceRun) => Record<string, Cell>,
): Promise<void> {
  for (const count of producers) {
    for (const policy of names) {
      const run = await runCadence({
        cadence: policyNamed(policy),
        producers: count,
        minutes,
        warmUpSeconds: warmUpSeconds(policy, count),
        seed,
      });
      report.row({ policy, producers: count, ...show(run) });
    }
  }
}

async function drawPayloads({ report, names, producers, minutes, seed }: Figure): Promise<void> {
  for (const payloadBytes of [100_000, 1_000_000, 10_000_000]) {
    for (const count of producers) {
      for (const policy of names) {
        const run = await runCadence({
          cadence: policyNamed(policy),
          producers: count,
          minutes,
          warmUpSeconds: warmUpSeconds(policy, count),
          payloadBytes,
          seed,
        });
        report.row({ payloadBytes, policy, producers: count, ...cells(run) });
      }
    }
  }
}

/** Hours of virtual time, with our bounded manifest and with one that is never sealed, whose transfer is charged by size. */
async function drawTime({ report, names, producers, minutes, seed }: Figure): Promise<void> {
  for (const unsealed of [false, true]) {
    for (const policy of names) {
      const hours: CadenceMinute[][] = [];
      const onMinute = (m: CadenceMinute): void => {
        const hour = Math.floor((m.minute - 1) / 60);
        hours[hour] = [...(hours[hour] ?? []), m];
      };
      const run = await runCadence({
        cadence: policyNamed(policy),
        producers: producers[0] as number,
        minutes,
        warmUpSeconds: 300,
        seed,
        unsealed,
        onMinute,
      });
      const perHour = Object.fromEntries(hours.map((list, hour) => [`hour${hour + 1}`, hourText(list)]));
      report.row({
        manifest: unsealed ? "never sealed" : "bounded",
        policy,
        throughput: run.mbPerS,
        success: run.success,
        ...perHour,
      });
    }
  }
}

/** Batches a second, success, mean commit. */
function hourText(list: readonly CadenceMinute[]): string {
  const sum = (of: (m: CadenceMinute) => number): number => list.reduce((total, m) => total + of(m), 0);
  const attempts = Math.max(
    1,
    sum((m) => m.attempts),
  );
  const batchesPerS = sum((m) => m.batches) / list.length / 60;
  return `${batchesPerS.toFixed(1)}/s ${((100 * sum((m) => m.commits)) / attempts).toFixed(1)}% ${(sum((m) => m.meanCommitMs * m.attempts) / attempts).toFixed(0)}ms`;
}

/** 8 -> 128 -> 8 producers within a run. */
async function drawElastic({ report, names, seed }: Figure): Promise<void> {
  for (const policy of names) {
    const onMinute = (m: CadenceMinute): void => {
      if (m.minute % 2 === 0)
        report.row({
          policy,
          minute: m.minute,
          active: m.active,
          batches: m.batches,
          attempts: m.attempts,
          commits: m.commits,
        });
    };
    const producers = [
      [0, 8],
      [6, 128],
      [12, 8],
    ] as const;
    const run = await runCadence({
      cadence: policyNamed(policy),
      producers,
      minutes: 24,
      warmUpSeconds: 60,
      seed,
      onMinute,
    });
    report.row({ policy, minute: "all", ...cells(run) });
  }
}

/** Intents as names against intents as bodies. */
async function drawIntents({ report, producers, minutes, seed }: Figure): Promise<void> {
  for (const count of producers) {
    for (const bodies of [false, true]) {
      const run = await runCadence({
        cadence: policyNamed("cooperative"),
        producers: count,
        minutes,
        warmUpSeconds: 60,
        seed,
        bodies,
      });
      report.row({ intents: bodies ? "bodies" : "names", producers: count, ...cells(run) });
    }
  }
}
