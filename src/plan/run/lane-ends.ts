/**
 * The end of a finite log. A lane that has no sample left says so in the resume point of its last batch, so every process can see from the log which
 * lanes have ended, and the process that comes last closes it. Lanes end at different steps: empty batches fill the gaps, so that every batch can be reached;
 * a process that finds a gap of a lane that has ended fills it, also of a lane it did not hold.
 */
import { type Env, isBatchWeaveError, type Namespace, type ProducerOptions } from "../../index.js";
import { inheritedPoints, type LaneLayout, laneId, openLanes, type RunningLane, startOf } from "./lane-layout.js";
import { type LaneParts, LanePlanner, type PlannedBatch } from "./lane-planner.js";
import { decodeLaneState, isLanePoint, nextStepOf } from "./lane-state.js";

/** How often a process that writes looks for a gap that holds the log up. */
const lookDelayMs = 1_000;
/** Looks at the same gap before a lane that another process held is filled by us; processes begin one after another, so that they do not fence each other. */
const looksMin = 3;
const turnsMax = 8;
/** A process that comes to the end gives those before it so long to close the log, and tries so often when another was faster. */
const turnMs = 300;
const attemptsMax = 30;

/** Where a lane stands. */
interface LaneEnd {
  readonly lane: number;
  /** Of its next batch. */
  readonly nextStep: number;
  readonly seq: number;
  readonly isOver: boolean;
}

/** Puts a batch into the log for a lane. */
type Append = (lane: RunningLane, batch: PlannedBatch) => Promise<void>;

/** Sees to the end of a log. */
export class LaneEnds {
  readonly #ns: Namespace;
  readonly #parts: LaneParts;
  readonly #layout: LaneLayout;
  readonly #steps: number;
  readonly #append: Append;
  readonly #producing: Omit<ProducerOptions, "id" | "signal"> | undefined;
  readonly #signal: AbortSignal | undefined;
  /** Lanes that were seen not to have ended, by seq: asking the sources again would give the same. */
  readonly #going = new Map<number, number>();

  constructor(
    log: {
      readonly ns: Namespace;
      readonly layout: LaneLayout;
      readonly steps: number;
      readonly producing: Omit<ProducerOptions, "id" | "signal"> | undefined;
    },
    parts: LaneParts,
    append: Append,
    signal: AbortSignal | undefined,
  ) {
    this.#ns = log.ns;
    this.#layout = log.layout;
    this.#steps = log.steps;
    this.#producing = log.producing;
    this.#parts = parts;
    this.#append = append;
    this.#signal = signal;
  }

