"""Property: a carrier commits what is pending, tidies up and rests exactly as long as its pace says, and gives way to another; whoever leaves says so once; nobody
waits for what has happened already.

Method: every decision by itself, on both sides of each moment (publisher_bench.py). test_publisher.py has real logs.
"""
from __future__ import annotations

import dataclasses
import math
import threading
import unittest
from typing import Any
from unittest import mock

from batchweave.format.keys import LeavingIntent, OpeningIntent, leaving_intent_key
from batchweave.format.producer_state import LastBatch, ProducerState
from batchweave.log.log import Attempt, Intents
from batchweave.producer import publisher as module
from publisher_bench import HOLDER, ME, Bench, batch


class Carriers(Bench):
    def carry(self, outcome: str = "committed", verdicts: Any = (), alone: bool = False, **state: Any) -> Any:
        p = self.publisher
        vars(p).update({"is_carrying": True, **state})
        if alone:
            self.alone()
        self.outcome = (outcome, (list(verdicts), 0) if verdicts is not None else None)
        self.calls.clear()
        self.rests: list[Any] = []

        def rest(seconds: float, wake: Any) -> None:
            self.wake = wake
            self.rests.append(round(seconds, 6))

        with mock.patch.object(p, "_rest", rest):
            p._carry()
        return self.rests

    def test_own_batches_and_those_of_all_are_committed_and_spent_intents_removed(self) -> None:
        self.outbox.batches = [batch(3), batch(4)]
        state = ProducerState(2, ME, 5, 9, LastBatch(1, 0, 0, 9, 9, 2, ME))
        self.manifest = self.head.known = dataclasses.replace(self.manifest, producers={**self.states(3), "p": state})
        self.intents = Intents({"spent": [batch(4)], "left": [batch(5)], "open": OpeningIntent("p", 1, ME)}, [], [], [])
        self.assertEqual(self.carry(verdicts=["staged", "staged"]), [0.2])
        self.assertEqual(self.calls, ["list", ("attempt", [3, 4], True, True, "carrier")])
        self.assertEqual((self.store.delete.mock_calls, self.outbox.settled, self.outbox.expired), ([mock.call(["spent", "open"])], [9], []))
        # The newest version is its own now: the next attempt begins there.
        self.store.delete.reset_mock()
        self.intents = Intents({"left": [batch(5)]}, [], [], [])
        self.carry(verdicts=["staged", "staged"])
        self.assertEqual((self.calls[1], self.store.delete.called), (("attempt", [3, 4], True, False, "carrier"), False))
        self.carry("nothing", ["in", "in"])
        self.assertFalse(self.publisher._is_head_own)
        self.carry(alone=True)
        self.assertEqual(self.calls, [("attempt", [3, 4], False, False, "carrier")])

    def test_what_expired_is_uploaded_again_and_what_is_ahead_is_tried_again_soon(self) -> None:
        self.outbox.batches = [batch(3), batch(4), batch(5)]
        self.carry(verdicts=["staged", "expired", "expired"])
        self.assertEqual(self.outbox.expired, [[4, 5]])
        self.assertEqual(self.carry(verdicts=["ahead", "blocked", "blocked"]), [0.05])
        self.assertEqual(self.outbox.expired, [[4, 5]])

    def test_cycles_are_as_far_apart_as_they_take_and_idle_ones_further(self) -> None:
        p = self.publisher
        self.outbox.batches = [batch(3)]
        self.assertEqual((self.carry("nothing"), p._idle_cycles), ([0.4], 1))
        attempt = self.attempt

        def slow(*args: Any, **settings: Any) -> Attempt:
            self.now += 0.4
            return attempt(*args, **settings)

        self.log.attempt_batches = slow
        # A cycle of 0.4 s: the next begins after 1.25 times as long.
        self.assertEqual((self.carry(), p._idle_cycles), ([0.1], 0))
        self.log.attempt_batches = attempt
        self.assertEqual((self.carry("nothing"), p._idle_cycles), ([1.0], 1))
        self.assertEqual((self.carry("nothing"), p._idle_cycles), ([1.0], 2))
        self.assertAlmostEqual(p._cycles._tau, 0.4, msg="only what was committed counts")
        self.carry()
        self.assertEqual(p._idle_cycles, 0)
        self.assertEqual(self.carry(alone=True), [0.2])
        self.outbox.waiting = False
        self.assertEqual(self.carry(alone=True), [math.inf], "alone and idle")
        self.assertFalse(p.is_urgent)

    def test_who_loses_to_a_carrier_follows_it_and_who_loses_to_another_tries_again(self) -> None:
        for outcome, kind, is_carrying, seen in ("lost", "carrier", False, 100.0), ("lost", "open", True, -math.inf), ("unsettled", "carrier", True, -math.inf):
            self.manifest = self.head.known = dataclasses.replace(self.manifest, commit={**self.manifest.commit, "kind": kind})
            self.assertEqual(self.carry(outcome, None, _carrier_seen_at=-math.inf), [])
            self.assertEqual((self.publisher.is_carrying, self.publisher._carrier_seen_at, self.publisher._is_head_own), (is_carrying, seen, False))

    def test_urgency_ends_when_nothing_waits(self) -> None:
        for waiting in True, False:
            self.outbox.waiting = waiting
            self.carry(is_urgent=True)
            self.assertEqual(self.publisher.is_urgent, waiting)

    def test_a_carrier_wakes_for_what_is_new_if_it_is_idle_or_somebody_waits_for_all_of_it(self) -> None:
        for alone, waiting, urgent, uploaded, after, new, expected in (
            (True, False, False, True, 0.0, True, True), (True, False, False, True, 0.0, False, False), (True, True, False, True, 0.0, True, False),
            (False, True, True, True, 0.0, True, True), (False, True, True, False, 0.0, True, False), (False, True, True, False, 0.1, True, False),
            (False, True, True, False, 0.11, True, True), (False, True, False, True, 0.11, True, False), (False, True, True, True, 0.0, False, False),
        ):
            self.now = 100.0
            self.manifest = self.head.known = dataclasses.replace(self.manifest, producers=self.states(3))
            self.outbox.batches, self.outbox.waiting, self.outbox.uploaded = [batch(3)], waiting, uploaded
            self.carry(alone=alone)
            self.publisher.is_urgent = urgent
            self.outbox.batches = [batch(3), *([batch(4)] if new else [])]
            self.now += after
            self.assertEqual(bool(self.wake()), expected, (alone, waiting, urgent, uploaded, after, new))
        self.outbox.batches = []
        self.assertFalse(self.wake())
        self.outbox.waiting = False
        self.carry(alone=True)
        self.outbox.batches = [batch(0)]
        self.assertTrue(self.wake(), "the very first")


