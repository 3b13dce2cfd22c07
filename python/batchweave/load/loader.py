"""`load`: a process that offers its cores to a source. Any number of them may run, anywhere; lanes are taken by opening their producer."""
from __future__ import annotations

import logging
import os
import random
import re
import socket
import threading
import time
from typing import Any, Callable, NamedTuple

from ..errors import BatchWeaveError, is_error
from ..format.manifest import Manifest
from ..lifecycle.checkpoints import measure_lag
from ..namespace import open_namespace
from ..observe import source_metrics
from ..pulse.pulse import Pulse
from .fault import FaultTally
from .lane_choice import LaneChoice
from .lane_loader import LaneLoader
from .preparing import Preparing
from .sample_writer import LaneAppender
from .source import Source
from .source_log import SOURCES_ENDING, GapWatch, SourceLog, Wanted, open_source_log
from .transform_pool import TransformPool

_LOG = logging.getLogger("batchweave.load")
_LOOK_S = 0.5
_LOOK_MAX_S = 4.0
#: How often the training log is asked whether it still needs samples.
_TRAINING_LOOK_S = 10.0


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

    def __init__(self, lane: int, run: Callable[[threading.Event], Any]) -> None:
        self.lane = lane
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._run = run
        self.thread = threading.Thread(target=self._work, name=f"batchweave-lane-{lane}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            self._run(self.stopping)
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
        self._settings = settings
        folder = source.place(uri)
        self.log: SourceLog = open_source_log(folder, source.name, source.lanes, source.print(), **settings)
        count = max(1, (os.cpu_count() or 1)) if workers is None else workers
        self._in_flight_max = 2 * max(1, count)
        self._lanes_max = source.lanes if lanes_max is None else max(1, lanes_max)
        finish = Preparing(source.tokens_max, source.too_long)
        self.pool = TransformPool(source.transforms, count, source.timeout, source.memory_max, place, source.name, finish)
        self._tally = FaultTally(source.name, source.policy)
        self._choice = LaneChoice(time.monotonic)
        self._hints = Wanted(folder, source.name, **settings)
        self._held: dict[int, _Held] = {}
        self._loaders: list[LaneLoader] = []
        self._training = folder.rstrip("/")[: -len(SOURCES_ENDING)] if folder.rstrip("/").endswith(SOURCES_ENDING) else None
        self._training_at = -_TRAINING_LOOK_S
        self._workers = count
        self._has_pulse = pulse
        self._pulse: Pulse | None = None
        self._taken: tuple[str, float] | None = None
        self.labels = {"namespace": self._training or folder, "role": "loader", "source": source.name}
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Asks `run` to end soon. What is in blocks is in the log; the rest is loaded by others."""
        self._stopping.set()

    @property
    def samples(self) -> int:
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
        """How this process fares, for its pulse."""
        took = self._taken
        own = {
            "source": self.source.name, "samples": self.samples, "waitMs": 0, "readMs": round(1_000 * self.read_seconds),
            "transformMs": round(1_000 * self.transform_seconds), "buffered": 0, "faults": self.faults,
        }
        return {
            **({} if took is None else {"tookOver": took[0], "tookOverAgoMs": round(1_000 * (time.monotonic() - took[1]))}),
            "lanes": len(self._held), "threads": self._workers, "sources": [own], "client": "python",
        }

    def run(self) -> LoadReport:
        gaps = GapWatch(self.log, lambda: set(self._held))
        is_complete = False
        source_metrics.watch(self)
        try:
            delay = _LOOK_S
            while not self._stopping.is_set():
                manifest, states = self.log.look(with_leavings=not self._held)
                if manifest.closed:
                    is_complete = True
                    break
                if self._is_training_over():
                    break
                self._collect()
                self._choice.see(states)
                going = [state for state in states if not self.log.is_over(state)]
                if not going and not self._held and self.log.finish():
                    is_complete = True
                    break
                is_busy = self._take(going, manifest)
                delay = _LOOK_S if is_busy else min(1.5 * delay, _LOOK_MAX_S)
                # Processes that started together must not look together.
                self._rest(delay * (0.5 + random.random()))
        finally:
            gaps.stop()
            self._let_go()
            self.pool.close()
            source_metrics.forget(self)
            if self._pulse is not None:
                self._pulse.stop()
                self._pulse.join(time.monotonic() + 1.0)
        return LoadReport(self.source.name, self.samples, self.faults, self.source.lanes, is_complete)

    def _rest(self, seconds: float) -> None:
        """Until then, or until a lane has ended."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            if self._held and any(not held.thread.is_alive() for held in self._held.values()):
                return
            self._stopping.wait(min(left, 0.1))

    def _is_training_over(self) -> bool:
        """A training log that is closed needs no samples."""
        now = time.monotonic()
        if self._training is None or now - self._training_at < _TRAINING_LOOK_S:
            return False
        self._training_at = now
        try:
            training = open_namespace(self._training, **self._settings)
            if self._has_pulse and self._pulse is None:
                self._pulse = Pulse(training.log.store, training.uuid, "loader", _process_name(), self.facts)
            return training.log.head.newest().closed
        except BatchWeaveError:
            return False  # it may not be there yet, or be somewhere else: only its closing says anything

    def _wanted(self, manifest: Manifest) -> set[int]:
        """Lanes whose block a constructor waits for; and the one that the log needs next, if others in it wait, or this process is idle."""
        blocks = self._hints.blocks() if self._lanes_max > len(self._held) else set()
        wanted = {block % self.log.lanes for block in blocks if block >= manifest.end}
        if not manifest.waiting and (self._held or self._is_ahead(manifest)):
            return wanted
        return wanted | {(manifest.end - self.log.namespace.log.spec.first_own_step) % self.log.lanes}

    def _is_ahead(self, manifest: Manifest) -> bool:
        """Holders that wait for constructors stand still, and no other process could do better."""
        return manifest.max_lag is not None and measure_lag(manifest, 1).steps + self.log.lanes >= manifest.max_lag

    def _take(self, states: list[Any], manifest: Manifest) -> bool:
        room = self._lanes_max - len(self._held)
        chosen = self._choice.choose(states, set(self._held), room, self._wanted(manifest))
        for state in chosen:
            try:
                producer, point = self.log.open(state.lane, state.epoch)
            except BatchWeaveError as error:
                if is_error(error, "FENCED") or is_error(error, "CLOSED"):
                    continue  # another process was faster
                raise
            if not state.is_free:
                _LOG.warning("Lane %d of source %s stood still: this process goes on with it.", state.lane, self.source.name)
                self._taken = (f"lane {state.lane} of {self.source.name}", time.monotonic())
                if self._pulse is not None:
                    self._pulse.hurry("takeover")
            appender = LaneAppender(self.log, producer, point)
            loader = LaneLoader(self.source, appender, self.pool, self._tally, self._in_flight_max)
            self._loaders.append(loader)
            self._held[state.lane] = _Held(state.lane, lambda stopping, a=appender, l=loader: _run_lane(a, l, stopping))  # type: ignore[misc]
        return bool(chosen)

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


def _process_name() -> str:
    """Where it runs, and its number there."""
    host = re.sub(r"[^A-Za-z0-9._-]", "", socket.gethostname())[:40].lstrip(".-")
    return f"{host or 'host'}.{os.getpid()}"


def _run_lane(lane: LaneAppender, loader: LaneLoader, stopping: threading.Event) -> None:
    if lane.point.is_over:
        lane.producer.close()
        return
    # Told to stop or at the end: what was accepted goes into the log, and the lane is free at once.
    with lane.producer:
        loader.run(stopping)


def load(source: Source, uri: str | None = None, **settings: Any) -> LoadReport:
    """Loads a source until its log is complete. Start it as often as you like, anywhere: processes share the lanes."""
    return Loader(source, uri, **settings).run()
