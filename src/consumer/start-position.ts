/** Where a consumer starts. */
import { BatchWeaveError, shown } from "../errors.js";
import { type Cursor, type Manifest, type NamespaceSpec, parseCursor } from "../format/index.js";

/**
 * A saved cursor, a live checkpoint by its id, or a place in the log; then iterations count from 0 unless said otherwise. A cursor that was
 * saved as JSON text becomes one by `parseCursor`.
 * `"earliest"` and `"latest"` are looked up by each rank when it opens, so while producers or the reclaimer run, ranks that open at
 * different moments may start at different rows: give the ranks of one job the same cursor, step or row.
 */
export type StartFrom =
  | Cursor
  | "earliest"
  | "latest"
  | { readonly step: number; readonly iteration?: number | undefined }
  | { readonly row: number; readonly iteration?: number | undefined }
  | {
      readonly checkpoint: string;
      /** The training run that registered it. Default: the consumer's own group. */
      readonly group?: string | undefined;
    };

/** The next global row and iteration. */
export interface Position {
  readonly row: number;
  readonly iteration: number;
}

/** Translates a cursor of another namespace (an ancestor's, for forks) into this one's, or gives undefined to refuse it. */
export type AcceptCursor = (cursor: Cursor) => Cursor | undefined | Promise<Cursor | undefined>;

/** Resolves `from` against a fresh verified manifest. Refuses another namespace's cursor and rows that are gone. */
export async function startPosition(
  from: StartFrom,
  spec: NamespaceSpec,
  manifest: Manifest,
  acceptCursor: AcceptCursor | undefined,
  ownGroup: string,
): Promise<Position> {
  const { rows } = spec.grid;
  if (from === "earliest") return { row: manifest.steps.trim * rows, iteration: 0 };
  if (from === "latest") return { row: manifest.steps.end * rows, iteration: 0 };
  if (isCheckpoint(from)) return checkpointOf(from, manifest, ownGroup);
  const position = isPlace(from) ? placeOf(from, rows) : await cursorOf(from, spec, acceptCursor);
  if (position.row < manifest.steps.trim * rows) throw reclaimed(position.row, manifest, rows);
  if (manifest.closed && position.row > manifest.steps.end * rows) throw pastEnd(position.row, manifest, rows);
  return position;
}

type Place = { step?: unknown; row?: unknown; iteration?: unknown };

/** A cursor carries its namespace; `{ step }` and `{ row }` do not. */
function isPlace(from: StartFrom): from is Extract<StartFrom, { step: number } | { row: number }> {
  return typeof from === "object" && from !== null && !("batchweave" in from) && ("step" in from || "row" in from);
}

type Checkpoint = Extract<StartFrom, { checkpoint: string }>;

function isCheckpoint(from: StartFrom): from is Checkpoint {
  return typeof from === "object" && from !== null && !("batchweave" in from) && "checkpoint" in from;
}

/** A checkpoint that is live holds its rows, so it is never behind the trim. */
function checkpointOf({ checkpoint: id, group: given }: Checkpoint, manifest: Manifest, ownGroup: string): Position {
  const group = given ?? ownGroup;
  const live = manifest.checkpoints.get(group)?.live;
  const found = typeof id === "string" ? live?.get(id) : undefined;
  if (found) return { row: found.row, iteration: found.iteration };
  const ids = [...(live?.keys() ?? [])];
  const known = ids.length === 0 ? "The group has none" : `It has ${ids.slice(-8).join(", ")}`;
  throw new BatchWeaveError(
    "NO_CHECKPOINT",
    `There is no live checkpoint ${shown(id)} in group ${shown(group)}. ${known}; start from one of those, or name the group it was registered in.`,
    { id, group, live: ids },
  );
}

function placeOf(from: Place, rows: number): Position {
  const iteration = from.iteration ?? 0;
  for (const [name, value] of Object.entries({ step: from.step, row: from.row, iteration })) {
    if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= 0)) continue;
    throw new BatchWeaveError("INVALID_ARGUMENT", `from.${name} must be a whole number, not ${shown(value)}.`, {
      from,
    });
  }
  const row = from.step === undefined ? (from.row as number) : (from.step as number) * rows;
  return { row, iteration: iteration as number };
}

async function cursorOf(from: unknown, spec: NamespaceSpec, acceptCursor: AcceptCursor | undefined): Promise<Position> {
  const cursor = parseCursor(from);
  if (cursor.namespace === spec.uuid) return cursor;
  const accepted = await acceptCursor?.(cursor);
  if (accepted) return accepted;
  throw new BatchWeaveError(
    "WRONG_NAMESPACE",
    `The cursor belongs to namespace ${cursor.namespace}, and this one is ${spec.uuid}. Open the namespace the cursor was saved from, or start from "earliest" or a row of this one.`,
    { found: cursor.namespace, expected: spec.uuid },
  );
}

/** Of an open log one may wait for rows to come; of a closed one none will. */
function pastEnd(row: number, { steps: { trim, end } }: Manifest, rows: number): BatchWeaveError {
  const left = trim < end ? `its last row is ${end * rows - 1} (step ${end - 1})` : "it holds no rows";
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `Row ${row} (step ${Math.floor(row / rows)}) will never exist: the log is closed and ${left}. Start at or before row ${end * rows}.`,
    { row, end, closed: true },
  );
}

/** RECLAIMED: the rows wanted are behind the trim. */
export function reclaimed(row: number, manifest: Manifest, rows: number): BatchWeaveError {
  const oldest = manifest.steps.trim * rows;
  return new BatchWeaveError(
    "RECLAIMED",
    `Row ${row} (step ${Math.floor(row / rows)}) was reclaimed; the oldest row left is ${oldest} (step ${manifest.steps.trim}). Start from a checkpoint that is still held, or from "earliest".`,
    { row, oldestRow: oldest, trim: manifest.steps.trim, version: manifest.version },
  );
}