class Ends(Bench):
    def test_it_runs_until_the_outbox_has_ended(self) -> None:
        p = self.publisher
        with mock.patch.object(p, "_follow", lambda: (self.calls.append("follow"), setattr(p, "is_carrying", True))), mock.patch.object(
            p, "_carry", lambda: (self.calls.append("carry"), setattr(self.outbox, "is_ended", True))
        ):
            p.run()
            p.run()
        self.assertEqual(self.calls, ["follow", "carry"])

    def test_a_rest_ends_by_time_by_a_call_or_with_the_producer(self) -> None:
        p = self.publisher
        waits: list[Any] = []

        class Changed(threading.Condition):
            def wait(condition, timeout: float | None = None) -> bool:
                waits.append(timeout)
                self.now += timeout or 1.0
                return True

        self.outbox.changed = Changed()
        p._rest(2.0, lambda: False)
        p._rest(2.0, lambda: True)
        p._rest(0.0, lambda: False)
        p._rest(0.5, lambda: False)
        p._rest(math.inf, lambda: len(waits) == 4)
        self.assertEqual(waits, [2.0, 0.5, None, None])
        self.outbox.is_ended = True
        p._rest(2.0, lambda: False)
        self.assertEqual(len(waits), 4)

    def test_who_leaves_says_so_in_the_log_or_beside_it(self) -> None:
        p = self.publisher
        key = leaving_intent_key(self.log.spec.uuid, LeavingIntent(*HOLDER))
        for alone, carrying, outcome, calls, is_put in (
            (True, False, "committed", [("attempt", [], False, False, "leave")], False), (False, True, "nothing", ["list", ("attempt", [], True, False, "leave")], False),
            (False, True, "lost", ["list", ("attempt", [], True, False, "leave")], True), (False, False, "committed", [], True),
            (True, True, "unsettled", [("attempt", [], False, False, "leave")], True),
        ):
            self.calls.clear()
            self.store.reset_mock()
            self.intents = Intents({"x": 1}, [], [], [])
            self.outcome, p.is_carrying = (outcome, None), carrying
            self.manifest = self.head.known = dataclasses.replace(self.manifest, producers=self.states(1 if alone else 3))
            p._say_farewell()
            self.assertEqual((self.calls, self.store.put.mock_calls), (calls, [mock.call(key, b"")] if is_put else []), (alone, carrying, outcome))
        self.calls.clear()
        self.store.reset_mock()
        for known in (None, dataclasses.replace(self.manifest, closed=True)):
            self.head.known = known
            p._say_farewell()
        self.assertEqual((self.calls, self.store.mock_calls), ([], []))
        self.head.known, self.outcome = self.manifest, OSError("nobody hears of it")
        p._say_farewell()

    def test_a_farewell_takes_no_longer_than_its_pace(self) -> None:
        threads: list[Any] = []

        class Thread:
            def __init__(self, **settings: Any) -> None:
                threads.append(settings)

            def start(self) -> None:
                threads.append("start")

            def join(self, timeout: float) -> None:
                threads.append(timeout)

        with mock.patch.object(module.threading, "Thread", Thread):
            self.publisher.leave()
        self.assertEqual(threads, [{"target": self.publisher._say_farewell, "name": "batchweave-leave-p", "daemon": True}, "start", 3.0])


if __name__ == "__main__":
    unittest.main()
