"""`load`: a process that offers its cores to a source. Any number of them may run, anywhere; lanes are taken by opening their producer."""
from __future__ import annotations

import logging
import os
import random
import threading
import time
from typing import Any, Callable, NamedTuple, Sequence

from ..errors import BatchWeaveError, is_error
from ..lifecycle.checkpoints import measure_lag
from ..observe import source_metrics
from .fault import FaultTally
from .fleet_hints import open_hints
from .lane_claims import LaneClaims
from .lane_loader import LaneLoader
from .lane_watch import LaneWatch, LogView
from .preparing import Preparing
from .sample_writer import LaneAppender
from .source import Source
from .source_log import GapWatch, LaneState, SourceLog, open_source_log, place_in
from .training_watch import TrainingWatch
from .transform_pool import TransformPool

_LOG = logging.getLogger("batchweave.load")
#: Between two rounds of looks; less while lanes are to be had, more and more where nothing happens.
_LOOK_S = 1.0
_CLAIMING = 0.2
_GROWTH, _GROWTH_MAX = 1.2, 2.0
#: While lanes are to be had, who holds more waits longer: so many lanes are one more pause, up to a limit.
_LANES_A_PAUSE, _PAUSES_MAX = 4, 4


class LoadReport(NamedTuple):
    """What a process did."""

    source: str
    samples: int
    faults: int
    lanes: int
    #: The log of the source is closed: all of it is there.
    is_complete: bool


