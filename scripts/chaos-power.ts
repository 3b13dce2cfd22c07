/**
 * `npm run chaos -- --power --rounds 10`: producers of both languages, ranks and eager reclaimers on a disk whose power is cut at random moments,
 * again and again, in the page cache or below the disk's own cache. After each cut the disk is mounted again: every batch and checkpoint that was
 * acknowledged is there, and `verify` finds nothing. At the end ranks have read one history. Last the control: the same without syncs must lose
 * something, or the cuts prove nothing.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import {
  createNamespace,
  type Durability,
  makeCursor,
  type Namespace,
  openNamespace,
  openStore,
} from "../src/index.js";
import { chaosGrid } from "./chaos-content.js";
import { Fleet, type Role, roles } from "./chaos-fleet.js";
import { checkAcknowledged, heldCheckpoints, judge, judgeCheckpoints } from "./chaos-judge.js";
import { type Cut, PowerDisk } from "./power-disk.js";

/** What came of it. */
export interface PowerReport {
  readonly rounds: number;
  readonly seed: number;
  readonly cuts: Readonly<Record<Cut, number>>;
  readonly steps: number;
  readonly acknowledged: number;
  readonly checkpoints: number;
  /** Of the control: what was acknowledged, and what of it was gone. */
  readonly control: { readonly acknowledged: number; readonly lost: number };
  readonly problems: readonly string[];
}

const cast: readonly Role[] = [...roles, { name: "py", kind: "producer", id: "py", language: "python" }];
/** Acknowledgements of a round before its power may go, and the longest wait for them. */
const acknowledgedMin = 12;
const patienceMs = 900_000;
const afterMsMax = 1_500;
const controlRoundsMax = 3;
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** One disk, one namespace on it, and what everybody was told, which is kept elsewhere. */
class PowerRun {
  readonly #disk: PowerDisk;
  readonly #folder: string;
  readonly #uri: string;
  readonly #durability: Durability;
  readonly #random: () => number;
  #fleet: Fleet | undefined;
  readonly problems: string[] = [];
  readonly cuts: Record<Cut, number> = { "page cache": 0, "disk cache": 0 };

