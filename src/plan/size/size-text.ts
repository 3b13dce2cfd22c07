/** A sized fleet as text. Pure. */
import { textTable } from "../run/report-text.js";
import type { FleetPlan, SourcePlan } from "./fleet-plan.js";

const sourcesShownMax = 16;
const limitsShownMax = 4;

const bytes = (n: number): string =>
  n >= 1e9 ? `${(n / 1e9).toFixed(2)} GB` : n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e3).toFixed(1)} kB`;
const few = (n: number): string => (n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2));
const many = (n: number, one: string): string => `${n} ${n === 1 ? one : `${one}${one.endsWith("s") ? "es" : "s"}`}`;
const seconds = (s: number): string => (s >= 0.1 ? `${few(s)} s` : `${few(1_000 * s)} ms`);

/** The table of sources, then what the fleet is, what the store sees, and what binds. */
export function describeFleet(plan: FleetPlan): string {
  const { loaders, constructors, store, binding, stepSeconds } = plan;
  const sources = Object.entries(plan.sources).sort(([, a], [, b]) => b.threads - a.threads);
  const row = (name: string, s: SourcePlan): string[] => [
    name,
    String(s.cluster),
    few(s.samplesPerSecond),
    few(s.loaderMs),
    few(s.readMs),
    bytes(s.readyBytes),
    few(s.threads),
    String(s.lanes),
    s.phase,
  ];
  const shown = sources.slice(0, sourcesShownMax);
  const rest = sources.slice(sourcesShownMax);
  const lines = textTable([
    ["source", "cluster", "samples/s", "transform ms", "read ms", "sample", "threads", "lanes", "most in phase"],
    ...shown.map(([name, source]) => row(name, source)),
  ]);
  if (rest.length > 0) {
    const threads = rest.reduce((sum, [, source]) => sum + source.threads, 0);
    lines.push(`  … and ${rest.length} more with ${few(threads)} threads together`);
  }
  const clusters = plan.clusters.map(
    ({ sources: count, meanMs, level, threads }, i) =>
      `  ${i}: ${many(count, "source")}, ${few(meanMs)} ms a sample (${few(level)} times the cheapest cluster's), ${few(threads)} threads`,
  );
  const perSecond = ({ requests, bytes: moved }: { requests: number; bytes: number }): string =>
    `${few(requests / stepSeconds)} requests and ${bytes(moved / stepSeconds)} a second`;
  lines.push(
    "clusters by cost",
    ...clusters,
    `for a step every ${seconds(stepSeconds)}:`,
    ...(loaders.lanesMax > 0
      ? [
          `  loaders        ${many(loaders.processes, "process")} of ${many(loaders.threads, "thread")}, ${bytes(loaders.memoryBytes)} each; ${many(loaders.lanesMax, "lane")} of ${many(loaders.sourcesMax, "source")} each at most`,
        ]
      : []),
    ...sources.flatMap(([name, { own }]) =>
      own && own.processes > 0
        ? [
            `  ${`load ${name}`.padEnd(14)} ${many(own.processes, "process")} of ${many(own.threads, "worker")}, ${bytes(own.memoryBytes)} each, in Python`,
          ]
        : [],
    ),
    `  constructors   ${many(constructors.processes, "process")} of ${many(constructors.threads, "thread")}, ${bytes(constructors.memoryBytes)} each; ${many(constructors.lanes, "lane")}`,
    `  all together   ${few(plan.cores)} cores busy at most three quarters of the time, ${bytes(plan.memoryBytes)}`,
    "on the store:",
    `  shards         ${perSecond(store.shards)}`,
    `  exchange       ${perSecond(store.exchange)} (source logs, where the pipeline has them)`,
    `  training log   ${perSecond(store.training)}`,
    `what binds: ${binding.what}, a step every ${seconds(binding.stepSeconds)} at best (${binding.remedy})`,
  );
  for (const limit of plan.limits.slice(1, limitsShownMax))
    lines.push(`  then ${limit.what}: ${seconds(limit.stepSeconds)}`);
  if (!plan.feeds)
    lines.push(
      `NOT ENOUGH: a step every ${seconds(stepSeconds)} is asked for, and ${binding.what} allow one every ${seconds(binding.stepSeconds)}`,
    );
  return lines.join("\n");
}
