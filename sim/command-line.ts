/** The arguments of `npm run sim`. */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import type { BuildShape } from "./planted/build-shape.js";

/** What was asked for. */
export interface SimCommand {
  readonly scenario: string;
  readonly seeds: number;
  readonly firstSeed: number;
  /** One seed, told in detail. */
  readonly replay: number | undefined;
  readonly planted: boolean;
  /** Only planted bugs whose name contains this. */
  readonly bug: string | undefined;
  /** File for the whole history as JSON lines; needs `replay`. */
  readonly trace: string | undefined;
  readonly minimize: boolean;
  /** Sizes of the build, where they are not the scenario's own. */
  readonly shape: BuildShape | undefined;
  /** Ids of the only faults that may happen; needs `replay`. */
  readonly only: ReadonlySet<string> | undefined;
  readonly workers: number;
  readonly twice: boolean;
  readonly untilFailure: boolean;
  readonly json: boolean;
  readonly list: boolean;
}

/** Printed for `--help` and after a wrong argument. */
export const usage = `npm run sim -- [options]
  --scenario NAME   which scenario (chaos); --list names them all
  --seeds N         how many seeds (100), from --seed S (1) on
  --replay SEED     one seed in detail; with --trace FILE its whole history as JSON lines,
                    with --minimize the fewest faults with which it still fails, with --only ID,ID nothing but those faults
  --shape F,A,P     with an index fan-out of F, lanes at most A batches ahead and LIST pages of P keys (64,64,1000 are shipped)
  --planted         every planted bug must be caught; --bug TEXT only those named so
  --workers N       threads (one per core); 0 runs everything in this one
  --once            run each seed once instead of comparing two runs
  --until-failure   stop at the first seed that fails
  --json            end with one JSON line instead of the closing line`;

/** Reads the arguments. Throws an error whose message says what is wrong. */
export function parseCommand(argv: readonly string[]): SimCommand {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      scenario: { type: "string", default: "chaos" },
      seeds: { type: "string" },
      seed: { type: "string" },
      replay: { type: "string" },
      planted: { type: "boolean", default: false },
      bug: { type: "string" },
      trace: { type: "string" },
      minimize: { type: "boolean", default: false },
      only: { type: "string" },
      shape: { type: "string" },
      workers: { type: "string" },
      once: { type: "boolean", default: false },
      "until-failure": { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      list: { type: "boolean", default: false },
    },
  });
  const replay = values.replay === undefined ? undefined : whole("--replay", values.replay, 0);
  if (replay === undefined && (values.trace !== undefined || values.only !== undefined)) {
    throw new Error("--trace and --only need --replay SEED");
  }
  return {
    scenario: values.scenario,
    seeds: whole("--seeds", values.seeds ?? (values.planted ? "500" : "100"), 1),
    firstSeed: whole("--seed", values.seed ?? "1", 0),
    replay,
    planted: values.planted,
    bug: values.bug,
    trace: values.trace,
    minimize: values.minimize,
    shape: values.shape === undefined ? undefined : parseShape(values.shape),
    only: values.only === undefined ? undefined : new Set(values.only.split(",").filter((id) => id !== "")),
    workers: whole("--workers", values.workers ?? String(availableParallelism()), 0),
    twice: !values.once,
    untilFailure: values["until-failure"],
    json: values.json,
    list: values.list,
  };
}

function parseShape(text: string): BuildShape {
  const [fanout, laneAhead, listPage, ...others] = text.split(",").map((each) => whole("--shape", each, 1));
  if (fanout === undefined || fanout < 2 || laneAhead === undefined || listPage === undefined || others.length > 0)
    throw new Error(`--shape takes fan-out (2 or more), lane limit and list page, as in 4,4,3, not "${text}"`);
  return { fanout, laneAhead, listPage };
}

function whole(name: string, text: string, least: number): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < least)
    throw new Error(`${name} takes a whole number from ${least} on, not "${text}"`);
  return value;
}
