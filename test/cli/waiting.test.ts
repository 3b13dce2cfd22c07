/**
 * Property: a command that waits says why at once, and what can never end fails at once, on both sides (hazard 46); a job that is started twice by mistake
 * does not fence itself when asked not to. Method: the built command in processes of its own.
 */
import { once } from "node:events";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { afterAll, beforeAll, expect, test } from "vitest";
import { root } from "../source-tree.js";
import { buildIfStale, must, run, start, Workspace } from "./command-line.js";

const space = new Workspace();
beforeAll(buildIfStale);
afterAll(() => space.remove());

test("hazard 46: with maxLag below the checkpoint interval rank and producer say that they wait, and fail, naming both", async () => {
  const uri = space.uri("lag");
  await must("create", uri, "--rows", "2");
  await must("limit", uri, "--max-lag", "8");
  const both = [
    start(["consume", uri, "--dp", "2", "--rank", "0", "--checkpoint-every", "10"]),
    start(["produce", uri, "--id", "p", "--batches", "100", "--bytes", "100"]),
  ];
  for (const ended of await Promise.all(both.map((one) => one.ended))) {
    expect([ended.status, ended.stderr]).toEqual([1, expect.stringContaining("error[LAG_DEADLOCK]")]);
    expect(ended.stderr).toMatch(/^Waiting for (a checkpoint|step 8, and producers for a checkpoint): .*maxLag = 8 /m);
  }
});

test("a run whose batches wait for a lane that nobody holds says which, and goes on", async () => {
  const folder = space.path("half");
  mkdirSync(join(folder, "node_modules"), { recursive: true });
  symlinkSync(root, join(folder, "node_modules/batchweave"));
  writeFileSync(
    join(folder, "pipeline.mjs"),
    `import { definePipeline, iterable } from "batchweave/plan";
     const open = async function* () { for (;;) { await new Promise((r) => setTimeout(r, 1)); yield { value: { tokens: [1, 2] } }; } };
     export default definePipeline({
       namespace: { uri: new URL("./log", import.meta.url).href, grid: { rows: 1, chunks: 1 }, lanes: 2 },
       sources: { text: iterable({ open }) },
       strategy: (graph) => graph.balance(),
       construct: { seqLength: 8 },
       batch: { samples: 2 },
       workers: { threads: 0 },
     });`,
  );
  const half = start(["run", join(folder, "pipeline.mjs"), "--lanes", "0", "--durability", "process-crash"]);
  let stderr = "";
  half.child.stderr?.on("data", (data: Buffer) => {
    stderr += data.toString();
  });
  await expect
    .poll(() => stderr, { timeout: 100_000 })
    .toMatch(/warning: step 1 of lane-1 is missing and keeps \d+ batch(es)? back .*: does a process hold that lane\?/);
  expect(half.child.exitCode).toBe(null);
  half.child.kill("SIGKILL");
  await half.ended;
}, 120_000);

test("--no-takeover on both sides: the second is refused, the first goes on", async () => {
  const uri = space.uri("twice");
  await must("create", uri, "--rows", "2");
  const args = ["produce", uri, "--id", "p", "--bytes", "100", "--rate", "6", "--no-takeover"];
  // Without a number of batches the first goes on until it is told to stop, however long the second takes to start.
  const first = start(args);
  const end = async (): Promise<number> => {
    const { lines } = await must("info", uri, "--json");
    return (lines[0] as { steps: { end: number } }).steps.end;
  };
  while ((await end()) === 0);
  const second = await run(...args, "--json");
  expect([second.status, second.error?.code]).toEqual([1, "FENCED"]);
  const before = await end();
  while ((await end()) === before);
  first.child.kill("SIGTERM");
  expect((await first.ended).status).toBe(143);
});

test("a rank that is started first waits for its namespace, says so, and reads it; at the limit it is refused", async () => {
  const uri = space.uri("late");
  const rank = start(["consume", uri, "--dp", "1", "--rank", "0", "--iterations", "1"]);
  await once(rank.child.stderr as Readable, "data");
  const refused = await run("consume", uri, "--dp", "1", "--rank", "0", "--wait-timeout", "0.3", "--json");
  expect([refused.status, refused.error?.code]).toEqual([2, "NO_NAMESPACE"]);
  await must("create", uri, "--rows", "1");
  await must("produce", uri, "--id", "p", "--batches", "1", "--bytes", "100");
  const { status, stderr } = await rank.ended;
  expect([status, stderr]).toEqual([0, expect.stringMatching(/^Waiting for a namespace at .*: it is not created yet/)]);
});
