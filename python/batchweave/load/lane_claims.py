"""Which lanes a process takes and gives up. The rules of src/plan/fleet/lane-holder.ts for one log, so that loaders of both kinds share alike."""
from __future__ import annotations

import math
import random
from typing import Callable, Sequence

from .lane_watch import LaneWatch, LogView
from .source_log import LaneState

#: Lanes opened in one round at most; the first round takes one, so that processes which start together share.
_CLAIMS_MAX = 64
#: Lanes taken over in one round at most.
_TAKEOVERS_MAX = 8
#: Lanes taken over or given up a minute at most: each costs a commit and work that was begun.
_HANDOVERS_PER_MINUTE = 60
#: A lane that this process gave up is left to others for so long, and it holds more than its share for so long before.
SHY_S = 10.0


class LaneClaims:
    """What one process may take now. Pure but for the clock and the draw it is given."""

    def __init__(self, watch: LaneWatch, clock: Callable[[], float], draw: Callable[[], float] = random.random) -> None:
        self._watch = watch
        self._clock = clock
        self._draw = draw
        self._claims = 1
        self._credit = float(_HANDOVERS_PER_MINUTE)
        self._credit_at = clock()
        self._shy: dict[int, float] = {}
        self._gave_up_at = -math.inf
        self._above_since: float | None = None

    def free(self, lanes: Sequence[LaneState], held: set[int], room: int) -> list[LaneState]:
        """Free lanes to open now, a quarter at most: twice as many as the last time, unless another process wanted the same."""
        now = self._clock()
        self._shy = {lane: until for lane, until in self._shy.items() if until > now}
        free = [lane for lane in lanes if lane.is_free and lane.lane not in held and lane.lane not in self._shy]
        # Needed first; among equals by chance, so that two processes begin with different ones.
        order = sorted(free, key=lambda lane: (self._watch.round_left(lane), self._draw()))
        return order[: max(0, min(room, self._claims, math.ceil(len(free) / 4)))]

    def learn(self, opened: Sequence[bool]) -> None:
        """What became of those: False where another process was faster."""
        if opened:
            self._claims = 1 if not all(opened) else min(_CLAIMS_MAX, 2 * self._claims)

    def standing(self, lanes: Sequence[LaneState], held: set[int], room: int, is_busy: bool) -> list[LaneState]:
        """Lanes to take over now: the least busy process comes first."""
        now = self._clock()
        late = []
        for lane in lanes:
            standing = None if lane.is_free or lane.lane in held else self._watch.standing(lane, now)
            if standing is not None and standing.stands >= standing.patience * (1.5 if is_busy else 1.0):
                late.append(lane)
        late.sort(key=self._watch.round_left)
        chosen = late[: max(0, min(room, self._left(), _TAKEOVERS_MAX))]
        self._credit -= len(chosen)
        return chosen

    def surplus(self, view: LogView, working: Sequence[int], is_above_share: bool) -> int | None:
        """The lane to give up: who has held clearly more than others for a while gives up the one that is needed last."""
        now = self._clock()
        if not is_above_share or not working:
            self._above_since = None
            return None
        # Those who have just started hold nothing yet, and take what is free by themselves.
        if self._above_since is None:
            self._above_since = now
        if now < max(self._gave_up_at, self._above_since) + SHY_S or self._left() < 1:
            return None
        last = max(working, key=lambda lane: self._watch.left(view.next_step(view.lanes[lane])))
        self._credit -= 1
        self._gave_up_at = now
        self._shy[last] = now + SHY_S
        return last

    def _left(self) -> int:
        now = self._clock()
        self._credit = min(_HANDOVERS_PER_MINUTE, self._credit + (now - self._credit_at) * _HANDOVERS_PER_MINUTE / 60.0)
        self._credit_at = now
        return math.floor(self._credit)
