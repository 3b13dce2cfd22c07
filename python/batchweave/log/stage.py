"""Staging: what a commit changes, as pure functions on a draft. Called again from the new base after every conflict."""
from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, Sequence

from ..errors import BatchWeaveError, invalid
from ..format.batch import ENTRY_BYTES, TRAILER_BYTES
from ..format.descriptor import Descriptor
from ..format.index_node import Reference
from ..format.keys import LeavingIntent, OpeningIntent, batch_stem
from ..format.manifest import Manifest, Mark
from ..format.namespace_spec import NamespaceSpec
from ..format.producer_state import LastBatch, ProducerState
from .draft import Draft

LANE_AHEAD_MAX = 64
CHECKPOINTS_MAX = 1_024
GROUPS_MAX = 64
RELEASED_MAX = 256
_LANE = re.compile(r"lane-(0|[1-9][0-9]*)")


class Holder(NamedTuple):
    """Who a batch must belong to."""

    producer: str
    epoch: int
    incarnation: str


class SilentFinding(NamedTuple):
    """A producer state found in a sealed table, the reference of that table, and whether it holds a resume point for it."""

    state: ProducerState
    table: Reference
    has_resume_point: bool


def holds(state: ProducerState | None, epoch: int, incarnation: str) -> bool:
    """True when the state is held by this very incarnation."""
    return state is not None and state.epoch == epoch and state.incarnation == incarnation


def fenced(holder: Holder, state: ProducerState | None) -> BatchWeaveError:
    """FENCED: a newer process holds the producer id. Says nothing about pending batches."""
    found = state.epoch if state else "unknown"
    return BatchWeaveError(
        "FENCED",
        f"Producer {holder.producer} was opened again elsewhere (epoch {found}, this one holds {holder.epoch}). Stop this "
        "process; the new holder continues from the committed resume point.",
        {"producer": holder.producer, "epoch": holder.epoch, "foundEpoch": state.epoch if state else None},
    )


def stage_batches(draft: Draft, spec: NamespaceSpec, holder: Holder, batches: Sequence[Descriptor]) -> list[str]:
    """Stages uploaded batches in the order of seq, as far as possible: staged, in, expired, ahead or blocked."""
    state = draft.producers.get(holder.producer)
    if not holds(state, holder.epoch, holder.incarnation):
        raise fenced(holder, state)
    verdicts: list[str] = []
    blocked = False
    for batch in batches:
        verdict = _blocked_verdict(draft, batch) if blocked else _stage_batch(draft, spec, batch)
        verdicts.append(verdict)
        blocked = blocked or verdict not in ("staged", "in")
    return verdicts


def _blocked_verdict(draft: Draft, batch: Descriptor) -> str:
    """A reclaim passes a whole backlog at once: all of it must be uploaded again now, not each when it is its turn."""
    return "expired" if batch.base < draft.base.orphan_cutoff else "blocked"


def closed(end: int) -> BatchWeaveError:
    """CLOSED: the log takes no more batches."""
    return BatchWeaveError(
        "CLOSED",
        f"The log is closed at step {end}; nothing can be appended. Create or fork a namespace to go on.",
        {"end": end},
    )


def _stage_batch(draft: Draft, spec: NamespaceSpec, batch: Descriptor) -> str:
    state = draft.producers[batch.producer]
    if batch.seq < state.seq:
        _assert_same_content(state, batch)
        # It was committed and waited, and closing the log dropped it: its step will never be.
        if batch.seq >= seq_in_log(spec, draft, batch.producer, state.seq):
            raise closed(draft.end)
        return "in"
    if batch.seq > state.seq:
        raise BatchWeaveError(
            "SEQUENCE_CONFLICT",
            f"Batch {batch_stem(batch)} leaves a gap: the next seq of {batch.producer} is {state.seq}. "
            "Open the producer again.",
            {"expected": state.seq, "found": batch.seq},
        )
    # Nothing is concluded about a closed log before "in" was ruled out: the batch may have made it.
    if draft.closed:
        raise closed(draft.end)
    if batch.base < draft.base.orphan_cutoff:
        return "expired"
    step = draft.end
    if spec.lanes is not None:
        step = spec.first_own_step + batch.seq * spec.lanes + lane_number(batch.producer, spec.lanes)
    if step >= draft.end + (spec.lanes * LANE_AHEAD_MAX if spec.lanes is not None else 1):
        return "ahead"
    _place_batch(draft, step, batch)
    final = batch.extents[-1]
    last = LastBatch(batch.base, batch.attempt, len(batch.extents) - 1, final.size, final.check, state.epoch, state.incarnation)
    draft.producers[batch.producer] = state._replace(seq=batch.seq + 1, at=draft.version, last=last)
    return "staged"


