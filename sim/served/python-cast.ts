/** The Python processes of a served run: started, killed, stopped for a while, replaced; and what they say, judged by the oracle. */
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import type { StoreRequest } from "../../harness/store-server.js";
import { makeCursor } from "../../src/format/index.js";
import { expectedShare, type JobShape, worldOf } from "../actors/job-shape.js";
import type { ChainOracle } from "../oracle/chain-oracle.js";
import { Violation } from "../oracle/violation.js";
import type { Rng } from "../world/random.js";

/** What the processes are started with, and whom to tell. */
export interface PythonSettings {
  readonly root: string;
  /** The folder of the package under test. */
  readonly pythonPath: string;
  readonly socket: string;
  readonly seed: number;
  readonly shape: JobShape;
  readonly keepLast: number;
  readonly onFailure: (error: unknown) => void;
}

interface PythonProcess {
  readonly name: string;
  /** The producer id, or the rank. */
  readonly part: string;
  readonly child: ChildProcess;
  readonly ended: Promise<void>;
  isStopped: boolean;
}

const checkpointEvery = 6;

/** Everything Python of one run. */
export class PythonCast {
  readonly counts = {
    started: 0,
    killed: 0,
    stopped: 0,
    opened: 0,
    acknowledged: 0,
    fenced: 0,
    verified: 0,
    shares: 0,
    checkpoints: 0,
    reclaimedReaders: 0,
    passing: 0,
  };
  /** False: producers finish and close. */
  isGoingOn = true;
  readonly #settings: PythonSettings;
  readonly #oracle: ChainOracle;
  readonly #alive = new Set<PythonProcess>();
  readonly #positions = new Map<number, { row: number; iteration: number }>();
  readonly #endings = new Map<number, number>();
  readonly #passed = new Map<number, Set<number>>();
  readonly #starts = new Map<string, number>();
  readonly #heard = new Set<string>();
  #isOver = false;

  constructor(settings: PythonSettings, oracle: ChainOracle) {
    this.#settings = settings;
    this.#oracle = oracle;
  }

