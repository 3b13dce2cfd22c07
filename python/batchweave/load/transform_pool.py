"""Transforms in processes of their own: bounded, in order for each asker, and what one sample breaks costs that sample alone."""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from multiprocessing import connection
from typing import Any, Callable, NamedTuple, Sequence

from ..errors import BatchWeaveError, invalid
from .transform_chain import reason_of, run_chain

#: A death or a hang may have come from outside: the kernel, an operator, a machine that is too busy. A fault is the sample's only if it happens again.
DEATHS_MAX = 2
#: How long a worker may take to load its transforms.
_SETUP_S = 120.0
#: Workers in a row that may die before they are ready.
_STARTS_MAX = 3


#: What is done in the worker with all that transforms made of a sample. Pickled.
Finish = Callable[["list[Any]"], "list[Any]"]


class Outcome(NamedTuple):
    """What became of a sample: the values made of it, or the reason why none was."""

    values: list[Any]
    error: str | None = None
    attempts: int = 1


class Job:
    """A sample on its way through a worker."""

    def __init__(self, value: Any, id: str) -> None:
        self.value = value
        self.id = id
        self.deaths = 0
        self._done = threading.Event()
        self._outcome: Outcome | BaseException | None = None

    def settle(self, outcome: Outcome | BaseException) -> None:
        self.value = None
        self._outcome = outcome
        self._done.set()

    def wait(self, timeout: float | None = None) -> Outcome | None:
        """None: not yet. Raises what the pool died of."""
        if not self._done.wait(timeout):
            return None
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class _Worker:
    def __init__(self, place: str | None, given: Callable[[], Sequence[Any]] | None, finish: Finish, memory_max: int | None) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-m", "batchweave.load.transform_worker", str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL)
        theirs.close()
        self.socket = connection.Connection(ours.detach())
        self.job: Job | None = None
        self.given_at = 0.0
        self.is_ready = False
        self.deadline = time.monotonic() + _SETUP_S
        self.socket.send((os.getpid(), place, given, finish, memory_max))

    def give(self, job: Job, timeout: float) -> None:
        self.job = job
        self.given_at = time.monotonic()
        self.deadline = self.given_at + timeout
        try:
            self.socket.send(job.value)
        except BrokenPipeError:
            pass  # it died; the answer that does not come tells
        except Exception as error:  # noqa: BLE001: a value that cannot be pickled is the sample's
            self.job = None
            job.settle(Outcome([], f"it cannot be sent to a worker: {reason_of(error)}"))

    def end(self) -> str:
        """Kills it; how it ended."""
        self.socket.close()
        code = self.process.poll()
        if code is None:
            try:
                # One that was just told to end needs a moment for a status of its own.
                code = self.process.wait(0.2)
            except subprocess.TimeoutExpired:
                self.process.kill()
                code = self.process.wait()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"ended with status {code}"


