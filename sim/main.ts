/** `npm run sim`: soaks, replays, minimizes, and checks that planted bugs are caught. See `usage`. */
import { closeSync, openSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { parseCommand, type SimCommand, usage } from "./command-line.js";
import { isOwnShape, ownShape, runReshaped, shapeEdits, shippedShape } from "./planted/build-shape.js";
import { runPlanted, type SoakLine } from "./planted/planted.js";
import { plantedBugs, toyBugs } from "./planted/planted-bugs.js";
import { minimizeFaults } from "./scenarios/minimize.js";
import { type Scenario, scenarios } from "./scenarios/scenario.js";
import { runSeed, type SeedResult } from "./scenarios/seed-run.js";
import { type SoakReport, soak } from "./scenarios/soak.js";

const failuresShownMax = 3;
const dist = dirname(dirname(fileURLToPath(import.meta.url)));

const say = (text: string): void => console.log(text);

/** The command that shows a seed again, to the event. */
function replayCommand(scenario: Scenario, seed: number): string {
  const { fanout, laneAhead, listPage } = ownShape;
  const shape = isOwnShape(scenario.shape ?? shippedShape) ? "" : ` --shape ${fanout},${laneAhead},${listPage}`;
  return `npm run sim -- --scenario ${scenario.name}${shape} --replay ${seed}`;
}

function showFailure(scenario: Scenario, result: SeedResult): void {
  const { failure } = result;
  if (failure === undefined) return;
  say(`\nseed ${result.seed} of ${scenario.name} FAILED after ${(result.virtualMs / 1000).toFixed(1)} virtual seconds`);
  say(`  ${failure.message}`);
  say(`  replay: ${replayCommand(scenario, result.seed)}`);
  if (failure.stack !== "") say(failure.stack.split("\n").slice(1, 6).join("\n"));
  say("  last events:");
  for (const line of failure.lastEvents) say(`  ${line}`);
}

function showCounters(counters: Readonly<Record<string, number>>): void {
  const text = Object.entries(counters)
    .filter(([, value]) => value > 0)
    .map(([name, value]) => `${name} ${value.toLocaleString("en")}`)
    .join(", ");
  say(text);
}

/** What people ask about first. */
function survived(counters: Readonly<Record<string, number>>): string {
  const sum = (...names: readonly string[]): string =>
    names.reduce((total, name) => total + (counters[name] ?? 0), 0).toLocaleString("en");
  return [
    `${sum("crash", "crashBeforeSend", "crashAfterApply", "crashBeforeAnswer")} crashes`,
    `${sum("fencings", "zombieManifests")} zombies`,
    `${sum("unknownCreates", "duplicateAnswer")} ambiguous writes`,
    `${sum("conflicts")} conflicts`,
  ].join(", ");
}

function showReport(scenario: Scenario, report: SoakReport): void {
  for (const result of report.failures.slice(0, failuresShownMax)) showFailure(scenario, result);
  const hidden = report.failures.slice(failuresShownMax).map((result) => result.seed);
  if (hidden.length > 0) say(`\nfailed as well: seeds ${hidden.join(", ")}`);
  const hours = (report.virtualMs / 3_600_000).toFixed(1);
  const calls = report.calls.toLocaleString("en");
  say(
    `\n${scenario.name}: ${calls} store calls in ${hours} virtual hours, ${report.callsPerSecond.toLocaleString("en")} calls/s a core`,
  );
  showCounters(report.counters);
  say(`survived: ${survived(report.counters)}`);
  for (const name of report.missing) say(`FAILED: "${name}" never happened, so nothing shows that it is survived`);
}

async function runSoak(scenario: Scenario, command: SimCommand): Promise<boolean> {
  let done = 0;
  const report = await soak(scenario, {
    ...command,
    // A long soak that is cut off has still told what it found.
    onResult: ({ seed, failure }) => {
      if (command.json) return;
      if (failure !== undefined) say(`seed ${seed} FAILED: ${failure.message}`);
      if (++done % 100 === 0) say(`${done} of ${command.seeds} seeds`);
    },
  });
  const failed = report.failures.length + (report.missing.length > 0 && !command.untilFailure ? 1 : 0);
  const first = report.failures[0];
  if (command.json) {
    const line: SoakLine = {
      passed: report.passed,
      failed,
      seed: first?.seed,
      property: first?.failure?.property,
    };
    say(JSON.stringify(line));
  } else {
    showReport(scenario, report);
    if (command.minimize && first !== undefined) await minimize(scenario, first);
    say(`${report.passed} passed, ${failed} failed`);
  }
  return failed === 0;
}

async function minimize(scenario: Scenario, failing: SeedResult): Promise<void> {
  const { faults, result, runs } = await minimizeFaults(scenario, failing);
  say(`\nminimized from ${failing.faults.length} to ${faults.length} faults in ${runs} runs:`);
  for (const fault of faults)
    say(`  ${(fault.timeMs / 1000).toFixed(3).padStart(10)}s  ${fault.kind.padEnd(18)} ${fault.id}`);
  showFailure(scenario, result);
  say(
    `  with these faults only: ${replayCommand(scenario, failing.seed)} --only '${faults.map((fault) => fault.id).join(",")}'`,
  );
}

async function runReplay(scenario: Scenario, seed: number, command: SimCommand): Promise<boolean> {
  const file = command.trace === undefined ? undefined : openSync(command.trace, "w");
  const sink = file === undefined ? undefined : (line: object): number => writeSync(file, `${JSON.stringify(line)}\n`);
  const result = await runSeed(scenario, seed, { filter: { only: command.only }, sink });
  if (file !== undefined) closeSync(file);
  showFailure(scenario, result);
  const rate = Math.round(result.calls / (result.wallMs / 1000)).toLocaleString("en");
  say(
    `\nseed ${seed}: trace hash ${result.hash}, ${result.events} events, ${result.calls} store calls, ${rate} calls/s`,
  );
  showCounters(result.counters);
  if (command.minimize && result.failure !== undefined) await minimize(scenario, result);
  say(result.failure === undefined ? "1 passed, 0 failed" : "0 passed, 1 failed");
  return result.failure === undefined;
}

async function runPlantedBugs(command: SimCommand): Promise<boolean> {
  const bugs = [...plantedBugs, ...toyBugs].filter((bug) => bug.name.includes(command.bug ?? ""));
  const results = await runPlanted(bugs, {
    dist,
    seedsMax: command.seeds,
    sizes: ({ scenario }) => shapeEdits(scenarios.get(scenario ?? "chaos")?.shape ?? shippedShape),
    workers: command.workers,
    onResult: ({ bug, verdict, seed, reason }) => {
      const by = seed === undefined ? "" : ` by seed ${seed}`;
      say(`${verdict.toUpperCase().padEnd(8)} ${bug.name} (hazard ${bug.hazard})${by}: ${reason}`);
    },
  });
  const caught = results.filter((result) => result.verdict === "caught").length;
  say(`${caught} passed, ${results.length - caught} failed`);
  return caught === results.length && results.length > 0;
}

/** Does what the arguments say; resolves to the exit status. */
export async function main(argv: readonly string[]): Promise<number> {
  if (argv.includes("--help")) {
    say(usage);
    return 0;
  }
  let command: SimCommand;
  try {
    command = parseCommand(argv);
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`);
    return 2;
  }
  if (command.list) {
    for (const each of scenarios.values()) say(`${each.name.padEnd(28)} ${each.about}`);
    return 0;
  }
  if (command.planted) return (await runPlantedBugs(command)) ? 0 : 1;
  const scenario = scenarios.get(command.scenario);
  if (scenario === undefined) {
    console.error(`no scenario is called "${command.scenario}"; there are: ${[...scenarios.keys()].join(", ")}`);
    return 2;
  }
  const shape = command.shape ?? scenario.shape ?? shippedShape;
  if (!isOwnShape(shape)) return await runReshaped(dist, shape, argv);
  const good =
    command.replay === undefined
      ? await runSoak(scenario, command)
      : await runReplay(scenario, command.replay, command);
  return good ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
