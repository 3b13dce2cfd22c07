/**
 * Property: what docs/operate gives to operators works. The alert rules are rules, fire when they should in Prometheus' own unit tests, and one of them
 * fires for a real rank that waits, scraped by a real Prometheus; rules and board name only metrics that the code has; the board is one by Grafana's published types; every
 * alert has its section; the commands of the backup page copy a log that is being written.
 * Method: promtool and Prometheus of Debian, Grafana's schema of npm (each skipped, with the reason, where it cannot be had), the built command, and the texts themselves.
 */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../harness/server-process.js";
import { grafanaSchema, obtain, prometheus } from "../../harness/tools.js";
import { buildIfStale, must, start, Workspace } from "../cli/command-line.js";
import { listFiles, readText, root } from "../source-tree.js";

const folder = join(root, "docs/operate");
const rules = readText("docs/operate/batchweave.rules.yml");
const space = new Workspace();
let tool: { readonly path: string } | { readonly skipped: string };
beforeAll(async () => {
  buildIfStale();
  tool = spawnSync("promtool", ["--version"]).status === 0 ? { path: "promtool" } : await obtain(prometheus);
}, 300_000);
afterAll(() => space.remove());

test("the rules pass Prometheus' own checks and unit tests", (context) => {
  if ("skipped" in tool) context.skip(`no promtool: ${tool.skipped}`);
  const { path } = tool as { path: string };
  expect(execFileSync(path, ["check", "rules", "batchweave.rules.yml"], { cwd: folder }).toString()).toMatch(
    /SUCCESS: \d+ rules/,
  );
  expect(execFileSync(path, ["test", "rules", "batchweave.rules-test.yml"], { cwd: folder }).toString()).toMatch(
    /SUCCESS/,
  );
});

test("a real Prometheus scrapes a rank that waits, and the alert fires", async (context) => {
  if ("skipped" in tool) context.skip(`no Prometheus: ${(tool as { skipped: string }).skipped}`);
  const program = (tool as { path: string }).path.replace(/promtool$/, "prometheus");
  const uri = space.uri("starved");
  await must("create", uri, "--rows", "1");
  const [scraped, port] = [await freePort(), await freePort()];
  const { child } = start(["consume", uri, "--dp", "1", "--rank", "0", "--metrics", `127.0.0.1:${scraped}`]);
  const data = mkdtempSync(join(tmpdir(), "batchweave-prometheus-"));
  // A minute is long for a test.
  writeFileSync(
    join(data, "rules.yml"),
    rules.replace("(batchweave_data_waiting_seconds) > 60", "(batchweave_data_waiting_seconds) > 2"),
  );
  writeFileSync(
    join(data, "prometheus.yml"),
    `global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [rules.yml]\nscrape_configs: [{ job_name: b, static_configs: [{ targets: ["127.0.0.1:${scraped}"] }] }]\n`,
  );
  const server = spawn(
    program,
    [
      `--config.file=${data}/prometheus.yml`,
      `--storage.tsdb.path=${data}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: "ignore" },
  );
  try {
    const firing = async (): Promise<string[]> => {
      const answer = await fetch(`http://127.0.0.1:${port}/api/v1/alerts`).catch(() => undefined);
      if (!answer?.ok) return [];
      const { data: found } = (await answer.json()) as {
        data: { alerts: { state: string; labels: Record<string, string> }[] };
      };
      return found.alerts.filter(({ state }) => state === "firing").map(({ labels }) => labels["alertname"] as string);
    };
    await expect.poll(firing, { interval: 500 }).toContain("BatchWeaveRankStarved");
  } finally {
    server.kill("SIGKILL");
    child.kill("SIGKILL");
    await new Promise((resolve) => server.once("close", resolve));
    rmSync(data, { recursive: true, force: true });
  }
});

