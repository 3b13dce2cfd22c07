"""The pace of cooperative commit: the numbers of src/cadence/cooperative/pace.ts, in seconds.

Every time is a multiple of a round trip of this store, with a floor, below which a machine's own scheduling decides, and a
ceiling: what S3 needs, where requests cost money.
"""
from __future__ import annotations

import math
from typing import NamedTuple


class Pace(NamedTuple):
    """How long followers and carriers wait for what."""

    #: Batches that come faster than this share intents; and those that a caller waits for.
    announce: float
    urgent_announce: float
    #: How long a carrier has for a published batch before its owner takes over.
    patience: float
    #: How long a follower whose tickets are not awaited lets its oldest batch go unconfirmed.
    confirm: float
    #: Shortest time between two looks of a follower that a caller waits for.
    look: float
    #: The window of a commit, roughly: followers spread over so long for each doubling of their number before they take over.
    window: float
    #: Shortest and longest time between two commits of a carrier that has something to carry.
    interval_min: float
    interval_max: float
    #: The longest between two listings that show nothing.
    idle_max: float
    #: A producer alone commits this often.
    alone_interval: float
    #: How long a producer that closes tries to say so.
    farewell: float


def pace_of(round_trip: float) -> Pace:
    """The pace on a store whose small writes take `round_trip` seconds."""

    def times(factor: float, floor: float, ceiling: float) -> float:
        return min(ceiling, max(floor, factor * round_trip))

    return Pace(
        announce=times(2, 0.005, 0.15),
        urgent_announce=times(0.7, 0.002, 0.05),
        patience=times(20, 0.15, 1.5),
        confirm=times(140, 0.25, 10),
        look=times(0.7, 0.005, 0.05),
        window=times(7, 0.01, 0.5),
        interval_min=times(1.4, 0.025, 0.1),
        interval_max=times(2.7, 0.025, 0.2),
        idle_max=times(14, 0.05, 1),
        alone_interval=times(2.7, 0.02, 0.2),
        farewell=times(40, 0.5, 3),
    )


#: A fifth of the time the carrier does not commit: what openings and checkpoints get in by.
_PACE_FACTOR = 1.25


class CycleTime:
    """How long a carrier's cycles take. One that took long says little about the next: it counts for less."""

    def __init__(self) -> None:
        self._tau = 0.0

    def learn(self, cycle: float) -> None:
        weight = 1.0 if self._tau == 0 else 0.5 if cycle < self._tau else 0.1
        self._tau += weight * (cycle - self._tau)

    def interval(self, pace: Pace, alone: bool, idle_cycles: int) -> float:
        """From the beginning of one cycle to the next: never so short that no other committer gets in between."""
        busy = pace.alone_interval if alone else max(pace.interval_min, _PACE_FACTOR * self._tau, pace.interval_max)
        if idle_cycles == 0:
            return busy
        return min(max(pace.idle_max, busy), busy * 2.0 ** min(idle_cycles, 10))


class CarrierRhythm:
    """What a follower knows of its carrier's rhythm, by the carrier's wall clock: a wrong one makes looks early or late, no more."""

    def __init__(self) -> None:
        self._version = 0
        self._stamped_at = 0.0
        self._interval: float | None = None

    def see(self, version: int, stamped_at: float) -> None:
        """A version that a carrier made."""
        if version <= self._version:
            return
        each = (stamped_at - self._stamped_at) / (version - self._version)
        if self._version > 0 and each > 0:
            self._interval = (self._interval + each) / 2 if self._interval else each
        self._version, self._stamped_at = version, stamped_at

    def interval(self, pace: Pace) -> float:
        """How long a commit and the pause after it take, as far as is known."""
        return min(4 * pace.interval_max, max(pace.interval_min, self._interval or pace.interval_max))

    def expected_at(self, announced_at: float, round_trip: float, pace: Pace) -> float:
        """When a batch announced then is expected to be visible, and a little later, so that one look is enough."""
        interval = self.interval(pace)
        listed_at = announced_at + round_trip / 2
        cycles = math.ceil((listed_at - self._stamped_at) / interval)
        stamped_at = self._stamped_at + cycles * interval if self._version > 0 else listed_at + interval / 2
        earliest, latest = announced_at + round_trip / 2, announced_at + interval + 2 * round_trip
        return min(max(stamped_at + 1.2 * round_trip, earliest), latest)


def spread(uniform: float, span: float, crowd: int) -> float:
    """When it is one's turn, if any one of many will do: of all who draw, few come within a short time after the first."""
    if crowd <= 1:
        return 0.0
    return span * math.log(1 + uniform * (crowd - 1)) / math.log(crowd)
