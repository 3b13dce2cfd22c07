/** What a command tells of itself while it works: pulses beside the log, and a line on the terminal when it waits. */
import { hostname } from "node:os";
import type { Namespace, Pulse, PulseRole } from "../index.js";
import type { SourceFigures } from "../plan/index.js";
import type { Call } from "./command.js";
import { formatMs } from "./terminal.js";

/** A command that waits longer than this says for what. */
const waitMsMin = 2_000;
const lookMs = 500;
/** Sources that a pulse tells of: those that are waited for most. */
const sourcesMax = 12;

/** What is told. */
interface Signs {
  readonly role: PulseRole;
  readonly name: string;
  readonly facts: () => Readonly<Record<string, unknown>>;
  /** What it waits for now, and for how long; undefined: nothing. */
  readonly waiting?: (() => { readonly what: string; readonly ms: number } | undefined) | undefined;
  readonly peers?: number | undefined;
}

/** Tells until it is disposed. */
export class LifeSigns implements AsyncDisposable {
  readonly #call: Call;
  readonly #ended = new AbortController();
  #pulse: Pulse | undefined;
  #toldMs = 0;
  #told: string | undefined;
  #takeover: { readonly lane: string; readonly atMs: number } | undefined;

  constructor(call: Call) {
    this.#call = call;
  }

  /** Begins, once the namespace is open. */
  begin(ns: Namespace, signs: Signs): void {
    const { args, env } = this.#call;
    if (this.#ended.signal.aborted || this.#pulse) return;
    const facts = (): Record<string, unknown> => {
      const waiting = signs.waiting?.();
      const taken = this.#takeover;
      return {
        ...(waiting && waiting.ms >= waitMsMin ? { waitingFor: waiting.what, waitingMs: Math.round(waiting.ms) } : {}),
        ...(taken ? { tookOver: taken.lane, tookOverAgoMs: Math.round(env.monotonic() - taken.atMs) } : {}),
        ...signs.facts(),
      };
    };
    if (!args.flag("no-pulse"))
      this.#pulse = ns.pulse({ role: signs.role, name: signs.name, peers: signs.peers, facts });
    const run = async (): Promise<void> => {
      for (;;) {
        await env.sleep(lookMs, this.#ended.signal);
        this.#look(signs.waiting?.());
      }
    };
    if (signs.waiting) run().catch(() => {});
  }

  #look(waiting: { readonly what: string; readonly ms: number } | undefined): void {
    if (!waiting || waiting.ms < waitMsMin) {
      // A viewer would take the wait for one that lasts.
      if (this.#told !== undefined && this.#told !== waiting?.what) {
        this.#told = undefined;
        this.#pulse?.hurry("end");
      }
      return;
    }
    this.#pulse?.hurry();
    // Once, and again when it has doubled.
    if (this.#told === waiting.what && waiting.ms < 2 * this.#toldMs) return;
    [this.#told, this.#toldMs] = [waiting.what, Math.max(waitMsMin, waiting.ms)];
    this.#call.terminal.note(`waiting for ${waiting.what} (${formatMs(waiting.ms)})`);
  }

  /** This process took a lane from one that stood still: the others may be the last to know. */
  tookOver(lane: string): void {
    this.#takeover = { lane, atMs: this.#call.env.monotonic() };
    this.#pulse?.hurry("takeover");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    await this.#pulse?.stop();
  }
}

/** A name for a process that has no other: where it runs, and its number there. */
export function processName(): string {
  return `${
    hostname()
      .replace(/[^A-Za-z0-9._-]/g, "")
      .slice(0, 40)
      .replace(/^[.-]+/, "") || "host"
  }.${process.pid}`;
}

/** Figures of sources for a pulse, the most waited for first. */
export function sourceFacts(figures: readonly SourceFigures[]): readonly Record<string, unknown>[] {
  return [...figures]
    .sort((a, b) => b.waitMs - a.waitMs)
    .slice(0, sourcesMax)
    .map((f) => ({
      source: f.source,
      samples: f.samples,
      waitMs: Math.round(f.waitMs),
      readMs: Math.round(f.readMs),
      transformMs: Math.round(f.transformMs),
      buffered: f.bufferedBytes,
      faults: f.faults,
    }));
}

/** The source that a batch has waited for longest by now. */
export function sourceWait(
  figures: readonly SourceFigures[],
): { readonly what: string; readonly ms: number } | undefined {
  const worst = [...figures].sort((a, b) => b.waitingMs - a.waitingMs)[0];
  return worst && worst.waitingMs > 0 ? { what: `source ${worst.source}`, ms: worst.waitingMs } : undefined;
}
