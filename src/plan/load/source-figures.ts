/** What a source costs, measured while it is read: the figures by which loaders are sized and transforms are placed. */
import type { Env } from "../../index.js";
import type { Fault } from "./fault.js";
import { FaultTally, type TallySource } from "./fault-tally.js";
import type { Transform } from "./transform.js";

/** Sizes before the first transform and after each, summed over samples. */
export interface SourceFigures {
  readonly source: string;
  readonly samples: number;
  readonly tokens: number;
  /** Bytes read from its shards, compressed where they are, footers and all. */
  readonly readBytes: number;
  /** As read, and as ready for planning. */
  readonly rawBytes: number;
  readonly readyBytes: number;
  /** Ready bytes / raw bytes. */
  readonly expansion: number;
  /** Time until shards gave the next samples, and time in transforms: summed over lanes and threads. */
  readonly readMs: number;
  readonly transformMs: number;
  /** Time that batches waited for a sample of this source, and for how long one does now (0: none). */
  readonly waitMs: number;
  readonly waitingMs: number;
  /** Bytes buffered now, and at most so far. */
  readonly bufferedBytes: number;
  readonly bufferedBytesMost: number;
  readonly faults: number;
  /** Documents longer than a sequence that were split, and that were truncated. */
  readonly split: number;
  readonly truncated: number;
  /** Tokens lost by truncating, or by leaving out what is too long. */
  readonly tokensDropped: number;
  /** Bytes before each transform and after the last. */
  readonly stageBytes: readonly number[];
}

/** What a counter must know of its source. */
type CountedSource = TallySource & { readonly settings: { readonly transforms?: readonly Transform[] | undefined } };

/** Counts of one source. Mutable: owned by its loaders. */
export class FigureCounter {
  readonly source: string;
  samples = 0;
  tokens = 0;
  readBytes = 0;
  readMs = 0;
  transformMs = 0;
  #waitMs = 0;
  /** When lanes began to wait for it. */
  readonly #waits = new Set<{ readonly sinceMs: number }>();
  bufferedBytes = 0;
  bufferedBytesMost = 0;
  split = 0;
  truncated = 0;
  readonly tally: FaultTally;
  readonly stageBytes: number[];
  readonly #loaderStages: number;
  #env: Env | undefined;

  constructor(source: CountedSource, onFault?: ((fault: Fault) => void) | undefined) {
    const transforms = source.settings.transforms ?? [];
    this.source = source.name;
    this.tally = new FaultTally(source, onFault);
    this.stageBytes = new Array<number>(transforms.length + 1).fill(0);
    this.#loaderStages = transforms.filter(({ at }) => at === "loader").length;
  }

  /** Adds sizes that were measured from stage `first` on. */
  addStages(first: number, bytes: readonly number[]): void {
    bytes.forEach((size, i) => {
      // The size before the first transform of a later part was already counted after the last of the part before.
      if (i > 0 || first === 0) this.stageBytes[first + i] = (this.stageBytes[first + i] ?? 0) + size;
    });
  }

  /** A batch begins to wait for a sample; the result ends that. */
  wait(env: Env): () => void {
    this.#env = env;
    const one = { sinceMs: env.monotonic() };
    this.#waits.add(one);
    return () => {
      if (this.#waits.delete(one)) this.#waitMs += env.monotonic() - one.sinceMs;
    };
  }

  /** Whether a batch waits for it now. */
  get isWaitedFor(): boolean {
    return this.#waits.size > 0;
  }

  buffer(bytes: number): void {
    this.bufferedBytes += bytes;
    this.bufferedBytesMost = Math.max(this.bufferedBytesMost, this.bufferedBytes);
  }

  snapshot(): SourceFigures {
    const nowMs = this.#env?.monotonic() ?? 0;
    const waits = [...this.#waits].map(({ sinceMs }) => nowMs - sinceMs);
    const [rawBytes, readyBytes] = [this.stageBytes[0] ?? 0, this.stageBytes[this.#loaderStages] ?? 0];
    return {
      source: this.source,
      samples: this.samples,
      tokens: this.tokens,
      readBytes: this.readBytes,
      rawBytes,
      readyBytes,
      expansion: rawBytes === 0 ? 1 : readyBytes / rawBytes,
      readMs: this.readMs,
      transformMs: this.transformMs,
      waitMs: this.#waitMs + waits.reduce((a, b) => a + b, 0),
      waitingMs: Math.max(0, ...waits),
      bufferedBytes: this.bufferedBytes,
      bufferedBytesMost: this.bufferedBytesMost,
      faults: this.tally.count,
      split: this.split,
      truncated: this.truncated,
      tokensDropped: this.tally.dropped,
      stageBytes: [...this.stageBytes],
    };
  }
}

/** For one transform: bytes moved from loader to constructor and from constructor to the log, were it placed there. */
export interface PlacementFigures {
  readonly source: string;
  readonly transform: string;
  readonly at: string;
  readonly loader: { readonly buffered: number; readonly logged: number };
  readonly constructor: { readonly buffered: number; readonly logged: number };
  readonly consumer: { readonly buffered: number; readonly logged: number };
}

/** What placing each transform elsewhere would move, from measured sizes. */
export function placementFigures(figures: SourceFigures, transforms: readonly Transform[]): PlacementFigures[] {
  return transforms.map(({ name, at }, i) => {
    const [before, after] = [figures.stageBytes[i] ?? 0, figures.stageBytes[i + 1] ?? 0];
    return {
      source: figures.source,
      transform: name,
      at,
      loader: { buffered: after, logged: after },
      constructor: { buffered: before, logged: after },
      consumer: { buffered: before, logged: before },
    };
  });
}