  /** While a process writes: fills gaps of lanes that have ended, because others could go on for a while only. Ends with the signal. */
  async watch(lanes: readonly RunningLane[], env: Env, signal: AbortSignal): Promise<void> {
    if (!this.#layout.isLanes || !this.#parts.pipeline.hasEnd) return;
    const adopted: RunningLane[] = [];
    let seen = { step: -1, times: 0 };
    try {
      while (!signal.aborted) {
        await env.sleep(adopted.length > 0 ? lookDelayMs / 4 : lookDelayMs, signal).catch(() => {});
        if (signal.aborted) return;
        const { waiting } = await this.#ns.info({ signal });
        if (!waiting) continue;
        seen = { step: waiting.missingStep, times: seen.step === waiting.missingStep ? seen.times + 1 : 1 };
        const ended = [...lanes.filter((lane) => lane.ended), ...adopted];
        const reached = await this.#reached(signal, lanes);
        for (const lane of ended) await this.#fill(lane, reached).catch(onlyLost);
        const missing = Number(waiting.lane.slice("lane-".length));
        const isForeign = ![...lanes, ...adopted].some(({ lane }) => lane === missing);
        if (isForeign && seen.times >= looksMin + this.#turn) adopted.push(...(await this.#adopt(lanes)));
      }
    } finally {
      await Promise.allSettled(adopted.map(({ producer }) => producer.close()));
    }
  }

  /** Takes over all lanes of others that have ended. */
  async #adopt(lanes: readonly RunningLane[]): Promise<RunningLane[]> {
    const others = Array.from({ length: this.#layout.count }, (_, k) => k).filter(
      (k) => !lanes.some(({ lane }) => lane === k),
    );
    const over = (await Promise.all(others.map((lane) => this.#look(lane)))).filter(({ isOver }) => isOver);
    const held = over.map(({ lane }) => lane);
    if (held.length === 0) return [];
    return await openLanes(this.#ns, this.#parts, { ...this.#layout, held }, this.#producing, this.#signal);
  }

  /** Fills the gaps that the own lanes have left below what others have written. */
  async fillOwn(lanes: readonly RunningLane[]): Promise<void> {
    if (!this.#layout.isLanes) return;
    const reached = await this.#reached(this.#signal, lanes);
    for (const lane of lanes) if (lane.ended) await this.#fill(lane, reached);
  }

  /** When it is this process's turn among those that find the same gap at the same time. */
  get #turn(): number {
    return Math.min(...this.#layout.held) % turnsMax;
  }

  /** Closes the log if all lanes have ended; whether it is closed now, and where it ends. */
  async finish(mayClose: boolean): Promise<{ closed: boolean; end: number }> {
    const { env } = this.#parts;
    for (let attempt = 0; ; attempt++) {
      const { steps, closed } = await this.#ns.info({ signal: this.#signal });
      if (closed || !mayClose) return { closed, end: steps.end };
      const ends = await Promise.all(Array.from({ length: this.#layout.count }, (_, lane) => this.#look(lane)));
      if (!ends.every(({ isOver }) => isOver)) return { closed, end: steps.end };
      try {
        const reached = await this.#reached(this.#signal);
        const behind = ends.filter(({ nextStep }) => nextStep < reached).map(({ lane }) => lane);
        if (this.#layout.isLanes && behind.length > 0) {
          // Others may have come to the same end; whose turn is first does it, and the others find it done.
          const waitMs = attempt === 0 ? this.#turn * turnMs : env.random() * turnMs * 2 ** Math.min(attempt - 1, 4);
          if (waitMs > 0) await env.sleep(waitMs, this.#signal);
          if (waitMs === 0 || !(await this.#hasMoved(ends))) await this.#fillForeign(behind, reached);
          else continue;
        }
        return { closed: true, end: (await this.#ns.endLog({ signal: this.#signal })).end };
      } catch (error) {
        // Another process came to the same end at the same time.
        if (attempt >= attemptsMax) throw error;
        onlyLost(error);
      }
    }
  }

  /** Whether the log was closed or a lane was filled since. */
  async #hasMoved(ends: readonly LaneEnd[]): Promise<boolean> {
    const { closed, producers } = await this.#ns.info({ signal: this.#signal });
    const now = new Map(producers.map(({ id, seq }) => [id, seq]));
    return closed || ends.some(({ lane, seq }) => (now.get(laneId(this.#layout, lane)) ?? seq) !== seq);
  }

  /** The first step that no lane has written, nor any above it; own lanes have batches on the way. */
  async #reached(signal: AbortSignal | undefined, own: readonly RunningLane[] = []): Promise<number> {
    const { producers, steps } = await this.#ns.info({ signal });
    const after = (lane: number, seq: number): number[] =>
      lane < 0 || seq === 0 ? [] : [this.#ns.firstOwnStep + (seq - 1) * this.#layout.count + lane + 1];
    const written = producers.flatMap(({ id, seq }) => after(Number(/^lane-(\d+)$/.exec(id)?.[1] ?? -1), seq));
    const accepted = own.flatMap(({ lane, planner }) => after(lane, planner.nextSeq));
    return Math.min(this.#steps, Math.max(steps.end, ...written, ...accepted));
  }

  async #look(lane: number): Promise<LaneEnd> {
    const { print } = this.#parts.pipeline;
    const layout = this.#layout;
    const state = (await this.#ns.producerState(laneId(layout, lane), { signal: this.#signal })) ?? {
      seq: 0,
      resumePoint: undefined,
    };
    const { seq, resumePoint } = state;
    const part = { lane, lanes: layout.count };
    const { first } = (resumePoint ?? {}) as { readonly first?: number };
    // A lane that wrote nothing into this log has said nothing in it either: its sources are asked.
    if (seq > 0 && isLanePoint(resumePoint) && first === this.#ns.firstOwnStep) {
      const written = decodeLaneState(resumePoint, print, part);
      const nextStep = nextStepOf(written);
      return { lane, seq, nextStep, isOver: written.isOver || nextStep >= this.#steps };
    }
    const inherited = await inheritedPoints(this.#ns, { ...layout, held: [lane] }, this.#signal);
    const planner = new LanePlanner(this.#parts, part, startOf(this.#ns, layout, lane, state, inherited));
    const isOver =
      planner.nextStep >= this.#steps || (this.#going.get(lane) !== seq && (await planner.isOver(this.#signal)));
    if (!isOver) this.#going.set(lane, seq);
    return { lane, seq, nextStep: planner.nextStep, isOver };
  }

  async #fill(lane: RunningLane, reached: number): Promise<void> {
    while (lane.planner.nextStep < reached) {
      const batch = await lane.planner.next({ isFiller: true, signal: this.#signal });
      if (!batch) return;
      await this.#append(lane, batch);
    }
  }

  /** Takes over lanes that have ended: their holders have nothing to write any more. */
  async #fillForeign(lanes: readonly number[], reached: number): Promise<void> {
    const opened = await openLanes(
      this.#ns,
      this.#parts,
      { ...this.#layout, held: lanes },
      this.#producing,
      this.#signal,
    );
    for (const lane of opened) await this.#fill(lane, reached);
    await Promise.all(opened.map(({ producer }) => producer.close({ signal: this.#signal })));
  }
}

/** Another process filled the same gap, or closed the log: what was wanted is done. */
export function onlyLost(error: unknown): void {
  if (!isBatchWeaveError(error, "FENCED") && !isBatchWeaveError(error, "CLOSED")) throw error;
}
