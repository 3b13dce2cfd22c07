/**
 * `npm run chaos -- --recreate --rounds 20`: a namespace is deleted and made again under running producers, ranks and reclaimers of both
 * languages, round after round, on a folder. They stop themselves (SIGSTOP) right before a commit or in the middle of deletes, or are stopped at
 * any moment, and wake up in the next life. Then: whatever was acknowledged is in the last version of its life; every life is clean for
 * `verify` before it goes and while its predecessor's zombies wake up; every slice names the life it is read from; every process ends with DELETED.
 */
import { type ChildProcess, fork, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { asVersion, decodeManifest, manifestKey, parseManifestKey } from "../src/format/index.js";
import { createNamespace, deleteNamespace, isBatchWeaveError, makeCursor, openStore, systemEnv } from "../src/index.js";
import { commitDeletion } from "../src/lifecycle/index.js";
import { Log, lifeStore } from "../src/log/index.js";

/** What came of it. */
export interface RecreateReport {
  readonly rounds: number;
  readonly seed: number;
  readonly lives: number;
  readonly acknowledged: number;
  /** Processes that were stopped across a deletion, by themselves or from outside. */
  readonly stops: number;
  /** Processes that ended with DELETED. */
  readonly evicted: number;
  readonly deletersKilled: number;
  readonly problems: readonly string[];
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const worker = fileURLToPath(new URL("./chaos-recreate-worker.js", import.meta.url));
const pythonWorker = join(root, "python/tests/recreate_worker.py");
const patienceMs = 60_000;
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const cast: readonly (readonly [name: string, kind: string])[] = [
  ["ts-0", "producer"],
  ["ts-1", "producer"],
  ["py-0", "producer"],
  ["py-1", "producer"],
  ["ts-rank", "rank"],
  ["py-rank", "rank"],
  ["ts-reclaimer-a", "reclaimer"],
  ["ts-reclaimer-b", "reclaimer"],
];

class Crew {
  readonly #uri: string;
  readonly #folder: string;
  readonly #children = new Map<string, ChildProcess>();
  #isOver = false;
  readonly problems: string[] = [];
  /** Who stands still now. */
  readonly stopped = new Set<string>();
  stops = 0;
  evicted = 0;

  constructor(uri: string, folder: string) {
    this.#uri = uri;
    this.#folder = folder;
  }

  start(): void {
    for (const [name, kind] of cast) this.#children.set(name, this.launch(name, kind));
  }

  launch(name: string, kind: string): ChildProcess {
    const args = [kind, this.#uri, this.#folder, name];
    const env = { ...process.env, PYTHONPATH: join(root, "python"), PYTHONDONTWRITEBYTECODE: "1" };
    const child = name.startsWith("py-")
      ? spawn("python3", [pythonWorker, ...args], { env, stdio: ["ignore", "pipe", "pipe"] })
      : fork(worker, args, { stdio: ["ignore", "ignore", "pipe", "ipc"] });
    let stderr = "";
    child.stderr?.on("data", (text) => {
      stderr = `${stderr}${text}`.slice(-2_000);
    });
    child.stdout?.on("data", () => this.evicted++);
    child.on("message", (what) => (what === "evicted" ? this.evicted++ : this.stopped.add(name)));
    child.on("exit", (status) => {
      // Whoever is in the crew never ends by itself.
      if (!this.#isOver && status !== null && (status !== 0 || this.#children.has(name)))
        this.problems.push(`${name} ended with ${status}: ${stderr.trim()}`);
      this.#children.delete(name);
    });
    return child;
  }

  /** Stops somebody, wherever it is. */
  stopOne(random: () => number): void {
    const [name, child] = [...this.#children][Math.floor(random() * this.#children.size)] ?? [];
    if (name !== undefined && child?.kill("SIGSTOP")) this.stopped.add(name);
  }

  wake(): void {
    this.stops += this.stopped.size;
    this.stopped.clear();
    for (const child of this.#children.values()) child.kill("SIGCONT");
  }

  async end(): Promise<void> {
    this.#isOver = true;
    const ended = [...this.#children.values()].map((child) => new Promise((resolve) => child.once("exit", resolve)));
    for (const child of this.#children.values()) child.kill("SIGKILL");
    await Promise.all(ended);
  }
}

/** Batches that were told to their producers, by life and producer: the highest counter. Counters have no gaps. */
function acknowledgements(folder: string): Map<string, number> {
  const highest = new Map<string, number>();
  for (const file of readdirSync(folder)) {
    if (!file.endsWith(".acknowledged")) continue;
    for (const line of readFileSync(join(folder, file), "utf8").split("\n").slice(0, -1)) {
      const [uuid, name, counter] = line.split(" ") as [string, string, string];
      const key = `${uuid} ${name}`;
      highest.set(key, Math.max(highest.get(key) ?? -1, Number(counter)));
    }
  }
  return highest;
}

/** Runs the rounds in `folder`, which exists. */
export async function recreate(
  folder: string,
  rounds: number,
  seed: number,
  random: () => number,
): Promise<RecreateReport> {
  const place = join(folder, "namespace");
  const uri = pathToFileURL(place).href;
  const settings = { storeSettings: { durability: "process-crash" } } as const;
  const store = await openStore(uri, settings.storeSettings, systemEnv);
  const crew = new Crew(uri, folder);
  const problems = crew.problems;
  /** By life and producer: the next seq in the very last version. */
  const last = new Map<string, number>();
  const lives = new Set<string>();
  let deletersKilled = 0;

  const begin = async (): Promise<Awaited<ReturnType<typeof createNamespace>>> => {
    const ns = await createNamespace(uri, { grid: { rows: 2, chunks: 1 } }, settings);
    if (lives.has(ns.uuid)) problems.push(`${ns.uuid} lives a second time`);
    lives.add(ns.uuid);
    // Reclaimers and ranks of the life before are at work here already: what keeps row 0 until all ranks have their own checkpoint is the judge's.
    const first = makeCursor(ns.uuid, 0, 0);
    await ns.checkpoint("start", first, { group: "judge" });
    for (const [name, kind] of cast) if (kind === "rank") await ns.checkpoint("start", first, { group: name });
    await ns.releaseCheckpoint("start", { group: "judge" });
    return ns;
  };
  const check = async (ns: Awaited<ReturnType<typeof createNamespace>>, when: string): Promise<void> => {
    const before = acknowledgements(folder);
    const { producers } = await ns.info();
    for (const [key, counter] of before) {
      const [uuid, name] = key.split(" ") as [string, string];
      const seq = producers.find(({ id }) => id === name)?.seq ?? 0;
      if (uuid === ns.uuid && seq <= counter)
        problems.push(`${when}: ${name} was told of batch ${counter} of ${uuid}, which has ${seq}`);
    }
    const { problems: found } = await ns.verify();
    for (const { severity, message } of found) problems.push(`${when}: verify ${severity}: ${message}`);
  };
  /** Waits until each producer that does not stand still was told of a batch in this life. */
  const everybodyTold = async (uuid: string, when: string): Promise<void> => {
    const writers = cast.filter(([, kind]) => kind === "producer").map(([name]) => name);
    for (let waitedMs = 0; problems.length === 0; waitedMs += 50) {
      const told = acknowledgements(folder);
      const missing = writers.filter((name) => !told.has(`${uuid} ${name}`) && !crew.stopped.has(name));
      if (missing.length === 0) return;
      if (waitedMs > patienceMs) problems.push(`${when}: nothing of ${missing.join(", ")} came into ${uuid}`);
      await sleep(50);
    }
  };
  /** Commits the last version, notes what it holds, and lets the deletion go on from there. */
  const finish = async (ns: Awaited<ReturnType<typeof createNamespace>>): Promise<void> => {
    const spec = { format: 2, uuid: ns.uuid, grid: ns.grid, order: ns.order, created: 0, rest: {} } as const;
    await commitDeletion(new Log({ store, env: systemEnv, spec, openOrigin: () => Promise.resolve(store) }), false);
    const life = lifeStore(store, spec);
    const keys = (await life.list("manifest/", {})).objects.map(({ key }) => parseManifestKey(key) ?? asVersion(0));
    // Nobody can add another one, so the newest is the last; more than a page of them are not there with reclaimers about.
    const version = asVersion(Math.max(...keys));
    const bytes = (await life.get(manifestKey(version))) as Uint8Array;
    const manifest = decodeManifest(bytes, manifestKey(version), ns.uuid, version);
    if (!manifest.deleted) problems.push(`version ${version} of ${ns.uuid} is the newest, and no deletion`);
    for (const [id, { seq }] of manifest.producers) last.set(`${ns.uuid} ${id}`, seq);
  };

  let ns = await begin();
  crew.start();
  try {
    for (let round = 0; round < rounds && problems.length === 0; round++) {
      await everybodyTold(ns.uuid, `round ${round}`);
      await sleep(200 * random());
      await check(ns, `round ${round}, before the deletion`);
      for (let n = 0; n < 2; n++) crew.stopOne(random);
      await finish(ns);
      if (round % 3 === 2) {
        // A deleter that is killed somewhere in the middle; another one goes on.
        const child = crew.launch("deleter", "deleter");
        const ended = new Promise((resolve) => child.once("exit", resolve));
        setTimeout(() => child.kill("SIGKILL"), 400 + 600 * random());
        await ended;
        deletersKilled++;
      }
      await deleteNamespace(uri, settings).catch((error) => {
        if (!isBatchWeaveError(error, "NO_NAMESPACE")) throw error;
      });
      if (existsSync(join(place, "namespace.json"))) problems.push(`round ${round}: namespace.json is still there`);
      ns = await begin();
      await sleep(300 + 400 * random());
      crew.wake();
      await sleep(300);
      await check(ns, `round ${round}, after the zombies woke up`);
      if (process.stderr.isTTY) process.stderr.write(`\rround ${round + 1} of ${rounds} `);
    }
    crew.wake();
    await everybodyTold(ns.uuid, "at the end");
    await check(ns, "at the end");
  } finally {
    await crew.end();
  }
  await finish(ns);
  const told = acknowledgements(folder);
  for (const [key, counter] of told) {
    const seq = last.get(key) ?? 0;
    if (seq <= counter) problems.push(`batch ${counter} of ${key} was acknowledged, and its life ended with ${seq}`);
  }
  const acknowledged = [...told.values()].reduce((sum, counter) => sum + counter + 1, 0);
  const silent = cast.filter(([name, kind]) => kind === "producer" && ![...told.keys()].some((k) => k.endsWith(name)));
  for (const [name] of silent) problems.push(`${name} was never told of any batch`);
  return {
    rounds,
    seed,
    lives: lives.size,
    acknowledged,
    stops: crew.stops,
    evicted: crew.evicted,
    deletersKilled,
    problems,
  };
}
