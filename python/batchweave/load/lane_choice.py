"""Which lanes a process takes. Pure but for the clock it is given: what was seen of each lane decides, and being wrong costs time only."""
from __future__ import annotations

from typing import Callable, Sequence

from .source_log import LaneState

#: A lane that stands still is another's for so long at least.
PATIENCE_S = 3.0
#: And for so many times its usual time between blocks.
_USUAL_FACTOR = 3.0
#: A lane that no constructor is seen to wait for is left alone longer.
_UNWANTED_FACTOR = 10.0
#: Openings without a block that make patience longer, at most: two to this power.
_DOUBLINGS_MAX = 8


class _Seen:
    def __init__(self, lane: LaneState, now: float) -> None:
        self.key = (lane.epoch, lane.seq)
        self.seq = lane.seq
        self.moved_at = now
        self.usual = 0.0


class LaneChoice:
    """Remembers when each lane last moved, by this process's own clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._grab = 1

    def see(self, lanes: Sequence[LaneState]) -> None:
        """What a look found."""
        now = self._clock()
        for lane in lanes:
            seen = self._seen.get(lane.lane)
            if seen is None:
                self._seen[lane.lane] = _Seen(lane, now)
                continue
            if lane.seq > seen.seq:
                took = (now - seen.moved_at) / (lane.seq - seen.seq)
                seen.usual = took if seen.usual == 0 else 0.7 * seen.usual + 0.3 * took
            if (lane.epoch, lane.seq) != seen.key:
                seen.key, seen.seq, seen.moved_at = (lane.epoch, lane.seq), lane.seq, now

    def patience(self, lane: LaneState) -> float:
        """How long a lane that is held may stand still. Doubled for each opening since its last block, so that slow lanes are not stolen for ever."""
        openings = min(_DOUBLINGS_MAX, max(0, lane.epoch - lane.written_epoch - 1))
        seen = self._seen.get(lane.lane)
        return max(PATIENCE_S, _USUAL_FACTOR * (seen.usual if seen else 0.0)) * 2.0**openings

    def is_stale(self, lane: LaneState, is_wanted: bool) -> bool:
        seen = self._seen.get(lane.lane)
        if seen is None or lane.is_free:
            return False
        return self._clock() - seen.moved_at > self.patience(lane) * (1.0 if is_wanted else _UNWANTED_FACTOR)

    def choose(self, lanes: Sequence[LaneState], held: set[int], room: int, wanted: set[int]) -> list[LaneState]:
        """Lanes to open now: free ones, one, two, four at a look, so that processes which start together share; then those that stand still."""
        open_to = [lane for lane in lanes if lane.lane not in held]
        free = sorted((lane for lane in open_to if lane.is_free), key=lambda lane: (lane.lane not in wanted, lane.seq, lane.lane))
        # One at a time: each costs its holder a commit, if it was there after all.
        stale = [lane for lane in open_to if self.is_stale(lane, lane.lane in wanted)][:1]
        chosen = [*free[: self._grab], *stale][: max(0, room)]
        self._grab = min(2 * self._grab, 64) if chosen else 1
        return chosen
