/** Follows the log and reads ahead: iterations are planned in order, read side by side, and handed out in order. */
import { setMaxListeners } from "node:events";
import { onAbort } from "../env/index.js";
import { isBatchWeaveError } from "../errors.js";
import type { Manifest } from "../format/index.js";
import type { Log } from "../log/index.js";
import type { ConsumerObserver } from "./consumer-observer.js";
import { type IterationPlan, type Projection, planIteration } from "./projection.js";
import type { Slice } from "./share.js";
import type { SliceReader } from "./slice-reader.js";
import { type Position, reclaimed } from "./start-position.js";
import { type PollSettings, untilVisible } from "./visibility.js";

/** Limits of reading ahead. */
export interface PrefetchSettings extends PollSettings {
  readonly prefetchBytesMax: number;
  readonly prefetchIterationsMax: number;
}

/** A share that was read. */
export interface LoadedShare {
  readonly slices: readonly Slice[];
  readonly readMs: number;
}

/** An iteration that is being read or waits to be taken. */
export interface Slot {
  readonly plan: IterationPlan;
  readonly loaded: Promise<LoadedShare>;
}

interface OpenSlot extends Slot {
  /** Resolves when its bytes are within the limit, or when it never will be. */
  readonly admitted: Promise<void>;
  heldBytes: number;
}

/** What comes next: an iteration, the end of a closed log, a failure; undefined while it is not known. */
export type Front =
  | { readonly kind: "slot"; readonly slot: Slot }
  | { readonly kind: "end"; readonly leftoverRows: number }
  | { readonly kind: "failure"; readonly error: unknown };

/** What a prefetch works with. */
interface PrefetchParts {
  readonly log: Log;
  readonly reader: SliceReader;
  readonly projection: Projection;
  readonly observer: ConsumerObserver;
  /** Stops it too. */
  readonly signal: AbortSignal | undefined;
}

/** Reads ahead from a position until it is stopped, fails, or the closed log ends. */
export class Prefetch {
  readonly #parts: PrefetchParts;
  readonly #settings: PrefetchSettings;
  readonly #abort = new AbortController();
  readonly #unlisten: (() => void) | undefined;
  readonly #slots: OpenSlot[] = [];
  readonly #pumping: Promise<void>;
  #last: Exclude<Front, { kind: "slot" }> | undefined;
  /** The iteration that is being planned: what a waiting `next()` waits for. */
  #wanted: IterationPlan | undefined;
  #heldBytes = 0;
  #isFull = false;
  #ringing: (() => void)[] = [];

