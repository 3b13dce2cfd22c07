// Python and TypeScript producers on one namespace, killed with SIGKILL again and again; then every batch must be in the log exactly once, in
// the order of its producer, `batchweave verify` must find nothing, and both languages must read the same bytes.
//
//   npm run chaos -- --python [--rounds 100] [--seed 1]        builds first; what follows has all the options
//   node scripts/chaos-python.mjs [--rounds 100] [--python 2] [--typescript 2] [--uri file:///some/folder] [--seed 1]
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const root = fileURLToPath(new URL("..", import.meta.url));
const cli = join(root, "dist/src/cli/main.js");
const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "100" },
    python: { type: "string", default: "2" },
    typescript: { type: "string", default: "2" },
    uri: { type: "string" },
    seed: { type: "string", default: "1" },
  },
});
const rounds = Number(values.rounds);
const folder = values.uri === undefined ? mkdtempSync(join(tmpdir(), "batchweave-chaos-python-")) : undefined;
const uri = values.uri ?? pathToFileURL(join(folder ?? "", "ns")).href;
const env = { ...process.env, PYTHONPATH: join(root, "python"), PYTHONDONTWRITEBYTECODE: "1" };
const sliceBytes = 2_000;

let state = Number(values.seed) || 1;
/** xorshift32: which process dies when follows from the seed; what the machine makes of it does not. */
function random() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 2 ** 32;
}

/** @param {string[]} args */
function batchweave(...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [cli, ...args], {
    encoding: "utf8",
    env,
    maxBuffer: 1 << 30,
  });
  if (status !== 0) throw new Error(`batchweave ${args.join(" ")} ended with ${status}: ${stderr}`);
  return stdout;
}

const names = [
  ...Array.from({ length: Number(values.python) }, (_, i) => `py-${i}`),
  ...Array.from({ length: Number(values.typescript) }, (_, i) => `ts-${i}`),
];

/**
 * @param {string} id
 * @param {number} batches
 * @param {number} rate
 */
function start(id, batches, rate) {
  const python = [join(root, "python/tests/produce_worker.py"), uri, id, `${batches}`, `${sliceBytes}`, `${rate}`];
  const typescript = [
    cli,
    "produce",
    uri,
    "--id",
    id,
    "--batches",
    `${batches}`,
    "--bytes",
    `${sliceBytes}`,
    "--rate",
    `${rate}`,
  ];
  const child = id.startsWith("py-")
    ? spawn("python3", python, { env, stdio: ["ignore", "ignore", "pipe"] })
    : spawn(process.execPath, typescript, { env, stdio: ["ignore", "ignore", "pipe"] });
  let stderr = "";
  child.stderr.on("data", (text) => {
    stderr += text;
  });
  const ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve({ code, signal, stderr })));
  return { id, child, ended };
}

const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Kills at random, replaces whoever died; gives how often each language was killed. */
async function kill() {
  const endless = 1_000_000;
  const running = new Map(names.map((id) => [id, start(id, endless, 40)]));
  const killed = { py: 0, ts: 0 };
  await sleep(1_500);
  for (let round = 1; round <= rounds; round++) {
    await sleep(50 + 400 * random());
    const id = /** @type {string} */ (names[Math.floor(random() * names.length)]);
    const victim = /** @type {ReturnType<typeof start>} */ (running.get(id));
    if (victim.child.exitCode !== null) throw new Error(`${id} ended by itself: ${(await victim.ended).stderr}`);
    // Half of the time the successor is there before the victim dies: then fencing decides.
    const isOverlapping = random() < 0.5;
    if (isOverlapping) running.set(id, start(id, endless, 40));
    if (isOverlapping) await sleep(300 * random());
    victim.child.kill("SIGKILL");
    await victim.ended;
    if (!isOverlapping) running.set(id, start(id, endless, 40));
    killed[id.startsWith("py-") ? "py" : "ts"]++;
    if (round % 10 === 0) process.stderr.write(`round ${round}: ${JSON.stringify(killed)}\n`);
  }
  for (const { child, ended } of running.values()) {
    child.kill("SIGKILL");
    await ended;
  }
  return killed;
}

/** Lets every producer finish a little more, and closes. */
async function finish() {
  const info = JSON.parse(batchweave("info", uri, "--json"));
  const goals = new Map(
    names.map((id) => [id, (info.producers.find((/** @type {{ id: string }} */ p) => p.id === id)?.seq ?? 0) + 5]),
  );
  const last = names.map((id) => start(id, /** @type {number} */ (goals.get(id)), 1_000));
  for (const { id, ended } of last) {
    const { code, stderr } = await ended;
    if (code !== 0) throw new Error(`${id} could not finish: ${stderr}`);
  }
  batchweave("close", uri);
  return goals;
}

/** Reads the whole log: each producer's batches 0, 1, 2... once and in order. Gives problems. */
function check(/** @type {Map<string, number>} */ goals) {
  const script = `
import json, sys
from batchweave import open_namespace
for share in open_namespace(sys.argv[1]).consumer({"dp": 1}, 0, policy="global-batch"):
    print(json.dumps([json.loads(bytes(s.bytes).split(b"\\n")[0]) for s in share.slices]))`;
  const { stdout, stderr, status } = spawnSync("python3", ["-c", script, uri], {
    encoding: "utf8",
    env,
    maxBuffer: 1 << 30,
  });
  if (status !== 0) throw new Error(stderr);
  const next = new Map(names.map((id) => [id, 0]));
  const problems = [];
  const lines = stdout.trimEnd().split("\n");
  for (const [step, line] of lines.entries()) {
    const cells = JSON.parse(line);
    const { producer, batch } = cells[0];
    if (
      cells.some((/** @type {{ producer: string, batch: number }} */ c) => c.producer !== producer || c.batch !== batch)
    )
      problems.push(`step ${step} mixes batches`);
    const expected = next.get(producer);
    if (batch !== expected) problems.push(`step ${step} is batch ${batch} of ${producer}, expected ${expected}`);
    next.set(producer, batch + 1);
  }
  // More is right: a carrier may take in what a killed process had uploaded, until its successor opens. Each is checked above.
  for (const [id, goal] of goals)
    if ((next.get(id) ?? 0) < goal)
      problems.push(`${id} has ${next.get(id)} batches in the log, and ${goal} were acknowledged`);
  const consume = ["consume", uri, "--dp", "3", "--rank", "1", "--json"];
  const python = spawnSync("python3", ["-m", "batchweave", ...consume], { encoding: "utf8", env, maxBuffer: 1 << 30 });
  if (batchweave(...consume) !== python.stdout) problems.push("the two languages read different bytes");
  return { steps: lines.length, problems };
}

try {
  batchweave("create", uri, "--rows", "2", "--chunks", "2");
  const killed = await kill();
  const { steps, problems } = check(await finish());
  const verified = spawnSync(process.execPath, [cli, "verify", uri], { encoding: "utf8", env });
  if (verified.status !== 0) problems.push(`verify: ${verified.stdout}${verified.stderr}`);
  for (const problem of problems.slice(0, 20)) console.error(problem);
  console.log(
    `${rounds} rounds of kill -9: ${killed.py} Python and ${killed.ts} TypeScript producers killed, ${steps} batches in the log, ${problems.length} lost, repeated or wrong; verify ${verified.status === 0 ? "clean" : "failed"}`,
  );
  process.exitCode = problems.length === 0 ? 0 : 1;
} finally {
  if (folder) rmSync(folder, { recursive: true, force: true });
}
