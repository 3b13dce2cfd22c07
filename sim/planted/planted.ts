/**
 * Planted bugs: each takes one safety check out of the compiled code, and the simulator has to notice.
 *
 * They are edits of a copy of the build, made for one run and thrown away, so the product has no switch for them and the packed
 * package cannot contain them.
 */
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** One change of a compiled file. */
export interface Edit {
  /** Compiled file, relative to `dist`: `src/log/commit.js`. */
  readonly file: string;
  /** Occurs exactly once in that file, as compiled. */
  readonly find: string;
  readonly replace: string;
}

/** One safety check and how to take it out. */
export interface PlantedBug {
  readonly name: string;
  /** Number in docs/hazards.md, or a word for what it breaks. */
  readonly hazard: number | string;
  /** What is changed; more than one edit where a second check would hide that the first is gone. */
  readonly edits: readonly Edit[];
  /** Scenario that must catch it; `chaos` unless told. */
  readonly scenario?: string | undefined;
}

/** What came of one planted bug. */
export interface PlantedResult {
  readonly bug: PlantedBug;
  /** `escaped`: no seed failed. `broken`: the edited code did not run, which proves nothing. */
  readonly verdict: "caught" | "escaped" | "broken";
  readonly seed?: number | undefined;
  /** The property that failed, or why it is broken. */
  readonly reason: string;
}

/** Options of {@link runPlanted}. */
export interface PlantedOptions {
  /** The build to copy. */
  readonly dist: string;
  /** Seeds within which each bug must be caught. */
  readonly seedsMax: number;
  /** Edits that give the copy the sizes of the bug's scenario. */
  readonly sizes?: ((bug: PlantedBug) => readonly Edit[]) | undefined;
  /** Bugs tried at once. */
  readonly workers: number;
  /** A bug that neither is caught nor escapes within this time is broken. */
  readonly timeoutMs?: number | undefined;
  readonly onResult?: ((result: PlantedResult) => void) | undefined;
}

/** The line that `--json` ends with. */
export interface SoakLine {
  readonly passed: number;
  readonly failed: number;
  readonly seed?: number | undefined;
  readonly property?: string | undefined;
}

/** What an edit that does not even run fails with, rather than a broken promise. */
const notACatch = ["SyntaxError", "ReferenceError", "determinism", "activity"];

/** The files that a bug changes, as they become. Throws unless each `find` occurs exactly once. */
export function editedFiles(dist: string, bug: PlantedBug): ReadonlyMap<string, string> {
  const edited = new Map<string, string>();
  for (const { file, find, replace } of bug.edits) {
    const source = edited.get(file) ?? readFileSync(join(dist, file), "utf8");
    const count = source.split(find).length - 1;
    if (count !== 1) {
      throw new Error(
        `planted bug "${bug.name}": its text occurs ${count} times in ${file}, not once; update sim/planted/planted-bugs.ts`,
      );
    }
    edited.set(
      file,
      source.replace(find, () => replace),
    );
  }
  return edited;
}

/** Copies a build and applies the edits; returns the copy's folder, which the caller removes. */
export function plant(dist: string, bug: PlantedBug): string {
  const edited = editedFiles(dist, bug);
  const folder = mkdtempSync(join(tmpdir(), "batchweave-planted-"));
  cpSync(dist, join(folder, "dist"), { recursive: true, filter: (path) => !/\.(d\.ts|tsbuildinfo)$/.test(path) });
  for (const [file, text] of edited) writeFileSync(join(folder, "dist", file), text);
  writeFileSync(join(folder, "package.json"), '{ "name": "batchweave", "type": "module" }\n');
  const modules = join(dirname(dist), "node_modules");
  if (existsSync(modules)) symlinkSync(modules, join(folder, "node_modules"));
  return folder;
}

/** Runs one planted bug until a seed fails. */
export async function runPlantedBug(bug: PlantedBug, options: PlantedOptions): Promise<PlantedResult> {
  let folder: string;
  try {
    folder = plant(options.dist, { ...bug, edits: [...bug.edits, ...(options.sizes?.(bug) ?? [])] });
  } catch (error) {
    return { bug, verdict: "broken", reason: error instanceof Error ? error.message : String(error) };
  }
  try {
    const { text, exit } = await runChild(folder, bug.scenario ?? "chaos", options);
    return judge(bug, text, exit);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs every planted bug. */
export async function runPlanted(bugs: readonly PlantedBug[], options: PlantedOptions): Promise<PlantedResult[]> {
  const results: PlantedResult[] = [];
  const queue = [...bugs];
  const work = async (): Promise<void> => {
    for (let bug = queue.shift(); bug !== undefined; bug = queue.shift()) {
      const result = await runPlantedBug(bug, options);
      results.push(result);
      options.onResult?.(result);
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, options.workers) }, work));
  return results;
}

function runChild(folder: string, scenario: string, options: PlantedOptions): Promise<{ text: string; exit: string }> {
  const main = join(folder, "dist/sim/main.js");
  const seeds = String(options.seedsMax);
  const args = [
    main,
    "--scenario",
    scenario,
    "--seeds",
    seeds,
    "--until-failure",
    "--once",
    "--workers",
    "1",
    "--json",
  ];
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
    const timer = setTimeout(() => child.kill("SIGKILL"), options.timeoutMs ?? 3_600_000);
    let text = "";
    child.stdout.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
    child.stderr.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
    child.on("error", reject);
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      resolve({ text, exit: signal ?? String(code) });
    });
  });
}

function judge(bug: PlantedBug, text: string, exit: string): PlantedResult {
  const line = text
    .trimEnd()
    .split("\n")
    .findLast((each) => each.startsWith("{"));
  if (line === undefined)
    return { bug, verdict: "broken", reason: `exit ${exit}: ${text.trim().split("\n").at(-1) ?? ""}` };
  const { seed, property = "" } = JSON.parse(line) as SoakLine;
  if (seed === undefined) return { bug, verdict: "escaped", reason: "every seed passed" };
  if (notACatch.includes(property)) return { bug, verdict: "broken", seed, reason: property };
  return { bug, verdict: "caught", seed, reason: property };
}