class _Held:
    """A lane that this process holds, in a thread of its own."""

    def __init__(self, lane: int, loader: LaneLoader, run: Callable[[threading.Event, threading.Event], Any]) -> None:
        self.lane = lane
        self.loader = loader
        self.stopping = threading.Event()
        self.releasing = threading.Event()
        self.error: BaseException | None = None
        self._run = run
        self.thread = threading.Thread(target=self._work, name=f"batchweave-lane-{lane}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            self._run(self.stopping, self.releasing)
        except BaseException as error:  # noqa: BLE001: told to the process
            self.error = error


class Loader:
    """Runs lanes of one source until its log is closed, no training log needs it, or it is told to stop."""

    def __init__(
        self,
        source: Source,
        uri: str | None = None,
        workers: int | None = None,
        lanes_max: int | None = None,
        place: str | None = None,
        pulse: bool = False,
        **settings: Any,
    ) -> None:
        self.source = source
        folder = source.place(uri)
        self.log: SourceLog = open_source_log(folder, source.name, source.lanes, source.print(), **settings)
        self._workers = max(1, (os.cpu_count() or 1)) if workers is None else workers
        self._in_flight_max = 2 * max(1, self._workers)
        self._lanes_max = source.lanes if lanes_max is None else max(1, lanes_max)
        finish = Preparing(source.tokens_max, source.too_long)
        self.pool = TransformPool(source.transforms, self._workers, source.timeout, source.memory_max, place, source.name, finish)
        self._tally = FaultTally(source.name, source.policy)
        self._watch = LaneWatch()
        self._claims = LaneClaims(self._watch, time.monotonic)
        self._hints = open_hints(place_in(folder, ".fleet"), source.name, **settings)
        self._held: dict[int, _Held] = {}
        self._loaders: list[LaneLoader] = []
        self._training = TrainingWatch(folder, settings, self.facts if pulse else None)
        self._taken: tuple[str, float] | None = None
        self.labels = {"namespace": self._training.uri or folder, "role": "loader", "source": source.name}
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Asks `run` to end soon. What is in blocks is in the log; the rest is loaded by others."""
        self._stopping.set()

    def run(self) -> LoadReport:
        gaps = GapWatch(self.log, lambda: set(self._held))
        is_complete = False
        idle = 0
        source_metrics.watch(self)
        try:
            while not self._stopping.is_set():
                manifest, states = self.log.look(with_leavings=not self._held)
                if manifest.closed:
                    is_complete = True
                    break
                if self._training.is_over():
                    break
                self._collect()
                lag = measure_lag(manifest, 1)
                is_held_back = manifest.max_lag is not None and lag.steps >= manifest.max_lag
                view = LogView(manifest.end, states, self.log.reached(states), lag.start, is_held_back, self.log.step_of(0, 0))
                going = [state for state in states if not self.log.is_over(state)]
                if not going and not self._held and self.log.finish():
                    is_complete = True
                    break
                is_active = self._round(view, going)
                idle = 0 if is_active or self._watch.is_wanted else idle + 1
                self._rest(self._pause(is_active, idle))
        finally:
            gaps.stop()
            self._let_go()
            self._hints.leave()
            self._training.stop()
            self.pool.close()
            source_metrics.forget(self)
        return LoadReport(self.source.name, self.samples, self.faults, self.source.lanes, is_complete)

    @property
    def samples(self) -> int:
        """Loaded here so far."""
        return sum(loader.samples for loader in self._loaders)

    @property
    def faults(self) -> int:
        return self._tally.count

    @property
    def read_seconds(self) -> float:
        return sum(loader.read_seconds for loader in self._loaders)

    @property
    def transform_seconds(self) -> float:
        return self.pool.seconds

    def facts(self) -> dict[str, Any]:
        """How this process fares, for its pulse. `source`: it loads no other, so it is no loader of those that the pipeline's file reads itself."""
        took = self._taken
        own = {
            "source": self.source.name, "samples": self.samples, "waitMs": 0, "readMs": round(1_000 * self.read_seconds),
            "transformMs": round(1_000 * self.transform_seconds), "buffered": 0, "faults": self.faults,
        }
        return {
            **({} if took is None else {"tookOver": took[0], "tookOverAgoMs": round(1_000 * (time.monotonic() - took[1]))}),
            "source": self.source.name, "blocks": sum(loader.blocks for loader in self._loaders), "lanes": len(self._held), "threads": self._workers,
            "sources": [own], "client": "python",
        }

    def _pause(self, is_active: bool, idle: int) -> float:
        claiming = _CLAIMING * (1 + min(_PAUSES_MAX, len(self._held) / _LANES_A_PAUSE))
        # Processes that started together must not look together.
        return _LOOK_S * (claiming if is_active else min(_GROWTH_MAX, _GROWTH**idle)) * (0.5 + random.random())

    def _rest(self, seconds: float) -> None:
        """Until then, or until a lane has ended."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            if self._held and any(not held.thread.is_alive() for held in self._held.values()):
                return
            self._stopping.wait(min(left, 0.1))

    def _round(self, view: LogView, going: Sequence[LaneState]) -> bool:
        """Takes what is free or stands still, gives up what is too much. True: lanes were to be had."""
        self._watch.observe(view, time.monotonic())
        for held in self._held.values():
            held.loader.end = view.end
        for want in self._hints.read(len(self._held)):
            self._watch.want(want.block, want.since)
        free = self._claims.free(going, set(self._held), self._lanes_max - len(self._held))
        self._claims.learn([self._open(state, view.end) for state in free])
        is_busy = len(self._held) > max(1, self._workers)
        late = self._claims.standing(going, set(self._held), self._lanes_max - len(self._held), is_busy)
        for state in late:
            if self._open(state, view.end):
                _LOG.warning("Lane %d of source %s stood still: this process goes on with it.", state.lane, self.source.name)
                self._taken = (f"lane {state.lane} of {self.source.name}", time.monotonic())
                self._training.hurry("takeover")
        working = [lane for lane, held in self._held.items() if not held.releasing.is_set()]
        surplus = self._claims.surplus(view, working, self._hints.is_above_share(len(working)))
        if surplus is not None:
            self._held[surplus].releasing.set()
        return bool(free or late)

    def _open(self, state: LaneState, end: int) -> bool:
        """Opens a lane's producer, if it is still held as it was seen. False: another process was faster."""
        try:
            producer, point = self.log.open(state.lane, state.epoch)
        except BatchWeaveError as error:
            if is_error(error, "FENCED") or is_error(error, "CLOSED"):
                return False
            raise
        appender = LaneAppender(self.log, producer, point)
        loader = LaneLoader(self.source, appender, self.pool, self._tally, self._in_flight_max)
        loader.end = end
        self._loaders.append(loader)
        self._held[state.lane] = _Held(state.lane, loader, lambda stopping, releasing: _run_lane(appender, loader, stopping, releasing))
        return True

    def _collect(self) -> None:
        """Lanes that have ended, here or for this process only."""
        for held in [held for held in self._held.values() if not held.thread.is_alive()]:
            del self._held[held.lane]
            if held.error is None:
                continue
            if is_error(held.error, "FENCED") or is_error(held.error, "CLOSED"):
                _LOG.warning("Lane %d of source %s is held by another process now.", held.lane, self.source.name)
                continue
            raise held.error

    def _let_go(self) -> None:
        for held in self._held.values():
            held.stopping.set()
        for held in self._held.values():
            held.thread.join(5.0)


def _run_lane(lane: LaneAppender, loader: LaneLoader, stopping: threading.Event, releasing: threading.Event) -> None:
    if lane.point.is_over:
        lane.producer.close()
        return
    # Told to stop or at the end: what was accepted goes into the log, and the lane is free at once.
    with lane.producer:
        loader.run(stopping, releasing)


def load(source: Source, uri: str | None = None, **settings: Any) -> LoadReport:
    """Loads a source until its log is complete. Start it as often as you like, anywhere: processes share the lanes."""
    return Loader(source, uri, **settings).run()
