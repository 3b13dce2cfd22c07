/** After the chaos: is what all processes saw and acknowledged one consistent history? Reads the workers' files; every problem is a sentence. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Namespace, NamespaceInfo } from "../src/index.js";
import { chaosGrid, chaosMesh, chaosSlice, digest } from "./chaos-content.js";

/** What was found. */
export interface Judgement {
  readonly problems: readonly string[];
  readonly steps: number;
  readonly acknowledged: number;
  /** Cells that were read more than once, by a rank that had been rolled back. */
  readonly reread: number;
}

type Cell = readonly [step: number, row: number, chunk: number, digest: string];
interface Sighting {
  readonly iteration: number;
  readonly cells: readonly Cell[];
}

const problemsMax = 20;

/** Judges the files of one run against the closed log. */
export function judge(folder: string, info: NamespaceInfo): Judgement {
  const problems: string[] = [];
  const complain = (problem: string): void => {
    if (problems.length < problemsMax) problems.push(problem);
  };
  const seen = new Map<string, string>();
  let cells = 0;
  for (let rank = 0; rank < chaosMesh.dp * chaosMesh.cp; rank++) {
    const sightings = readSightings(join(folder, `rank-${rank}.seen`), complain);
    checkRank(rank, sightings, info.steps.end, complain);
    for (const { cells: some } of sightings) {
      for (const [step, row, chunk, found] of some) {
        cells++;
        const cell = `${step}/${row}/${chunk}`;
        const before = seen.get(cell) ?? found;
        if (before !== found) complain(`cell ${cell} was seen with two contents, ${before} and ${found}`);
        seen.set(cell, found);
      }
    }
  }
  checkContents(seen, info, complain);
  const acknowledged = checkAcknowledged(folder, info, complain);
  return { problems, steps: info.steps.end, acknowledged, reread: cells - seen.size };
}

/** Complete lines; one that a kill cut off is no sighting. */
function readSightings(path: string, complain: (problem: string) => void): Sighting[] {
  if (!existsSync(path)) {
    complain(`${path} was never written`);
    return [];
  }
  return readFileSync(path, "utf8")
    .split("\n")
    .flatMap((line) => {
      try {
        return line === "" ? [] : [JSON.parse(line) as Sighting];
      } catch {
        return [];
      }
    });
}

/** Iterations follow each other, or go back to a saved cursor; each has the cells that the formula gives this rank; the last is the log's. */
function checkRank(
  rank: number,
  sightings: readonly Sighting[],
  end: number,
  complain: (problem: string) => void,
): void {
  const { dp, cp } = chaosMesh;
  const { rows, chunks } = chaosGrid;
  const [d, c] = [Math.floor(rank / cp), rank % cp];
  let last = -1;
  for (const { iteration, cells } of sightings) {
    if (iteration > last + 1) complain(`rank ${rank} jumped from iteration ${last} to ${iteration}`);
    last = iteration;
    const globalRow = iteration * dp + d;
    const wanted = Array.from({ length: chunks / cp }, (_, i) =>
      [Math.floor(globalRow / rows), globalRow % rows, c * (chunks / cp) + i].join(),
    );
    const found = cells.map(([step, row, chunk]) => [step, row, chunk].join());
    if (found.join(";") !== wanted.join(";"))
      complain(`rank ${rank} saw ${found.join(";")} in iteration ${iteration} instead of ${wanted.join(";")}`);
  }
  const expected = (end * rows) / dp - 1;
  if (last !== expected) complain(`rank ${rank} ended with iteration ${last}, the log ends with ${expected}`);
}

