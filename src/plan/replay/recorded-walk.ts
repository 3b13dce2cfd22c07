/**
 * Finds the documents of recorded batches again. Sources are not asked by id: they were read in one order, so cursors walk that order again.
 */
import { BatchWeaveError, type Env } from "../../index.js";
import type { ShardPool } from "../source/shard-pool.js";
import type { RawSample } from "../source/shard-reader.js";
import type { ResolvedSource } from "../source/source.js";
import { SourceCursor, type SourcePosition } from "../source/source-cursor.js";
import { documentOf } from "./recorded-piece.js";

/** A recorded sample, with the document it comes from. */
export interface FoundSample {
  readonly id: string;
  readonly k: number;
  readonly n: number;
  readonly document: string;
}

/** Finds documents of one source. */
export interface RecordedWalk {
  /** The documents of samples of one batch. `epoch`: where the batch's part of the source stood behind it. */
  find(ids: readonly string[], epoch: number, signal: AbortSignal | undefined): Promise<FoundDocuments>;
}

/** Samples of a batch, and the documents they are of. */
interface FoundDocuments {
  readonly samples: readonly FoundSample[];
  readonly documents: ReadonlyMap<string, RawSample>;
}

/** What walks need. */
export interface WalkParts {
  readonly shards: ShardPool;
  readonly env: Env;
  readonly seed: number | string;
}

/** One part of one source, which one lane of the log read: walked once. What no batch holds is passed. */
export class PartWalk implements RecordedWalk {
  readonly #source: ResolvedSource;
  readonly #cursor: SourceCursor;
  /** Documents of which a later batch may hold more pieces. */
  #kept: ReadonlyMap<string, RawSample> = new Map();

  constructor(
    source: ResolvedSource,
    { shards, env, seed }: WalkParts,
    part: { readonly lane: number; readonly lanes: number },
    from: SourcePosition | undefined,
  ) {
    this.#source = source;
    this.#cursor = new SourceCursor(source, shards, env, { seed, ...part }, from);
  }

