/**
 * Property: `top` names what holds a log up: a source that stalls, a producer that died, a store that does not answer, each within five seconds (the
 * limit here is wider: machines that run tests are busy; the time is printed); it names nothing that is well, and nothing that others
 * wrote reaches the terminal unescaped.
 * Method: the built command in a real terminal (tmux), with real processes that are stalled and killed; and the sentence from looks made up.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bucket, s3Access } from "../../harness/s3-servers.js";
import { startTinyS3 } from "../../harness/tiny-s3.js";
import { diagnose } from "../../src/cli/diagnosis.js";
import type { NamespaceInfo, PulseEntry, Vitals } from "../../src/index.js";
import { root } from "../source-tree.js";
import { buildIfStale, must, type Running, run, start, Workspace } from "./command-line.js";

const hasTmux = spawnSync("tmux", ["-V"]).status === 0;
const socket = `batchweave-top-${process.pid}`;
const space = new Workspace();
const running: Running[] = [];

beforeAll(buildIfStale, 180_000);
afterAll(() => {
  for (const { child } of running) child.kill("SIGKILL");
  if (hasTmux) spawnSync("tmux", ["-L", socket, "kill-server"]);
  space.remove();
});

function open(args: readonly string[], env?: Record<string, string>): Running {
  const one = start(args, env);
  running.push(one);
  return one;
}

/** `top` in a terminal of its own. */
function top(name: string, uri: string, env: Readonly<Record<string, string>> = {}): { screen(): string } {
  const assigned = Object.entries(env).map(([key, value]) => `${key}=${value}`);
  const command = ["env", ...assigned, process.execPath, join(root, "dist/src/cli/main.js"), "top", uri];
  execFileSync("tmux", ["-L", socket, "new-session", "-d", "-s", name, "-x", "150", "-y", "50", command.join(" ")]);
  return { screen: () => execFileSync("tmux", ["-L", socket, "capture-pane", "-p", "-t", name]).toString() };
}

