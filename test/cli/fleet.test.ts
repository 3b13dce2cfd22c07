/**
 * Property: `fleet up` on this machine carries a pipeline to its end whichever of its processes, or itself, is killed; it starts again what fails, gives up
 * on what cannot be helped, and leaves no process behind. What it would hand to other engines is what they take.
 * Method: the built command with real processes; manifests and scripts read back.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { runLocalFleet } from "../../src/cli/fleet/local.js";
import { slurmScript } from "../../src/cli/fleet/slurm.js";
import { toYaml } from "../../src/cli/fleet/yaml.js";
import { openNamespace, systemEnv } from "../../src/index.js";

const root = join(import.meta.dirname, "../..");
const main = join(root, "dist/src/cli/main.js");
const folder = mkdtempSync(join(tmpdir(), "batchweave-fleet-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

writeFileSync(
  join(folder, "numbers.py"),
  `import os, time
from batchweave.load import Source, stream

FAST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fast")

def numbers():
    return range(200)

def tokens(n):
    # Slow at first, so that no loader ends before it is killed.
    if not os.path.exists(FAST):
        time.sleep(0.5)
    return {"tokens": [1000 + n] * (3 + n % 5)}

numbers_source = Source("numbers", stream(numbers), transforms=[tokens], lanes=2, block_samples=2)
`,
);
writeFileSync(join(folder, "web-0.jsonl"), Array.from({ length: 120 }, (_, n) => `{"text":"page ${n}"}\n`).join(""));
writeFileSync(
  join(folder, "pipeline.mjs"),
  `import { definePipeline, jsonl, python, tokenize } from ${JSON.stringify(join(root, "dist/src/plan/index.js"))};
export default definePipeline({
  namespace: { uri: process.env.FLEET_URI, grid: { rows: 2, chunks: 1 }, lanes: 2 },
  sources: {
    web: jsonl({ shards: new URL("./web-*.jsonl", import.meta.url), transforms: [tokenize({ tokenizer: { kind: "bytes" } })], epochs: 1, lanes: 2 }),
    numbers: python({ file: new URL("./numbers.py:numbers", import.meta.url), lanes: 2, weight: 2 }),
  },
  strategy: (graph) => graph.balance(),
  construct: { seqLength: 128 },
  workers: { threads: 0 },
  exchange: "log",
});
`,
);

const somePlan = {
  v: 1,
  kind: "batchweave-fleet-plan",
  sources: { numbers: { lanes: 2, own: { processes: 2, threads: 3, memoryBytes: 1e9 } } },
  loaders: { processes: 1, threads: 1, memoryBytes: 1e9 },
  constructors: { processes: 1, threads: 1, memoryBytes: 1e9 },
};

const uri = `file://${folder}/log`;
const env = { ...process.env, FLEET_URI: uri, PYTHONPATH: join(root, "python") };

function up(...options: string[]): ChildProcess & { readonly lines: string[] } {
  const child = spawn(process.execPath, [main, "fleet", "up", join(folder, "pipeline.mjs"), ...options], { env });
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk: Buffer) => lines.push(String(chunk)));
  return Object.assign(child, { lines });
}

/** Processes whose command line has this text, but for the one that asks. */
function processesWith(text: string): number[] {
  const { stdout } = spawnSync("ps", ["-eo", "pid=,args="], { encoding: "utf8" });
  return stdout
    .split("\n")
    .filter((line) => line.includes(text) && !line.includes("fleet up"))
    .map((line) => Number(line.trim().split(" ")[0]));
}

