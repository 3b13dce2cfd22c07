/** Training jobs: real consumers on a mesh, which checkpoint, crash, roll back and come back on another mesh. */
import type { Consumer, Share } from "../../src/consumer/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { type Cursor, crc32, makeCursor } from "../../src/format/index.js";
import { Violation } from "../oracle/violation.js";
import { Rng } from "../world/random.js";
import type { ProcessContext } from "../world/simulation.js";
import type { SimProcess } from "../world/world.js";
import { drawShape, expectedShare, type JobShape, worldOf } from "./job-shape.js";
import type { Handle, WeaveStage } from "./weave-stage.js";

/** Mean time that a straggler takes for an iteration. */
const stragglerMs = 2500;

/** Reads in a row that a bad wire may spoil. */
const damagedMax = 30;

interface Save {
  readonly cursor: Cursor;
  readonly ranks: Set<number>;
}

/** One job: the launcher and the storage of the framework's own checkpoints, which no fault touches. */
export class Job {
  readonly name: string;
  readonly #stage: WeaveStage;
  readonly #rng: Rng;
  /** Reads slowly and registers nothing. */
  readonly #isStraggler: boolean;
  #shape: JobShape;
  #start: Cursor | undefined;
  #generation = 0;
  #positions = new Map<number, Cursor>();
  #saves = new Map<number, Save>();
  /** Complete checkpoints of the framework, by id. */
  readonly #durable = new Map<string, Cursor>();
  readonly #running = new Map<SimProcess, number>();
  #finished = new Map<number, number>();

  constructor(stage: WeaveStage, name: string, isStraggler = false) {
    this.#stage = stage;
    this.#isStraggler = isStraggler;
    this.name = name;
    this.#rng = new Rng(stage.sim.world.seed, `job/${name}`);
    this.#shape = drawShape(this.#rng, stage.plan.grid, stage.plan, 0);
  }

  /** True once every rank has read the closed log to its end. */
  get done(): boolean {
    return this.#finished.size === worldOf(this.#shape);
  }

