/**
 * Scaling a fleet of 306 sources, modelled (bench/parts/fleet-model.ts says what is in the model): `--part phase` (default) changes the mixture from 1:9 to
 * 9:1 and tells how long constructors and the trainer wait, by how loaders are scaled; `series` gives the same over time; `clusters` tells
 * what a division of sources by cost costs and saves; `dear` has one source that is ten times as dear; `parts` leaves out one part after another.
 */
import { clusterCosts, planFleet } from "../src/plan/index.js";
import { type FleetMode, type ModelSecond, type ModelSettings, modelCosts, runModel } from "./parts/fleet-model.js";
import { number, readOptions, Usage } from "./parts/options.js";
import { Report } from "./parts/report.js";

export const summary: string = "a phase change of the mixture at 306 sources, clusters, one dear source (modelled)";

const modes: readonly FleetMode[] = ["fixed", "static", "reactive", "predictive", "peak"];
const parts = ["phase", "series", "clusters", "dear", "parts"] as const;
const seriesSeconds = 60;
const busyShareMax = 0.75;

const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

function figures(run: readonly ModelSecond[], { steps, stepSeconds }: ModelSettings): Record<string, number> {
  const trainer = run.filter(({ isTrainerWaiting }) => isTrainerWaiting).length;
  return {
    constructorWaitS: run.filter(({ isConstructorWaiting }) => isConstructorWaiting).length,
    trainerWaitS: trainer,
    throughput: (steps * stepSeconds) / run.length,
    processesMost: Math.max(...run.map(({ loaders }) => loaders)),
    processHours: sum(run.map(({ loaders }) => loaders)) / 3_600,
    changes: run.filter(({ loaders }, i) => i > 0 && loaders !== run[i - 1]?.loaders).length,
  };
}

function phase(report: Report, settings: ModelSettings): void {
  for (const startSeconds of [30, 90, 300])
    for (const mode of modes) {
      // How long a process takes to start matters only where some are started.
      if (startSeconds !== settings.startSeconds && mode !== "reactive" && mode !== "predictive") continue;
      const own = { ...settings, startSeconds };
      report.row({ startS: startSeconds, mode, ...figures(runModel(mode, own), own) });
    }
}

/** The share of each minute that constructors wait, and how many loaders there are. Minutes count from the change. */
function series(report: Report, settings: ModelSettings): void {
  for (const mode of modes.filter((one) => one !== "peak")) {
    const run = runModel(mode, settings);
    const change = run.findIndex(({ step }) => step >= settings.changeStep);
    for (let at = 0; at + seriesSeconds <= run.length; at += seriesSeconds) {
      const part = run.slice(at, at + seriesSeconds);
      const minute = Math.round((at - change) / seriesSeconds);
      if (minute < -10 || minute > 40) continue;
      const waitShare = part.filter(({ isConstructorWaiting }) => isConstructorWaiting).length / seriesSeconds;
      report.row({ mode, minute, waitShare, loaders: part.at(-1)?.loaders as number });
    }
  }
}

/** Every cluster with processes of its own, each source in it with threads for the cluster's mean cost or for its dearest: few fit badly, many are changed often. */
function clusters(report: Report, settings: ModelSettings): void {
  const costs = modelCosts(settings);
  const { sources } = planFleet(costs, { stepSeconds: settings.stepSeconds, threads: settings.threads });
  const list = Object.values(sources);
  const perMs = list.map(
    ({ threadSeconds, loaderMs }) => threadSeconds / loaderMs / settings.stepSeconds / busyShareMax,
  );
  const threads = (shares: readonly number[], costOf: (i: number) => number): number[] =>
    shares.map((share, i) => share * (perMs[i] as number) * costOf(i));
  const [before, after] = costs.phases.map(({ shares }) => shares) as [readonly number[], readonly number[]];
  const own = (i: number): number => list[i]?.loaderMs as number;
  const ideal = sum(threads(after, own));
  const shared = (shares: readonly number[]): number => Math.ceil(sum(threads(shares, own)) / settings.threads);
  report.row({
    clusters: "none: processes hold any lanes",
    threadsOverIdeal: 1,
    slowestAtMean: 1,
    processesBefore: shared(before),
    processesAfter: shared(after),
    processesChanged: Math.abs(shared(after) - shared(before)),
    pools: 1,
  });
  for (const count of [1, 2, 4, 8, 16, 32, 64, settings.sources]) {
    const found = clusterCosts(
      list.map(({ loaderMs }) => loaderMs),
      count,
    );
    const of = new Map(found.flatMap((cluster) => cluster.members.map((i) => [i, cluster] as const)));
    const dearest = (i: number): number => of.get(i)?.most as number;
    const processes = (shares: readonly number[]): number[] => {
      const all = threads(shares, dearest);
      return found.map(({ members }) => Math.ceil(sum(members.map((i) => all[i] as number)) / settings.threads));
    };
    const [old, next] = [processes(before), processes(after)];
    const changed = sum(next.map((n, g) => Math.abs(n - (old[g] as number))));
    // With the mean instead, a cluster's dearest source is as much too slow as it is dearer than the mean.
    const slowest = Math.max(...found.map(({ most, mean }) => most / mean));
    report.row({
      clusters: found.length,
      threadsOverIdeal: sum(threads(after, dearest)) / ideal,
      slowestAtMean: slowest,
      processesBefore: sum(old),
      processesAfter: sum(next),
      processesChanged: changed,
      pools: next.filter((n, g) => n !== old[g]).length,
    });
  }
}

