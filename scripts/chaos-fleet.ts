/** The processes of the chaos script: started, aimed at, killed, and started again. */
import { type ChildProcess, fork, spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Durability, ObjectStore } from "../src/index.js";
import { chaosMesh } from "./chaos-content.js";
import { type Aim, commitId, type PhaseRecord, readPhases } from "./chaos-phase.js";

/** A process by name: what it is and what it runs as. Two names may share a producer id. */
export interface Role {
  readonly name: string;
  readonly kind: "producer" | "rank" | "reclaimer";
  readonly id: string;
  /** Default: TypeScript. */
  readonly language?: "python";
}

/** What workers are told of their store and cadence. */
export interface WorkerSettings {
  readonly durability?: Durability;
  /** The default cadence instead of short intervals. */
  readonly isCooperative?: boolean;
}

/** All processes. `twin-a` and `twin-b` fight for one producer id, and there are two reclaimers. */
export const roles: readonly Role[] = [
  ...["p0", "p1", "p2"].map((id): Role => ({ name: id, kind: "producer", id })),
  ...["a", "b"].map((letter): Role => ({ name: `twin-${letter}`, kind: "producer", id: "twin" })),
  ...Array.from(
    { length: chaosMesh.dp * chaosMesh.cp },
    (_, rank): Role => ({ name: `rank-${rank}`, kind: "rank", id: String(rank) }),
  ),
  ...["a", "b"].map((letter): Role => ({ name: `reclaimer-${letter}`, kind: "reclaimer", id: letter })),
];

/** A process that was killed, and what it was doing. */
export interface Death {
  readonly role: Role;
  readonly phases: PhaseRecord;
  /** Whether the commit that it made last was in the log right after its death. */
  readonly hasLanded: boolean;
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const worker = fileURLToPath(new URL("./chaos-worker.js", import.meta.url));
const fencedStatus = 75;

/** The running processes. */
export class Fleet {
  readonly #uri: string;
  readonly #store: ObjectStore;
  readonly #folder: string;
  readonly #random: () => number;
  readonly #cast: readonly Role[];
  readonly #settings: WorkerSettings;
  readonly #children = new Map<string, ChildProcess>();
  readonly #pending = new Set<NodeJS.Timeout>();
  #deaths: Death[] = [];
  #wake: (() => void) | undefined;
  #isFinishing = false;
  #isCut = false;
  /** Messages of processes that ended in another way than by a kill or as fenced. */
  readonly failures: string[] = [];
  fenced = 0;

  constructor(
    uri: string,
    store: ObjectStore,
    folder: string,
    random: () => number,
    cast: readonly Role[] = roles,
    settings: WorkerSettings = {},
  ) {
    this.#uri = uri;
    this.#store = store;
    this.#folder = folder;
    this.#random = random;
    this.#cast = cast;
    this.#settings = settings;
  }

  /** Starts all processes. */
  start(): void {
    for (const role of this.#cast) this.#launch(role);
  }

  /** Orders everybody of a kind to die in a phase, the first who reaches it; undefined takes the order back. */
  arm(kind: Role["kind"], aim: Aim | undefined): void {
    for (const role of this.#cast) if (role.kind === kind) this.#send(role.name, { aim });
  }

  /** kill -9, now. False when it is not running at the moment. */
  kill(name: string): boolean {
    return this.#children.get(name)?.kill("SIGKILL") ?? false;
  }

  /** The next death, or undefined after `waitMs` without one. */
  async death(waitMs: number): Promise<Death | undefined> {
    if (this.#deaths.length === 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, waitMs);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    return this.#deaths.shift();
  }

  /** Lets producers and reclaimers finish and waits for them; nobody is started again. */
  async finishWriters(): Promise<void> {
    this.#isFinishing = true;
    for (const timer of this.#pending) clearTimeout(timer);
    const writers = this.#cast.filter(({ kind }) => kind !== "rank");
    await Promise.all(
      writers.map(({ name }) => {
        this.#send(name, { finish: true });
        return this.#ended(name);
      }),
    );
  }

  /** Starts ranks that are down and waits until all have reached the end of the closed log. */
  async finishRanks(): Promise<void> {
    const ranks = this.#cast.filter(({ kind }) => kind === "rank");
    for (const role of ranks) if (!this.#children.has(role.name)) this.#launch(role);
    await Promise.all(ranks.map(({ name }) => this.#ended(name)));
  }

  /** Ends whatever still runs. */
  stop(): void {
    this.#isFinishing = true;
    for (const timer of this.#pending) clearTimeout(timer);
    for (const child of this.#children.values()) child.kill("SIGKILL");
  }

  /** Calls `cut` and ends everybody, whatever they make of it meanwhile. Resolves when all are gone. */
  async cut(cut: () => void): Promise<void> {
    this.#isCut = true;
    cut();
    const ended = [...this.#children.keys()].map((name) => this.#ended(name));
    this.stop();
    await Promise.all(ended);
  }

  async #ended(name: string): Promise<void> {
    const child = this.#children.get(name);
    if (child) await new Promise<void>((resolve) => child.once("exit", () => resolve()));
  }

  #send(name: string, order: object): void {
    const child = this.#children.get(name);
    // It may be dying: then the order does not matter any more. The worker in Python knows one order, the end of its input.
    if (child?.connected) child.send(order, () => {});
    else if ("finish" in order) child?.stdin?.end();
  }

  #launch(role: Role): void {
    const { name, kind, id, language } = role;
    const env = { ...process.env, PYTHONPATH: join(root, "python"), PYTHONDONTWRITEBYTECODE: "1" };
    const python = [join(root, "python/tests/power_worker.py"), this.#uri, this.#folder, id];
    const child =
      language === "python"
        ? spawn("python3", [...python, this.#settings.durability ?? "power-loss"], {
            env,
            stdio: ["pipe", "ignore", "pipe"],
          })
        : fork(worker, [kind, this.#uri, this.#folder, name, id, JSON.stringify(this.#settings)], {
            stdio: ["ignore", "ignore", "pipe", "ipc"],
          });
    this.#children.set(name, child);
    let errors = "";
    child.stderr?.on("data", (data: Buffer) => {
      errors = `${errors}${data.toString()}`.slice(-2_000);
    });
    child.once("exit", (code, signal) => {
      this.#children.delete(name);
      if (this.#isCut) return;
      if (signal === "SIGKILL") void this.#report(role);
      else if (code === fencedStatus) this.fenced++;
      else if (code !== 0) this.failures.push(`${name} ended with status ${code ?? signal}: ${errors}`);
      if (code === 0 || this.#isFinishing) return;
      const isFenced = code === fencedStatus;
      const timer = setTimeout(
        () => {
          this.#pending.delete(timer);
          this.#launch(role);
        },
        // The fenced twin leaves its other half some time to get work done.
        this.#random() * (isFenced ? 2_000 : 150),
      );
      this.#pending.add(timer);
    });
  }

  /** Looks at once, before a reclaimer takes the manifest away. */
  async #report(role: Role): Promise<void> {
    const phases = readPhases(join(this.#folder, `${role.name}.phase`));
    this.#deaths.push({ role, phases, hasLanded: await hasLanded(this.#store, phases) });
    this.#wake?.();
  }
}

async function hasLanded(store: ObjectStore, { commit }: PhaseRecord): Promise<boolean> {
  const bytes = commit && (await store.get(commit.version).catch(() => undefined));
  return bytes !== undefined && commitId(bytes) === commit?.id;
}