class TransformPool:
    """At most `workers` processes and as many samples in them. `workers` 0 runs transforms here, without protection."""

    def __init__(
        self,
        transforms: Sequence[Callable[..., Any]],
        workers: int,
        timeout: float = 60.0,
        memory_max: int | None = None,
        place: str | None = None,
        source: str = "",
        finish: Finish = list,
    ) -> None:
        if workers < 0 or timeout <= 0 or (memory_max is not None and memory_max < 1 << 20):
            raise invalid("workers is at least 0, timeout more than 0 seconds, memory_max at least 1 MiB.")
        self._transforms = list(transforms)
        self._count = workers if self._transforms else 0
        self._timeout = timeout
        self._memory_max = memory_max
        self._place = place
        self._finish = finish
        self._given = None if place else _Given(self._transforms)
        self._source = source
        self._line: deque[Job] = deque()
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        #: Time that samples spent in workers.
        self.seconds = 0.0
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        #: Tells the thread that something is in line.
        self._told, self._teller = socket.socketpair()
        self._thread: threading.Thread | None = None

    def submit(self, value: Any, id: str) -> Job:
        """Starts on a sample. How many may be on their way is the asker's business."""
        job = Job(value, id)
        if self._count == 0:
            job.settle(self._run_here(value))
            return job
        with self._lock:
            if self._failure is not None:
                job.settle(self._failure)
                return job
            self._line.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="batchweave-transforms", daemon=True)
                self._thread.start()
        self._wake()
        return job

    def close(self) -> None:
        """Ends the workers, whatever they do."""
        with self._lock:
            self._is_stopping = True
        self._wake()
        if self._thread:
            self._thread.join(10.0)
        if self._thread is None or not self._thread.is_alive():
            self._told.close()
            self._teller.close()

    def _wake(self) -> None:
        try:
            self._teller.send(b"x", socket.MSG_DONTWAIT)
        except (BlockingIOError, OSError):
            pass  # it is awake, or gone

    def _run_here(self, value: Any) -> Outcome:
        begun = time.monotonic()
        try:
            return Outcome(self._finish(run_chain(self._transforms, value)))
        except Exception as error:  # noqa: BLE001: it is the sample's
            return Outcome([], reason_of(error))
        finally:
            self.seconds += time.monotonic() - begun

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._hand_out()
                self._await()
        except BaseException as error:  # noqa: BLE001: told to all who wait
            self._fail(error)
        for worker in self._workers:
            worker.process.kill()
            worker.end()
        self._fail(invalid(f"The transforms of source {self._source} were stopped."))

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
            waiting = [*self._line, *(worker.job for worker in self._workers if worker.job)]
            self._line.clear()
        for job in waiting:
            job.settle(self._failure)

    def _hand_out(self) -> None:
        with self._lock:
            idle = [worker for worker in self._workers if worker.is_ready and worker.job is None]
            wanted = min(len(self._line) - len(idle), self._count - len(self._workers))
        starting = sum(1 for worker in self._workers if not worker.is_ready)
        for _ in range(wanted - starting):
            self._workers.append(_Worker(self._place, self._given, self._finish, self._memory_max))
        for worker in idle:
            with self._lock:
                if not self._line:
                    return
                job = self._line.popleft()
            worker.give(job, self._timeout)

    def _await(self) -> None:
        busy = {worker.socket: worker for worker in self._workers if worker.job or not worker.is_ready}
        now = time.monotonic()
        until = min((worker.deadline for worker in busy.values()), default=now + 3600)
        ready = connection.wait([*busy, self._told], max(0.0, until - now))
        if self._told in ready:
            self._told.recv(4096)
        for one in ready:
            if one is not self._told:
                self._answer(busy[one])  # type: ignore[index]
        now = time.monotonic()
        for worker in busy.values():
            if worker.deadline < now and worker in self._workers and worker.socket not in ready:
                self._lost(worker, f"it took more than {self._timeout:g} s")

    def _answer(self, worker: _Worker) -> None:
        try:
            kind, *rest = worker.socket.recv()
        except (EOFError, OSError, ConnectionResetError):
            self._lost(worker, None)
            return
        if kind == "setup":
            raise BatchWeaveError(
                "INVALID_ARGUMENT", f"The transforms of source {self._source} cannot be loaded in a worker: {rest[0]}. Mend them.", {"source": self._source}
            )
        if kind == "ready":
            worker.is_ready = True
            self._failed_starts = 0
            return
        value, is_leaking = rest
        job, worker.job = worker.job, None
        assert job is not None
        self.seconds += time.monotonic() - worker.given_at
        if kind == "made":
            job.settle(Outcome(value, None, 1 + job.deaths))
        elif kind == "error":
            job.settle(Outcome([], value, 1 + job.deaths))
        else:
            job.settle(Outcome([], f"out of memory: its transforms took more than {self._memory_max} bytes", 1 + job.deaths))
        if is_leaking or kind == "memory":
            # What samples left behind goes with the process, and costs none of them.
            self._workers.remove(worker)
            worker.process.kill()
            worker.end()

    def _lost(self, worker: _Worker, why: str | None) -> None:
        """A worker died, or hangs, with a sample in hand."""
        self._workers.remove(worker)
        if why is not None:
            worker.process.kill()
        ended = worker.end()
        job = worker.job
        if job is None:
            self._failed_starts += 1
            if self._failed_starts < _STARTS_MAX and why is None:
                return
            raise BatchWeaveError(
                "INVALID_ARGUMENT",
                f"A worker for the transforms of source {self._source} {'did not get ready in time' if why else ended} before its first sample. "
                "Run the transforms by hand to see why.",
                {"source": self._source},
            )
        job.deaths += 1
        if job.deaths >= DEATHS_MAX:
            job.settle(Outcome([], why or f"its worker was {ended}", job.deaths))
            return
        with self._lock:
            self._line.appendleft(job)


class _Given:
    """Transforms that are not in a pipeline file: pickled by name."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self._transforms = list(transforms)

    def __call__(self) -> Sequence[Callable[..., Any]]:
        return self._transforms
