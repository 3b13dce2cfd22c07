"""Checkpoints: registered, released and listed through the log; and how far producers may be ahead of them."""
from __future__ import annotations

import json
import re
import time
from typing import Any, Callable, NamedTuple

from ..errors import BatchWeaveError, invalid
from ..format.cursor import parse_cursor
from ..format.keys import assert_name
from ..format.manifest import Manifest, Mark
from ..log.draft import Draft
from ..log.log import Log
from ..log.stage import newest_first, stage_checkpoint, stage_max_lag, stage_release

DEFAULT_GROUP = "default"
#: Of an id, before the number of a later run.
_ID_CHARS_MAX = 55


class Checkpoint(NamedTuple):
    """A live checkpoint: where training goes on, and the version that registered it."""

    group: str
    id: str
    row: int
    step: int
    iteration: int
    version: int


def register_checkpoint(
    log: Log, id: str, cursor: Any, group: str = DEFAULT_GROUP, keep_last: int | None = None, since: int | None = None
) -> Checkpoint:
    """Keeps the data from `cursor` on until it is released. All ranks may call this with the same id and cursor.

    since: the version at which this run opened the log. What runs before it left under this id is replaced, under a name with a number (`iter-500.run2`):
    in the log an id is used once. Without it, or within one run, another cursor is a conflict.
    """
    assert_name(id, "Checkpoint id")
    assert_name(group, "Checkpoint group")
    if keep_last is not None and not (type(keep_last) is int and keep_last >= 1):
        raise invalid(f"keep_last must be a whole number of at least 1, not {keep_last}.", keepLast=keep_last)
    parsed = parse_cursor(cursor)
    if parsed["namespace"] != log.spec.uuid:
        raise BatchWeaveError(
            "WRONG_NAMESPACE",
            f"The cursor belongs to namespace {parsed['namespace']}, and this one is {log.spec.uuid}. Register the checkpoint "
            "in the namespace it was read from.",
            {"found": parsed["namespace"], "expected": log.spec.uuid},
        )

    def stage(draft: Draft, _: Any) -> tuple[bool, str]:
        name = id if since is None else _stage_replacement(draft, group, id, parsed["row"], parsed["iteration"], since)
        return stage_checkpoint(draft, log.spec.rows, group, name, parsed["row"], parsed["iteration"], keep_last), name

    # A blank in the name: commits of batches are signed with the producer's id alone.
    manifest, name = log.commit(f"checkpoint {id}", "checkpoint", stage)
    return next(c for c in live_checkpoints(manifest, log.spec.rows) if c.group == group and c.id == name)


def _stage_replacement(draft: Draft, group: str, id: str, row: int, iteration: int, since: int) -> str:
    """The name that a run's checkpoint gets. Those of earlier runs that it replaces are released."""
    found = draft.checkpoints.get(group, {"live": {}, "released": []})
    live: dict[str, Mark] = found["live"]
    family = [name for name in live if _numbered(name, id)]
    for name in family:
        if (live[name].row, live[name].iteration) == (row, iteration):
            return name  # a peer of this run was first, or an earlier run took the same path
    used = [n for name in (*live, *found["released"]) if (n := _numbered(name, id))]
    # What this run registered is no earlier run's: a rank that says something else is wrong, and one that comes late is told.
    is_late = any(mark.version > since and mark.iteration > iteration for mark in live.values())
    if not used or is_late or any(live[name].version > since for name in family):
        return id if id in live or id in found["released"] or not family else family[-1]
    for name in family:
        stage_release(draft, group, name)
    name = f"{id[:_ID_CHARS_MAX]}.run{max(used) + 1}"
    assert_name(name, "Checkpoint id")
    return name


def _numbered(name: str, id: str) -> int:
    """Which of the checkpoints of one id this is: 1 for the id itself, 0 for none of them."""
    if name == id:
        return 1
    prefix, _, number = name.rpartition(".run")
    return int(number) if prefix == id[:_ID_CHARS_MAX] and re.fullmatch(r"[1-9][0-9]{0,4}", number) else 0


def release_checkpoint(log: Log, id: str, group: str = DEFAULT_GROUP) -> None:
    """The next reclaim may delete what only this checkpoint kept. Releasing it again is fine."""
    assert_name(id, "Checkpoint id")
    assert_name(group, "Checkpoint group")
    log.commit(f"release {id}", "release", lambda draft, _: (_stage_release_all(draft, group, id), None))


def _stage_release_all(draft: Draft, group: str, id: str) -> bool:
    """Releases what is live under an id, and under its numbers."""
    live = draft.checkpoints.get(group, {"live": {}})["live"]
    names = [name for name in live if _numbered(name, id)] or [id]
    return all([stage_release(draft, group, name) for name in names])


