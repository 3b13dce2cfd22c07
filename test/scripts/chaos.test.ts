/**
 * Property: after kill -9 of any process in every phase, what all ranks saw and all producers were told is one history; and the judge that says so
 * notices when it is not. Method: the chaos script itself, short, with real processes; then its files, damaged, judged again.
 */
import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { judge } from "../../scripts/chaos-judge.js";
import { phases } from "../../scripts/chaos-phase.js";
import { type NamespaceInfo, openNamespace } from "../../src/index.js";
import { buildIfStale } from "../cli/command-line.js";
import { root } from "../source-tree.js";

let folder = "";
let info: NamespaceInfo;
let report: Record<string, number | string[]>;

beforeAll(async () => {
  buildIfStale();
  const script = join(root, "dist/scripts/chaos.js");
  const { stdout, stderr } = await new Promise<{ stdout: string; stderr: string }>((resolve) =>
    execFile(process.execPath, [script, "--rounds", "12", "--seed", "7", "--json", "--keep"], (_, out, err) =>
      resolve({ stdout: out, stderr: err }),
    ),
  );
  folder = /^kept: (.*)$/m.exec(stderr)?.[1] as string;
  report = JSON.parse(stdout);
  info = await (await openNamespace(`${pathToFileURL(folder).href}/run`)).info();
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("twelve rounds: every phase was hit, and nothing was lost, repeated or reordered", () => {
  expect(report["problems"]).toEqual([]);
  expect(report["kills"]).toBeGreaterThanOrEqual(12);
  for (const phase of phases) expect([phase, report[phase]]).not.toEqual([phase, 0]);
});

describe("the judge notices", () => {
  /** Problems after one file was changed. */
  function problemsAfter(file: string, change: (text: string) => string): readonly string[] {
    const copy = mkdtempSync(join(tmpdir(), "batchweave-judge-"));
    try {
      cpSync(folder, copy, { recursive: true, filter: (path) => path === folder || !path.endsWith("/run") });
      writeFileSync(join(copy, file), change(readFileSync(join(copy, file), "utf8")));
      return judge(copy, info).problems;
    } finally {
      rmSync(copy, { recursive: true, force: true });
    }
  }
  const dropLine = (text: string): string =>
    text
      .split("\n")
      .filter((_, i) => i !== 5)
      .join("\n");

  test("nothing in what is untouched", () => {
    expect(problemsAfter("rank-0.seen", (text) => text)).toEqual([]);
  });

  test("an iteration that a rank did not see", () => {
    expect(problemsAfter("rank-1.seen", dropLine)[0]).toMatch(/rank 1 jumped/);
  });

  test("a slice with other bytes", () => {
    const change = (text: string): string => text.replace(/("cells":\[\[0,0,0,")[^"]*/, "$1other");
    expect(problemsAfter("rank-0.seen", change).length).toBeGreaterThan(0);
  });

  test("a rank that stopped early", () => {
    const problems = problemsAfter("rank-2.seen", (text) => `${text.split("\n").slice(0, 9).join("\n")}\n`);
    expect(problems.join()).toMatch(/rank 2 ended with iteration/);
  });

  test("an acknowledgement of a batch that is not in the log", () => {
    expect(problemsAfter("p0.acknowledged", (text) => `${text}999999\n`)[0]).toMatch(/999999 is in, and it is not/);
  });
});