/** N sources of equal shares, one of them ten times as dear, on 32 threads: steps a second against what the threads could do at best. */
function dear(report: Report): void {
  const threads = 32;
  for (const count of [2, 8, 32]) {
    const costs = Array.from({ length: count }, (_, i) => (i === 0 ? 10 : 1) / count);
    const limit = threads / sum(costs);
    // A thread for each source in turn, whole numbers of them; what a source cannot get, its log cannot give.
    const even = Math.max(1, Math.floor(threads / count));
    const alike = Math.min(...costs.map((cost) => even / cost)) / limit;
    const byCost = wholeThreads(costs, threads).map((own, i) => own / (costs[i] as number));
    report.row({
      sources: count,
      threadsAlike: Math.min(1, alike),
      threadsByCost: Math.min(...byCost) / limit,
      limit: 1,
    });
  }
}

/** One thread for each, and the rest to the slowest, one by one. */
function wholeThreads(costs: readonly number[], threads: number): number[] {
  const given = costs.map(() => 1);
  for (let left = threads - costs.length; left > 0; left--) {
    const slowest = given.reduce(
      (a, own, i) => (own / (costs[i] as number) < (given[a] as number) / (costs[a] as number) ? i : a),
      0,
    );
    given[slowest] = (given[slowest] as number) + 1;
  }
  return given;
}

/** Parts of the system left out one after another, on the model's change of the mixture. Memory is that of the plan, with 8 workers on 64 ranks before. */
function ablation(report: Report, settings: ModelSettings): void {
  const costs = modelCosts(settings);
  const plan = planFleet(costs, { stepSeconds: settings.stepSeconds, threads: settings.threads });
  const workers = 64 * 8;
  const fileState = sum(costs.profiles.map(({ windowBytes }) => windowBytes));
  const perProcess = plan.loaders.memoryBytes;
  const rows: readonly (readonly [string, FleetMode])[] = [
    ["+ loaders apart, threads bound to sources", "fixed"],
    ["+ threads go where they are needed", "static"],
    ["+ autoscaler, by what is seen", "reactive"],
    ["+ autoscaler, by the schedule", "predictive"],
  ];
  report.row({ what: "a loader in every worker of every rank", memoryGb: (workers * (fileState + 5e7)) / 1e9 });
  for (const [what, mode] of rows) {
    const run = runModel(mode, settings);
    const { throughput, processHours } = figures(run, settings) as { throughput: number; processHours: number };
    const mean = (processHours * 3_600) / run.length;
    report.row({ what, throughput, memoryGb: (mean * perProcess) / 1e9 });
  }
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["part", "sources", "samples", "steps", "start", "ahead"]);
  const part = options.part ?? "phase";
  if (!parts.includes(part as (typeof parts)[number]))
    throw new Usage(`--part must be ${parts.join(", ")}, not ${part}.`);
  const steps = number(options.steps, 240);
  const settings: ModelSettings = {
    sources: number(options.sources, 306),
    samplesPerStep: number(options.samples, 16_384),
    stepSeconds: 10,
    startSeconds: number(options.start, 90),
    aheadBlocks: number(options.ahead, 32),
    aheadSteps: 4,
    changeStep: Math.floor(steps / 2),
    steps,
    lookSeconds: 15,
    threads: 8,
  };
  const report = new Report("scaling", options.json);
  if (part === "phase") phase(report, settings);
  if (part === "series") series(report, settings);
  if (part === "clusters") clusters(report, settings);
  if (part === "dear") dear(report);
  if (part === "parts") ablation(report, settings);
  report.end();
}