def live_checkpoints(manifest: Manifest, rows: int) -> list[Checkpoint]:
    """Live checkpoints, by group, the newest first."""
    return [
        Checkpoint(group, id, row, row // rows, iteration, version)
        for group, found in manifest.checkpoints.items()
        for id, (row, iteration, version) in newest_first(found["live"])
    ]


def find_checkpoint(manifest: Manifest, id: Any, group: str) -> tuple[int, int]:
    """Row and iteration of a live checkpoint."""
    live = manifest.checkpoints.get(group, {"live": {}})["live"]
    family = sorted((name for name in live if isinstance(id, str) and _numbered(name, id)), key=lambda name: -_numbered(name, id))
    if family:
        name = id if id in live else family[0]
        return live[name].row, live[name].iteration
    known = f"It has {', '.join(list(live)[-8:])}" if live else "The group has none"
    raise BatchWeaveError(
        "NO_CHECKPOINT",
        f'There is no live checkpoint {json.dumps(id)} in group "{group}". {known}; start from one of those, or name the group it '
        "was registered in.",
        {"id": id, "group": group, "live": list(live)},
    )


def commit_max_lag(log: Log, max_lag: int | None) -> None:
    """Sets or removes (None) the limit on how far producers may be ahead of the slowest group's newest checkpoint."""
    if max_lag is not None and not (type(max_lag) is int and max_lag >= 1):
        raise invalid(f"max_lag must be a whole number of at least 1, not {max_lag}.", maxLag=max_lag)
    log.commit("set maxLag", "settings", lambda draft, _: (stage_max_lag(draft, max_lag), None))


class Lag(NamedTuple):
    """Steps between the newest checkpoint of the slowest group (or the trim) and the end."""

    steps: int
    start: int
    group: str | None
    groups: int
    interval: int | None


def measure_lag(manifest: Manifest, rows: int) -> Lag:
    """How far the log is ahead of the slowest training run."""
    slowest: Lag | None = None
    groups = 0
    for group, found in manifest.checkpoints.items():
        steps = [mark.row // rows for _, mark in newest_first(found["live"])[:2]]
        # A group whose checkpoints are all released is a finished run: it holds nothing up.
        if not steps:
            continue
        groups += 1
        newest, *before = steps
        if slowest is None or newest < slowest.start:
            slowest = Lag(manifest.end - newest, newest, group, 0, abs(newest - before[0]) if before else None)
    slowest = slowest or Lag(manifest.end - manifest.trim, manifest.trim, None, 0, None)
    return slowest._replace(groups=groups)


def lag_deadlock(who: str, manifest: Manifest, lag: Lag, waited: float) -> BatchWeaveError:
    """LAG_DEADLOCK, in the same words on both sides."""
    interval = "longer than that, or no rank registers any"
    if lag.interval is not None:
        interval = f"{lag.interval} steps (as between the last two of group {lag.group})"
    since = f"no checkpoint is live (the log begins at step {lag.start})"
    if lag.group is not None:
        since = f"the newest checkpoint of group {lag.group} is at step {lag.start}"
    return BatchWeaveError(
        "LAG_DEADLOCK",
        f"{who} waited {round(waited)} s: producers may be maxLag = {manifest.max_lag} steps ahead of the newest checkpoint "
        f"and the log ends at step {manifest.end}, while {since}, so no batch and no checkpoint can come. The checkpoint "
        f"interval is {interval}. Set maxLag above the checkpoint interval, or register checkpoints more often.",
        {"maxLag": manifest.max_lag, "lag": lag.steps, "group": lag.group, "end": manifest.end},
    )


class LagGate:
    """A producer's side: waits until one more batch may be accepted. Costs nothing while no maxLag is set."""

    def __init__(self, log: Log, poll_delay: float = 1.0, wait_max: float = 6 * 3600.0) -> None:
        self._log = log
        self._poll_delay = poll_delay
        self._wait_max = wait_max
        self._looked_at = float("-inf")

    def wait(self, pending: Callable[[], int], on_wait: Callable[[], None] | None = None) -> None:
        """`pending`: how many batches are accepted and not yet seen in the log; asked again and again, for once they are in
        they count as the log's own. `on_wait`: called when it will take a while."""
        begun: float | None = None
        moved_at, start = 0.0, -1
        while True:
            manifest = self._log.head.newest()
            if manifest.max_lag is None:
                return
            if time.monotonic() - self._looked_at >= self._poll_delay:
                manifest = self._log.head.jump()
                self._looked_at = time.monotonic()
            lag = measure_lag(manifest, self._log.spec.rows)
            if manifest.max_lag is None or lag.steps + pending() < manifest.max_lag or manifest.closed:
                return
            now = time.monotonic()
            if begun is None:
                begun = now
                if on_wait:
                    on_wait()
            if lag.start != start:
                start, moved_at = lag.start, now
            if manifest.starving == manifest.end or now - moved_at >= self._wait_max:
                raise lag_deadlock("This producer", manifest, lag, now - begun)
            time.sleep(self._poll_delay)


def watch_starvation(log: Log, step: int, waited: float, group: str, deadlock_after: float = 10.0) -> None:
    """A rank's side: called while it waits for a step. Raises LAG_DEADLOCK when no producer can ever build it."""
    if waited < deadlock_after:
        return

    def is_stuck(manifest: Manifest) -> bool:
        lag = measure_lag(manifest, log.spec.rows)
        own_is_slowest = lag.groups <= 1 or lag.group == group
        return (
            manifest.max_lag is not None
            and lag.steps >= manifest.max_lag
            and manifest.end <= step
            and not manifest.closed
            and own_is_slowest
        )

    if not is_stuck(log.head.newest()):
        return

    def stage(draft: Draft, _: Any) -> tuple[bool, bool]:
        is_still = is_stuck(draft.base)
        if not is_still or draft.starving == draft.end:
            return True, is_still
        draft.starving = draft.end
        return False, True

    manifest, stuck = log.commit("report starvation", "starvation", stage)
    if stuck:
        raise lag_deadlock("This rank", manifest, measure_lag(manifest, log.spec.rows), waited)
