/**
 * Silent producers. State is never forgotten, but the manifest must stay small: producers that have not committed for
 * long move, in any producer's commit, to a sealed table together with a copy of their resume point.
 */
import { isBatchWeaveError } from "../errors.js";
import { encodeTable, type Manifest, type NodeRef, type ProducerState, type SilentProducer } from "../format/index.js";
import type { Draft } from "./draft.js";
import type { SilentFinding } from "./stage.js";

/** Limits of silence; settings of the log, because they bound the manifest. */
export interface SilencePolicy {
  /** A producer is silent when this many versions passed since its last commit. */
  readonly silentVersions: number;
  /** No producer is moved while the manifest holds fewer producers. */
  readonly inlineProducersMin: number;
  /** So many are moved at a time at least, since each move is a table. Default 16. */
  readonly movedMin?: number | undefined;
}

/** Moving 64 at a time amortises the commit that does it; each costs its carrier two small reads. */
const movedProducersMax = 64;
const movedProducersMin = 16;
/** Tables are merged when there are more. */
const tablesMax = 8;
/** A table does not grow further by merging. */
const tableProducersMax = 4_096;

export const defaultSilence: SilencePolicy = { silentVersions: 4_096, inlineProducersMin: 256 };

/** What moving needs from the store, looked up for one base. */
export interface SilenceFindings {
  readonly moved: ReadonlyMap<string, SilentProducer>;
  /** Contents of the tables to be merged, oldest first; they are the last of the manifest's tables. */
  readonly merged: readonly ReadonlyMap<string, SilentProducer>[];
}

/** Ids that may be moved, longest silent first. Empty most of the time. */
function silentProducers(base: Manifest, policy: SilencePolicy): string[] {
  if (base.producers.size < policy.inlineProducersMin) return [];
  const limit = base.version - policy.silentVersions;
  if (limit <= 0) return [];
  const silent = [...base.producers].filter(([, state]) => state.at < limit);
  if (silent.length < (policy.movedMin ?? movedProducersMin)) return [];
  silent.sort(([, a], [, b]) => a.at - b.at);
  return silent.slice(0, movedProducersMax).map(([id]) => id);
}

/** Reads the resume points to copy and, when there are many tables, the newest ones to merge. */
export async function lookUpSilence(
  base: Manifest,
  policy: SilencePolicy,
  readTable: (ref: NodeRef) => Promise<Map<string, SilentProducer>>,
  readResumePoint: (id: string, state: ProducerState) => Promise<unknown>,
): Promise<SilenceFindings | undefined> {
  const ids = silentProducers(base, policy);
  if (ids.length === 0) return undefined;
  const moved = new Map<string, SilentProducer>();
  await Promise.all(
    ids.map(async (id) => {
      const state = base.producers.get(id) as ProducerState;
      try {
        moved.set(id, { state, resumePoint: await readResumePoint(id, state) });
      } catch (error) {
        // It came back meanwhile and a reclaim took its old batch: this base is not the newest any more, and it stays where it is.
        if (!isBatchWeaveError(error, "MISSING_OBJECT")) throw error;
      }
    }),
  );
  const merged = base.tables.length < tablesMax ? [] : await Promise.all(base.tables.slice(-tablesMax).map(readTable));
  const total = merged.reduce((sum, table) => sum + table.size, moved.size);
  return {
    moved,
    merged:
      total > tableProducersMax ? merged.slice(-1).filter((t) => t.size + moved.size <= tableProducersMax) : merged,
  };
}

/** Moves producers out. Those that changed in this very draft stay. */
export function stageSilence(draft: Draft, findings: SilenceFindings | undefined): void {
  if (!findings) return;
  const table = new Map<string, SilentProducer>();
  // Inline state wins over tables, a newer table over an older one.
  for (const older of findings.merged)
    for (const [id, entry] of older) if (!draft.producers.has(id)) table.set(id, entry);
  for (const [id, entry] of findings.moved) {
    if (draft.producers.get(id) !== draft.base.producers.get(id)) continue;
    draft.producers.delete(id);
    table.set(id, entry);
  }
  if (table.size === 0) return;
  draft.tables = draft.tables.slice(0, draft.tables.length - findings.merged.length);
  draft.tables.push(draft.seal(encodeTable(draft.base.namespace, table)));
}

/** Looks a producer up in the sealed tables of `base`, newest first. */
export async function findSilent(
  base: Manifest,
  id: string,
  readTable: (ref: NodeRef) => Promise<Map<string, SilentProducer>>,
): Promise<SilentFinding | undefined> {
  for (const table of [...base.tables].reverse()) {
    const entry = (await readTable(table)).get(id);
    if (entry) return { state: entry.state, table, hasResumePoint: entry.resumePoint !== undefined };
  }
  return undefined;
}