  async find(ids: readonly string[], epoch: number, signal: AbortSignal | undefined): Promise<FoundDocuments> {
    const wanted = new WantedDocuments(ids, this.#kept);
    while (!wanted.isComplete) {
      const item = this.#cursor.position[0] > epoch ? undefined : await this.#cursor.next(signal);
      if (!item) throw lost(this.#source, wanted.missing);
      if (item.raw) wanted.offer(item.id, item.raw);
    }
    const samples = wanted.samples();
    this.#kept = unfinished(samples, wanted.documents);
    return { samples, documents: wanted.documents };
  }
}

/** Bytes of documents that are kept because another lane may have them; those passed longest ago go first. */
const passedBytesMax = 1_073_741_824;

/**
 * All of one source, which loaders read in lanes of their own and blocks dealt to the lanes of the log: lane by lane in turns, from the beginning, and what is
 * passed is kept for those who come to it later.
 */
export class DealtWalk implements RecordedWalk {
  readonly #source: ResolvedSource;
  readonly #cursors: SourceCursor[];
  readonly #passed = new Map<string, RawSample>();
  /** How often each was passed: an epoch later it comes again. */
  readonly #copies = new Map<string, number>();
  #passedBytes = 0;
  #turn = 0;

  constructor(source: ResolvedSource, { shards, env, seed }: WalkParts, lanes: number) {
    this.#source = source;
    this.#cursors = Array.from(
      { length: lanes },
      (_, lane) => new SourceCursor(source, shards, env, { seed, lane, lanes }),
    );
  }

  async find(ids: readonly string[], _epoch: number, signal: AbortSignal | undefined): Promise<FoundDocuments> {
    const wanted = new WantedDocuments(ids, this.#passed);
    for (const id of wanted.documents.keys()) this.#use(id);
    // What is not within a whole epoch from here is nowhere.
    const going = new Map(this.#cursors.map((cursor) => [cursor, cursor.position[0] + 1]));
    while (!wanted.isComplete) {
      const cursor = this.#cursors[this.#turn++ % this.#cursors.length] as SourceCursor;
      const until = going.get(cursor);
      if (going.size === 0) throw lost(this.#source, wanted.missing);
      if (until === undefined) continue;
      const item = cursor.position[0] > until ? undefined : await cursor.next(signal);
      if (!item) going.delete(cursor);
      else if (item.raw && !wanted.offer(item.id, item.raw)) this.#keep(item.id, item.raw);
    }
    const samples = wanted.samples();
    // Pieces of one document may be in blocks of several lanes, and come in any order.
    for (const { document, n } of samples)
      if (n > 1 && !this.#passed.has(document)) this.#keep(document, wanted.documents.get(document) as RawSample);
    return { samples, documents: wanted.documents };
  }

  #keep(id: string, raw: RawSample): void {
    this.#copies.set(id, (this.#copies.get(id) ?? 0) + 1);
    if (this.#passed.has(id)) return;
    this.#passed.set(id, raw);
    this.#passedBytes += raw.bytes;
    for (const oldest of this.#passed.keys()) {
      if (this.#passedBytes <= passedBytesMax) return;
      this.#drop(oldest);
    }
  }

  #use(id: string): void {
    const copies = (this.#copies.get(id) ?? 1) - 1;
    if (copies === 0) this.#drop(id);
    else this.#copies.set(id, copies);
  }

  #drop(id: string): void {
    this.#passedBytes -= this.#passed.get(id)?.bytes ?? 0;
    this.#passed.delete(id);
    this.#copies.delete(id);
  }
}

/** Documents of some samples, as they are found. An id that looks like a piece's may be a document's own: both are looked for until one is found. */
class WantedDocuments {
  readonly documents = new Map<string, RawSample>();
  readonly #ids: readonly string[];
  readonly #missing = new Set<string>();
  readonly #named = new Map<string, string[]>();

  constructor(ids: readonly string[], known: ReadonlyMap<string, RawSample>) {
    this.#ids = ids;
    for (const id of new Set(ids)) {
      const names = [...new Set([id, documentOf(id, () => false).id])];
      const held = names.find((name) => known.has(name));
      if (held !== undefined) {
        this.documents.set(held, known.get(held) as RawSample);
        continue;
      }
      this.#missing.add(id);
      for (const name of names) this.#named.set(name, [...(this.#named.get(name) ?? []), id]);
    }
  }

  get isComplete(): boolean {
    return this.#missing.size === 0;
  }

  get missing(): readonly string[] {
    return [...this.#missing];
  }

  /** Whether it is one of them. */
  offer(id: string, raw: RawSample): boolean {
    const found = this.#named.get(id);
    if (!found?.some((one) => this.#missing.has(one))) return false;
    this.documents.set(id, raw);
    for (const one of found) this.#missing.delete(one);
    return true;
  }

  samples(): FoundSample[] {
    return this.#ids.map((id) => {
      const { id: document, k, n } = documentOf(id, (name) => this.documents.has(name));
      return { id, document, k, n };
    });
  }
}

/** Documents whose last piece is not among samples. */
function unfinished(
  samples: readonly FoundSample[],
  documents: ReadonlyMap<string, RawSample>,
): ReadonlyMap<string, RawSample> {
  const ended = new Set(samples.filter(({ k, n }) => k === n).map(({ document }) => document));
  const left = samples.filter(({ document }) => !ended.has(document));
  return new Map(left.map(({ document }) => [document, documents.get(document) as RawSample]));
}

function lost({ name }: ResolvedSource, ids: readonly string[]): BatchWeaveError {
  return new BatchWeaveError(
    "CORRUPT",
    `Source ${name} has no sample ${ids[0]} where the log says it was read${ids.length > 1 ? ` (nor ${ids.length - 1} others)` : ""}: it has changed since. Replay with the source as it was.`,
    { source: name, ids: ids.slice(0, 10) },
  );
}
