"""A publisher on a log, an outbox and a clock that a test moves; every call of them is written down."""
from __future__ import annotations

import dataclasses
import threading
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave.format.descriptor import Descriptor, Extent
from batchweave.format.manifest import genesis
from batchweave.format.producer_state import ProducerState
from batchweave.log.log import NO_INTENTS, Attempt, Intents
from batchweave.log.stage import Holder
from batchweave.producer import publisher as module
from batchweave.producer.pace import pace_of
from batchweave.producer.publisher import Publisher
from small_world import World

ME = "0123456789ab"
HOLDER = Holder("p", 2, ME)
PACE = pace_of(0.1)


def batch(seq: int, base: int = 5, attempt: int = 0, extents: int = 1) -> Descriptor:
    return Descriptor(*HOLDER, seq, base, attempt, tuple(Extent(1, 9_000_000_000, 8_000_000_000 + i, 4_000_000_000) for i in range(extents)))


class Outbox:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.batches: list[Descriptor] = []
        self.is_ended = self.awaited = False
        self.waiting = self.uploaded = True
        self.settled: list[int] = []
        self.expired: list[Any] = []
        #: What a manifest that is settled leaves pending.
        self.left: list[Descriptor] | None = None

    def pending(self) -> list[Descriptor]:
        return list(self.batches)

    def is_waiting(self) -> bool:
        return self.waiting

    def is_all_uploaded(self) -> bool:
        return self.uploaded

    def is_awaited(self) -> bool:
        return self.awaited

    def settle(self, manifest: Any) -> None:
        self.settled.append(manifest.version)
        if self.left is not None:
            self.batches = self.left

    def expire(self, batches: list[Descriptor]) -> None:
        self.expired.append([b.seq for b in batches])


class Bench(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 100.0
        self.random = 0.5
        self.world = World()
        self.manifest = dataclasses.replace(genesis(self.world.log.spec), version=9, producers=self.states(3), commit={"id": ME, "by": "c", "time": 1_099_000, "kind": "carrier"})
        self.calls: list[Any] = []
        self.learned: list[float] = []
        self.head = SimpleNamespace(known=self.manifest, newest=lambda: self.manifest, jump=lambda: self.called("jump"), walk=self.walk)
        self.store = mock.Mock()
        self.log: Any = SimpleNamespace(
            head=self.head, store=self.store, spec=self.world.log.spec, round_trip=SimpleNamespace(seconds=0.1, learn=self.learned.append), list_intents=self.list_intents,
            attempt_batches=self.attempt,
        )
        self.intents = NO_INTENTS
        self.outcome: Any = ("committed", ([], 0))
        self.outbox = Outbox()
        self.publisher = Publisher(self.log, HOLDER, self.outbox)
        clock = mock.Mock(monotonic=lambda: self.now, time=lambda: self.now + 1_000)
        for name, value in ("time", clock), ("random", mock.Mock(random=lambda: self.random)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def states(self, count: int) -> dict[str, ProducerState]:
        return {"p" if i == 0 else f"q{i}": ProducerState(2, ME, 3, 9) for i in range(count)}

    def called(self, name: Any) -> Any:
        self.calls.append(name)
        return self.manifest

    def walk(self, is_enough: Any, most: int) -> Any:
        self.is_enough = is_enough
        return self.called(("walk", most))

    def list_intents(self) -> Intents:
        self.calls.append("list")
        return self.intents

    def attempt(self, holder: Holder, batches: Any, intents: Any = NO_INTENTS, fresh: bool = True, kind: str = "carrier") -> Attempt:
        self.calls.append(("attempt", [b.seq for b in batches], intents is not NO_INTENTS, fresh, kind))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return Attempt(self.outcome[0], self.manifest, self.outcome[1])

    def alone(self) -> None:
        self.manifest = self.head.known = dataclasses.replace(self.manifest, producers=self.states(1))

