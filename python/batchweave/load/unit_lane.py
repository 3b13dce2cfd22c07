"""A lane that is filled by units in any order, each once: what a task of an engine made, however often the engine runs it."""
from __future__ import annotations

import threading
import zlib
from typing import Any, NamedTuple, Sequence

from ..errors import BatchWeaveError, is_error
from ..format.sample_block import SAMPLE_BLOCK_TYPE
from .block_rule import Block, filler
from .lane_point import LanePoint, encode_point
from .source_log import SourceLog

#: Units of which a checksum is kept, the newest of a lane: of those a second write is compared.
_CHECKED_MAX = 4_096


class UnitState(NamedTuple):
    """Which units a lane has. JSON in its resume point."""

    #: [first, last] of runs of units that are in the log as a whole.
    done: tuple[tuple[int, int], ...] = ()
    #: Units of which the first blocks are in the log: how many, and their checksum.
    begun: dict[int, tuple[int, int]] = {}
    #: Checksums of the newest units.
    checks: dict[int, int] = {}

    def has(self, unit: int) -> bool:
        return any(first <= unit <= last for first, last in self.done)

    def with_block(self, unit: int, blocks: int, check: int) -> "UnitState":
        return self._replace(begun={**self.begun, unit: (blocks, check)})

    def with_unit(self, unit: int, check: int, lanes: int) -> "UnitState":
        """Units of one lane are `lanes` apart."""
        begun = {key: value for key, value in self.begun.items() if key != unit}
        runs = sorted([*self.done, (unit, unit)])
        merged: list[tuple[int, int]] = []
        for first, last in runs:
            if merged and first == merged[-1][1] + lanes:
                merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
        checks = {**self.checks, unit: check}
        while len(checks) > _CHECKED_MAX:
            del checks[next(iter(checks))]
        return UnitState(tuple(merged), begun, checks)

    def encode(self) -> dict[str, Any]:
        return {
            "done": [list(run) for run in self.done],
            "begun": [[unit, *value] for unit, value in self.begun.items()],
            "checks": [[unit, check] for unit, check in self.checks.items()],
        }


def decode_units(value: Any) -> UnitState:
    if value is None:
        return UnitState()
    return UnitState(
        tuple((first, last) for first, last in value["done"]),
        {unit: (blocks, check) for unit, blocks, check in value["begun"]},
        {unit: check for unit, check in value["checks"]},
    )


def check_of(blocks: Sequence[Block]) -> int:
    """Of all bytes of blocks, in order."""
    check = 0
    for block in blocks:
        for piece in block.slices:
            check = zlib.crc32(piece, check)
    return check


class UnitLane:
    """Holds one lane. `add` and `end` may be called again and again, from several threads."""

    def __init__(self, log: SourceLog, lane: int) -> None:
        self._log = log
        self._lock = threading.Lock()
        self.lane = lane
        self.producer: Any = None
        try:
            self.producer, self._point = log.open(lane)
        except BatchWeaveError as error:
            if not is_error(error, "CLOSED"):
                raise
            _, lanes = log.look()
            self._point = log.point_of(lanes[lane])
        self._units = decode_units(self._point.at)
        self._is_busy = 0

    @property
    def units(self) -> UnitState:
        return self._units

    @property
    def is_over(self) -> bool:
        return self.producer is None or self._point.is_over

    def add(self, unit: int, blocks: Sequence[Block]) -> bool:
        """Puts a unit into the log; returns when all of it is there. False: it was there already, and nothing was written.

        A unit that was written by half goes on behind its last block: it must be the same as before, and is checked to be.
        """
        check = check_of(blocks)
        self._is_busy += 1
        try:
            with self._lock:
                if self._units.has(unit):
                    self._compare(unit, self._units.checks.get(unit, check), check)
                    return False
                written, before = self._units.begun.get(unit, (0, 0))
                self._compare(unit, before, check_of(blocks[:written]))
                if self.is_over or written > len(blocks):
                    raise self._differs(unit)
                ticket = None
                for k in range(written, max(1, len(blocks))):
                    block = blocks[k] if blocks else Block(filler(self._log.source), None, 0)
                    is_last = k >= len(blocks) - 1
                    after = self._units.with_unit(unit, check, self._log.lanes) if is_last else self._units.with_block(unit, k + 1, check_of(blocks[: k + 1]))
                    ticket = self._append(block, after)
            if ticket is not None:
                ticket.wait()
            return True
        finally:
            self._is_busy -= 1

    def _append(self, block: Block, after: UnitState, is_over: bool = False) -> Any:
        point: LanePoint = self._point._replace(
            at=after.encode(), used=self._point.used + block.samples, seq=self.producer.next_seq + 1, is_over=is_over
        )
        # A crash before: the unit is not, or not all, in the log, and its task comes again. After: the next holder sees it.
        ticket = self.producer.append(block.slices, encode_point(point), SAMPLE_BLOCK_TYPE)
        self._point, self._units = point, after
        return ticket

    def end(self, units: Sequence[int]) -> None:
        """These are all units of the write, of every lane: no more will come."""
        with self._lock:
            if self.is_over:
                return
            own = [unit for unit in units if unit % self._log.lanes == self.lane]
            missing = [unit for unit in own if not self._units.has(unit)]
            there = sum((last - first) // self._log.lanes + 1 for first, last in self._units.done)
            if missing or self._units.begun or there != len(own):
                raise BatchWeaveError(
                    "INVALID_ARGUMENT",
                    f"Lane {self.lane} of {self._log.uri} has {there} units and this write {len(own)} for it: it is not the write that began the log. "
                    "Write it as it was begun, or to another place.",
                    {"lane": self.lane, "missing": missing[:8], "begun": list(self._units.begun)[:8]},
                )
            self._append(Block(filler(self._log.source), None, 0), self._units, is_over=True).wait()

    def keep_up(self) -> None:
        """Fills this lane's place while others wait for it and no unit comes for it."""
        manifest = self._log.namespace.log.head.jump()
        first = self._log.namespace.log.spec.first_own_step
        if not manifest.waiting or manifest.closed or (manifest.end - first) % self._log.lanes != self.lane:
            return
        with self._lock:
            if self._is_busy == 0 and not self.is_over and self.producer.next_seq == (manifest.end - first) // self._log.lanes:
                self._append(Block(filler(self._log.source), None, 0), self._units)

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close()

    def _compare(self, unit: int, expected: int, found: int) -> None:
        if expected != found:
            raise self._differs(unit)

    def _differs(self, unit: int) -> BatchWeaveError:
        return BatchWeaveError(
            "INVALID_ARGUMENT",
            f"Unit {unit} of {self._log.uri} is in the log with other samples: the write is not the same every time. Keep the order "
            "(preserve_order), the number of blocks and everything that draws by chance fixed, or write to another place.",
            {"unit": unit},
        )
