"""Checkpoints: registered, released and listed through the log; and how far producers may be ahead of them."""
from __future__ import annotations

import json
import time
from typing import Any, Callable, NamedTuple

from ..errors import BatchWeaveError, invalid
from ..format.cursor import parse_cursor
from ..format.keys import assert_name
from ..format.manifest import Manifest
from ..log.draft import Draft
from ..log.log import Log
from ..log.stage import newest_first, stage_checkpoint, stage_max_lag, stage_release

DEFAULT_GROUP = "default"


class Checkpoint(NamedTuple):
    """A live checkpoint: where training goes on, and the version that registered it."""

    group: str
    id: str
    row: int
    step: int
    iteration: int
    version: int


def register_checkpoint(
    log: Log, id: str, cursor: Any, group: str = DEFAULT_GROUP, keep_last: int | None = None
) -> Checkpoint:
    """Keeps the data from `cursor` on until it is released. All ranks may call this with the same id and cursor."""
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

    def stage(draft: Draft, _: Any) -> tuple[bool, None]:
        done = stage_checkpoint(draft, log.spec.rows, group, id, parsed["row"], parsed["iteration"], keep_last)
        return done, None

    # A blank in the name: commits of batches are signed with the producer's id alone.
    manifest, _ = log.commit(f"checkpoint {id}", "checkpoint", stage)
    return next(c for c in live_checkpoints(manifest, log.spec.rows) if c.group == group and c.id == id)


def release_checkpoint(log: Log, id: str, group: str = DEFAULT_GROUP) -> None:
    """The next reclaim may delete what only this checkpoint kept. Releasing it again is fine."""
    assert_name(id, "Checkpoint id")
    assert_name(group, "Checkpoint group")
    log.commit(f"release {id}", "release", lambda draft, _: (stage_release(draft, group, id), None))


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
    if isinstance(id, str) and id in live:
        row, iteration, _ = live[id]
        return row, iteration
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
