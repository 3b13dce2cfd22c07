/** Batches that a shadow makes before their lane is its own: of lanes that stand still and may soon be taken over. */
import { type LaneBatch, type LaneLog, type LaneWriter, laneProducer } from "./lane-log.js";
import type { LaneView } from "./lane-view.js";

/** Lanes prepared at a time: each is a batch in memory. */
const shadowsMax = 4;

interface Made {
  readonly writer: LaneWriter;
  readonly batch: LaneBatch | undefined;
}

interface Shadow {
  readonly seq: number;
  isMade: boolean;
  readonly stop: AbortController;
  /** Undefined: it could not be made, or the lane has moved on. */
  readonly made: Promise<Made | undefined>;
}

/** The prepared batches of one process. */
export class Shadows {
  readonly #signal: AbortSignal;
  readonly #shadows = new Map<string, Shadow>();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** Begins with a lane's next batch, unless it has begun or too many have. */
  prepare(log: LaneLog, { lane, seq }: LaneView): void {
    const name = `${log.name}/${lane}`;
    const known = this.#shadows.get(name);
    if (known?.seq === seq) return;
    if (known) this.#drop(name);
    if (this.#shadows.size >= shadowsMax) return;
    const stop = new AbortController();
    const made = make(log, lane, seq, AbortSignal.any([stop.signal, this.#signal])).catch(() => undefined);
    const shadow: Shadow = { seq, isMade: false, stop, made };
    this.#shadows.set(name, shadow);
    void made.then(() => {
      shadow.isMade = true;
    });
  }

  /** Whether a lane's next batch is under way here. */
  isMaking(log: LaneLog, { lane, seq }: LaneView): boolean {
    const shadow = this.#shadows.get(`${log.name}/${lane}`);
    return shadow?.seq === seq && !shadow.isMade;
  }

  /** Lets go of all but these: their lanes go on by themselves. */
  keep(names: ReadonlySet<string>): void {
    for (const name of [...this.#shadows.keys()]) if (!names.has(name)) this.#drop(name);
  }

  /** The lane is ours, and stands at `seq`: what was prepared for that. */
  async take(log: LaneLog, lane: number, seq: number): Promise<Made | undefined> {
    const name = `${log.name}/${lane}`;
    const shadow = this.#shadows.get(name);
    if (shadow?.seq !== seq) {
      this.#drop(name);
      return undefined;
    }
    this.#shadows.delete(name);
    return await shadow.made;
  }

  async clear(): Promise<void> {
    const all = [...this.#shadows.values()];
    this.keep(new Set());
    await Promise.allSettled(all.map(({ made }) => made));
  }

  #drop(name: string): void {
    const shadow = this.#shadows.get(name);
    this.#shadows.delete(name);
    shadow?.stop.abort(new Error("the lane has moved on"));
    shadow?.made.then((made) => made?.writer.close()).catch(() => {});
  }
}

async function make(log: LaneLog, lane: number, seq: number, signal: AbortSignal): Promise<Made | undefined> {
  const at = (await log.ns.producerState(laneProducer(lane), { signal })) ?? { seq: 0, resumePoint: undefined };
  if (at.seq !== seq) return undefined;
  const writer = await log.open(lane, at, signal);
  try {
    return { writer, batch: writer.nextStep < log.steps ? await writer.next({ signal }) : undefined };
  } catch (error) {
    await writer.close();
    throw error;
  }
}