  /** Starts a process for a producer id (`py-…`) or a rank (`rank-…`). */
  start(part: string): void {
    const { root, pythonPath, socket, seed, shape, keepLast } = this.#settings;
    const number = this.#starts.get(part) ?? 0;
    this.#starts.set(part, number + 1);
    const name = `${part}.${number}`;
    const isRank = part.startsWith("rank-");
    const rank = isRank ? Number(part.slice("rank-".length)) : 0;
    const at = this.#positions.get(rank);
    const settings = isRank
      ? {
          rank,
          start: at ? makeCursor(this.#oracle.spec?.uuid ?? "", at.row, at.iteration) : "earliest",
          mesh: shape.mesh,
          layout: shape.layout,
          rowsPerRank: shape.rowsPerRank,
          keepLast,
        }
      : { id: part, seed, gap: 0.04, reopenRate: part === "py-duel" ? 0.3 : 0.1, isStubborn: part === "py-duel" };
    const worker = join(root, "python/tests/served_worker.py");
    const args = [worker, socket, name, isRank ? "rank" : "producer", JSON.stringify(settings)];
    const env = { ...process.env, PYTHONPATH: pythonPath, PYTHONDONTWRITEBYTECODE: "1" };
    const child = spawn("python3", args, { env, stdio: ["ignore", "ignore", "pipe"] });
    this.counts.started++;
    let stderr = "";
    child.stderr?.on("data", (text) => {
      stderr = `${stderr}${text}`.slice(-4000);
    });
    const ended = new Promise<void>((resolve) => {
      child.on("error", (error) => this.#settings.onFailure(error));
      child.on("close", (code, signal) => {
        this.#alive.delete(one);
        if (code !== 0 && signal !== "SIGKILL" && !this.#isOver)
          this.#settings.onFailure(new Violation("process", `${name} ended with ${signal ?? code}: ${stderr}`));
        resolve();
      });
    });
    const one: PythonProcess = { name, part, child, ended, isStopped: false };
    this.#alive.add(one);
  }

  /** Whoever has no process gets one; finished ranks and, at the end, finished producers do not. */
  replace(parts: readonly string[]): void {
    for (const part of parts) {
      const isDone = part.startsWith("rank-") ? this.#endings.has(Number(part.slice("rank-".length))) : !this.isGoingOn;
      if (!isDone && ![...this.#alive].some((one) => one.part === part)) this.start(part);
    }
  }

  /** Kills one of them, wherever it is. */
  async kill(rng: Rng): Promise<void> {
    const victims = [...this.#alive].filter((one) => !one.isStopped);
    if (victims.length === 0) return;
    const { child, ended } = rng.pick(victims);
    this.counts.killed++;
    child.kill("SIGKILL");
    await ended;
  }

  /** Suspends one of them for a while; half of the time a successor is started meanwhile, and the sleeper wakes up as a zombie. */
  async stop(rng: Rng): Promise<void> {
    const victims = [...this.#alive].filter((one) => !one.isStopped);
    if (victims.length === 0) return;
    const one = rng.pick(victims);
    const forMs = rng.between(300, 2_500);
    const isReplaced = one.part.startsWith("py-") && rng.chance(0.5);
    this.counts.stopped++;
    one.isStopped = true;
    one.child.kill("SIGSTOP");
    if (isReplaced) this.start(one.part);
    await new Promise((resolve) => setTimeout(resolve, forMs));
    one.isStopped = false;
    one.child.kill("SIGCONT");
  }

  /** Resolves when no producer, or nobody at all, is left. */
  async ended(which: "producers" | "all"): Promise<void> {
    for (;;) {
      const left = [...this.#alive].filter((one) => which === "all" || one.part.startsWith("py-"));
      if (left.length === 0) return;
      await Promise.all(left.map((one) => one.ended));
    }
  }

  /** A process of this part has begun to work. */
  isHeard(part: string): boolean {
    return this.#heard.has(part);
  }

  /** Names of those that still run: for whoever waited in vain. */
  get names(): string[] {
    return [...this.#alive].map((one) => one.name);
  }

  async killAll(): Promise<void> {
    this.#isOver = true;
    for (const { child } of this.#alive) child.kill("SIGKILL");
    await this.ended("all");
  }

  /** What a process says. The oracle throws if it is not so. */
  hear(request: StoreRequest): unknown {
    const { op, who } = request;
    const text = (name: string): string => String(request[name]);
    const number = (name: string): number => Number(request[name]);
    const oracle = this.#oracle;
    this.#heard.add(who.slice(0, who.lastIndexOf(".")));
    switch (op) {
      case "verified":
        this.counts.verified++;
        oracle.verified({ version: number("version"), commit: { id: text("commit") } } as never);
        return true;
      case "opened":
        this.counts.opened++;
        oracle.opened(text("id"), number("epoch"), number("seq"), request["resumePoint"] ?? undefined);
        return true;
      case "append":
        if (!this.isGoingOn) return false;
        oracle.append({ producer: text("id"), counter: number("counter"), variant: who });
        return true;
      case "acknowledged": {
        this.counts.acknowledged++;
        const batch = { producer: text("id"), counter: number("counter"), variant: who };
        oracle.acknowledge(batch, number("epoch"), number("version"));
        return true;
      }
      case "fenced":
        this.counts.fenced++;
        oracle.fenced(text("id"), number("epoch"));
        return true;
      case "isGoingOn":
        return this.isGoingOn;
      case "passing":
        this.counts.passing++;
        return true;
      case "closed":
        if (oracle.head?.closed !== true) throw new Violation("closed", `${who} was told CLOSED of an open log`);
        return true;
      case "share":
        return this.#hearShare(request);
      case "checkpointed":
        this.counts.checkpoints++;
        this.#judgeCheckpoint(who, text("id"));
        return true;
      case "reclaimed":
        this.#judgeReclaimed(who, number("rank"));
        return true;
      case "ended":
        this.#judgeEnd(who, number("rank"), number("leftoverRows"));
        return true;
      default:
        throw new Violation("process", `${who}: ${request["what"] ?? op}`);
    }
  }

  /** A share must be the projection of the true chain. Gives a checkpoint to register when every rank has come so far. */
  #hearShare(request: StoreRequest): unknown {
    const { who } = request;
    const rank = Number(request["rank"]);
    const iteration = Number(request["iteration"]);
    const cells = request["cells"] as readonly (readonly number[])[];
    const { spec, steps } = this.#oracle;
    if (spec === undefined) throw new Violation("process", `${who} reads before there is a namespace`);
    const { shape } = this.#settings;
    const at = this.#positions.get(rank) ?? { row: 0, iteration: 0 };
    const expected = expectedShare(shape, spec.grid, rank, at.row, at.iteration);
    if (iteration !== at.iteration || request["nextRow"] !== expected.nextRow || cells.length !== expected.cells.length)
      throw new Violation("projection", `${who} has iteration ${iteration} for ${at.iteration}, row ${at.row}`);
    expected.cells.forEach(({ step, row, chunk }, i) => {
      const [foundStep, foundRow, foundChunk, crc] = cells[i] as readonly number[];
      if (foundStep !== step || foundRow !== row || foundChunk !== chunk)
        throw new Violation(
          "projection",
          `${who} has ${foundStep}/${foundRow}/${foundChunk} for ${step}/${row}/${chunk}`,
        );
      const truth = steps[step];
      if (truth === undefined) throw new Violation("prefix", `${who} saw step ${step}, which is not in the log`);
      if (truth.cells[row * spec.grid.chunks + chunk] !== crc)
        throw new Violation("content", `${who} saw other bytes than ${truth.keys[0]} at step ${step}`);
    });
    this.counts.shares++;
    this.#positions.set(rank, { row: expected.nextRow, iteration: iteration + 1 });
    if ((iteration + 1) % checkpointEvery !== 0) return null;
    const passed = this.#passed.get(iteration) ?? new Set();
    this.#passed.set(iteration, passed);
    passed.add(rank);
    if (passed.size < worldOf(shape)) return null;
    return { id: `i${iteration}`, cursor: makeCursor(spec.uuid, expected.nextRow, iteration + 1) };
  }

  #judgeCheckpoint(who: string, id: string): void {
    const group = this.#oracle.head?.checkpoints.get("py");
    if (!group?.live.has(id) && !group?.released.includes(id))
      throw new Violation("checkpoint", `${who} was told that checkpoint ${id} is in, and the head does not know it`);
  }

  /** RECLAIMED is only true when the row is behind the trim; and no checkpoint ever passes a rank here. */
  #judgeReclaimed(who: string, rank: number): void {
    this.counts.reclaimedReaders++;
    const row = this.#positions.get(rank)?.row ?? 0;
    const rows = this.#oracle.spec?.grid.rows ?? 1;
    if (Math.floor(row / rows) * rows >= this.#oracle.trimRow)
      throw new Violation("reclaimed", `${who} at row ${row} was told RECLAIMED; the trim is ${this.#oracle.trimRow}`);
  }

  #judgeEnd(who: string, rank: number, leftoverRows: number): void {
    const { head, spec } = this.#oracle;
    const at = this.#positions.get(rank) ?? { row: 0, iteration: 0 };
    const rows = spec?.grid.rows ?? 1;
    const endRow = (head?.steps.end ?? 0) * rows;
    const { nextRow } = expectedShare(
      this.#settings.shape,
      spec?.grid ?? { rows, chunks: 1 },
      rank,
      at.row,
      at.iteration,
    );
    if (head?.closed !== true || nextRow <= endRow || leftoverRows !== Math.max(0, endRow - at.row))
      throw new Violation("end", `${who} ends at row ${at.row} of ${endRow}, ${leftoverRows} left over`);
    for (const [other, iteration] of this.#endings)
      if (iteration !== at.iteration)
        throw new Violation("end", `ranks ${rank} and ${other} end at iterations ${at.iteration} and ${iteration}`);
    this.#endings.set(rank, at.iteration);
  }
}