def _assert_same_content(state: ProducerState, batch: Descriptor) -> None:
    """Within an incarnation a seq is bound to its bytes."""
    last = state.last
    if not isinstance(last, LastBatch) or state.seq - 1 != batch.seq:
        return
    if not holds(state, batch.epoch, batch.incarnation):
        return
    check = batch.extents[-1].check
    if check == last.check:
        return
    raise BatchWeaveError(
        "SEQUENCE_CONFLICT",
        f"Seq {batch.seq} of {batch.producer} is in the log with other content. A producer must build the same batch for "
        "the same seq; report this.",
        {"seq": batch.seq, "expected": last.check, "found": check},
    )


def _place_batch(draft: Draft, step: int, batch: Descriptor) -> None:
    if step != draft.end:
        draft.waiting[step] = batch
        return
    draft.push(batch)
    while draft.end in draft.waiting:
        draft.push(draft.waiting.pop(draft.end))


def seq_in_log(spec: NamespaceSpec, state: Draft | Manifest, producer: str, seq: int) -> int:
    """The first seq of a producer that is neither in the log nor waiting. Its state's, but in a closed log of lanes: there
    what waited when it was closed was dropped, so a lane has exactly the batches below the end."""
    if not state.closed or spec.lanes is None or not is_lane(producer, spec.lanes):
        return seq
    first = spec.first_own_step + lane_number(producer, spec.lanes)
    return min(seq, max(0, -((first - state.end) // spec.lanes)))


def is_lane(producer: str, lanes: int) -> bool:
    """Whether a producer id names one of so many lanes."""
    match = _LANE.fullmatch(producer)
    return match is not None and int(match[1]) < lanes


def lane_number(producer: str, lanes: int) -> int:
    """The number in lane-<k>; a lane is its producer id."""
    if is_lane(producer, lanes):
        return int(producer[len("lane-") :])
    raise invalid(
        f"This namespace has {lanes} lanes, and a lane is a producer id: use lane-0 to lane-{lanes - 1}, not "
        f"{json.dumps(producer)}.",
        producer=producer,
        lanes=lanes,
    )


def stage_return(draft: Draft, holder: Holder, silent: SilentFinding | None) -> bool:
    """A producer whose state moved to a table comes back: its state is inlined again. True if so."""
    if holder.producer in draft.producers or silent is None:
        return False
    if not holds(silent.state, holder.epoch, holder.incarnation):
        return False
    last = silent.table if silent.has_resume_point else None
    draft.producers[holder.producer] = silent.state._replace(at=draft.version, last=last)
    return True


def stage_opening(draft: Draft, producer: str, incarnation: str, silent: SilentFinding | None) -> bool:
    """Opens a producer: the next epoch with a fresh incarnation. True: this incarnation already holds it."""
    inline = draft.producers.get(producer)
    if inline and inline.incarnation == incarnation:
        return True
    if inline:
        before, last = inline, inline.last
    elif silent:
        before, last = silent.state, silent.table if silent.has_resume_point else None
    else:
        before, last = ProducerState(0, "", 0, 0), None
    draft.producers[producer] = ProducerState(before.epoch + 1, incarnation, before.seq, draft.version, last, 0, before.rest)
    return False


def stage_leaving(draft: Draft, holder: Holder) -> bool:
    """The holder closed its producer, and carries no more. False: it is written down already, or another holds the id."""
    state = draft.producers.get(holder.producer)
    if state is None or not holds(state, holder.epoch, holder.incarnation) or state.has_left:
        return False
    draft.producers[holder.producer] = state._replace(at=draft.version, left=holder.epoch)
    return True


def stage_closing(draft: Draft, drop_waiting: bool = False) -> bool:
    """Closes the log at its end. True: it is closed already."""
    if draft.closed:
        return True
    if draft.waiting and not drop_waiting:
        raise invalid(
            f"{len(draft.waiting)} committed batches wait above the missing step {draft.end} (the first is step "
            f"{min(draft.waiting)}). Let the missing lane catch up, or close with drop_waiting to leave them out.",
            missing=draft.end,
            waiting=len(draft.waiting),
        )
    draft.waiting.clear()
    draft.closed = True
    return False


def stage_intents(
    draft: Draft,
    spec: NamespaceSpec,
    batches: Sequence[Descriptor],
    openings: Sequence[OpeningIntent],
    silent: dict[str, SilentFinding],
    leavings: Sequence[LeavingIntent] = (),
) -> int:
    """Stages what may be carried for others; gives how much. Whatever does not fit is its owner's business."""
    carried = sum(_stage_opening_intent(draft, opening, silent.get(opening.producer)) for opening in openings)
    owners: dict[tuple[str, int, str], list[Descriptor]] = {}
    for batch in batches:
        owners.setdefault((batch.producer, batch.epoch, batch.incarnation), []).append(batch)
    for owner, own in owners.items():
        own.sort(key=lambda b: (b.seq, -b.attempt))
        carried += _stage_carried(draft, spec, Holder(*owner), own)
    carried += sum(stage_leaving(draft, Holder(*leaving)) for leaving in leavings)
    return carried


def _stage_opening_intent(draft: Draft, opening: OpeningIntent, found: SilentFinding | None) -> bool:
    """Only while the epoch is still the one the opener saw: a late intent must not fence a successor."""
    inline = draft.producers.get(opening.producer)
    if inline:
        found = None
    # State may be in a table that this committer did not look into: then only the opener itself, which looks, may open.
    elif found is None and draft.tables:
        return False
    before = inline or (found.state if found else None)
    if (before.epoch if before else 0) != opening.before or draft.closed:
        return False
    return not stage_opening(draft, opening.producer, opening.incarnation, found)


def _stage_carried(draft: Draft, spec: NamespaceSpec, holder: Holder, batches: list[Descriptor]) -> int:
    state = draft.producers.get(holder.producer)
    # Epoch and incarnation must match the base: a zombie's upload is never carried past its successor.
    if not holds(state, holder.epoch, holder.incarnation) or draft.closed or state is None:
        return 0
    carried = 0
    seq = state.seq
    for batch in batches:
        if batch.seq < seq:
            continue
        # A gap: its intent is late or lost. Carrying on would break the sequence.
        if batch.seq > seq or not _is_well_formed(batch, spec):
            break
        try:
            if stage_batches(draft, spec, holder, [batch])[0] != "staged":
                break
        except BatchWeaveError:
            break  # a poisoned intent is skipped by helpers and fails its owner
        seq += 1
        carried += 1
    return carried


def _is_well_formed(batch: Descriptor, spec: NamespaceSpec) -> bool:
    """What can be checked of a descriptor without reading the object."""
    cells = sum(extent.cells for extent in batch.extents)
    return cells == spec.rows * spec.chunks and all(
        size == table + n * ENTRY_BYTES + TRAILER_BYTES and n * (batch.stride or 0) <= table
        for n, size, table, _ in batch.extents
    )


def is_spent(intent: list[Descriptor] | OpeningIntent | LeavingIntent, producers: dict[str, ProducerState]) -> bool:
    """An intent that a verified state has made useless."""
    if isinstance(intent, OpeningIntent):
        state = producers.get(intent.producer)
        return state is not None and state.epoch > intent.before
    if isinstance(intent, LeavingIntent):
        state = producers.get(intent.producer)
        return state is not None and (state.epoch > intent.epoch or state.has_left)
    last = intent[-1]
    state = producers.get(last.producer)
    if state is None:
        return False
    is_mine = holds(state, last.epoch, last.incarnation)
    return state.epoch > last.epoch or (is_mine and last.seq < state.seq)


# Checkpoints: registered once per group, released once, never resurrected.


def newest_first(live: dict[str, Mark]) -> list[tuple[str, Mark]]:
    """Checkpoints of a group, the one registered last first; after a rollback that is not the one furthest on."""
    by_id = sorted(live, reverse=True)
    return [(id, live[id]) for id in sorted(by_id, key=lambda id: (-live[id].version, -live[id].row))]


def stage_checkpoint(
    draft: Draft, rows: int, group: str, id: str, row: int, iteration: int, keep_last: int | None = None
) -> bool:
    """Registers a checkpoint. True: it is there already, with this very cursor."""
    found = draft.checkpoints.get(group, {"live": {}, "released": []})
    present: Mark | None = found["live"].get(id)
    if present:
        if (present.row, present.iteration) == (row, iteration):
            return True
        raise BatchWeaveError(
            "CHECKPOINT_CONFLICT",
            f"Checkpoint {id} of group {group} is live at row {present.row}, iteration {present.iteration}, not at row {row}, "
            f"iteration {iteration}. All ranks must pass the same cursor; a run that took another path needs another id, "
            "or must release this one.",
            {"group": group, "id": id, "found": [present.row, present.iteration], "wanted": [row, iteration]},
        )
    if id in found["released"]:
        raise BatchWeaveError(
            "CHECKPOINT_RELEASED",
            f"Checkpoint {id} of group {group} was released; an id is used once. Register a new one under another id.",
            {"group": group, "id": id},
        )
    _assert_row(draft, rows, group, id, row)
    live = {**found["live"], id: Mark(row, iteration, draft.version)}
    _make_room(draft, group)
    dropped = [name for name, _ in newest_first(live)[keep_last:]] if keep_last is not None else []
    draft.checkpoints[group] = _with_released({**found, "live": live}, dropped)
    if sum(len(g["live"]) for g in draft.checkpoints.values()) > CHECKPOINTS_MAX:
        raise BatchWeaveError(
            "LIMIT",
            f"A namespace can have {CHECKPOINTS_MAX} live checkpoints, over all groups. Release some, or register with "
            "keep_last.",
            {"checkpointsMax": CHECKPOINTS_MAX},
        )
    return False


def stage_release(draft: Draft, group: str, id: str) -> bool:
    """Releases a checkpoint. True: it was released before."""
    found = draft.checkpoints.get(group, {"live": {}, "released": []})
    if id in found["live"]:
        draft.checkpoints[group] = _with_released(found, [id])
        return False
    if id in found["released"]:
        return True
    known = list(found["live"])[-10:]
    raise BatchWeaveError(
        "NO_CHECKPOINT",
        f"Group {group} has no checkpoint {id}. " + (f"Live are: {', '.join(known)}." if known else "It has none at all."),
        {"group": group, "id": id},
    )


def _with_released(group: dict[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    live = {name: mark for name, mark in group["live"].items() if name not in ids}
    return {**group, "live": live, "released": [*group["released"], *ids][-RELEASED_MAX:]}


def _assert_row(draft: Draft, rows: int, group: str, id: str, row: int) -> None:
    if row < draft.trim * rows:
        raise BatchWeaveError(
            "RECLAIMED",
            f"Checkpoint {id} of group {group} is at row {row} (step {row // rows}), and the oldest row left is "
            f"{draft.trim * rows} (step {draft.trim}): its data may be gone. Register checkpoints before a reclaim passes "
            "them, or resume from a later one.",
            {"group": group, "id": id, "row": row, "trim": draft.trim},
        )
    if row > draft.end * rows:
        raise invalid(
            f"Checkpoint {id} of group {group} is at row {row}, and the log ends at row {draft.end * rows}. Pass the cursor "
            "that `share.next` gave.",
            group=group,
            id=id,
            row=row,
            end=draft.end,
        )


def _make_room(draft: Draft, name: str) -> None:
    if name in draft.checkpoints or len(draft.checkpoints) < GROUPS_MAX:
        return
    idle = next((n for n, group in draft.checkpoints.items() if not group["live"]), None)
    if idle is None:
        raise BatchWeaveError(
            "LIMIT",
            f"There are {GROUPS_MAX} groups with live checkpoints, and group {name} would be one more. Release the "
            "checkpoints of a finished run.",
            {"groupsMax": GROUPS_MAX},
        )
    del draft.checkpoints[idle]


def stage_max_lag(draft: Draft, max_lag: int | None) -> bool:
    """Changes the setting; None removes it. True: nothing changes."""
    if draft.settings.get("maxLag") == max_lag:
        return True
    others = {k: v for k, v in draft.settings.items() if k != "maxLag"}
    draft.settings = others if max_lag is None else {"maxLag": max_lag, **others}
    return False