  get waitsFor(): string {
    const ranks = Array.from({ length: worldOf(this.#shape) }, (_, rank) => rank).filter((r) => !this.#finished.has(r));
    return `${this.name} ranks ${ranks.join(", ")}`;
  }

  /** The first start, unless a fault has already brought about another. */
  begin(): void {
    if (this.#generation === 0) this.#startRanks();
  }

  #startRanks(): void {
    for (let rank = 0; rank < worldOf(this.#shape); rank++) this.#launch(rank);
  }

  owns(process: SimProcess): boolean {
    return this.#running.has(process);
  }

  /** A rank ended. A lone rank goes on where it was, or the launcher restarts them all. */
  onExit(process: SimProcess): void {
    const rank = this.#running.get(process) as number;
    this.#running.delete(process);
    if (process.exit?.reason === "returned") return;
    if (process.exit?.reason === "threw" && !this.#stage.survives(process.exit.error)) {
      this.#stage.sim.world.fail(process.exit.error);
      return;
    }
    this.#stage.counts.restarts++;
    if (this.#rng.chance(0.5)) {
      const generation = this.#generation;
      this.#stage.sim.world.after(this.#rng.exponential(1000), () => {
        if (generation === this.#generation) this.#launch(rank);
      });
    } else this.restart("newest");
  }

  /** Kills every rank and starts again from a checkpoint, perhaps on another mesh. */
  restart(from: "newest" | "any", mesh: "same" | "other" = this.#rng.chance(0.5) ? "same" : "other"): void {
    this.#generation++;
    this.#stage.counts.jobRestarts++;
    const running = [...this.#running.keys()];
    this.#running.clear();
    for (const process of running) this.#stage.sim.world.crash(process);
    this.#start = this.#choose(from);
    const { plan } = this.#stage;
    const row = this.#start?.row ?? 0;
    const keeps = mesh === "same" && (this.#shape.policy === "per-rank" || row % plan.grid.rows === 0);
    if (!keeps) this.#shape = drawShape(this.#rng, plan.grid, plan, row);
    this.#positions = new Map();
    this.#saves = new Map();
    this.#finished = new Map();
    const generation = this.#generation;
    this.#stage.sim.world.after(this.#rng.exponential(1500), () => {
      if (generation === this.#generation) this.#startRanks();
    });
  }

  /** A live checkpoint, which must still have its data; without one, the oldest row left. */
  #choose(from: "newest" | "any"): Cursor | undefined {
    const { head, spec } = this.#stage.oracle;
    if (spec === undefined) return undefined;
    const { uuid } = spec;
    const marks = [...(head?.checkpoints.get(this.name)?.live.values() ?? [])].sort((a, b) => b.row - a.row);
    if (marks.length > 0) {
      const mark = from === "newest" ? marks[0] : this.#rng.pick(marks);
      if (mark !== undefined) return makeCursor(uuid, mark.row, mark.iteration);
    }
    return makeCursor(uuid, this.#stage.oracle.trimRow, 0);
  }

  #launch(rank: number): void {
    const generation = this.#generation;
    const skewMs = this.#rng.between(-60_000, 60_000);
    const main = (context: ProcessContext): Promise<void> => this.#main(context, rank, generation);
    this.#running.set(this.#stage.sim.spawn(`${this.name}-rank-${rank}`, main, { skewMs }), rank);
  }

  async #main(context: ProcessContext, rank: number, generation: number): Promise<void> {
    const handle = await this.#stage.open(context);
    this.#start ??= makeCursor(handle.log.spec.uuid, 0, 0);
    const from = this.#positions.get(rank) ?? this.#start;
    try {
      const consumer = await this.#open(handle, rank, from);
      await this.#train(context, consumer, rank, from);
      await consumer.return();
    } catch (error) {
      if (!isBatchWeaveError(error, "RECLAIMED")) throw error;
      this.#judgeReclaimed(this.#positions.get(rank) ?? from);
      if (generation === this.#generation) this.#stage.sim.world.after(100, () => this.#rewind(generation));
    }
  }

  #rewind(generation: number): void {
    if (generation === this.#generation) this.restart("any");
  }

  #open({ namespace }: Handle, rank: number, from: Cursor): Promise<Consumer> {
    const { mesh, policy, layout, rowsPerRank } = this.#shape;
    return namespace.consumer({
      // Virtual hours of waiting are nothing to tell anybody.
      onWait: () => {},
      mesh,
      rank,
      policy,
      layout,
      rowsPerRank,
      from,
      environment: {},
      group: this.name,
      lag: { deadlockMs: 3000 },
      prefetchIterationsMax: this.#rng.pick([1, 4, 16]),
      prefetchBytesMax: this.#rng.pick([200, 5000, 1_000_000]),
    });
  }

  async #train(context: ProcessContext, consumer: Consumer, rank: number, from: Cursor): Promise<void> {
    const { plan, counts } = this.#stage;
    let at: { row: number; iteration: number } = from;
    for (let damaged = 0; ; ) {
      let result: IteratorResult<Share, undefined>;
      try {
        result = await consumer.next();
      } catch (error) {
        if (!this.#stage.isWireDamage(error)) throw error;
        // The wire does not do this so often.
        if (++damaged > damagedMax) throw new Violation("damage", `${this.name} rank ${rank}: ${error}`);
        continue;
      }
      damaged = 0;
      if (result.done === true) {
        this.#finish(rank, at, consumer.leftoverRows);
        return;
      }
      const share = result.value;
      this.#check(rank, at, share);
      counts.shares++;
      at = share.next;
      this.#positions.set(rank, share.next);
      if (!this.#isStraggler && share.next.iteration % plan.checkpointEvery === 0)
        await this.#save(consumer, rank, share.next);
      await context.env.sleep(
        context.env.random() * 2 * (this.#stage.healed ? 5 : this.#isStraggler ? stragglerMs : plan.trainMs),
      );
    }
  }

  #check(rank: number, at: { row: number; iteration: number }, share: Share): void {
    const { plan, oracle } = this.#stage;
    const expected = expectedShare(this.#shape, plan.grid, rank, at.row, at.iteration);
    const who = `${this.name} rank ${rank}, iteration ${share.iteration}`;
    if (share.iteration !== at.iteration || share.next.row !== expected.nextRow)
      throw new Violation("projection", `${who}: expected iteration ${at.iteration}, next row ${expected.nextRow}`);
    if (share.slices.length !== expected.cells.length)
      throw new Violation("projection", `${who} has ${share.slices.length} slices, not ${expected.cells.length}`);
    expected.cells.forEach(({ step, row, chunk }, i) => {
      const slice = share.slices[i] as Share["slices"][number];
      if (slice.step !== step || slice.row !== row || slice.chunk !== chunk)
        throw new Violation(
          "projection",
          `${who} has ${slice.step}/${slice.row}/${slice.chunk} for ${step}/${row}/${chunk}`,
        );
      const truth = oracle.steps[step];
      if (truth === undefined) throw new Violation("prefix", `${who} saw step ${step}, which is not in the log`);
      if (crc32(slice.bytes) !== truth.cells[row * plan.grid.chunks + chunk])
        throw new Violation("content", `${who} saw other bytes than ${truth.keys[0]} at step ${step}`);
    });
  }

  #finish(rank: number, at: { row: number; iteration: number }, leftoverRows: number | undefined): void {
    const { head } = this.#stage.oracle;
    const { grid } = this.#stage.plan;
    const { nextRow } = expectedShare(this.#shape, grid, rank, at.row, at.iteration);
    const endRow = (head?.steps.end ?? 0) * grid.rows;
    if (head?.closed !== true || nextRow <= endRow || leftoverRows !== Math.max(0, endRow - at.row))
      throw new Violation(
        "end",
        `${this.name} rank ${rank} ends at row ${at.row} of ${endRow}, ${leftoverRows} left over`,
      );
    for (const [other, iteration] of this.#finished) {
      if (iteration !== at.iteration)
        throw new Violation("end", `ranks ${rank} and ${other} end at iterations ${at.iteration} and ${iteration}`);
    }
    this.#finished.set(rank, at.iteration);
  }

  /** The framework's checkpoint is complete once every rank has saved; from then on any rank may register it, a slow one late. */
  async #save(consumer: Consumer, rank: number, cursor: Cursor): Promise<void> {
    const save = this.#saves.get(cursor.iteration) ?? { cursor, ranks: new Set() };
    this.#saves.set(cursor.iteration, save);
    save.ranks.add(rank);
    if (save.cursor.row !== cursor.row)
      throw new Violation("projection", `${this.name}: ranks disagree about the row of iteration ${cursor.iteration}`);
    const id = `g${this.#generation}-i${cursor.iteration}`;
    if (save.ranks.size === worldOf(this.#shape)) {
      this.#durable.set(id, cursor);
      await this.#register(consumer, id, cursor);
    } else if (this.#durable.size > 0 && this.#rng.chance(0.3)) {
      const [late, where] = this.#rng.pick([...this.#durable].slice(-4));
      await this.#register(consumer, late, where);
    }
  }

  async #register(consumer: Consumer, id: string, cursor: Cursor): Promise<void> {
    const { plan, counts, oracle } = this.#stage;
    try {
      await consumer.checkpoint(id, cursor, { keepLast: plan.keepLast });
      counts.checkpoints++;
    } catch (error) {
      const group = oracle.head?.checkpoints.get(this.name);
      const released = isBatchWeaveError(error, "CHECKPOINT_RELEASED") && group?.released.includes(id);
      const passed = isBatchWeaveError(error, "RECLAIMED") && cursor.row < oracle.trimRow;
      if (!released && !passed) throw error;
      counts.refusedCheckpoints++;
    }
  }

  /** RECLAIMED is only true when the row is behind the trim. */
  #judgeReclaimed(at: Cursor): void {
    this.#stage.counts.reclaimedReaders++;
    const { trimRow } = this.#stage.oracle;
    const { rows } = this.#stage.plan.grid;
    if (Math.floor(at.row / rows) * rows >= trimRow)
      throw new Violation("reclaimed", `${this.name} at row ${at.row} was told RECLAIMED; the trim is row ${trimRow}`);
  }
}