async function until(what: RegExp, screen: () => string, seconds: number): Promise<number> {
  const begun = Date.now();
  while (!what.test(screen())) {
    if (Date.now() - begun > 1_000 * seconds) throw new Error(`not seen in ${seconds} s: ${what}\n${screen()}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return (Date.now() - begun) / 1_000;
}

describe.skipIf(!hasTmux)("in a terminal (skipped without tmux)", () => {
  test("a producer that was killed is named by the log alone, and a rank by its pulse", async () => {
    const uri = space.uri("dead");
    await must("create", uri, "--rows", "1");
    open(["produce", uri, "--id", "alive", "--rate", "5", "--bytes", "100", "--no-pulse"]);
    const victim = open(["produce", uri, "--id", "victim", "--rate", "5", "--bytes", "100", "--no-pulse"]);
    const rank = open(["consume", uri, "--dp", "1", "--rank", "0", "--json"]);
    const { screen } = top("dead", uri);
    await until(/victim +\d\d+ /, screen, 60);
    await until(/default-0 +\d+ /, screen, 60);
    rank.child.kill("SIGKILL");
    const rankTook = await until(/ rank default-0 \(process \d+\) died without closing/, screen, 60);
    console.log(`top named a dead rank after ${rankTook.toFixed(1)} s`);
    victim.child.kill("SIGKILL");
    const took = await until(/ producer victim has committed nothing for/, screen, 60);
    console.log(`top named a dead producer after ${took.toFixed(1)} s`);
    expect(screen()).toMatch(/victim +\d+ +\d+ +\S+ \w+ ago +QUIET/);
  }, 240_000);

  test("a source that stalls is named, by top and by run itself", async () => {
    const folder = space.path("stalled");
    mkdirSync(join(folder, "node_modules"), { recursive: true });
    symlinkSync(root, join(folder, "node_modules/batchweave"));
    const flag = join(folder, "stall");
    writeFileSync(
      join(folder, "pipeline.mjs"),
      `import { existsSync } from "node:fs";
       import { definePipeline, iterable } from "batchweave/plan";
       const items = (name) => async function* () {
         for (let i = 0; ; i++) {
           while (name === "photos" && existsSync(${JSON.stringify(flag)})) await new Promise((r) => setTimeout(r, 50));
           await new Promise((r) => setTimeout(r, 2));
           yield { value: { tokens: [1, 2, 3] } };
         }
       };
       export default definePipeline({
         namespace: { uri: new URL("./log", import.meta.url).href, grid: { rows: 1, chunks: 1 }, lanes: 1 },
         sources: { text: iterable({ open: items("text") }), photos: iterable({ open: items("photos") }) },
         strategy: (graph) => graph.balance("greedy"),
         construct: { seqLength: 64 },
         batch: { samples: 8 },
       });`,
    );
    const { child } = open(["run", join(folder, "pipeline.mjs"), "--id", "p0", "--durability", "process-crash"]);
    let stderr = "";
    child.stderr?.on("data", (data: Buffer) => {
      stderr += data.toString();
    });
    const uri = space.uri("stalled/log");
    while ((await run("info", uri)).status !== 0) await new Promise((resolve) => setTimeout(resolve, 200));
    const { screen } = top("stalled", uri);
    await until(/photos +\d+\.\d/, screen, 60);
    writeFileSync(flag, "");
    const took = await until(/>> producer p0 waits for source photos/, screen, 60);
    console.log(`top named a stalled source after ${took.toFixed(1)} s`);
    await expect.poll(() => stderr).toMatch(/waiting for source photos \(\d+\.\d s\)/);
  }, 240_000);

  test("a store that does not answer is named, also by a producer", async () => {
    const server = await startTinyS3();
    const { environment } = s3Access(server.endpoint);
    const uri = `s3://${bucket}/away`;
    await start(["create", uri, "--rows", "1"], environment).ended;
    const { child } = open(["produce", uri, "--id", "p", "--rate", "5", "--bytes", "100"], environment);
    let stderr = "";
    child.stderr?.on("data", (data: Buffer) => {
      stderr += data.toString();
    });
    const { screen } = top("away", uri, environment);
    await until(/p +\d\d+ /, screen, 60);
    await server.stop();
    const took = await until(/>> the store has not answered for/, screen, 60);
    console.log(`top named a store outage after ${took.toFixed(1)} s`);
    await expect.poll(() => stderr).toMatch(/warning: the store has not answered for/);
  }, 240_000);
});