  constructor(parent: string, durability: Durability, random: () => number) {
    mkdirSync(parent);
    this.#folder = join(parent, "told");
    mkdirSync(this.#folder);
    this.#disk = new PowerDisk(parent);
    this.#uri = `${pathToFileURL(this.#disk.path).href}/run`;
    this.#durability = durability;
    this.#random = random;
    process.on("exit", () => this.#fleet?.stop());
  }

  async create(): Promise<void> {
    const storeSettings = { durability: this.#durability };
    const ns = await createNamespace(this.#uri, { grid: chaosGrid }, { storeSettings });
    for (const { name, kind } of cast)
      if (kind === "rank") await ns.checkpoint("start", makeCursor(ns.uuid, 0, 0), { group: name });
    // The control is about batches: its namespace may stay.
    if (this.#durability === "process-crash") this.#disk.sync();
  }

  open(): Promise<Namespace> {
    return openNamespace(this.#uri, { storeSettings: { durability: this.#durability } });
  }

  /** How many batches producers were told of. */
  get acknowledged(): number {
    return readdirSync(this.#folder)
      .filter((name) => name.endsWith(".acknowledged"))
      .reduce((sum, name) => sum + readFileSync(join(this.#folder, name), "utf8").split("\n").length - 1, 0);
  }

  /** Everybody works, and then the lights go out. */
  async cutOnce(): Promise<void> {
    const fleet = await this.#start();
    const before = this.acknowledged;
    const begun = performance.now();
    while (this.acknowledged < before + acknowledgedMin && fleet.failures.length === 0) {
      if (performance.now() - begun > patienceMs) {
        this.problems.push(`only ${this.acknowledged - before} batches were acknowledged in ${patienceMs / 1_000} s`);
        break;
      }
      await sleep(20);
    }
    await sleep(afterMsMax * this.#random());
    const kind: Cut = this.#random() < 0.5 ? "page cache" : "disk cache";
    this.cuts[kind]++;
    this.problems.push(...fleet.failures);
    await fleet.cut(() => this.#disk.cut(kind));
    await this.#disk.restore();
  }

  /** What must hold after a cut. */
  async check(when: string): Promise<void> {
    const ns = await this.open();
    const complain = (problem: string): void => void this.problems.push(`${when}: ${problem}`);
    checkAcknowledged(this.#folder, await ns.info(), complain);
    const { problems } = await ns.verify({ level: "bytes" });
    for (const { severity, code, message } of problems) complain(`verify: ${severity}[${code}] ${message}`);
    this.#rollBack(ns.uuid);
  }

  /** How many acknowledged batches are not there. */
  async lost(): Promise<number> {
    let lost = 0;
    try {
      checkAcknowledged(this.#folder, await (await this.open()).info(), () => void lost++);
      return lost;
    } catch {
      // The namespace itself is gone or torn.
      return this.acknowledged;
    }
  }

  /** Nobody is cut any more: all reach the end, and have seen one history. */
  async finish(): Promise<Pick<PowerReport, "steps" | "acknowledged" | "checkpoints">> {
    const fleet = await this.#start();
    const ns = await this.open();
    try {
      await sleep(500);
      await fleet.finishWriters();
      await ns.endLog();
      await fleet.finishRanks();
    } finally {
      fleet.stop();
    }
    this.problems.push(...fleet.failures);
    const { problems, steps, acknowledged } = judge(this.#folder, await ns.info());
    const checkpoints = await judgeCheckpoints(this.#folder, ns);
    this.problems.push(...problems, ...checkpoints.problems);
    await this.check("at the end");
    return { steps, acknowledged, checkpoints: checkpoints.held };
  }

  async remove(): Promise<void> {
    await this.#disk.unmount();
  }

  async #start(): Promise<Fleet> {
    const store = await openStore(this.#uri, { durability: this.#durability });
    const settings = { durability: this.#durability, isCooperative: true };
    const fleet = new Fleet(this.#uri, store, this.#folder, this.#random, cast, settings);
    this.#fleet = fleet;
    fleet.start();
    return fleet;
  }

  /**
   * Ranks lose what they saw since their last acknowledged checkpoint, as a job on the same machine does: they may have seen a commit that was
   * not yet durable, and nobody was told of it.
   */
  #rollBack(uuid: string): void {
    for (const { name, kind } of cast) {
      if (kind !== "rank") continue;
      const held = [...heldCheckpoints(this.#folder, name)].map(([id, row]) => ({
        row,
        iteration: Number(id.slice("iter-".length)),
      }));
      const last = held.sort((a, b) => b.iteration - a.iteration)[0];
      const cursor = join(this.#folder, `${name}.cursor`);
      if (last) writeFileSync(cursor, JSON.stringify(makeCursor(uuid, last.row, last.iteration)));
      else rmSync(cursor, { force: true });
      const seen = join(this.#folder, `${name}.seen`);
      if (!existsSync(seen)) continue;
      const kept = readFileSync(seen, "utf8")
        .split("\n")
        .filter((line) => Number(/^\{"iteration":(\d+),.*\}$/.exec(line)?.[1] ?? Infinity) < (last?.iteration ?? 0));
      writeFileSync(seen, kept.map((line) => `${line}\n`).join(""));
    }
  }
}

/** Runs the rounds and the control in `parent`, which exists. */
export async function power(
  parent: string,
  rounds: number,
  seed: number,
  random: () => number,
  note: (text: string) => void,
): Promise<PowerReport> {
  const run = new PowerRun(join(parent, "durable"), "power-loss", random);
  await run.create();
  for (let round = 1; round <= rounds && run.problems.length === 0; round++) {
    const { ...before } = run.cuts;
    await run.cutOnce();
    await run.check(`after cut ${round}`);
    const kind = run.cuts["page cache"] > before["page cache"] ? "page cache" : "disk cache";
    note(`cut ${round} (${kind}): ${run.acknowledged} batches acknowledged so far, ${run.problems.length} problems`);
  }
  const done = run.problems.length === 0 ? await run.finish() : { steps: 0, acknowledged: 0, checkpoints: 0 };
  await run.remove();
  const problems = [...run.problems];
  const careless = new PowerRun(join(parent, "control"), "process-crash", random);
  await careless.create();
  let lost = 0;
  for (let round = 1; round <= controlRoundsMax && lost === 0; round++) {
    await careless.cutOnce();
    lost = await careless.lost();
  }
  const control = { acknowledged: careless.acknowledged, lost };
  await careless.remove();
  if (lost === 0) problems.push("the control, without syncs, lost nothing: the cuts prove nothing here");
  return { rounds, seed, cuts: run.cuts, ...done, control, problems };
}