const known = new Set(
  listFiles("src", [".ts"])
    .flatMap((path) =>
      [...readText(path).matchAll(/"(batchweave_[a-z_]+)"|`batchweave_source_\$\{name\}`/g)].map(([, name]) => name),
    )
    .filter((name) => name !== undefined),
);
for (const [, name] of readText("src/plan/load/source-metrics.ts").matchAll(
  /watch\(\s*"(?:counter|gauge)",\s*"([a-z_]+)"/g,
))
  known.add(`batchweave_source_${name}`);

const namesIn = (text: string): string[] => [
  ...new Set([...text.matchAll(/batchweave_[a-z_]+/g)].map(([name]) => name)),
];
const unknownIn = (text: string): string[] =>
  namesIn(text).filter((name) => !known.has(name.replace(/_(bucket|count|sum)$/, "")) && !known.has(name));

test("rules, board and guide name only metrics that the code has, and every alert has a section", () => {
  expect(known.size).toBeGreaterThan(40);
  expect(unknownIn(rules)).toEqual([]);
  expect(unknownIn(readText("docs/operate/grafana-board.json"))).toEqual([]);
  expect(unknownIn(readText("docs/operate/alerts.md"))).toEqual([]);
  expect(unknownIn("batchweave_no_such_total")).toHaveLength(1);
  const sections = [...readText("docs/operate/alerts.md").matchAll(/^## (\w+)/gm)].map(([, name]) => name);
  expect(sections).toEqual([...rules.matchAll(/alert: (\w+)/g)].map(([, name]) => name));
});

test("the board has the shape that Grafana imports: panels with ids of their own, places that do not overlap, queries with a data source", () => {
  const board = JSON.parse(readText("docs/operate/grafana-board.json")) as {
    readonly schemaVersion: number;
    readonly uid: string;
    readonly title: string;
    readonly templating: { readonly list: readonly { readonly name: string }[] };
    readonly panels: readonly {
      readonly id: number;
      readonly type: string;
      readonly title: string;
      readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
      readonly targets: readonly {
        readonly refId: string;
        readonly expr: string;
        readonly datasource: { readonly uid: string };
      }[];
    }[];
  };
  expect(board.schemaVersion).toBeGreaterThanOrEqual(36);
  expect(board.templating.list.map(({ name }) => name)).toEqual(["datasource", "namespace"]);
  expect(new Set(board.panels.map(({ id }) => id)).size).toBe(board.panels.length);
  const cells = board.panels.flatMap(({ gridPos: { x, y, w, h } }) => {
    expect(x + w).toBeLessThanOrEqual(24);
    return Array.from({ length: w * h }, (_, i) => `${x + (i % w)},${y + Math.floor(i / w)}`);
  });
  expect(new Set(cells).size).toBe(cells.length);
  for (const { targets, title } of board.panels) {
    expect(targets.length, title).toBeGreaterThan(0);
    expect(new Set(targets.map(({ refId }) => refId)).size).toBe(targets.length);
    for (const { expr, datasource } of targets) {
      expect(expr).toMatch(/batchweave_/);
      expect(datasource.uid).toMatch(/^\$\{datasource\}$/);
    }
  }
});

test("the board is one by Grafana's own types, and a wrong field would not be", async (context) => {
  const found = await obtain(grafanaSchema);
  if ("skipped" in found) context.skip(`no types of Grafana: ${found.skipped}`);
  const types = dirname((found as { path: string }).path);
  const board = readText("docs/operate/grafana-board.json");
  const written = (name: string, text: string): string => {
    const path = space.path(name);
    const from = JSON.stringify(`${types}/dist/types/index.js`);
    writeFileSync(path, `import type { Dashboard } from ${from};\nexport const board: Dashboard = ${text};\n`);
    return path;
  };
  const files = [written("board.mts", board), written("wrong.mts", board.replace('"gridPos"', '"gridPlace"'))];
  const options = "--ignoreConfig --noEmit --strict --skipLibCheck --module nodenext --target es2022".split(" ");
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const { stdout } = spawnSync(process.execPath, [tsc, ...options, ...files], { encoding: "utf8" });
  expect(stdout).toMatch(/wrong\.mts.*gridPlace/);
  expect(stdout).not.toMatch(/board\.mts/);
}, 300_000);

test("the commands of the backup page copy a log that is being written, and the copy is whole", async () => {
  const [block] =
    readText("docs/operate/backup.md")
      .match(/```sh\n([\s\S]*?)```/)
      ?.slice(1) ?? [];
  const uri = space.uri("original");
  await must("create", uri, "--rows", "1");
  await must("produce", uri, "--id", "q", "--batches", "80", "--bytes", "100", "--durability", "process-crash");
  const { child } = start([
    "produce",
    uri,
    "--id",
    "p",
    "--rate",
    "20",
    "--bytes",
    "100",
    "--durability",
    "process-crash",
  ]);
  const end = async (of: string): Promise<number> => {
    const { lines } = await must("info", space.uri(of), "--json");
    return (lines[0] as { steps: { end: number } }).steps.end;
  };
  try {
    while ((await end("original")) <= 80);
    const bin = mkdtempSync(join(tmpdir(), "batchweave-bin-"));
    writeFileSync(
      join(bin, "batchweave"),
      `#!/bin/sh\nexec "${process.execPath}" "${join(root, "dist/src/cli/main.js")}" "$@"\n`,
      { mode: 0o755 },
    );
    const env = {
      ...process.env,
      PATH: `${bin}:${process.env["PATH"]}`,
      from: space.path("original"),
      to: space.path("copy"),
    };
    const { status, stdout, stderr } = spawnSync("sh", ["-ec", block as string], { env, encoding: "utf8" });
    rmSync(bin, { recursive: true });
    expect(`${status} ${stderr}`).toMatch(/^0 /);
    expect(stdout).toMatch(/whole|no problem|ok/i);
  } finally {
    child.kill("SIGKILL");
  }
  expect(await end("copy")).toBeGreaterThan(80);
});

test("the folder that the guide links is there", () => {
  for (const path of listFiles("docs/operate", [".md"])) {
    const dead = [...readText(path).matchAll(/\]\(([^)#]+)(#[^)]*)?\)/g)]
      .map(([, target]) => target as string)
      .filter((target) => !/^https?:/.test(target))
      .filter((target) => spawnSync("test", ["-e", join(root, dirname(path), target)]).status !== 0);
    expect(dead, path).toEqual([]);
  }
});