/** Every cell was seen; the batches of each producer are its counters 0, 1, 2, … once each, in order, with the bytes they must have. */
function checkContents(
  seen: ReadonlyMap<string, string>,
  info: NamespaceInfo,
  complain: (problem: string) => void,
): void {
  const { rows, chunks } = chaosGrid;
  const next = new Map(info.producers.map(({ id }) => [id, 0]));
  for (let step = 0; step < info.steps.end; step++) {
    const owner = [...next].find(([id, counter]) => seen.get(`${step}/0/0`) === digest(chaosSlice(id, counter, 0, 0)));
    if (!owner) {
      complain(`step ${step} is not the next batch of any producer: lost, repeated, out of order or never seen`);
      continue;
    }
    const [id, counter] = owner;
    next.set(id, counter + 1);
    for (let cell = 0; cell < rows * chunks; cell++) {
      const [row, chunk] = [Math.floor(cell / chunks), cell % chunks];
      if (seen.get(`${step}/${row}/${chunk}`) !== digest(chaosSlice(id, counter, row, chunk)))
        complain(`slice ${row},${chunk} of step ${step} is not that of batch ${counter} of ${id}`);
    }
  }
  for (const { id, seq } of info.producers)
    if (next.get(id) !== seq) complain(`the log says ${seq} batches of ${id}, ranks saw ${next.get(id)}`);
}

/** Whatever a producer was told is committed, is. */
export function checkAcknowledged(folder: string, info: NamespaceInfo, complain: (problem: string) => void): number {
  let count = 0;
  const committed = new Map(info.producers.map(({ id, seq }) => [id, seq]));
  for (const file of readdirSync(folder).filter((path) => path.endsWith(".acknowledged"))) {
    const name = file.slice(0, -".acknowledged".length);
    // Two processes share one id: twin-a and twin-b are both "twin".
    const id = name.replace(/-[ab]$/, "");
    for (const line of readFileSync(join(folder, file), "utf8").split("\n").slice(0, -1)) {
      count++;
      if (Number(line) >= (committed.get(id) ?? 0))
        complain(`${name} was told that batch ${line} is in, and it is not`);
    }
  }
  return count;
}

/** Where a rank notes its checkpoints: `+ id row` once a registration was acknowledged, `- id` before a release is asked for. */
export function checkpointFile(folder: string, rank: string): string {
  return join(folder, `${rank}.checkpoints`);
}

/** Acknowledged and not released: id and row. */
export function heldCheckpoints(folder: string, rank: string): Map<string, number> {
  const held = new Map<string, number>();
  const path = checkpointFile(folder, rank);
  if (!existsSync(path)) return held;
  for (const line of readFileSync(path, "utf8").split("\n")) {
    const [sign, id = "", row] = line.split(" ");
    if (sign === "+") held.set(id, Number(row));
    else if (sign === "-") held.delete(id);
  }
  return held;
}

/** Every checkpoint that was acknowledged and not released is listed where it was registered, and its row can be read. */
export async function judgeCheckpoints(
  folder: string,
  ns: Namespace,
): Promise<{ readonly problems: readonly string[]; readonly held: number }> {
  const problems: string[] = [];
  const live = new Map((await ns.checkpoints()).map((c) => [`${c.group}/${c.id}`, c]));
  const { rows, chunks } = chaosGrid;
  const { steps } = await ns.info();
  let held = 0;
  for (let rank = 0; rank < chaosMesh.dp * chaosMesh.cp; rank++) {
    for (const [id, row] of heldCheckpoints(folder, `rank-${rank}`)) {
      held++;
      const name = `rank-${rank}/${id}`;
      const found = live.get(name);
      if (found?.row !== row) {
        problems.push(
          `checkpoint ${name} was registered at row ${row}, and the log has it at ${found?.row ?? "no row"}`,
        );
        continue;
      }
      const step = Math.floor(row / rows);
      if (step === steps.end) continue;
      for (let chunk = 0; chunk < chunks; chunk++)
        await ns.readSlice({ step, row: row % rows, chunk }).catch((error: unknown) => {
          problems.push(`checkpoint ${name} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
        });
    }
  }
  if (held === 0) problems.push("no checkpoint was acknowledged and kept");
  return { problems, held };
}
