/** Ranks of a rehearsal, and what they saw against what the log holds. */
import { createHash } from "node:crypto";
import { BatchWeaveError, type ErrorCode, type Grid, type Namespace } from "../index.js";
import { Worker } from "./demo/worker.js";

const ranksMax = 8;
/** Should the rehearsal itself be killed, its ranks do not wait for ever. */
const waitTimeoutSeconds = 120;

/** What the ranks saw, against what the log holds. A cell is one slice of one step. */
export interface SeenByRanks {
  readonly ranks: number;
  readonly iterations: readonly number[];
  readonly lost: number;
  readonly repeated: number;
  /** Other bytes than the log holds. */
  readonly differing: number;
}

/** One line of `consume --json --slices`. */
export interface Reading {
  readonly slices: readonly (readonly [step: number, row: number, chunk: number, digest: string])[];
}

/** Starts a rank for every place of the grid, or as many as divide it. `watch` is given each. */
export function startRanks(
  { uri, grid }: Namespace,
  watch: (worker: Worker) => void,
): { readonly worker: Worker; readonly readings: Reading[] }[] {
  const divisor = (n: number, most: number): number => {
    for (let d = Math.min(n, most); d > 1; d--) if (n % d === 0) return d;
    return 1;
  };
  const dp = divisor(grid.rows, ranksMax);
  const cp = divisor(grid.chunks, Math.floor(ranksMax / dp));
  return Array.from({ length: dp * cp }, (_, rank) => {
    const readings: Reading[] = [];
    const place = ["--dp", dp, "--cp", cp, "--rank", rank, "--wait-timeout", waitTimeoutSeconds].map(String);
    const worker = new Worker(`rank ${rank}`, ["consume", uri, ...place, "--json", "--slices"], (line) =>
      readings.push(JSON.parse(line) as Reading),
    );
    watch(worker);
    return { worker, readings };
  });
}

/** Why a process failed, in its own words. */
export function failureOf(worker: Worker, status: unknown): Error {
  try {
    const last = worker.errors.split("\n").at(-1) ?? "";
    const { error } = JSON.parse(last) as { error: { code: ErrorCode; message: string; details: object } };
    return new BatchWeaveError(error.code, `${worker.name}: ${error.message}`, { ...error.details });
  } catch {
    return new Error(`${worker.name} ended with status ${status}: ${worker.errors}`);
  }
}

/** sha256 of every slice of the log, in order. */
export async function digestsOf(ns: Namespace, signal: AbortSignal): Promise<string[]> {
  const { rows, chunks } = ns.grid;
  const { steps } = await ns.info({ signal });
  const digests: string[] = [];
  for (let cell = 0; cell < steps.end * rows * chunks; cell++) {
    const place = {
      step: Math.floor(cell / (rows * chunks)),
      row: Math.floor(cell / chunks) % rows,
      chunk: cell % chunks,
    };
    digests.push(
      createHash("sha256")
        .update(await ns.readSlice(place, { signal }))
        .digest("hex"),
    );
  }
  return digests;
}

/** Every slice of the log must have been seen by one rank, once, as it is in the log. */
export function compareReadings(
  ranks: readonly (readonly Reading[])[],
  expected: readonly string[],
  grid: Grid,
): SeenByRanks {
  const times = expected.map(() => 0);
  let differing = 0;
  for (const [step, row, chunk, digest] of ranks.flat().flatMap(({ slices }) => slices)) {
    const cell = (step * grid.rows + row) * grid.chunks + chunk;
    times[cell] = (times[cell] ?? 0) + 1;
    if (expected[cell] !== digest) differing++;
  }
  return {
    ranks: ranks.length,
    iterations: ranks.map(({ length }) => length),
    lost: times.filter((n) => n === 0).length,
    repeated: times.reduce((sum, n) => sum + Math.max(0, n - 1), 0),
    differing,
  };
}
