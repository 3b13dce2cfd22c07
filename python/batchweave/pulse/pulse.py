"""Leaving hints of life, seldom enough for any fleet. Twin of src/pulse/pulse-writer.ts."""
from __future__ import annotations

import os
import random
import socket
import threading
import time
from typing import Any, Callable

from ..env.ids import random_id
from ..errors import is_error
from ..flow.threads import join_threads, stop_at_exit
from ..format.keys import assert_name
from ..format.pulse import PULSE_PREFIX, PulseName, encode_pulse, parse_pulse_key
from ..store.object_store import Store
from .machine import machine_id

#: Of one process, however few there are; between two pulses of the whole fleet.
_EVERY_MIN_MS = 10_000
_FLEET_MS = 5_000
#: A process that is alone is seen this soon.
_FIRST_MAX_S = 1.0
#: After failures a process tries less and less often.
_FAILURE_MAX_S = 300.0
#: Pages of a thousand names that are counted.
_PAGES_MAX = 16
#: Between two pulses of one process that do not wait for their turn, for the same reason; and how many processes of a fleet may at once.
_HURRY_S = 60.0
_HURRIES_MAX = 6
#: A process that closes down waits no longer than this.
_STOP_MAX_S = 0.5


class Pulse:
    """A process that leaves pulses, from a thread of its own, until it is stopped. Nothing it meets troubles its process."""

    def __init__(
        self, store: Store, namespace: str, role: str, name: str, facts: Callable[[], dict[str, Any]], peers: int = 1
    ) -> None:
        assert_name(name, "The name of a pulse")
        self._store = store
        self._namespace = namespace
        self._role = role
        self._name = name
        self._facts = facts
        self._peers = peers
        self._incarnation = random_id()
        self._started = int(time.time() * 1_000)
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._hurried: dict[str, float] = {}
        self._living = 1
        self._last: str | None = None
        #: Pulses that were written, and that could not be.
        self.written = 0
        self.failed = 0
        self._thread = threading.Thread(target=self._run, name="batchweave-pulse", daemon=True)
        stop_at_exit(self)
        self._thread.start()

    def stop(self) -> None:
        """Asks it to end; its thread takes the last pulse away."""
        self._ended.set()
        self._woken.set()

    def hurry(self, news: str) -> None:
        """Something worth knowing: the next pulse need not wait for its turn. Once a minute of a kind, and in a large fleet only a few processes are heard."""
        now = time.monotonic()
        if now < self._hurried.get(news, -_HURRY_S) + _HURRY_S:
            return
        self._hurried[news] = now
        if random.random() * self._living < _HURRIES_MAX:
            self._woken.set()

    def join(self, until: float) -> None:
        """Waits for that until a moment of the monotonic clock, half a second at most: a store that hangs is left behind."""
        if self._pid == os.getpid():
            join_threads([self._thread], min(until, time.monotonic() + _STOP_MAX_S))

    def _run(self) -> None:
        first = self._peers * _FLEET_MS / 1_000 if self._peers > 1 else _FIRST_MAX_S
        pause: float | None = first * random.random()
        failures = 0
        while pause is not None:
            self._woken.wait(pause)
            if self._ended.is_set():
                break
            self._woken.clear()
            try:
                pause = self.beat() / 1_000 * random.uniform(0.9, 1.1)
                failures = 0
            except Exception as error:  # whatever it is, the trainer has other worries
                self.failed += 1
                # A process that may only read leaves no pulses.
                pause = None if is_error(error, "STORE_DENIED") else min(_FAILURE_MAX_S, _EVERY_MIN_MS / 1_000 * 2**failures)
                failures += 1
        if self._last is not None:
            try:
                self._store.delete([self._last])
            except Exception:  # it grows late, and is removed by others
                pass

    def beat(self) -> int:
        """Writes one; gives the ms to the next."""
        now = int(time.time() * 1_000)
        others = [one for one in self._list() if one.incarnation != self._incarnation]
        living = 1 + sum(not one.is_late(now) for one in others)
        self._living = max(living, self._peers)
        every = max(_EVERY_MIN_MS, self._living * _FLEET_MS)
        own = PulseName(self._role, self._name, now, every, self._incarnation)
        if own.key == self._last:
            return every
        data = encode_pulse(self._namespace, own, socket.gethostname(), self._pid, self._started, self._facts(), machine_id())
        self._store.put(own.key, data)
        before, self._last = self._last, own.key
        self.written += 1
        # Its own, and what those of its name left that did not live to take theirs away.
        spent = [one.key for one in others if one.role == self._role and one.name == self._name and one.is_late(now)]
        if before is not None:
            spent.append(before)
        if spent:
            self._store.delete(spent)
        return every

    def _list(self) -> list[PulseName]:
        names: list[PulseName] = []
        after = ""
        for _ in range(_PAGES_MAX):
            keys, more = self._store.list(PULSE_PREFIX, after)
            names += [name for name in map(parse_pulse_key, keys) if name is not None]
            if not more or not keys:
                break
            after = keys[-1]
        return names
