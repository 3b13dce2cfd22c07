/**
 * Virtual time and the processes that live in it.
 *
 * Events fire one at a time; after one that settled a promise, every microtask runs before the next is taken, so a seed
 * decides the order of everything. A process is whatever its own `env` and store client let it do: crashing it cuts both off.
 */
import assert from "node:assert/strict";
import { Aborts } from "./aborts.js";
import { EventHeap, SimEvent } from "./event-heap.js";
import type { ProcessEvent } from "./process-event.js";
import { hashString, Rng } from "./random.js";
import { SimEnv } from "./sim-env.js";
import { Trace, type TraceOptions, traceCodes } from "./trace.js";

/** How a process ended. */
export type ProcessExit =
  | { readonly reason: "returned" }
  | { readonly reason: "crashed" }
  | { readonly reason: "threw"; readonly error: unknown };

/** Options of {@link World}. */
export interface WorldOptions {
  readonly seed: number;
  readonly trace?: TraceOptions | undefined;
  /**
   * How microtasks are drained. `tick` is the fast one; `immediate` lets the whole event loop turn and is how a test shows
   * that nothing under simulation waits on anything but virtual time.
   */
  readonly drain?: "tick" | "immediate" | undefined;
}

/** Options of {@link World.spawn}. */
export interface SpawnOptions {
  /** How far the process's wall clock is off. */
  readonly skewMs?: number | undefined;
}

/** Options of {@link World.run}. */
export interface RunOptions {
  /** Virtual time at which to return. */
  readonly untilMs?: number | undefined;
  /** Returns early once this holds; asked after every drained event. */
  readonly until?: (() => boolean) | undefined;
  /** More events than this are a runaway, and an error. */
  readonly eventsMax?: number | undefined;
}

/** Why {@link World.run} returned: nothing left to happen, the time is over, the condition holds, or somebody called `stop`. */
export type RunEnd = "idle" | "time" | "condition" | "stopped";

/** One simulated process. Made by {@link World.spawn}. */
export class SimProcess {
  readonly world: World;
  /** Number within the run, for traces. */
  readonly number: number;
  /** Who it is; a restart has the same name. */
  readonly name: string;
  /** 0, 1, 2... for each spawn of this name. */
  readonly incarnation: number;
  /** `name.incarnation`. */
  readonly label: string;
  readonly env: SimEnv;
  /** Set once it has ended. */
  exit: ProcessExit | undefined;
  /** Deliveries that wait for a paused process. */
  #held: ProcessEvent[] = [];
  #pausedUntilMs = 0;
  #paused = false;

  constructor(world: World, number: number, name: string, incarnation: number, skewMs: number) {
    this.world = world;
    this.number = number;
    this.name = name;
    this.incarnation = incarnation;
    this.label = `${name}.${incarnation}`;
    this.env = new SimEnv(this, new Rng(world.seed, `env/${this.label}`), skewMs);
  }

  /** False once it has returned, thrown or crashed; from then on it has no effect on anything. */
  get alive(): boolean {
    return this.exit === undefined;
  }

  /** True while its continuations are held back. */
  get paused(): boolean {
    return this.#paused;
  }

  /** Whether an event may reach this process now; a paused process gets it later. */
  accepts(event: ProcessEvent): boolean {
    if (this.exit !== undefined) return false;
    if (!this.#paused) return true;
    this.#held.push(event);
    return false;
  }

  /** Holds back everything that would reach it. Pauses do not add up: the later end counts. */
  holdUntil(timeMs: number): void {
    this.#paused = true;
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, timeMs);
  }

  /** Ends a pause whose time is over and gives back what was held. */
  release(nowMs: number): ProcessEvent[] {
    if (!this.#paused || nowMs < this.#pausedUntilMs) return [];
    this.#paused = false;
    const held = this.#held;
    this.#held = [];
    return held;
  }
}

class ActionEvent extends SimEvent {
  readonly #action: () => void;

  constructor(action: () => void) {
    super();
    this.#action = action;
  }

  override fire(): void {
    this.#action();
  }
}

/** The run loop, its clock, its chance, its processes. */
export class World {
  readonly seed: number;
  readonly trace: Trace;
  readonly aborts: Aborts = new Aborts();
  /** Virtual time in ms since the start. */
  nowMs = 0;
  /** Called whenever a process ends, after its exit is set. */
  onExit: ((process: SimProcess) => void) | undefined;
  readonly #heap = new EventHeap();
  readonly #processes: SimProcess[] = [];
  readonly #incarnations = new Map<string, number>();
  readonly #immediate: boolean;
  #settled = false;
  #stopped = false;
  #failure: { error: unknown } | undefined;

  constructor(options: WorldOptions) {
    this.seed = options.seed;
    this.trace = new Trace(options.trace);
    this.#immediate = options.drain === "immediate";
  }

  /** Every process ever spawned, the dead ones too. */
  get processes(): readonly SimProcess[] {
    return this.#processes;
  }

  /** Events waiting. */
  get waiting(): number {
    return this.#heap.size;
  }

  /** The stream of chance for one purpose. */
  rng(purpose: string): Rng {
    return new Rng(this.seed, purpose);
  }

  /** Puts an event `delayMs` from now. */
  schedule(event: SimEvent, delayMs: number): void {
    this.#heap.push(event, this.nowMs + delayMs);
  }

  /** Takes a waiting event out. */
  cancel(event: SimEvent): void {
    this.#heap.cancel(event);
  }

  /** Runs an action of the harness `delayMs` from now; it belongs to no process. */
  after(delayMs: number, action: () => void): SimEvent {
    const event = new ActionEvent(() => {
      this.trace.hashEvent(this.nowMs, traceCodes.action, 0);
      this.#settled = true;
      action();
    });
    this.schedule(event, delayMs);
    return event;
  }

