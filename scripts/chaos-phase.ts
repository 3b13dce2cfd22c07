/**
 * Where in its work a process is, written down so that its killer can tell. A decorator around the store notes every phase in a small file
 * with a synchronous write, before and after the call; after a kill -9 the file says the truth. Only the chaos script uses it.
 */
import { openSync, readFileSync, writeSync } from "node:fs";
import type { Body, CreateOutcome, ObjectStore } from "../src/index.js";

/** The phases that kills are counted by. */
export const phases = [
  "upload",
  "sealing",
  "before commit",
  "during commit",
  "after commit",
  "reading",
  "checkpoint commit",
  "release commit",
  "trim commit",
  "announcing",
  "deleting",
] as const;
export type Phase = (typeof phases)[number];

/** An order to die: in this phase, at this fraction of the time that it usually takes. */
export interface Aim {
  readonly phase: Phase;
  readonly fraction: number;
}

/** What the file says. */
export interface PhaseRecord {
  /** Calls under way in each phase. */
  readonly active: Readonly<Partial<Record<Phase, number>>>;
  /** The manifest that was being, or was just, created. */
  readonly commit?: { readonly version: string; readonly id: string } | undefined;
}

const recordBytes = 256;

/** Notes phases, and dies where it was told to. */
export class PhaseMarker {
  readonly #file: number;
  readonly #active: Partial<Record<Phase, number>> = {};
  #commit: PhaseRecord["commit"];
  #aim: Aim | undefined;
  /** How long the calls of each phase take: a moving average. */
  readonly #usualMs: Partial<Record<Phase, number>> = {};

  constructor(path: string) {
    this.#file = openSync(path, "w");
    this.#write();
  }

  /** From now on, the first time this phase is reached is the end. */
  arm(aim: Aim | undefined): void {
    this.#aim = aim;
  }

  /** What a commit of this process is just now. */
  commitPhase: Phase = "during commit";

  /** The commit that the phases around it belong to. */
  set commit(commit: PhaseRecord["commit"]) {
    this.#commit = commit;
  }

  /** Runs `call` as this phase. The phase ends when the call does; a kill before that is a kill during it. */
  async during<T>(phase: Phase, call: () => Promise<T>): Promise<T> {
    this.#enter(phase);
    const begun = performance.now();
    const result = call();
    const aim = this.#aim;
    if (aim?.phase === phase) void this.#dieSoon(aim, begun, result);
    try {
      return await result;
    } finally {
      const tookMs = performance.now() - begun;
      this.#usualMs[phase] = 0.7 * (this.#usualMs[phase] ?? tookMs) + 0.3 * tookMs;
      this.#leave(phase);
    }
  }

  /** A phase without a call: before or after one. */
  async at(phase: Phase): Promise<void> {
    this.#enter(phase);
    if (this.#aim?.phase === phase) this.#die();
    // A moment, so that kills that are not aimed can fall into it too.
    await new Promise<void>((resolve) => setImmediate(resolve));
    this.#leave(phase);
  }

  /** Some time into the call, unless it has ended by then: then its phase is over and the aim stands for the next one. */
  async #dieSoon({ phase, fraction }: Aim, begun: number, call: Promise<unknown>): Promise<void> {
    let isOver = false;
    const end = (): void => {
      isOver = true;
    };
    call.then(end, end);
    const untilMs = begun + fraction * (this.#usualMs[phase] ?? 1);
    while (performance.now() < untilMs) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (isOver) return;
    }
    this.#die();
  }

  /** SIGKILL: no handler runs, nothing is flushed. It may take effect a moment later, so nothing may happen meanwhile. */
  #die(): void {
    process.kill(process.pid, "SIGKILL");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }

  #enter(phase: Phase): void {
    this.#active[phase] = (this.#active[phase] ?? 0) + 1;
    this.#write();
  }

  #leave(phase: Phase): void {
    this.#active[phase] = (this.#active[phase] ?? 1) - 1;
    this.#write();
  }

  #write(): void {
    const active = Object.fromEntries(Object.entries(this.#active).filter(([, count]) => count > 0));
    const record: PhaseRecord = { active, commit: this.#commit };
    // One write of one fixed length at one place: whole or not at all, as far as a kill is concerned.
    writeSync(this.#file, JSON.stringify(record).padEnd(recordBytes), 0);
  }
}

/** What a process was doing when it died. */
export function readPhases(path: string): PhaseRecord {
  const text = readFileSync(path, { encoding: "utf8", flag: "a+" });
  // Killed before it had written anything down.
  return text === "" ? { active: {} } : (JSON.parse(text) as PhaseRecord);
}

/** `store`, with the phases of all processes marked. */
export function withPhases(store: ObjectStore, marker: PhaseMarker): ObjectStore {
  return {
    uri: store.uri,
    create: async (key, body, options) => {
      const create = (): Promise<CreateOutcome> => store.create(key, body, options);
      if (key.includes("/boundary/")) return await marker.during("announcing", create);
      if (!key.includes("/manifest/")) return await create();
      marker.commit = { version: key, id: commitId(body) };
      if (marker.commitPhase !== "during commit") return await marker.during(marker.commitPhase, create);
      await marker.at("before commit");
      const outcome = await marker.during("during commit", create);
      await marker.at("after commit");
      return outcome;
    },
    put: (key, body, options) => {
      const put = (): Promise<void> => store.put(key, body, options);
      if (key.includes("/batch/")) return marker.during("upload", put);
      return key.includes("/index/") ? marker.during("sealing", put) : put();
    },
    getRange: (key, start, length, options) => {
      const get = (): Promise<Uint8Array | undefined> => store.getRange(key, start, length, options);
      return key.includes("/batch/") ? marker.during("reading", get) : get();
    },
    get: (key, options) => store.get(key, options),
    list: (prefix, options) => store.list(prefix, options),
    delete: (keys, options) => marker.during("deleting", () => store.delete(keys, options)),
  };
}

/** The commit id in a manifest's bytes. */
export function commitId(body: Body): string {
  const bytes = body instanceof Uint8Array ? body : Buffer.concat(body as Uint8Array[]);
  return (JSON.parse(Buffer.from(bytes).toString("utf8")) as { commit: { id: string } }).commit.id;
}
