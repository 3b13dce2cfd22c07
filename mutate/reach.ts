/** Which tests can see a mutant: those that execute its line, as measured on the tree as it is. */

import type { Mutant } from "./mutants.js";

/** A test (a file of vitest, a case of unittest), what it takes, and the lines that it executes. */
export interface Reach {
  readonly path: string;
  readonly ms: number;
  /** By file of the product. */
  readonly lines: Readonly<Record<string, readonly number[]>>;
}

/** The tests that execute a place, the quickest first. */
export function reaching(reaches: readonly Reach[], { file, line, within = [line, line] }: Mutant): Reach[] {
  const [first, last] = within;
  return reaches
    .filter(({ lines }) => lines[file]?.some((n) => n >= first && n <= last))
    .sort((a, b) => a.ms - b.ms || (a.path < b.path ? -1 : 1));
}

/** As many of the first tests as fit into `msMax`, at least one; and the others. */
export function split(tests: readonly Reach[], msMax: number): [first: Reach[], rest: Reach[]] {
  let end = 0;
  for (let ms = 0; end < tests.length; end++) {
    ms += (tests[end] as Reach).ms;
    if (ms > msMax && end > 0) break;
  }
  return [tests.slice(0, end), tests.slice(end)];
}

/** Whether a test is one of a file. */
export function isOf({ path }: Reach, file: string): boolean {
  return path === file || `python/tests/${path.split(".")[0]}.py` === file;
}
