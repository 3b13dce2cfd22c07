/** A log whose lanes count: what each batch must be is known beforehand, so every order of holders can be judged. */
import { createNamespace, type Env, type Namespace, type ObjectStore } from "../../src/index.js";
import type { LaneBatch, LaneLog, LaneWriter } from "../../src/plan/fleet/index.js";

/** What a toy log is made of. */
export interface ToySettings {
  readonly name: string;
  /** Batches of each lane; its length is the number of lanes. */
  readonly counts: readonly number[];
  /** Time that a batch takes. */
  readonly workMs?: number | ((lane: number) => number);
  readonly steps?: number;
}

interface ToyPoint {
  readonly next: number;
  readonly over?: 1;
}

/** The text of a batch; a filler's is empty. */
export function toyText({ name, counts }: ToySettings, lane: number, seq: number): string {
  return seq < (counts[lane] as number) ? `${name}/${lane}/${seq}` : "";
}

class ToyWriter implements LaneWriter {
  readonly #env: Env;
  readonly #toy: ToySettings;
  readonly #lane: number;
  #next: number;

  constructor(env: Env, toy: ToySettings, lane: number, next: number) {
    this.#env = env;
    this.#toy = toy;
    this.#lane = lane;
    this.#next = next;
  }

  get nextSeq(): number {
    return this.#next;
  }

  get nextStep(): number {
    return this.#next * this.#toy.counts.length + this.#lane;
  }

  async isOver(): Promise<boolean> {
    return this.#next >= (this.#toy.counts[this.#lane] as number);
  }

  async next({
    isFiller = false,
    signal,
  }: {
    isFiller?: boolean;
    signal?: AbortSignal;
  } = {}): Promise<LaneBatch | undefined> {
    if ((await this.isOver()) && !isFiller) return undefined;
    const { workMs = 0 } = this.#toy;
    const ms = typeof workMs === "number" ? workMs : workMs(this.#lane);
    if (ms > 0 && !isFiller) await this.#env.sleep(ms, signal);
    const text = toyText(this.#toy, this.#lane, this.#next++);
    const resumePoint: ToyPoint = { next: this.#next, ...((await this.isOver()) ? { over: 1 as const } : {}) };
    return { slices: [new TextEncoder().encode(text)], append: { resumePoint } };
  }

  async close(): Promise<void> {}
}

/** Opens a toy log on a store. */
export async function toyLog(env: Env, store: ObjectStore, toy: ToySettings): Promise<LaneLog> {
  const lanes = toy.counts.length;
  const shape = { grid: { rows: 1, chunks: 1 }, order: "lanes", lanes } as const;
  const ns = await createNamespace(`memory:${toy.name}`, shape, { store, env });
  return {
    name: toy.name,
    ns,
    lanes,
    steps: toy.steps ?? Number.POSITIVE_INFINITY,
    open: async (lane, { seq, resumePoint }) => {
      const point = resumePoint as ToyPoint | undefined;
      if ((point?.next ?? 0) !== seq)
        throw new Error(`lane ${lane}: seq ${seq}, resume point ${JSON.stringify(point)}`);
      return new ToyWriter(env, toy, lane, seq);
    },
  };
}

/** Every batch of a log, in order. */
export async function toyTexts(ns: Namespace): Promise<string[]> {
  const { steps } = await ns.info();
  const texts: string[] = [];
  for (let step = steps.trim; step < steps.end; step++)
    texts.push(new TextDecoder().decode(await ns.readSlice({ step, row: 0, chunk: 0 })));
  return texts;
}

/** What a complete log must hold: up to the last batch that any lane has. */
export function toyExpected(toy: ToySettings): string[] {
  const lanes = toy.counts.length;
  const ends = toy.counts.map((count, lane) => (count === 0 ? 0 : (count - 1) * lanes + lane + 1));
  const end = Math.min(toy.steps ?? Number.POSITIVE_INFINITY, Math.max(...ends));
  return Array.from({ length: end }, (_, step) => toyText(toy, step % lanes, Math.floor(step / lanes)));
}
