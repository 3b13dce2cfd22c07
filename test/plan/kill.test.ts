/**
 * Property: two `batchweave run` processes, killed (SIGKILL) at any moment and started again, write the very log that one undisturbed process
 * writes: the same slices, lineage and resume points, step by step; nothing lost, nothing twice; faults included. Method: real processes
 * on a real folder, killed at random; both logs read back and compared. BATCHWEAVE_KILLS=20 kills more often.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { openNamespace } from "../../src/index.js";
import { SeededRandom } from "../../src/plan/mix/random.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const cli = join(root, "dist/src/cli/main.js");
const kills = Number(process.env["BATCHWEAVE_KILLS"] ?? 3);
const steps = 60 + 40 * kills;

const pipelineText = `
import { definePipeline, jsonl, stagedMix, tokenize } from "batchweave/plan";
const transforms = [tokenize({ tokenizer: { kind: "bytes" } })];
const source = (name) => jsonl({ shards: new URL("./" + name, import.meta.url), transforms, onFault: "skip", faultShareMax: 0.5, windowSamplesMax: 16 });
export default definePipeline({
  namespace: { uri: process.env.LOG, grid: { rows: 2, chunks: 1 }, lanes: 4 },
  sources: { web: source("web-*.jsonl"), code: source("code-*.jsonl.gz"), poison: source("poison.jsonl") },
  strategy: (graph) =>
    graph
      .mix(stagedMix([
        { from: 0, weights: { web: 2, code: 1, poison: 1 } },
        { from: ${Math.floor(steps / 2)}, weights: { web: 1, code: 2, poison: 1 } },
      ]))
      .balance("karmarkar-karp"),
  construct: { seqLength: 512, microbatches: 2 },
  batch: { samples: 12 },
  steps: ${steps},
  workers: { threads: 1 },
});`;

function start(file: string, log: string, ...args: string[]): { child: ChildProcess; ended: Promise<number | null> } {
  const child = spawn(process.execPath, [cli, "run", file, "--json", "--durability", "process-crash", ...args], {
    env: { ...process.env, LOG: pathToFileURL(log).href },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-2000);
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("exit", (code, signal) => {
      if (code === 0 || signal === "SIGKILL") resolve(code);
      else reject(new Error(`run ${args.join(" ")} ended with ${code}: ${said}`));
    });
  });
  return { child, ended };
}

/** Runs some lanes to their end, whoever kills the process in between. */
async function keepRunning(
  file: string,
  log: string,
  lanes: string,
  current: { child?: ChildProcess },
): Promise<number> {
  for (let restarts = 0; ; restarts++) {
    const { child, ended } = start(file, log, "--lanes", lanes, "--id", `p${lanes}`);
    current.child = child;
    if ((await ended) === 0) return restarts;
  }
}

async function logOf(log: string): Promise<string[]> {
  const ns = await openNamespace(pathToFileURL(log).href);
  const { steps: span } = await ns.info();
  const texts: string[] = [];
  for (let step = span.trim; step < span.end; step++) {
    const { user, resumePoint, producer, seq, lineage } = (await ns.inspect(step)) as unknown as Record<
      string,
      unknown
    >;
    const slices: string[] = [];
    for (let row = 0; row < 2; row++)
      slices.push(Buffer.from(await ns.readSlice({ step, row, chunk: 0 })).toString("base64"));
    texts.push(JSON.stringify({ user, resumePoint, producer, seq, lineage, slices }));
  }
  return texts;
}

test(`two producers killed ${kills} times write what one writes undisturbed`, {
  timeout: 300_000 + 20_000 * kills,
}, async (context) => {
  if (!existsSync(cli)) context.skip("dist is not built: npm run build");
  const folder = dataFolder();
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules/batchweave"));
  writeJsonl(folder, "web", [400, 300]);
  writeJsonl(folder, "code", [200, 300], { gzip: true });
  const lines = Array.from({ length: 200 }, (_, i) =>
    i % 9 === 4 ? "{ no JSON" : JSON.stringify({ text: `line ${i}` }),
  );
  writeFileSync(join(folder, "poison.jsonl"), lines.join("\n"));
  const file = join(folder, "pipeline.mjs");
  writeFileSync(file, pipelineText);

  const [calm, stormy] = [join(folder, "calm"), join(folder, "stormy")];
  await start(file, calm).ended;
  const [first, second]: { child?: ChildProcess }[] = [{}, {}];
  let isOver = false;
  const runs = Promise.all([
    keepRunning(file, stormy, "0-1", first as { child?: ChildProcess }),
    keepRunning(file, stormy, "2-3", second as { child?: ChildProcess }),
  ]).finally(() => {
    isOver = true;
  });
  const random = new SeededRandom("kill", String(process.pid));
  for (let k = 0; k < kills && !isOver; k++) {
    await new Promise((resolve) => setTimeout(resolve, 300 + random.below(900)));
    ((random.below(2) === 0 ? first : second) as { child?: ChildProcess }).child?.kill("SIGKILL");
  }
  const restarts = (await runs).reduce((a, b) => a + b, 0);
  // A run that was over before anybody was killed shows nothing.
  expect(restarts).toBeGreaterThan(0);
  const [expected, found] = [await logOf(calm), await logOf(stormy)];
  expect(expected.length).toBe(steps);
  expect(found).toEqual(expected);
  expect(expected.some((text) => text.includes("no JSON") || text.includes("poison"))).toBe(true);
  const report = await (await openNamespace(pathToFileURL(stormy).href)).verify();
  expect(report).toMatchObject({ ok: true });
});