  constructor(parts: PrefetchParts, settings: PrefetchSettings, from: Position) {
    this.#parts = parts;
    this.#settings = settings;
    const { signal } = parts;
    this.#unlisten = signal && onAbort(signal, () => this.#cancel(signal.reason));
    // Every read in flight listens to it, on purpose: Node would call more than ten a leak.
    setMaxListeners(0, this.#abort.signal);
    this.#pumping = this.#pump(from);
  }

  /** What comes next, as far as it is known. */
  get front(): Front | undefined {
    const slot = this.#slots[0];
    return slot ? { kind: "slot", slot } : this.#last;
  }

  /** The iteration whose steps are being waited for. */
  get wanted(): IterationPlan | undefined {
    return this.#wanted;
  }

  /** Resolves at the next change of anything. */
  changed(): Promise<void> {
    return new Promise((resolve) => this.#ringing.push(resolve));
  }

  /** Takes the first iteration out; its bytes are the caller's from now on. */
  take(): void {
    const slot = this.#slots.shift();
    this.#heldBytes -= slot?.heldBytes ?? 0;
    this.#ring();
  }

  #cancel(reason: unknown): void {
    this.#abort.abort(reason);
    this.#ring();
  }

  /** Cancels everything and waits until no iteration is being planned or read any more. */
  async stop(reason: unknown): Promise<void> {
    this.#unlisten?.();
    this.#cancel(reason);
    await this.#pumping;
    await Promise.allSettled(this.#slots.map((slot) => slot.loaded));
  }

  #ring(): void {
    const ringing = this.#ringing;
    this.#ringing = [];
    for (const resolve of ringing) resolve();
  }

  /** Never rejects: a failure is kept and surfaces after the iterations before it were taken. */
  async #pump(from: Position): Promise<void> {
    const { signal } = this.#abort;
    let { row, iteration } = from;
    let admitted = Promise.resolve();
    try {
      for (;;) {
        while (this.#isFull || this.#slots.length >= this.#settings.prefetchIterationsMax) await this.#change();
        const plan = planIteration(this.#parts.projection, row, iteration);
        this.#wanted = plan;
        const manifest = await this.#visible(plan, signal);
        if (!manifest) break;
        const slot = this.#open(plan, manifest, admitted);
        admitted = slot.admitted;
        this.#slots.push(slot);
        row = plan.nextRow;
        iteration++;
        this.#ring();
      }
      const { end } = ((await this.#parts.log.head.newest({ signal })) as Manifest).steps;
      this.#last = { kind: "end", leftoverRows: Math.max(0, end * this.#parts.projection.grid.rows - row) };
    } catch (error) {
      this.#last = { kind: "failure", error };
    }
    this.#ring();
  }

  async #change(): Promise<void> {
    // Also before: a pump that comes here after the abort would wait for a ring that is over.
    this.#abort.signal.throwIfAborted();
    await this.changed();
    this.#abort.signal.throwIfAborted();
  }

  /** A verified manifest in which all rows of the iteration are visible; undefined when the log is closed before them. */
  async #visible({ firstStep, lastStep, row }: IterationPlan, signal: AbortSignal): Promise<Manifest | undefined> {
    const { log, observer } = this.#parts;
    return await untilVisible(log, { first: firstStep, last: lastStep, row }, this.#settings, { observer, signal });
  }

  #open(plan: IterationPlan, manifest: Manifest, before: Promise<void>): OpenSlot {
    let admit: () => void = () => {};
    const admitted = new Promise<void>((resolve) => {
      admit = resolve;
    });
    const slot: OpenSlot = {
      plan,
      admitted,
      heldBytes: 0,
      loaded: this.#load(plan, manifest, before, admit, () => slot),
    };
    // The consumer that takes the slot awaits it; until then a failure must not count as unhandled.
    slot.loaded.catch(() => {});
    return slot;
  }

  async #load(
    plan: IterationPlan,
    manifest: Manifest,
    before: Promise<void>,
    admit: () => void,
    self: () => OpenSlot,
  ): Promise<LoadedShare> {
    const { log, reader } = this.#parts;
    const options = { priority: plan.iteration, signal: this.#abort.signal };
    try {
      const begun = log.env.monotonic();
      const prepared = await this.#guard(plan, manifest, (newest) => reader.prepare(newest, plan.cells, options));
      const preparedMs = log.env.monotonic() - begun;
      await before;
      await this.#admit(self(), prepared.bytes);
      admit();
      const admittedAt = log.env.monotonic();
      const slices = await this.#guard(plan, manifest, () => reader.fetch(prepared, options));
      return { slices, readMs: preparedMs + log.env.monotonic() - admittedAt };
    } finally {
      // One that failed early must not let those after it pass those before it, or they could hold what the first one needs.
      void before.then(admit);
    }
  }

  /**
   * Waits for room. Slots come here one after another in the order of their iterations, so the bytes that are held belong to
   * iterations that are taken before this one; when none are held it goes on however large it is. So it cannot get stuck.
   */
  async #admit(slot: OpenSlot, bytes: number): Promise<void> {
    while (this.#heldBytes > 0 && this.#heldBytes + bytes > this.#settings.prefetchBytesMax) {
      this.#isFull = true;
      await this.#change();
    }
    this.#heldBytes += bytes;
    slot.heldBytes = bytes;
    if (!this.#isFull) return;
    this.#isFull = false;
    this.#ring();
  }

  /**
   * An object may be missing because the reclaimer overtook this reader: the newest manifest tells. It also has the index as
   * it is now. Keys are never used twice, so an overtaken reader can miss bytes but never get wrong ones.
   */
  async #guard<T>(plan: IterationPlan, manifest: Manifest, call: (manifest: Manifest) => Promise<T>): Promise<T> {
    try {
      return await call(manifest);
    } catch (error) {
      if (!isBatchWeaveError(error, "MISSING_OBJECT")) throw error;
      const { log, projection } = this.#parts;
      const newest = await log.head.jump({ signal: this.#abort.signal });
      if (plan.firstStep < newest.steps.trim) throw reclaimed(plan.row, newest, projection.grid.rows);
      if (newest.version === manifest.version) throw error;
      return await call(newest);
    }
  }
}
