"""Property: producers may be maxLag steps ahead of the slowest live training run, no more; a producer or rank that can never go on is told, and no other is.

Method: a log with checkpoints of several groups, every number around the limit; a gate whose store and clock a test moves.
"""
from __future__ import annotations

import unittest
from typing import Any, Callable
from unittest import mock

from batchweave import BatchWeaveError, create_namespace, make_cursor
from batchweave.format.manifest import Manifest
from batchweave.lifecycle.checkpoints import LagGate, measure_lag, watch_starvation
from memory_store import MemoryStore

ROWS = 2


class Lags(unittest.TestCase):
    def setUp(self) -> None:
        self.store = MemoryStore()
        self.namespace = create_namespace("memory:test", rows=ROWS, chunks=1, store=self.store)
        with self.namespace.producer("p") as producer:
            for _ in range(9):
                producer.append([b"x"] * ROWS)
        self.log = self.namespace.log

    def register(self, id: str, step: int, group: str = "default") -> None:
        self.namespace.checkpoint(id, make_cursor(self.namespace.uuid, step * ROWS, step), group=group)

    def lag(self) -> tuple[Any, ...]:
        return tuple(measure_lag(self.log.head.jump(), ROWS))

    def deadlock(self, call: Callable[[], Any]) -> str:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, "LAG_DEADLOCK")
        return caught.exception.message

    def test_the_slowest_live_group_counts_with_the_distance_of_its_last_two_checkpoints(self) -> None:
        self.assertEqual(self.lag(), (9, 0, None, 0, None))
        self.register("a", 2)
        self.assertEqual(self.lag(), (7, 2, "default", 1, None))
        self.register("b", 3)
        self.register("c", 7)
        self.assertEqual(self.lag(), (2, 7, "default", 1, 4))
        self.register("a", 6, "other")
        self.register("b", 5, "other")
        self.assertEqual(self.lag(), (4, 5, "other", 2, 1))
        self.namespace.release("a", group="other")
        self.namespace.release("b", group="other")
        self.assertEqual(self.lag(), (2, 7, "default", 1, 4))

    def test_a_batch_is_accepted_up_to_the_limit_and_beyond_it_when_the_log_is_closed_or_has_no_limit(self) -> None:
        LagGate(self.log).wait(lambda: 99)
        self.namespace.set_max_lag(10)
        gate = LagGate(self.log, poll_delay=0.01, wait_max=0)
        waits: list[int] = []
        gate.wait(lambda: 0, lambda: waits.append(1))
        self.assertEqual(waits, [])
        message = self.deadlock(lambda: gate.wait(lambda: 1, lambda: waits.append(1)))
        self.assertEqual(waits, [1])
        self.assertIn("no checkpoint is live (the log begins at step 0)", message)
        self.register("a", 1)
        self.register("b", 5)
        gate.wait(lambda: 5)
        message = self.deadlock(lambda: gate.wait(lambda: 6))
        self.assertIn("the newest checkpoint of group default is at step 5", message)
        self.assertIn("interval is 4 steps", message)
        self.namespace.end_log()
        gate.wait(lambda: 6)

    def test_who_waits_goes_on_when_a_checkpoint_comes_and_is_told_once(self) -> None:
        self.namespace.set_max_lag(9)
        gate = LagGate(self.log, poll_delay=0.01, wait_max=60)
        waits: list[int] = []
        slept = [0]

        def sleep(_: float) -> None:
            slept[0] += 1
            gate._looked_at -= 1
            if slept[0] == 3:
                self.register("a", 1)

        with mock.patch("batchweave.lifecycle.checkpoints.time.sleep", sleep):
            gate.wait(lambda: 0, lambda: waits.append(1))
        self.assertEqual((waits, slept), ([1], [3]))

    def test_names_and_limits_are_checked_before_anything_is_committed(self) -> None:
        version = self.log.head.jump().version
        cursor = make_cursor(self.namespace.uuid, 2, 1)
        calls: list[Callable[[], Any]] = [
            lambda: self.namespace.checkpoint("a/b", cursor), lambda: self.namespace.checkpoint("a", cursor, group="a/b"),
            lambda: self.namespace.release("a/b"), lambda: self.namespace.release("a", group="a/b"),
            lambda: self.namespace.set_max_lag(0), lambda: self.namespace.set_max_lag(True), lambda: self.namespace.checkpoint("a", cursor, keep_last=True),
        ]
        for call in calls:
            with self.assertRaises(BatchWeaveError) as caught:
                call()
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        self.assertEqual(self.log.head.jump().version, version)
        self.namespace.set_max_lag(1)
        self.assertEqual(self.log.head.jump().max_lag, 1)
        self.namespace.set_max_lag(None)
        self.assertIsNone(self.log.head.jump().max_lag)
        registered = self.namespace.checkpoint("a", make_cursor(self.namespace.uuid, 5, 3), keep_last=1)
        self.assertEqual(tuple(registered), ("default", "a", 5, 2, 3, version + 3))

    def test_a_rank_starves_only_if_its_own_group_holds_producers_up_and_no_batch_can_come(self) -> None:
        self.namespace.set_max_lag(5)
        self.register("a", 4)
        self.register("a", 6, "other")

        def starves(step: int = 9, waited: float = 10.0, group: str = "default") -> bool:
            try:
                watch_starvation(self.log, step, waited, group)
            except BatchWeaveError as error:
                self.assertEqual(error.code, "LAG_DEADLOCK")
                return True
            return False

        def newest() -> Manifest:
            return self.log.head.jump()

        self.assertFalse(starves(waited=9.9))
        self.assertFalse(starves(step=8))
        self.assertFalse(starves(group="other"))
        version = newest().version
        self.assertTrue(starves())
        self.assertEqual((newest().version, newest().starving), (version + 1, 9))
        self.assertTrue(starves(step=12))
        self.assertEqual(newest().version, version + 1, "it is said once")
        self.deadlock(lambda: LagGate(self.log, poll_delay=0.01).wait(lambda: 0))
        self.register("b", 5)
        self.assertFalse(starves())
        self.namespace.set_max_lag(4)
        self.assertTrue(starves())
        self.namespace.end_log()
        self.assertFalse(starves())


if __name__ == "__main__":
    unittest.main()
