/**
 * Property: every command ends within two seconds of the first SIGTERM, with status 143, whatever its store does.
 * Method: every command of the list, as a process of its own, on a store that accepts requests and never answers one; the signal comes with its
 * first request. Verify also on a log whose manifest says that it has 2^53 steps; demo in the middle of its story.
 */
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { commands } from "../../src/cli/command-list.js";
import { sealJson } from "../../src/format/index.js";
import { root } from "../source-tree.js";
import { buildIfStale, must, type Running, start, Workspace } from "./command-line.js";

/** The process allows itself 1.7 s; a store that hangs is given up after 30 s or never. What is between is a loaded machine's to spend. */
const endMsMax = 20_000;

const space = new Workspace();
let server: Server;
const asked = new Map<string, () => void>();

beforeAll(async () => {
  buildIfStale();
  server = createServer(({ url }) => asked.get(url?.split("/")[1] ?? "")?.());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
  space.remove();
});

async function stop({ child, ended }: Running): Promise<{ status: number | null; ms: number }> {
  const begun = performance.now();
  child.kill("SIGTERM");
  const { status } = await ended;
  return { status, ms: performance.now() - begun };
}

/** Arguments after the URI; a function where the command line is another. */
const lines: Record<string, readonly string[] | ((uri: string) => readonly string[])> = {
  create: ["--rows", "1"],
  ls: [],
  info: [],
  inspect: ["--step", "0"],
  preview: ["--step", "0"],
  produce: ["--id", "p", "--batches", "3"],
  run: (uri) => ["run", writePipeline(uri, "direct")],
  load: (uri) => ["load", writePipeline(uri)],
  construct: (uri) => ["construct", writePipeline(uri)],
  "fleet up": (uri) => ["fleet", "up", writePipeline(uri)],
  "fleet advice": (uri) => ["fleet", "advice", writePipeline(uri), "--plan", writePlan(), "--watch"],
  dashboard: [],
  consume: ["--dp", "1", "--rank", "0"],
  close: [],
  delete: ["--yes"],
  verify: [],
  find: ["--sample", "x"],
  fork: (uri) => ["fork", uri, `${uri}-fork`],
  checkpoint: ["list"],
  limit: ["--max-lag", "5"],
  reclaim: [],
  probe: [],
  top: [],
  doctor: [],
};

/** These ask no store, or an engine first; demo is below. */
const elsewhere = ["demo", "plan", "completion", "fleet size", "fleet render", "fleet scale"];

/** Numbers that a sizing would have found. */
function writePlan(): string {
  const path = space.path("plan.json");
  const plan = { kind: "batchweave-fleet-plan", v: 1, sources: { web: { lanes: 1 } } };
  const sizes = { loaders: { processes: 1, threads: 1 }, constructors: { processes: 1, threads: 1 } };
  writeFileSync(path, JSON.stringify({ ...plan, ...sizes, phases: [] }));
  return path;
}

function writePipeline(uri: string, exchange = "log"): string {
  if (!existsSync(space.path("node_modules"))) {
    mkdirSync(space.path("node_modules"));
    symlinkSync(root, space.path("node_modules", "batchweave"));
    writeFileSync(space.path("web.jsonl"), `${JSON.stringify({ id: 0, text: "some text" })}\n`.repeat(50));
  }
  const path = space.path(`${uri.replace(/\W+/g, "-")}.mjs`);
  writeFileSync(
    path,
    `import { definePipeline, jsonl, tokenize } from "batchweave/plan";
     const transforms = [tokenize({ tokenizer: { kind: "bytes" } })];
     export default definePipeline({
       namespace: { uri: "${uri}", grid: { rows: 1, chunks: 1 }, lanes: 1 },
       sources: { web: jsonl({ shards: new URL("./web.jsonl", import.meta.url), transforms }) },
       strategy: (graph) => graph.balance("greedy"),
       construct: { seqLength: 64, microbatches: 2 },
       batch: { samples: 4 },
       steps: 6,
       workers: { threads: 1 },
       exchange: "${exchange}",
     });`,
  );
  return path;
}

test("every command has a command line here", () => {
  expect(Object.keys(lines).sort()).toEqual(
    Object.keys(commands)
      .filter((name) => !elsewhere.includes(name))
      .sort(),
  );
});

/** A dashboard asks its store when a page asks it. */
function lookAt(printed: Buffer): void {
  const url = new URL(printed.toString().trim());
  const headers = { authorization: `Bearer ${url.hash.replace("#token=", "")}` };
  fetch(new URL("/api/overview", url), { headers }).catch(() => {});
}

test.concurrent.each(Object.keys(lines))("%s ends while its store hangs", async (name) => {
  const bucket = `hang-${name.replace(" ", "-")}`;
  const first = new Promise<void>((resolve) => asked.set(bucket, resolve));
  const uri = `s3://${bucket}/ns`;
  const more = lines[name] as (typeof lines)[string];
  const running = start(typeof more === "function" ? more(uri) : [name, uri, ...more], {
    AWS_ENDPOINT_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    AWS_ACCESS_KEY_ID: "a",
    AWS_SECRET_ACCESS_KEY: "b",
    AWS_REGION: "us-east-1",
  });
  if (name === "dashboard") running.child.stdout?.once("data", lookAt);
  const early = await Promise.race([first, running.ended]);
  expect(early).toBeUndefined();
  const { status, ms } = await stop(running);
  expect(status).toBe(143);
  expect(ms).toBeLessThan(endMsMax);
});

test("verify of a log that claims 2^53 steps ends on its own, quickly, and says what is wrong", async () => {
  const uri = space.uri("absurd");
  await must("create", uri, "--rows", "1");
  await must("produce", uri, "--id", "p", "--batches", "3", "--bytes", "10");
  const manifests = Object.keys(space.snapshot("absurd")).filter((file) => /\/manifest\/\d{20}\.json$/.test(file));
  const path = manifests.sort().at(-1) as string;
  const { format: _, kind: __, namespace, crc32: ___, ...fields } = JSON.parse(readFileSync(path, "utf8"));
  const at = Number.MAX_SAFE_INTEGER - (Number.MAX_SAFE_INTEGER % 64) - 64;
  writeFileSync(
    path,
    sealJson("manifest", namespace, {
      ...fields,
      tail: { ...fields.tail, start: at },
      steps: { trim: 0, end: at + fields.tail.batches.length },
    }),
  );
  const ended = await start(["verify", uri]).ended;
  expect([ended.status, ended.stdout]).toEqual([2, expect.stringContaining("cannot be found")]);
});

test("demo ends in the middle of its story, and its processes with it", async () => {
  const running = start(["demo"]);
  await new Promise((resolve) => running.child.stderr?.once("data", resolve));
  const { status, ms } = await stop(running);
  expect(status).toBe(143);
  expect(ms).toBeLessThan(endMsMax);
});
