"""A process that runs transforms. It takes one sample at a time, so whatever it dies of is that sample's.

Started as `python -m batchweave.load.transform_worker FD`; what comes and goes over the socket is pickled.
"""
from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Iterable

from .pipeline_file import load_pipeline
from .transform_chain import reason_of, run_chain

#: How a worker that cannot even load its transforms ends, after it said why.
SETUP_STATUS = 3
_PARENT_LOOK_S = 1.0


def _memory(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0


class _Memory:
    """Keeps one sample from taking more than its share, and tells when samples leave too much behind."""

    def __init__(self, bytes_max: int | None) -> None:
        self._bytes_max = bytes_max if sys.platform == "linux" else None
        if self._bytes_max is None:
            return
        import resource

        # Of private memory, not of addresses: libraries reserve far more of those than they use.
        limit = _memory("VmData") + self._bytes_max
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
        self._rss_max = _memory("VmRSS") + self._bytes_max // 2

    def is_leaking(self) -> bool:
        return self._bytes_max is not None and _memory("VmRSS") > self._rss_max


def _end_with_parent(parent: int) -> None:
    """A parent that was killed leaves no worker behind, not even one that hangs in a transform."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _serve(socket: Connection) -> int:
    parent, place, given, finish, bytes_max = socket.recv()
    _end_with_parent(parent)
    # What a transform prints is for people; stdout belongs to the command.
    os.dup2(2, 1)
    try:
        transforms: Iterable[Any] = load_pipeline(place).transforms if place else given()
        chain = list(transforms)
    except BaseException as error:  # noqa: BLE001: told to the loader that waits
        socket.send(("setup", reason_of(error)))
        return SETUP_STATUS
    socket.send(("ready", None))
    memory = _Memory(bytes_max)
    while True:
        try:
            value = socket.recv()
        except EOFError:
            return 0
        try:
            answer: tuple[str, Any] = ("made", finish(run_chain(chain, value)))
        except MemoryError:
            value = None
            answer = ("memory", None)
        except Exception as error:  # noqa: BLE001: it is the sample's
            answer = ("error", reason_of(error))
        try:
            socket.send((*answer, memory.is_leaking()))
        except (TypeError, AttributeError, ValueError) as error:
            socket.send(("error", f"what its transforms made cannot be sent: {reason_of(error)}", False))


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader ends its workers
    return _serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())
