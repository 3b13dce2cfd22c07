/**
 * Property: `doctor` finds what an operator must act on and says what to do, changes nothing, and finds nothing where all is well; typing errors are met
 * with what was meant; the completion of bash completes, and lists every option.
 * Method: the built command on namespaces with one trouble each.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { commands } from "../../src/cli/command-list.js";
import { tryWrite } from "../../src/cli/write-trial.js";
import { BatchWeaveError, MemoryStore, openNamespace, systemEnv } from "../../src/index.js";
import { root } from "../source-tree.js";
import { buildIfStale, must, run, Workspace } from "./command-line.js";

const space = new Workspace();
beforeAll(buildIfStale, 180_000);
afterAll(() => space.remove());

interface Found {
  readonly ok: boolean;
  readonly findings: readonly {
    readonly check: string;
    readonly level: string;
    readonly what: string;
    readonly todo?: string;
  }[];
}

async function doctor(uri: string): Promise<{ status: number | null; found: Found }> {
  const { status, lines } = await run("doctor", uri, "--json");
  return { status, found: lines[0] as Found };
}

test("a log that is well has nothing but a missing checkpoint, and with one nothing at all", async () => {
  const uri = space.uri("well");
  await must("create", uri, "--rows", "1");
  await must("produce", uri, "--id", "p", "--batches", "3", "--bytes", "10", "--close");
  const before = space.snapshot("well");
  const { status, found } = await doctor(uri);
  expect(status).toBe(0);
  expect(found.findings.filter(({ level }) => level !== "ok").map(({ check }) => check)).toEqual(["retention"]);
  expect(space.snapshot("well")).toEqual(before);
  await must("consume", uri, "--dp", "1", "--rank", "0", "--checkpoint-every", "1", "--json");
  const again = await run("doctor", uri, "--strict");
  expect(again).toMatchObject({ status: 0 });
  expect(again.stdout).not.toMatch(/warning|PROBLEM/);
});

test("a store that is full, or that may not be written, is said with what to do; nothing of the trial is left", async () => {
  const uri = space.uri("full");
  await must("create", uri, "--rows", "1");
  const before = space.snapshot("full");
  // No file may be longer than 8 KiB: as on a full disk, the write fails and not the opening.
  const main = join(root, "dist/src/cli/main.js");
  const { status, stdout } = spawnSync(
    "sh",
    ["-c", `ulimit -f 8; "$0" "$1" doctor "$2"`, process.execPath, main, uri],
    {
      encoding: "utf8",
    },
  );
  expect(status).toBe(1);
  expect(stdout).toMatch(/PROBLEM {2}write: a trial object cannot be written: .*larger than this process may write/);
  expect(stdout).toMatch(/-> nothing can be committed here until that is mended/);
  expect(space.snapshot("full")).toEqual(before);
  const store = new MemoryStore();
  store.create = async () => {
    throw new BatchWeaveError("STORE_DENIED", "Cannot create it: the file system is read-only; mount it read-write.");
  };
  expect(await tryWrite(store, systemEnv, {})).toMatchObject({
    level: "warning",
    what: "a trial object cannot be written: Cannot create it: the file system is read-only; mount it read-write",
    todo: expect.stringContaining("give them that right"),
  });
});

test("a lane that nobody holds, a clock that is ahead, and a fork that is gone are named with what to do", async () => {
  const uri = space.uri("lanes");
  await must("create", uri, "--rows", "1", "--order", "lanes", "--lanes", "2");
  await must("produce", uri, "--id", "lane-1", "--batches", "2", "--bytes", "10");
  const { status, found } = await doctor(uri);
  expect(status).toBe(1);
  expect(found.ok).toBe(false);
  const lanes = found.findings.find(({ check }) => check === "lanes");
  expect(lanes?.what).toMatch(/step 0 of lane-0 is missing and keeps 2 batches back; no process has ever held/);
  expect(lanes?.todo).toMatch(/start a process that holds lane-0/);

  const parent = space.uri("parent");
  await must("create", parent, "--rows", "1");
  await must("produce", parent, "--id", "p", "--batches", "2", "--bytes", "10");
  const child = space.uri("child");
  await must("fork", parent, child);
  const ns = await openNamespace(parent);
  const late = { role: "rank", name: "r", atMs: Date.now() + 60_000, everyMs: 10_000, incarnation: "0123456789ab" };
  const folder = space.path("parent", "life", ns.uuid, "pulse", "rank");
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${folder}/${late.name}-${late.atMs}-${late.everyMs}-${late.incarnation}`, "");
  rmSync(space.path("child"), { recursive: true });
  const { findings } = (await doctor(parent)).found;
  expect(findings.find(({ check }) => check === "fork")).toMatchObject({
    level: "warning",
    todo: expect.stringContaining("--release"),
  });
  expect(findings.find(({ check }) => check === "clocks")).toMatchObject({
    level: "warning",
    what: expect.stringMatching(/rank r .* ahead/),
  });
});

test("a source log is judged by its training log: once that is complete, nobody need hold its lanes", async () => {
  const training = space.uri("fed");
  const source = `${training}.sources/text`;
  await must("create", training, "--rows", "1");
  await must("create", source, "--rows", "1", "--order", "lanes", "--lanes", "2");
  await must("produce", source, "--id", "lane-1", "--batches", "2", "--bytes", "10");
  const open = await doctor(source);
  expect(open.status).toBe(1);
  expect(open.found.findings.find(({ check }) => check === "lanes")?.level).toBe("problem");
  await must("produce", training, "--id", "p", "--batches", "1", "--bytes", "10", "--close");
  const { status, found } = await doctor(source);
  expect(status).toBe(0);
  expect(found.findings.find(({ check }) => check === "log")?.what).toMatch(
    /the log of source text; .* is complete, and needs no more of it/,
  );
});

test("what was meant is said; -h helps everywhere", async () => {
  expect((await run("porduce")).stderr).toMatch(/There is no command "porduce"\. Did you mean produce\?/);
  expect((await run("frobnicate")).stderr).not.toMatch(/Did you mean/);
  expect((await run("info", "memory:", "--wach")).stderr).toMatch(/Did you mean --watch\?/);
  for (const name of ["top", "doctor", "completion", "fleet size"])
    expect((await must(...name.split(" "), "-h")).stdout).toMatch(new RegExp(`^batchweave ${name} `));
});

test("bash completes commands and options; zsh and fish get every option too", async () => {
  const { stdout: script } = await must("completion", "bash");
  const ask = (...words: string[]): string[] => {
    const program = `eval "$(cat)"; COMP_WORDS=(batchweave ${words.map((word) => `"${word}"`).join(" ")}); COMP_CWORD=${words.length}; _batchweave; echo "\${COMPREPLY[@]}"`;
    return spawnSync("bash", ["-c", program], { input: script, encoding: "utf8" }).stdout.trim().split(" ");
  };
  expect(ask("do")).toEqual(["doctor"]);
  expect(ask("top", "--on")).toEqual(["--once"]);
  expect(ask("fleet", "size", "--js")).toEqual(["--json"]);
  for (const shell of ["zsh", "fish"]) {
    const { stdout } = await must("completion", shell);
    for (const name of Object.keys(commands)) expect(stdout).toContain(name.split(" ").at(-1));
    expect(stdout).toContain("once");
  }
  expect((await run("completion", "tcsh")).status).toBe(2);
});