describe("the sentence", () => {
  const info = (more: Partial<NamespaceInfo> = {}): NamespaceInfo =>
    ({
      createdMs: 0,
      closed: false,
      steps: { trim: 0, end: 100 },
      version: 9,
      waiting: undefined,
      maxLag: undefined,
      ...more,
    }) as NamespaceInfo;
  const look = (more: Partial<Vitals> = {}): Vitals => ({
    info: info(),
    atMs: 100_000,
    tookMs: 1,
    commitAgeMs: 100,
    aboutBytes: 0,
    producers: [{ id: "p", epoch: 1, seq: 100, commitAgeMs: 100, paceMs: undefined, pending: 0, hasLeft: false }],
    groups: [],
    pulses: [],
    ...more,
  });
  const pulse = (role: string, facts: Record<string, unknown>, atMs = 100_000): PulseEntry => ({
    role,
    name: `${role}-0`,
    incarnation: role,
    atMs,
    everyMs: 10_000,
    isLate: false,
    isDead: false,
    host: "h",
    pid: 1,
    startedMs: 0,
    facts,
  });

  test("names the slowest source, with its share, when ranks wait; the slowest is the first row", () => {
    const sources = (photos: number, text: number): unknown[] => [
      { source: "text", samples: text, waitMs: 200, readMs: 100, transformMs: 900 },
      { source: "photos", samples: photos, waitMs: photos * 60, readMs: 10, transformMs: 5_000 },
    ];
    const before = look({
      atMs: 90_000,
      pulses: [pulse("producer", { sources: sources(10, 50) }, 90_000), pulse("rank", { waitedMs: 1_000 }, 90_000)],
    });
    const now = look({
      pulses: [pulse("producer", { sources: sources(100, 270) }), pulse("rank", { waitedMs: 7_000, step: 4 })],
    });
    const found = diagnose(now, before, 0);
    expect(found.sentence).toMatch(/^ranks wait: source photos makes 9\.0 of 31\.0 samples\/s, .* 54 % .*add threads/);
    expect(found.sources[0]?.source).toBe("photos");
  });

  test("says what stands still before what is slow, and that nothing does", () => {
    expect(diagnose(look(), look({ atMs: 90_000, info: info({ steps: { trim: 0, end: 50 } }) }), 0).sentence).toBe(
      "nothing waits; 5.0 steps/s",
    );
    expect(diagnose(look(), undefined, 5_000).sentence).toBe("the store has not answered for 5.0 s");
    const lanes = look({
      info: info({ waiting: { batches: 3, missingStep: 100, lane: "lane-1" } }),
      producers: [
        { id: "lane-0", epoch: 1, seq: 50, commitAgeMs: 100, paceMs: undefined, pending: 0, hasLeft: false },
        { id: "lane-1", epoch: 1, seq: 50, commitAgeMs: 9_000, paceMs: undefined, pending: 0, hasLeft: false },
      ],
    });
    expect(diagnose(lanes, undefined, 0).sentence).toMatch(/^lane-1 is missing: 3 batches .* 9\.0 s ago/);
    const lag = look({
      info: info({ maxLag: 10 }),
      groups: [{ group: "g", checkpoint: "c", step: 90, lagSteps: 10, ageMs: 1 }],
    });
    expect(diagnose(lag, undefined, 0).sentence).toMatch(/^producers wait for a checkpoint of group g/);
    const left = look({
      producers: [{ id: "p", epoch: 1, seq: 9, commitAgeMs: 1e6, paceMs: undefined, pending: 0, hasLeft: true }],
    });
    expect(diagnose(left, undefined, 0).quiet).toEqual([]);
  });

  test("a producer that stops is missed after some of its own beats, however old the log is and however long it was watched", () => {
    // A day old and a thousand batches: over its life it committed every 86 s.
    const aged = { info: info({ createdMs: -86_400_000 }), atMs: 100_000 };
    const one = { id: "p", epoch: 1, seq: 1_000, pending: 0, hasLeft: false };
    const moving = look({ ...aged, atMs: 80_000, producers: [{ ...one, seq: 900, commitAgeMs: 100, paceMs: 200 }] });
    const stopped = look({ ...aged, producers: [{ ...one, commitAgeMs: 4_000, paceMs: 200 }] });
    expect(diagnose(stopped, moving, 0).sentence).toMatch(/^producer p has committed nothing for 4\.0 s/);
    const slow = look({ ...aged, producers: [{ ...one, commitAgeMs: 4_000, paceMs: 3_000 }] });
    expect(diagnose(slow, moving, 0).quiet).toEqual([]);
  });

  test("who died is said first, then whose lanes were taken, then who waits; the dead make nothing and help nobody", () => {
    const facts = { sources: [{ source: "text", samples: 90, waitMs: 0, readMs: 9, transformMs: 9 }], threads: 4 };
    const dead = { ...pulse("loader", facts), pid: 77, isDead: true };
    const heir = pulse("constructor", {
      tookOver: "lane 3 of training",
      tookOverAgoMs: 1_000,
      waitingFor: "source text",
      waitingMs: 2_500,
    });
    const found = diagnose(look({ pulses: [dead, heir] }), undefined, 0);
    expect([found.sentence, ...found.warnings]).toEqual([
      "loader loader-0 (process 77) died without closing: start again what no process took over",
      expect.stringMatching(
        /^the holder of lane 3 of training stood still .* constructor constructor-0 took it over 1\.0 s ago$/,
      ),
      expect.stringMatching(/^constructor constructor-0 waits for source text/),
    ]);
    expect(found.sources).toEqual([]);
  });

  test("facts that mean nothing are taken for none", () => {
    const odd = [
      null,
      7,
      "x",
      { sources: "no" },
      { sources: [1, null, { source: { a: 1 }, samples: "9" }] },
      { steps: Infinity },
    ];
    for (const facts of odd) {
      const now = look({ pulses: [pulse("rank", (facts ?? {}) as Record<string, unknown>)] });
      expect(diagnose(now, now, 0).sentence).toBeTypeOf("string");
    }
  });
});
