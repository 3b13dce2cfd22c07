/** Staging of checkpoints: registered once per group, released once, never resurrected. */
import { BatchWeaveError } from "../errors.js";
import { asRow, type CheckpointGroup, type CheckpointMark } from "../format/index.js";
import type { Draft } from "./draft.js";

/** Live checkpoints over all groups at most: they are inline in every manifest. */
export const checkpointsMax = 1_024;
/** Groups at most; one without live checkpoints makes room for a new one. */
const checkpointGroupsMax = 64;
/** Released ids that a group remembers. */
const releasedMax = 256;

/** A checkpoint to be registered. */
interface NewCheckpoint {
  readonly group: string;
  readonly id: string;
  readonly row: number;
  readonly iteration: number;
  /** Release all but the newest so many of the group, this one included. */
  readonly keepLast?: number | undefined;
}

const emptyGroup: CheckpointGroup = { live: new Map(), released: [] };

/** Registers a checkpoint. True: it is there already, with this very cursor. `rows` is the grid's. */
export function stageCheckpoint(draft: Draft, rows: number, wanted: NewCheckpoint): boolean {
  const group = draft.checkpoints.get(wanted.group) ?? emptyGroup;
  const present = group.live.get(wanted.id);
  if (present) {
    if (present.row === wanted.row && present.iteration === wanted.iteration) return true;
    throw conflict(wanted, present);
  }
  if (group.released.includes(wanted.id)) throw releasedError(wanted);
  assertRow(draft, rows, wanted);
  const live = new Map(group.live);
  live.set(wanted.id, { row: asRow(wanted.row), iteration: wanted.iteration, at: draft.version });
  makeRoomForGroup(draft, wanted.group);
  const keep = wanted.keepLast ?? Number.POSITIVE_INFINITY;
  const dropped = newestFirst(live)
    .slice(keep)
    .map(([id]) => id);
  draft.checkpoints.set(wanted.group, withReleased({ ...group, live }, dropped));
  assertCount(draft);
  return false;
}

/** Releases a checkpoint. True: it was released before. */
export function stageRelease(draft: Draft, groupName: string, id: string): boolean {
  const group = draft.checkpoints.get(groupName) ?? emptyGroup;
  if (!group.live.has(id)) {
    if (group.released.includes(id)) return true;
    const known = [...group.live.keys()];
    throw new BatchWeaveError(
      "NO_CHECKPOINT",
      `Group ${groupName} has no checkpoint ${id}. ${known.length === 0 ? "It has none at all." : `Live are: ${known.slice(-10).join(", ")}.`}`,
      { group: groupName, id },
    );
  }
  draft.checkpoints.set(groupName, withReleased(group, [id]));
  return false;
}

/** Checkpoints of a group, the one registered last first. Not the one furthest on: after a rollback that is an abandoned one. */
export function newestFirst(live: ReadonlyMap<string, CheckpointMark>): [string, CheckpointMark][] {
  return [...live].sort(([a, x], [b, y]) => y.at - x.at || y.row - x.row || (a < b ? 1 : -1));
}

function withReleased(group: CheckpointGroup, ids: readonly string[]): CheckpointGroup {
  const live = new Map(group.live);
  for (const id of ids) live.delete(id);
  return { ...group, live, released: [...group.released, ...ids].slice(-releasedMax) };
}

function assertRow(draft: Draft, rows: number, { group, id, row }: NewCheckpoint): void {
  if (row < draft.trim * rows) {
    throw new BatchWeaveError(
      "RECLAIMED",
      `Checkpoint ${id} of group ${group} is at row ${row} (step ${Math.floor(row / rows)}), and the oldest row left is ${draft.trim * rows} (step ${draft.trim}): its data may be gone. Register checkpoints before a reclaim passes them, or resume from a later one.`,
      { group, id, row, trim: draft.trim },
    );
  }
  if (row > draft.end * rows) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `Checkpoint ${id} of group ${group} is at row ${row}, and the log ends at row ${draft.end * rows}. Pass the cursor that \`share.next\` gave.`,
      { group, id, row, end: draft.end },
    );
  }
}

function makeRoomForGroup(draft: Draft, name: string): void {
  if (draft.checkpoints.has(name) || draft.checkpoints.size < checkpointGroupsMax) return;
  const idle = [...draft.checkpoints].find(([, group]) => group.live.size === 0)?.[0];
  if (idle === undefined) {
    throw new BatchWeaveError(
      "LIMIT",
      `There are ${checkpointGroupsMax} groups with live checkpoints, and group ${name} would be one more. Release the checkpoints of a finished run.`,
      { groupsMax: checkpointGroupsMax },
    );
  }
  draft.checkpoints.delete(idle);
}

function assertCount(draft: Draft): void {
  let live = 0;
  for (const group of draft.checkpoints.values()) live += group.live.size;
  if (live <= checkpointsMax) return;
  throw new BatchWeaveError(
    "LIMIT",
    `A namespace can have ${checkpointsMax} live checkpoints, over all groups. Release some, or register with keepLast.`,
    { checkpointsMax },
  );
}

function conflict({ group, id, row, iteration }: NewCheckpoint, present: CheckpointMark): BatchWeaveError {
  return new BatchWeaveError(
    "CHECKPOINT_CONFLICT",
    `Checkpoint ${id} of group ${group} is live at row ${present.row}, iteration ${present.iteration}, not at row ${row}, iteration ${iteration}. All ranks must pass the same cursor; a run that took another path needs another id, or must release this one.`,
    { group, id, found: { row: present.row, iteration: present.iteration }, wanted: { row, iteration } },
  );
}

function releasedError({ group, id }: NewCheckpoint): BatchWeaveError {
  return new BatchWeaveError(
    "CHECKPOINT_RELEASED",
    `Checkpoint ${id} of group ${group} was released; an id is used once. Register a new one under another id.`,
    { group, id },
  );
}