  /** Says that a promise was settled, so microtasks must run before the next event. */
  settle(): void {
    this.#settled = true;
  }

  /** Starts a process at the current time. Spawning a name again is a restart; the earlier holder may well be alive. */
  spawn(name: string, main: (process: SimProcess) => Promise<void>, options: SpawnOptions = {}): SimProcess {
    const incarnation = this.#incarnations.get(name) ?? 0;
    this.#incarnations.set(name, incarnation + 1);
    const process = new SimProcess(this, this.#processes.length, name, incarnation, options.skewMs ?? 0);
    this.#processes.push(process);
    const start = new ActionEvent(() => {
      if (!process.alive) return;
      this.#record(traceCodes.spawn, process, "spawn", "");
      this.#settled = true;
      main(process).then(
        () => this.#end(process, { reason: "returned" }),
        (error: unknown) => this.#end(process, { reason: "threw", error }),
      );
    });
    this.schedule(start, 0);
    return process;
  }

  /** Kills a process: nothing it waits for ever comes back. What it has already sent may still land. */
  crash(process: SimProcess): void {
    if (!process.alive) return;
    this.#record(traceCodes.crash, process, "crash", "");
    this.#finish(process, { reason: "crashed" });
  }

  /** Stops a process for a while; then everything it missed reaches it at once, as to a process that was suspended. */
  pause(process: SimProcess, durationMs: number): void {
    if (!process.alive) return;
    this.#record(traceCodes.pause, process, "pause", `${Math.round(durationMs)} ms`);
    process.holdUntil(this.nowMs + durationMs);
    const resume = new ActionEvent(() => {
      if (!process.paused) return;
      const held = process.release(this.nowMs);
      if (process.paused || !process.alive) return;
      this.#record(traceCodes.resume, process, "resume", "");
      // A process that wakes up may see its expired timers before the answers that came long ago, or after them.
      if (this.rng(`resume/${process.label}/${this.nowMs}`).chance(0.5)) {
        held.sort((a, b) => Number(b.isTimer) - Number(a.isTimer));
      }
      for (const event of held) if (!event.cancelled) this.schedule(event, 0);
    });
    this.schedule(resume, durationMs);
  }

  /** An actor's own word in the trace: what it acknowledged, committed, saw. */
  note(process: SimProcess, what: string, subject = "", result: string | number = ""): void {
    if (!process.alive) return;
    this.trace.hashEvent(this.nowMs, traceCodes.note, process.number ^ hashString(what) ^ hashString(subject));
    if (this.trace.wordy) this.trace.describe(this.nowMs, process.label, what, subject, result);
  }

  /** Ends the run after the current event. */
  stop(): void {
    this.#stopped = true;
  }

  /** Ends the run with an error, such as a broken invariant. The first one counts. */
  fail(error: unknown): void {
    this.#failure ??= { error };
    this.#stopped = true;
  }

  /** Lets virtual time pass. May be called again to go on. Rejects with what {@link World.fail} was given or a harness action threw. */
  run(options: RunOptions = {}): Promise<RunEnd> {
    const untilMs = options.untilMs ?? Number.POSITIVE_INFINITY;
    const eventsMax = options.eventsMax ?? 200_000_000;
    const eventsEnd = this.trace.count + eventsMax;
    this.#stopped = this.#failure !== undefined;
    let drains = 0;
    return new Promise((resolve, reject) => {
      const finish = (end: RunEnd): void => {
        // A turn of the real loop lets Node report promises that were rejected with nobody listening.
        setImmediate(() => (this.#failure === undefined ? resolve(end) : reject(this.#failure.error)));
      };
      const step = (): void => {
        let end: RunEnd | undefined;
        try {
          end = this.#fireUntilSettled(options, untilMs);
          if (this.trace.count > eventsEnd) assert.fail(`runaway: more than ${eventsMax} events by ${this.nowMs} ms`);
        } catch (error) {
          this.fail(error);
          end = "stopped";
        }
        if (end !== undefined) finish(end);
        else if (this.#immediate || (++drains & 0xffff) === 0) setImmediate(step);
        else queueMicrotask(nextTick);
      };
      // A tick queued from a microtask runs once the microtask queue is empty: a full drain without a turn of libuv.
      const nextTick = (): void => process.nextTick(step);
      step();
    });
  }

  /** Fires events up to the first that settled a promise; says why when there is nothing more to fire. */
  #fireUntilSettled(options: RunOptions, untilMs: number): RunEnd | undefined {
    const heap = this.#heap;
    for (;;) {
      if (this.#stopped) return "stopped";
      if (options.until?.()) return "condition";
      const timeMs = heap.peekTimeMs();
      if (timeMs > untilMs || timeMs === Number.POSITIVE_INFINITY) {
        if (untilMs !== Number.POSITIVE_INFINITY) this.nowMs = untilMs;
        return timeMs === Number.POSITIVE_INFINITY ? "idle" : "time";
      }
      const event = heap.pop() as SimEvent;
      this.nowMs = timeMs;
      this.#settled = false;
      event.fire();
      if (this.#settled) return undefined;
    }
  }

  #end(process: SimProcess, exit: ProcessExit): void {
    if (!process.alive) return;
    const result = exit.reason === "threw" ? String(exit.error) : exit.reason;
    this.#record(traceCodes.exit, process, "exit", result);
    this.#finish(process, exit);
  }

  #finish(process: SimProcess, exit: ProcessExit): void {
    process.exit = exit;
    this.onExit?.(process);
  }

  #record(code: number, process: SimProcess, what: string, result: string): void {
    this.trace.hashEvent(this.nowMs, code, process.number);
    if (this.trace.wordy) this.trace.describe(this.nowMs, process.label, what, "", result);
  }
}