test("a fleet goes on when its processes and its driver are killed, and every sample is in the log once", async () => {
  const first = up("--construct", "2");
  const sources = await openNamespace(`${uri}.sources/numbers`, { waitMs: 60_000 });
  while ((await sources.info()).steps.end < 3) await systemEnv.sleep(50);
  for (const pid of processesWith(`${folder}/numbers.py`)) process.kill(pid, "SIGKILL");
  while (!first.lines.join("").includes("starts again")) await systemEnv.sleep(50);
  first.kill("SIGKILL");
  await once(first, "exit");
  writeFileSync(join(folder, "fast"), "");
  // Its processes go on without it; a second fleet joins them.
  const second = up("--construct", "2");
  const [status] = (await once(second, "exit")) as [number];
  expect(status, second.lines.join("")).toBe(0);
  const ns = await openNamespace(uri);
  const { closed, steps } = await ns.info();
  expect(closed).toBe(true);
  const ids: string[] = [];
  for (let step = 0; step < steps.end; step++)
    for (const { source, id } of (await ns.samples(step)) ?? []) ids.push(`${source} ${id}`);
  expect(new Set(ids).size).toBe(320);
  expect(ids.length).toBe(320);
});

test("a fleet that is told to stop ends its processes", async () => {
  const place = `file://${folder}/stopped`;
  const child = spawn(process.execPath, [main, "fleet", "up", join(folder, "pipeline.mjs"), "--load", "2"], {
    env: { ...env, FLEET_URI: place },
    stdio: "ignore",
  });
  await openNamespace(`${place}.sources/numbers`, { waitMs: 60_000 });
  child.kill("SIGTERM");
  const [status] = (await once(child, "exit")) as [number];
  expect(status).toBe(143);
  for (let i = 0; i < 50 && processesWith(`${place}.sources`).length > 0; i++) await systemEnv.sleep(100);
  expect(processesWith(`${place}.sources`)).toEqual([]);
});

test("a process whose input is at fault ends the fleet, one that fails otherwise is started again", async () => {
  const role = (name: string, script: string) => ({
    name,
    processes: 1,
    command: [process.execPath, "-e", script],
    cores: 1,
    memoryBytes: 1,
  });
  const { signal } = new AbortController();
  const mark = join(folder, "mark");
  const once = `const fs = require("fs"); if (fs.existsSync("${mark}")) process.exit(0); fs.writeFileSync("${mark}", ""); process.exit(1)`;
  expect(await runLocalFleet({ name: "x", roles: [role("one", once)] }, systemEnv, signal)).toEqual({
    status: 0,
    restarts: 1,
    ended: { one: 1 },
  });
  const roles = [role("bad", "process.exit(2)"), role("endless", "setInterval(() => {}, 1000)")];
  expect((await runLocalFleet({ name: "x", roles }, systemEnv, signal)).status).toBe(2);
  const missing = { ...role("none", ""), command: ["no-such-program"] };
  expect((await runLocalFleet({ name: "x", roles: [missing] }, systemEnv, signal)).status).toBe(2);
  // A Python that sees no packages, ours among them.
  const bare = { ...role("load-x", ""), command: ["python3", "-I", "-S", "-m", "batchweave", "load", "x.py"] };
  const lines: string[] = [];
  const events = { onLine: (_: string, line: string): unknown => lines.push(line) };
  const ended = await runLocalFleet({ name: "x", roles: [bare] }, systemEnv, signal, events);
  expect(ended).toMatchObject({ status: 2, restarts: 0 });
  expect(lines.at(-1)).toMatch(
    /^error\[MISSING_PACKAGE\]: python3 has no package batchweave.* -m pip install batchweave/,
  );
  const script = spawnSync("bash", ["-c", slurmScript("x", bare, {})], { encoding: "utf8" });
  expect(script.status).toBe(2);
  expect(script.stderr).toMatch(/error\[MISSING_PACKAGE\]: python3 -I -S has no package batchweave/);
});

test("a fleet follows how many processes there should be, and starts none for a role that is done", async () => {
  const role = (name: string, script: string) => ({
    name,
    processes: 1,
    command: [process.execPath, "-e", script],
    cores: 1,
    memoryBytes: 1,
  });
  const stop = new AbortController();
  const [started, seen] = [new Set<string>(), [] as number[]];
  const script = `console.log("up"); process.on("SIGTERM", () => process.exit(0)); setInterval(() => {}, 1000); // ${folder}/scaled`;
  const count = async (wanted: number): Promise<void> => {
    while (processesWith(`${folder}/scaled`).length !== wanted) await systemEnv.sleep(50);
    seen.push(wanted);
  };
  async function* targets() {
    await count(1);
    for (const wanted of [3, 1, 2]) {
      yield { endless: wanted, short: 4 };
      await count(wanted);
    }
    stop.abort();
  }
  const roles = [role("endless", script), role("short", "console.log(1)")];
  const onLine = (name: string): void => void started.add(name);
  await runLocalFleet({ name: "x", roles }, systemEnv, stop.signal, { onLine }, targets());
  expect(seen).toEqual([1, 3, 1, 2]);
  expect([...started].filter((name) => name.startsWith("short")).length).toBeLessThanOrEqual(4);
  expect(processesWith(`${folder}/scaled`)).toEqual([]);
});

