/** Checkpoints: registered, released and listed through the log like everything else. */
import { BatchWeaveError } from "../errors.js";
import { assertName, type Cursor, type Manifest, parseCursor } from "../format/index.js";
import { type Log, newestFirst, stageCheckpoint, stageRelease } from "../log/index.js";
import type { CallOptions } from "../store/index.js";

/** The group of a training run that names none. */
const defaultGroup = "default";

/** What to register. */
interface CheckpointRequest {
  readonly id: string;
  /** Where training goes on: `share.next`, or its JSON. */
  readonly cursor: Cursor | string;
  /** One per training run. Default "default". */
  readonly group?: string | undefined;
  /** Release all but the newest so many of the group in the same commit. */
  readonly keepLast?: number | undefined;
}

/** A live checkpoint. */
export interface LiveCheckpoint {
  readonly group: string;
  readonly id: string;
  readonly row: number;
  readonly step: number;
  readonly iteration: number;
  /** Version of the manifest that registered it. */
  readonly version: number;
}

/**
 * Registers a checkpoint; its data stays until it is released. All ranks may call this with the same id and cursor. Call it after
 * the framework's own checkpoint is durable.
 */
export async function registerCheckpoint(
  log: Log,
  request: CheckpointRequest,
  options?: CallOptions,
): Promise<LiveCheckpoint> {
  const { id, group = defaultGroup, keepLast } = request;
  assertName(id, "Checkpoint id");
  assertName(group, "Checkpoint group");
  if (keepLast !== undefined && !(Number.isSafeInteger(keepLast) && keepLast >= 1)) {
    throw new BatchWeaveError("INVALID_ARGUMENT", `keepLast must be a whole number of at least 1, not ${keepLast}.`, {
      keepLast,
    });
  }
  const { row, iteration } = ownCursor(log, request.cursor);
  const { rows } = log.spec.grid;
  const { manifest } = await log.commit<undefined, boolean>(
    {
      by: `checkpoint ${id}`,
      kind: "checkpoint",
      stage: (draft) => {
        const done = stageCheckpoint(draft, rows, { group, id, row, iteration, keepLast });
        return { done, result: done };
      },
    },
    { signal: options?.signal, fresh: true },
  );
  return liveCheckpoints(manifest, rows).find((c) => c.group === group && c.id === id) as LiveCheckpoint;
}

/** Releases a checkpoint: the next reclaim may delete what only it kept. Releasing it again is fine. */
export async function releaseCheckpoint(
  log: Log,
  request: { readonly id: string; readonly group?: string | undefined },
  options?: CallOptions,
): Promise<void> {
  const { id, group = defaultGroup } = request;
  assertName(id, "Checkpoint id");
  assertName(group, "Checkpoint group");
  await log.commit<undefined, boolean>(
    {
      by: `release ${id}`,
      kind: "release",
      stage: (draft) => {
        const done = stageRelease(draft, group, id);
        return { done, result: done };
      },
    },
    { signal: options?.signal, fresh: true },
  );
}

/** Live checkpoints, by group, the newest first. */
export function liveCheckpoints(manifest: Manifest, rows: number): LiveCheckpoint[] {
  return [...manifest.checkpoints].flatMap(([group, { live }]) =>
    newestFirst(live).map(([id, { row, iteration, at }]) => ({
      group,
      id,
      row,
      step: Math.floor(row / rows),
      iteration,
      version: at,
    })),
  );
}

function ownCursor(log: Log, value: unknown): Cursor {
  const cursor = parseCursor(value);
  if (cursor.namespace === log.spec.uuid) return cursor;
  throw new BatchWeaveError(
    "WRONG_NAMESPACE",
    `The cursor belongs to namespace ${cursor.namespace}, and this one is ${log.spec.uuid}. Register the checkpoint in the namespace it was read from.`,
    { found: cursor.namespace, expected: log.spec.uuid },
  );
}
