"""What a process has seen of a source log over time, by its own clock: which lanes stand still while they are wanted, and how soon a step will be needed.

Twin of src/plan/fleet/lane-watch.ts: both kinds of loader judge others alike. Nothing here decides what is written; being wrong costs a handover.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .source_log import LaneState

#: What a lane that stands still while it is wanted is given at least.
PATIENCE_S = 3.0
#: Weight of the newest interval.
_ALPHA = 0.3
#: A lane is given so many times what its blocks usually take.
_USUAL_FACTOR = 3.0
#: Doublings for openings that led to no block.
_DOUBLINGS_MAX = 10
#: Where no constructor is known to wait, but the log's next step is missing: so many times longer.
_UNASKED_FACTOR = 3.0
#: A lane so many blocks ahead of the first missing step may stand for good reasons.
_NEAR_ROUNDS = 2
#: When a log stood still for so long, lanes that have not moved since probably died with what held it up: they are not waited for one by one.
_STALL_S = 2.0
_SUSPECT_ROUNDS = 8


class LogView(NamedTuple):
    """One look at a log."""

    end: int
    lanes: list[LaneState]
    #: The first step that no lane has written, nor any above it.
    reached: int
    #: The step up to which readers have come.
    read_to: int
    #: Producers wait for a checkpoint: that a lane stands still says nothing about its holder.
    is_held_back: bool
    first_step: int = 0

    def next_step(self, lane: LaneState) -> int:
        return self.first_step + lane.seq * len(self.lanes) + lane.lane


class Standing(NamedTuple):
    """How long a lane has stood although its block is wanted, and how long its holder may."""

    stands: float
    patience: float


@dataclass
class _Progress:
    epoch: int
    seq: int
    #: When this was seen first, or when it last had a good reason to stand.
    since: float
    #: When this was seen first.
    moved_at: float
    #: We saw it begin; else the constructor that waits may know better.
    is_seen: bool
    #: Its holder may have stood for another reason than its work.
    is_blurred: bool
    #: Between two blocks, as far as was seen.
    usual: float


class LaneWatch:
    """Watches one log."""

    def __init__(self, patience: float = PATIENCE_S) -> None:
        self._patience = patience
        self._progress: dict[int, _Progress] = {}
        #: Lanes that a constructor waits for: (step, since).
        self._wanted: dict[int, tuple[int, float]] = {}
        self._view: LogView | None = None
        self._end_at = 0.0
        self._stall: tuple[float, float] | None = None
        #: Of readers, in steps a second.
        self._rate = 0.0
        self._read_at: float | None = None

    def observe(self, view: LogView, now: float) -> None:
        """A look, begun at `now`."""
        self._learn_rate(view, now)
        is_moved = self._view is None or self._view.end != view.end
        if not is_moved and now - self._end_at >= _STALL_S:
            self._stall = (self._end_at, now)
        if is_moved:
            self._end_at = now
        self._view = view
        for lane in view.lanes:
            known = self._progress.get(lane.lane)
            # Back-pressure, or lanes that are missing before it: its next block takes as long as others let it.
            is_blurred = view.is_held_back or view.next_step(lane) >= view.end + _NEAR_ROUNDS * len(view.lanes)
            if known is not None and (known.epoch, known.seq) == (lane.epoch, lane.seq):
                if is_blurred:
                    known.is_blurred = known.is_seen = True
                    known.since = now
                continue
            usual = 0.0 if known is None else _usual(known, lane.seq, now) if lane.seq > known.seq else known.usual
            self._progress[lane.lane] = _Progress(lane.epoch, lane.seq, now, now, known is not None, is_blurred, usual)
            wanted = self._wanted.get(lane.lane)
            if wanted is not None and wanted[0] < view.next_step(lane):
                del self._wanted[lane.lane]

    def _learn_rate(self, view: LogView, now: float) -> None:
        before = None if self._view is None else self._view.read_to
        if before is None or self._read_at is None:
            self._read_at = now
        elif view.read_to != before:
            rate = max(0, view.read_to - before) / max(0.001, now - self._read_at)
            self._rate = rate if self._rate == 0 else self._rate + _ALPHA * (rate - self._rate)
            self._read_at = now

    def want(self, step: int, since: float) -> None:
        """A constructor has waited for a step since then."""
        view = self._view
        if view is None or step < view.first_step:
            return
        lane = (step - view.first_step) % len(view.lanes)
        if view.next_step(view.lanes[lane]) > step:
            return
        known = self._wanted.get(lane)
        self._wanted[lane] = (step, since if known is None else min(since, known[1]))

    @property
    def is_wanted(self) -> bool:
        return bool(self._wanted)

    def left(self, step: int) -> float:
        """Seconds until a step is needed, as readers have gone so far; far below 0 when a constructor waits for it."""
        view = self._view
        if view is None:
            return 0.0
        wanted = self._wanted.get((step - view.first_step) % len(view.lanes))
        if wanted is not None and wanted[0] >= step:
            return wanted[0] - step - 1e9
        # One step a second, where no reader has read anything yet: the order within a log is what counts.
        return (step - view.read_to) / (self._rate if self._rate > 0 else 1.0)

    def round_left(self, lane: LaneState) -> float:
        """The same for a lane's next block, not told from those of other lanes that no constructor waits for either."""
        assert self._view is not None
        step = self._view.next_step(lane)
        left = self.left(step)
        return left if left < 0 else min(left, self.left(step - lane.lane))

    def standing(self, lane: LaneState, now: float) -> Standing | None:
        """None: it is not wanted."""
        view, known = self._view, self._progress.get(lane.lane)
        if view is None or known is None or view.is_held_back:
            return None
        wanted = self._wanted.get(lane.lane)
        step = view.next_step(lane)
        is_hinted = wanted is not None and wanted[0] >= step
        is_suspect = self._is_suspect(known, now)
        if not is_hinted and step >= view.end + (_SUSPECT_ROUNDS if is_suspect else 1) * len(view.lanes):
            return None
        is_waited_for = is_hinted or step < view.reached
        # The constructor that waits has watched for longer than we have, perhaps.
        seen = known.moved_at if is_suspect else known.since
        since = min(seen, wanted[1]) if wanted is not None and not known.is_seen else seen
        # More, the longer its blocks take, and twice as much for every opening that led to none: no holder is robbed for ever for being slow.
        own = max(self._patience, _USUAL_FACTOR * known.usual) * 2.0 ** min(lane.epoch - lane.written_epoch, _DOUBLINGS_MAX)
        return Standing(now - since, own * (1.0 if is_waited_for else _UNASKED_FACTOR))

    def _is_suspect(self, known: _Progress, now: float) -> bool:
        """A lane that did not move while the log stood still, nor since: its holder probably went with the one that held the log up."""
        stall = self._stall
        return stall is not None and now - stall[1] < 5 * _STALL_S and known.moved_at <= stall[0] + _STALL_S / 2


def _usual(known: _Progress, seq: int, now: float) -> float:
    if known.is_blurred:
        return known.usual
    each = (now - known.since) / (seq - known.seq)
    return each if known.usual == 0 else known.usual + _ALPHA * (each - known.usual)
