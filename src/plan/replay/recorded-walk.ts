/**
 * Finds the documents of recorded batches again. Sources are not asked by id: a part of a source was read in one order, so its cursor walks that order again,
 * and passes what no batch holds.
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

/** One part of one source, walked once. */
export class RecordedWalk {
  readonly #source: ResolvedSource;
  readonly #cursor: SourceCursor;
  /** Documents of which a later batch may hold more pieces. */
  readonly #kept = new Map<string, RawSample>();

  constructor(
    source: ResolvedSource,
    { shards, env }: { readonly shards: ShardPool; readonly env: Env },
    part: { readonly seed: number | string; readonly lane: number; readonly lanes: number },
    from: SourcePosition | undefined,
  ) {
    this.#source = source;
    this.#cursor = new SourceCursor(source, shards, env, part, from);
  }

  /** The documents of samples of one batch. `epoch`: where the cursor stood behind that batch when it was made. */
  async find(
    ids: readonly string[],
    epoch: number,
    signal: AbortSignal | undefined,
  ): Promise<{ readonly samples: readonly FoundSample[]; readonly documents: ReadonlyMap<string, RawSample> }> {
    const documents = new Map(this.#kept);
    // An id that looks like a piece's may be a document's own: both are looked for until one is found.
    const missing = new Set<string>();
    const named = new Map<string, string[]>();
    for (const id of new Set(ids)) {
      const names = new Set([id, documentOf(id, () => false).id]);
      if ([...names].some((name) => documents.has(name))) continue;
      missing.add(id);
      for (const name of names) named.set(name, [...(named.get(name) ?? []), id]);
    }
    while (missing.size > 0) {
      const item = this.#cursor.position[0] > epoch ? undefined : await this.#cursor.next(signal);
      if (!item) throw this.#lost([...missing]);
      const found = item.raw && named.get(item.id);
      if (!found) continue;
      documents.set(item.id, item.raw as RawSample);
      for (const id of found) missing.delete(id);
    }
    const samples = ids.map((id): FoundSample => {
      const { id: document, k, n } = documentOf(id, (name) => documents.has(name));
      return { id, document, k, n };
    });
    this.#kept.clear();
    for (const { document, k, n } of samples) {
      const raw = documents.get(document);
      if (k < n && raw && !samples.some((other) => other.document === document && other.k === n))
        this.#kept.set(document, raw);
    }
    return { samples, documents };
  }

  #lost(ids: readonly string[]): BatchWeaveError {
    const { name } = this.#source;
    return new BatchWeaveError(
      "CORRUPT",
      `Source ${name} has no sample ${ids[0]} where the log says it was read${ids.length > 1 ? ` (nor ${ids.length - 1} others)` : ""}: it has changed since. Replay with the source as it was.`,
      { source: name, ids: ids.slice(0, 10) },
    );
  }
}
