/**
 * Samples that wait for a transform thread, by source. The next portion goes to the source that holds the fewest threads, so that one expensive source
 * cannot keep the others waiting for longer than one of its portions, and a portion of expensive samples is small. Nothing is held back while a thread
 * is free: a source that is alone has them all, up to its own limit. Pure.
 */
import type { Transform } from "./transform.js";
import type { ChainInput, ChainOutput } from "./transform-chain.js";

/** A group of samples that a loader waits for. */
export interface TransformTask {
  readonly chain: readonly Transform[];
  readonly inputs: readonly ChainInput[];
  readonly outputs: (ChainOutput | undefined)[];
  readonly resolve: (outputs: ChainOutput[]) => void;
  readonly reject: (error: unknown) => void;
  /** Indices of inputs that no thread has, in order. */
  waiting: number[];
  /** Inputs without an output. */
  left: number;
}

/** A part of a task that one thread works on. */
export interface TransformPortion {
  readonly task: TransformTask;
  readonly indices: readonly number[];
}

interface SourceShare {
  readonly tasks: TransformTask[];
  inFlightMax: number;
  /** Samples and portions in threads. */
  samples: number;
  portions: number;
  /** A sample takes so long, about; unknown before the first. */
  ms: number | undefined;
  servedAt: number;
}

/** Samples of a portion at most: enough to make the way to a thread worth it. */
const portionSamplesMax = 16;
/** A portion takes so long at most, unless it is a single sample. */
const portionMsMax = 50;

/** Tasks of all sources of a process. */
export class TransformQueue {
  readonly #threads: number;
  readonly #shares = new Map<string, SourceShare>();
  #served = 0;

  /** `threads`: how many there are, so that a source with a limit is not served by one alone. */
  constructor(threads: number) {
    this.#threads = threads;
  }

  /** Adds a task behind the others of its source. */
  push(task: TransformTask, inFlightMax: number = Number.POSITIVE_INFINITY): void {
    const share = this.#share(task);
    share.inFlightMax = inFlightMax;
    share.tasks.push(task);
  }

  /** The portion that is next, which is then in a thread; undefined when nothing waits or may start. */
  next(): TransformPortion | undefined {
    let next: SourceShare | undefined;
    for (const share of this.#shares.values()) {
      if (share.tasks.length === 0 || share.samples >= share.inFlightMax) continue;
      if (!next || (share.portions - next.portions || share.servedAt - next.servedAt) < 0) next = share;
    }
    const task = next?.tasks[0];
    if (!next || !task) return undefined;
    const byTime = next.ms === undefined ? 1 : Math.floor(portionMsMax / Math.max(next.ms, 0.001));
    const spread = Math.ceil(next.inFlightMax / this.#threads);
    const count = Math.max(1, Math.min(portionSamplesMax, byTime, spread, next.inFlightMax - next.samples));
    const indices = task.waiting.splice(0, count);
    if (task.waiting.length === 0) next.tasks.shift();
    next.samples += indices.length;
    next.portions++;
    next.servedAt = ++this.#served;
    return { task, indices };
  }

  /** A portion has left its thread: with what its samples took, where that is known, and what of it must be run again. */
  release({ task, indices }: TransformPortion, outcome: { ms?: number; again?: readonly number[] } = {}): void {
    const share = this.#share(task);
    share.samples -= indices.length;
    share.portions--;
    const { ms, again = [] } = outcome;
    // The latest counts for half: the first sample of a thread loads what it needs, and is no measure.
    if (ms !== undefined) share.ms = share.ms === undefined ? ms : (share.ms + ms) / 2;
    if (again.length === 0) return;
    if (!share.tasks.includes(task)) share.tasks.unshift(task);
    task.waiting = [...again, ...task.waiting];
  }

  /** Forgets what waits of a task that has failed. */
  drop(task: TransformTask): void {
    const { tasks } = this.#share(task);
    const at = tasks.indexOf(task);
    if (at !== -1) tasks.splice(at, 1);
    task.waiting = [];
  }

  /** Everything that waits; then nothing does. */
  clear(): TransformTask[] {
    return [...this.#shares.values()].flatMap((share) => share.tasks.splice(0));
  }

  #share({ inputs }: TransformTask): SourceShare {
    const source = inputs[0]?.source ?? "";
    const found = this.#shares.get(source);
    if (found) return found;
    const share = { tasks: [], inFlightMax: Infinity, samples: 0, portions: 0, ms: undefined, servedAt: 0 };
    this.#shares.set(source, share);
    return share;
  }
}
