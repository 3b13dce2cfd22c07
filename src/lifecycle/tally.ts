/** Counting what a reclaim deletes, and deleting it by the thousand. */
import type { Log } from "../log/index.js";
import type { DeadObject, Sweep } from "./sweep.js";

/** How many objects, and how many bytes. */
export interface DeadCount {
  readonly objects: number;
  readonly bytes: number;
}

/** What went, by kind. */
export interface DeadCounts {
  readonly batches: DeadCount;
  /** Uploads that were begun and never completed; no store says how large they were. */
  readonly uploads: DeadCount;
  readonly index: DeadCount;
  readonly manifests: DeadCount;
  readonly intents: DeadCount;
}

/** Told what a reclaim does. */
export interface ReclaimObserver {
  onDeleted?(objects: readonly DeadObject[]): void;
}

const deletedAtOnceMax = 1_000;
const kinds = {
  batch: "batches",
  upload: "uploads",
  index: "index",
  manifest: "manifests",
  intent: "intents",
} as const satisfies Record<DeadObject["kind"], keyof DeadCounts>;

type Running = { [kind in keyof DeadCounts]: { objects: number; bytes: number } };

/** Counts, and deletes unless it is a dry run. */
export class Tally {
  readonly #log: Log;
  readonly #observer: ReclaimObserver;
  readonly #signal: AbortSignal | undefined;
  readonly #counts: Running = { batches: none(), uploads: none(), index: none(), manifests: none(), intents: none() };
  #pending: DeadObject[] = [];
  readonly #seen = new Set<string>();
  readonly dead: DeadObject[] | undefined;
  warning: string | undefined;

  constructor(log: Log, dryRun: boolean, observer: ReclaimObserver = {}, signal: AbortSignal | undefined) {
    this.#log = log;
    this.#observer = observer;
    this.#signal = signal;
    this.dead = dryRun ? [] : undefined;
  }

  /** What a sweep calls. */
  get ways(): Pick<Sweep, "dryRun" | "take" | "took" | "warn"> {
    return {
      dryRun: this.dead !== undefined,
      take: (objects) => this.#take(objects),
      took: (objects) => this.#took(objects),
      warn: (warning) => {
        this.warning = warning;
      },
    };
  }

  /** Takes dead objects of one kind after another. */
  async #take(objects: readonly DeadObject[]): Promise<void> {
    const counted = this.#count(objects);
    if (!this.dead) this.#pending.push(...counted);
    if (this.#pending.length >= deletedAtOnceMax) await this.flush();
  }

  #took(objects: readonly DeadObject[]): void {
    if (this.#count(objects).length > 0 && !this.dead) this.#observer.onDeleted?.(objects);
  }

  #count(objects: readonly DeadObject[]): readonly DeadObject[] {
    // A dry run meets what was trimmed just now again when it lists. An upload and an object may share a key.
    const isNew = ({ kind, key }: DeadObject): boolean =>
      !this.dead || (!this.#seen.has(kind + key) && this.#seen.add(kind + key) !== undefined);
    const counted = objects.filter(isNew);
    for (const { kind, size } of counted) {
      const count = this.#counts[kinds[kind]];
      count.objects++;
      count.bytes += size;
    }
    this.dead?.push(...counted);
    return counted;
  }

  /** Deletes what is pending. */
  async flush(): Promise<void> {
    const objects = this.#pending;
    this.#pending = [];
    if (objects.length === 0) return;
    // In version 1 of the format manifest names come back after a namespace was made again; all other names are unique.
    if (objects[0]?.kind === "manifest" && this.#log.spec.format === 1)
      await this.#log.presence.ask({ signal: this.#signal });
    // Nothing depends on them: what a power failure brings back is below the cutoff and the boundary, and goes with the next full run. Were
    // it synced, every reclaim would stand in the way of the producers' own syncs.
    await this.#log.store.delete(
      objects.map((o) => o.key),
      { hint: true, signal: this.#signal },
    );
    this.#observer.onDeleted?.(objects);
  }

  counts(): DeadCounts {
    return this.#counts;
  }
}

function none(): { objects: number; bytes: number } {
  return { objects: 0, bytes: 0 };
}

/** Two counts as one. */
export function addCounts(a: DeadCounts, b: DeadCounts): DeadCounts {
  const sum = (kind: keyof DeadCounts): DeadCount => ({
    objects: a[kind].objects + b[kind].objects,
    bytes: a[kind].bytes + b[kind].bytes,
  });
  return {
    batches: sum("batches"),
    uploads: sum("uploads"),
    index: sum("index"),
    manifests: sum("manifests"),
    intents: sum("intents"),
  };
}
