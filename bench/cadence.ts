/**
 * When batches become visible, and at what cost: real producers, publishers and log on the simulated store with S3 Standard's
 * latencies (sim/scenarios/cadence-run.ts). `--figure policies` (default), `freshness` (by producers), `time` (the paper's Figure 7), `payloads` (Figure 6),
 * `elastic`, `intents`. `--every 8`: a producer's batches come 8 s apart instead of one. Runs are independent and go side by side, one per core unless `--workers` says otherwise.
 */
import { availableParallelism } from "node:os";
import type { CadenceMinute, CadenceRun } from "../sim/index.js";
import type { CadenceSettings } from "../src/cadence/index.js";
import { type CadenceJob, type CadenceOutcome, runJobs } from "./parts/cadence-worker.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { type Cell, Report } from "./parts/report.js";

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
  readonly workers: number;
  readonly batchesPerSecond: number;
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["figure", "producers", "minutes", "policy", "seed", "workers", "every"]);
  const name = options.figure ?? "policies";
  const drawFigure = Object.hasOwn(figures, name) ? figures[name] : undefined;
  if (!drawFigure) throw new Error(`There is no figure ${name}; there are ${Object.keys(figures).join(", ")}.`);
  const report = new Report(name === "policies" ? "cadence" : `cadence-${name}`, options.json);
  await drawFigure({
    report,
    names: options.policy?.split(",") ?? Object.keys(policies),
    producers: numbers(options.producers, producersOf[name] ?? [128]),
    minutes: number(options.minutes, name === "elastic" ? 24 : 30),
    seed: number(options.seed, 1),
    batchesPerSecond: 1 / number(options.every, 1),
    workers: number(options.workers, availableParallelism()),
  });
  report.end();
}

const producersOf: Readonly<Record<string, readonly number[]>> = {
  freshness: [8, 32, 128, 512],
  time: [32],
  payloads: [8, 32, 128],
};

const figures: Readonly<Record<string, (figure: Figure) => Promise<void>>> = {
  policies: drawPolicies,
  freshness: drawFreshness,
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

const timeWarmUpSeconds = 300;

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

/** One line of a figure: what is run, what the row begins with. */
interface Line {
  readonly job: CadenceJob;
  readonly names: Readonly<Record<string, Cell>>;
}

async function draw(
  { report, workers }: Figure,
  lines: readonly Line[],
  show: (outcome: CadenceOutcome, line: Line) => void = ({ run }, { names }) => report.row({ ...names, ...cells(run) }),
): Promise<void> {
  const jobs = lines.map(({ job }) => job);
  await runJobs(jobs, workers, (outcome, i) => show(outcome, lines[i] as Line));
}

/** Every policy with every number of producers. */
function everyPolicy(
  { names, producers, minutes, seed, batchesPerSecond }: Figure,
  more: Partial<CadenceJob> = {},
  prefix: Record<string, Cell> = {},
): Line[] {
  return producers.flatMap((count) =>
    names.map((policy) => ({
      names: { ...prefix, policy, producers: count },
      job: {
        cadence: policyNamed(policy),
        producers: count,
        minutes,
        warmUpSeconds: warmUpSeconds(policy, count),
        seed,
        batchesPerSecond,
        ...more,
      },
    })),
  );
}

async function drawPolicies(figure: Figure): Promise<void> {
  await draw(figure, everyPolicy(figure), ({ run }, { names }) => figure.report.row({ ...names, ...outline(run) }));
}

async function drawFreshness(figure: Figure): Promise<void> {
  await draw(figure, everyPolicy(figure));
}

async function drawPayloads(figure: Figure): Promise<void> {
  const sizes = [100_000, 1_000_000, 10_000_000];
  await draw(
    figure,
    sizes.flatMap((payloadBytes) => everyPolicy(figure, { payloadBytes }, { payloadBytes })),
  );
}

/** Hours of virtual time, with our bounded manifest and with one that is never sealed, whose transfer is charged by size. */
async function drawTime(figure: Figure): Promise<void> {
  const lines = [false, true].flatMap((unsealed) =>
    everyPolicy(
      figure,
      { unsealed, warmUpSeconds: timeWarmUpSeconds },
      { manifest: unsealed ? "never sealed" : "bounded" },
    ),
  );
  await draw(figure, lines, ({ run, minutes }, { names }) => {
    const hours: CadenceMinute[][] = [];
    for (const m of minutes) {
      // What happened while producers that started together got out of step is not part of the figure.
      const hour = Math.floor((m.minute - 1 - timeWarmUpSeconds / 60) / 60);
      if (hour >= 0) hours[hour] = [...(hours[hour] ?? []), m];
    }
    const perHour = Object.fromEntries(hours.map((list, hour) => [`hour${hour + 1}`, hourText(list)]));
    figure.report.row({
      ...names,
      throughput: run.mbPerS,
      success: run.success,
      visibleP50: run.visibleP50,
      ...perHour,
    });
  });
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
async function drawElastic(figure: Figure): Promise<void> {
  const { report, names, seed, minutes: wanted } = figure;
  const producers = [
    [0, 8],
    [6, 128],
    [12, 8],
  ] as const;
  const lines = names.map((policy) => ({
    names: { policy },
    job: { cadence: policyNamed(policy), producers, minutes: wanted, warmUpSeconds: 60, seed },
  }));
  await draw(figure, lines, ({ run, minutes }, line) => {
    for (const { minute, active, pool, batches, attempts, commits } of minutes)
      if (minute % 2 === 0) report.row({ ...line.names, minute, active, pool, batches, attempts, commits });
    report.row({ ...line.names, minute: "all", ...cells(run) });
  });
}

/** Intents as names against intents as bodies. */
async function drawIntents(figure: Figure): Promise<void> {
  const cooperative = { ...figure, names: ["cooperative"] };
  await draw(
    figure,
    [false, true].flatMap((bodies) => everyPolicy(cooperative, { bodies }, { intents: bodies ? "bodies" : "names" })),
  );
}