function batchweave(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, [main, ...args], { env, encoding: "utf8" });
}

test("manifests say what each role runs, with the pipeline's files, and no process as root", () => {
  const on = ["fleet", "render", join(folder, "pipeline.mjs"), "--on", "kubernetes"];
  expect(batchweave(...on).stderr).toMatch(/error\[INVALID_ARGUMENT\]: --image NAME is missing/);
  const { stdout, status } = batchweave(...on, "--image", "batchweave:1", "--load", "8", "--json");
  expect(status).toBe(0);
  const manifests = JSON.parse(stdout) as {
    kind: string;
    metadata: { name: string };
    data: object;
    spec: {
      parallelism: number;
      template: { spec: { securityContext: object; containers: { command: string[]; livenessProbe: object }[] } };
    };
  }[];
  expect(manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`)).toEqual([
    "ServiceAccount batchweave-pipeline",
    "ConfigMap batchweave-pipeline",
    "Job batchweave-pipeline-load",
    "Job batchweave-pipeline-load-numbers",
    "Job batchweave-pipeline-construct",
  ]);
  expect(Object.keys(manifests[1]?.data ?? {})).toEqual(["pipeline.mjs", "numbers.py"]);
  expect(manifests[2]?.spec.parallelism).toBe(8);
  expect(manifests[2]?.spec.template.spec.securityContext).toMatchObject({ runAsNonRoot: true });
  expect(manifests[3]?.spec.template.spec.containers[0]?.command).toContain("/pipeline/numbers.py:numbers");
  for (const { spec } of manifests.slice(2)) {
    const [container] = spec.template.spec.containers;
    expect(container?.command.slice(-2)).toEqual(["--metrics", "9464"]);
    expect(JSON.stringify(container?.livenessProbe)).toContain("http://127.0.0.1:9464/metrics");
  }
  const plan = join(folder, "plan.json");
  writeFileSync(plan, JSON.stringify(somePlan));
  expect(batchweave(...on, "--image", "x", "--autoscale").stderr).toMatch(/--autoscale needs --plan FILE/);
  const scaled = batchweave(...on, "--image", "x", "--autoscale", "--plan", plan, "--json");
  const found = JSON.parse(scaled.stdout) as typeof manifests;
  expect(
    found.map(({ kind, metadata }) => `${kind} ${metadata.name}`).filter((name) => name.endsWith("-scale")),
  ).toEqual([
    "ServiceAccount batchweave-pipeline-scale",
    "Role batchweave-pipeline-scale",
    "RoleBinding batchweave-pipeline-scale",
    "Job batchweave-pipeline-scale",
  ]);
  expect(found.at(-1)?.spec.template.spec.containers[0]?.command.join(" ")).toBe(
    "batchweave fleet scale /pipeline/pipeline.mjs --on kubernetes --plan /pipeline/plan.json",
  );
});

test("a script for Slurm starts a process again, and not one whose input is at fault", () => {
  const { stdout } = batchweave(
    "fleet",
    "render",
    join(folder, "pipeline.mjs"),
    "--on",
    "slurm",
    "--load",
    "3",
    "--json",
  );
  const [{ text } = { text: "" }] = JSON.parse(stdout) as { text: string }[];
  expect(text).toContain("#SBATCH --array=0-2");
  const tries = join(folder, "tries");
  const fake = `bash -c 'echo x >> ${tries}; exit $([ $(wc -l < ${tries}) -lt 2 ] && echo 1 || echo 2)'`;
  const run = text.replace(/^ {2}\S+.* &$/m, `  ${fake} &`);
  expect(spawnSync("bash", ["-c", run]).status).toBe(2);
  expect(execFileSync("wc", ["-l", tries], { encoding: "utf8" })).toMatch(/^2 /);
});

test("an engine that is not there is one sentence and a code", () => {
  const path = process.env["PATH"];
  const options = { env: { ...env, PATH: folder }, encoding: "utf8" } as const;
  const on = [main, "fleet", "up", join(folder, "pipeline.mjs"), "--image", "x", "--on"];
  // Whether its client library is installed or not; no server listens on that port.
  const cluster = { name: "none", cluster: { server: "http://127.0.0.1:1" } };
  const context = { name: "none", context: { cluster: "none", user: "none" } };
  const config = { clusters: [cluster], contexts: [context], users: [{ name: "none" }], "current-context": "none" };
  writeFileSync(join(folder, "kubeconfig"), JSON.stringify(config));
  const away = { ...options, env: { ...options.env, KUBECONFIG: join(folder, "kubeconfig") } };
  expect(spawnSync(process.execPath, [...on, "kubernetes"], away).stderr).toMatch(
    /^error\[(MISSING_PACKAGE\]: A fleet on Kubernetes needs the package @kubernetes|ENGINE_FAILED\]: The Kubernetes API server at http:\S+ does not answer: )/,
  );
  expect(spawnSync(process.execPath, [...on, "slurm"], options).stderr).toMatch(
    /^error\[MISSING_PACKAGE\]: There is no program squeue here\./,
  );
  writeFileSync(
    join(folder, "squeue"),
    `#!${"/bin/sh"}\necho "squeue: error: Unable to contact slurm controller" >&2\nexit 1\n`,
    {
      mode: 0o755,
    },
  );
  expect(
    spawnSync(process.execPath, [...on, "slurm"], { ...options, env: { ...env, PATH: `${folder}:${path}` } }).stderr,
  ).toMatch(/^error\[ENGINE_FAILED\]: squeue --me failed: squeue: error: Unable to contact slurm controller\./);
  // A Ray that cannot be imported is one that is not installed.
  mkdirSync(join(folder, "without"));
  writeFileSync(join(folder, "without", "ray.py"), "raise ImportError(\"No module named 'ray'\")\n");
  const without = { ...env, PYTHONPATH: `${join(folder, "without")}:${env.PYTHONPATH}` };
  const ray = spawnSync(process.execPath, [...on, "ray"], { ...options, env: without });
  expect(ray.stderr).toContain("[ray-0] error[MISSING_PACKAGE]: batchweave.ray needs Ray (No module named 'ray')");
  expect(ray.status).toBe(2);
  const nowhere = { ...without, BATCHWEAVE_PYTHON: "no-such-python" };
  expect(spawnSync(process.execPath, [...on, "ray"], { ...options, env: nowhere }).stderr).toContain(
    "[ray-0] error[MISSING_PACKAGE]: There is no program no-such-python here.",
  );
  expect(batchweave("fleet", "up", join(folder, "pipeline.mjs"), "--on", "mesos").stderr).toMatch(
    /^error\[INVALID_ARGUMENT\]: --on must be/,
  );
});

test("YAML that is read back is what was written", () => {
  const value = {
    text: "yes",
    number: 3,
    word: "a-b/c.d",
    empty: {},
    none: [],
    script: "line one\n  line two\n\nlast\n",
    list: [{ a: 1, b: ["x", "-m", ""] }, "1.5"],
    nested: { deep: [{ name: "n", values: [1, 2] }] },
  };
  const read = spawnSync(
    "python3",
    ["-c", "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"],
    {
      input: toYaml([value, { kind: "second" }]),
      encoding: "utf8",
    },
  );
  if (/No module named/.test(read.stderr)) {
    // Without a parser at hand: text that could be taken for something else is quoted.
    expect(toYaml([value])).toContain('text: "yes"');
    return;
  }
  expect(JSON.parse(read.stdout)).toEqual([value, { kind: "second" }]);
});
