"""The log of one source, as loaders see it: lanes, where each stands, and how it ends (FORMAT.md 13 and 16)."""
from __future__ import annotations

import random
import re
import threading
import time
from typing import Any, Callable, NamedTuple

from ..errors import BatchWeaveError, is_error
from ..format.manifest import Manifest
from ..format.producer_state import LastBatch, ProducerState
from ..format.sample_block import SAMPLE_BLOCK_TYPE
from ..namespace import Namespace, create_namespace, open_namespace
from ..producer.producer import Producer
from .block_rule import filler
from .lane_point import LanePoint, decode_point, encode_point
from .prepared_sample import checked_source_name

#: A source log has one row: a table, and the samples.
_ROWS, _CHUNKS = 1, 2
#: How often a writer looks for a gap of a lane that has ended.
_LOOK_S = 1.0
_ATTEMPTS_MAX = 30


class LaneState(NamedTuple):
    """Where a lane stands, at a verified version."""

    lane: int
    #: 0: not opened yet.
    epoch: int
    #: The epoch that wrote its last block.
    written_epoch: int
    seq: int
    #: No process holds it: never opened, or left.
    is_free: bool
    #: What its producer's state says, for its resume point.
    state: ProducerState | None


class SourceLog:
    """One source's log. Opens lanes, fills gaps of lanes that have ended, closes the log when all have."""

    def __init__(self, namespace: Namespace, source: str, print: str | None = None) -> None:
        self.namespace = namespace
        self.source = source
        self.print = print
        assert namespace.log.spec.lanes is not None
        self.lanes: int = namespace.log.spec.lanes
        self._over: dict[int, int] = {}
        self._closing = threading.Lock()

    @property
    def uri(self) -> str:
        return self.namespace.uri

    def look(self, with_leavings: bool = False) -> tuple[Manifest, list[LaneState]]:
        """The lanes at the head. `with_leavings`: also those whose holder said that it is gone, before a carrier committed it."""
        log = self.namespace.log
        manifest = log.head.jump()
        ids = [f"lane-{lane}" for lane in range(self.lanes)]
        silent = log._find_silent(manifest, ids) if manifest.tables else {}
        leavings = {(leaving.producer, leaving.epoch) for leaving in log.list_intents().leavings} if with_leavings else set()
        found = []
        for lane, id in enumerate(ids):
            state = manifest.producers.get(id)
            if state is None and id in silent:
                finding = silent[id]
                state = finding.state._replace(last=finding.table if finding.has_resume_point else None)
            if state is None:
                found.append(LaneState(lane, 0, 0, 0, True, None))
                continue
            written = state.last.epoch if isinstance(state.last, LastBatch) else 0
            is_free = state.has_left or (id, state.epoch) in leavings
            found.append(LaneState(lane, state.epoch, written, state.seq, is_free, state))
        return manifest, found

    def open(self, lane: int, epoch: int | None = None, **settings: Any) -> tuple[Producer, LanePoint]:
        """Opens a lane's producer. `epoch`: only if it was not opened since that epoch was seen; else FENCED."""
        producer = self.namespace.producer(f"lane-{lane}", epoch=epoch, **settings)
        try:
            point = decode_point(producer.resume_point, lane, self.lanes, self.print, f"Lane {lane} of {self.uri}")
        except BaseException:
            producer.close()
            raise
        return producer, point

    def point_of(self, lane: LaneState) -> LanePoint:
        """What a lane's last block says."""
        value = None if lane.state is None else self.namespace.log.read_resume_point(f"lane-{lane.lane}", lane.state)
        return decode_point(value, lane.lane, self.lanes, None, f"Lane {lane.lane} of {self.uri}")

    def is_over(self, lane: LaneState) -> bool:
        """Whether only fillers can follow. What was over once stays so."""
        if lane.lane in self._over:
            return True
        if lane.seq > 0 and self.point_of(lane).is_over:
            self._over[lane.lane] = lane.seq
        return lane.lane in self._over

    def reached(self, lanes: list[LaneState]) -> int:
        """The first step that no lane has written, nor any above it."""
        return max((self.step_of(lane.lane, lane.seq - 1) + 1 for lane in lanes if lane.seq > 0), default=0)

    def step_of(self, lane: int, seq: int) -> int:
        """Where a lane's block lies in the log."""
        return self.namespace.log.spec.first_own_step + seq * self.lanes + lane

    def append_filler(self, producer: Producer, point: LanePoint) -> LanePoint:
        """The next block of a lane that has ended."""
        point = point._replace(seq=producer.next_seq + 1, is_over=True)
        producer.append(filler(self.source), encode_point(point), SAMPLE_BLOCK_TYPE)
        return point

    def fill(self, lanes: list[int] | None = None) -> bool:
        """Fills the gaps of lanes that have ended up to what others have written. True if there was one.

        The holder of such a lane has nothing to write any more, so taking it does no harm.
        """
        _, states = self.look()
        reached = self.reached(states)
        behind = [s for s in states if self.step_of(s.lane, s.seq) < reached and (lanes is None or s.lane in lanes) and self.is_over(s)]
        for state in behind:
            producer, point = self.open(state.lane, state.epoch)
            with producer:
                while self.step_of(state.lane, producer.next_seq) < reached:
                    point = self.append_filler(producer, point)
        return bool(behind)

    def finish(self, rest: Callable[[float], Any] = time.sleep) -> bool:
        """Closes the log if all lanes have ended. True: it is closed now."""
        for attempt in range(_ATTEMPTS_MAX):
            manifest, states = self.look()
            if manifest.closed:
                return True
            if not all(self.is_over(state) for state in states):
                return False
            try:
                if not self.fill():
                    self.namespace.end_log()
                    return True
            except BatchWeaveError as error:
                # Another process came to the same end at the same time.
                if not (is_error(error, "FENCED") or is_error(error, "CLOSED")) and not manifest.waiting:
                    raise
                rest(random.random() * 0.3 * 2 ** min(attempt, 4))
        return False


class GapWatch:
    """A thread that fills gaps of ended lanes while this process writes others: they could go on for a while only."""

    def __init__(self, log: SourceLog, held: Callable[[], set[int]]) -> None:
        self._log = log
        self._held = held
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"batchweave-gaps-{log.source}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        missing, looks = -1, 0
        while not self._stopping.wait(_LOOK_S):
            try:
                manifest = self._log.namespace.log.head.jump()
                if not manifest.waiting or manifest.closed:
                    continue
                looks = looks + 1 if manifest.end == missing else 0
                missing = manifest.end
                lane = (manifest.end - self._log.namespace.log.spec.first_own_step) % self._log.lanes
                # Its own process fills it, if it is there. Others begin one after another.
                if lane not in self._held() and looks >= 2 + random.random() * 4:
                    self._log.fill([lane])
            except BatchWeaveError:
                continue  # the next look finds it, or the next write tells what is wrong


def open_source_log(uri: str, source: str, lanes: int | None, print: str | None = None, **settings: Any) -> SourceLog:
    """The log of `source` in the folder `uri`. `lanes`: creates it if it is not there; None: it must be."""
    place = place_in(uri, checked_source_name(source))
    namespace = create_namespace(place, _ROWS, _CHUNKS, lanes, **settings) if lanes is not None else open_namespace(place, **settings)
    return SourceLog(namespace, source, print)


def place_in(uri: str, name: str) -> str:
    """The address of something in a folder; what a URI has behind its path stays there."""
    match = re.fullmatch(r"([^?#]*?)/*([?#].*)?", uri, re.DOTALL)
    assert match is not None
    return f"{match[1]}/{name}{match[2] or ''}"
