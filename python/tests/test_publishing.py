"""Property: a follower announces, looks and takes over exactly when its pace says, and wakes for what changes that.

Method: every decision by itself, on both sides of each moment (publisher_bench.py). test_publisher.py has real logs.
"""
from __future__ import annotations

import dataclasses
import math
import unittest
from typing import Any
from unittest import mock

from batchweave.format.descriptor import Descriptor
from batchweave.format.keys import batch_intents
from batchweave.format.producer_state import ProducerState
from batchweave.producer.publisher import Publisher
from publisher_bench import ME, PACE, Bench, batch


class Followers(Bench):
    def test_when_a_follower_looks(self) -> None:
        p = self.publisher
        asked: list[float] = []
        p._rhythm = mock.Mock(expected_at=lambda at, round_trip, pace: asked.append(at) or at + 3 * round_trip)

        def look_at(is_awaited: bool) -> float:
            return round(p._look_at(batch(3), PACE, is_awaited, self.now), 6)

        p._announced = {(3, 0): 99.0}
        p._looked_at = 99.5
        # At leisure: with a carrier in sight for long, and sooner without.
        for seen, expected in (80.25, 109.0), (80.0, 100.5), (-math.inf, 100.5):
            p._carrier_seen_at = seen
            self.assertEqual(look_at(False), expected, seen)
        p._looked_at = 99.9
        self.assertEqual(look_at(False), 100.65)
        p._carrier_seen_at, p._looked_at = 99.0, 109.0
        self.assertEqual(look_at(False), 109.75)
        # Awaited: right after the commit that is expected, and again after longer and longer pauses.
        p._announced, p._looked_at = {(3, 0): 99.0}, 99.0
        self.assertEqual((look_at(True), asked), (99.3, [1_099.0]), "by the wall clock, which carriers write down")
        for vain, expected in (0, 99.55), (2, 99.6125), (5, 99.879688), (7, 100.25), (10, 100.25), (40, 100.25):
            p._looked_at, p._looks_in_vain = 99.5, vain
            self.assertEqual(look_at(True), expected, vain)
        p._looks_in_vain = 0
        # What was seen long ago says nothing.
        for looked, expected in (97.5, 99.3), (97.4, 99.0):
            p._looked_at = looked
            self.assertEqual(look_at(True), expected)
        # A batch that is not announced is as good as announced now.
        p._announced, p._looked_at = {}, 99.0
        self.assertEqual(look_at(True), 100.3)
        # When it is its turn to take over.
        p._take_over_at = 99.1
        self.assertEqual((look_at(False), look_at(True)), (99.1, 99.1))
        p._looked_at, p._announced = 90.0, {(3, 0): 99.0}
        self.assertEqual(look_at(True), 99.0)
        p._take_over_at = 98.0
        self.assertEqual(look_at(True), 98.0)

    def test_pace_doubles_until_the_tenth_look_in_vain(self) -> None:
        p = self.publisher
        p._rhythm = mock.Mock(expected_at=lambda at, round_trip, pace: at)
        p._announced, p._looked_at = {(3, 0): 99.0}, 99.0
        slow = PACE._replace(patience=1e6, look=0.05)
        for vain, expected in (9, 99.0 + 0.05 * 1.5**9), (10, 99.0 + 0.05 * 1.5**10), (11, 99.0 + 0.05 * 1.5**10):
            p._looks_in_vain = vain
            self.assertAlmostEqual(p._look_at(batch(3), slow, True, self.now), expected)

    def test_a_carrier_is_recent_for_two_patiences_by_its_clock(self) -> None:
        for after, expected in (2.9, True), (3.0, False), (-2.9, True), (-3.0, False), (0.0, True):
            seen = dataclasses.replace(self.manifest, commit={**self.manifest.commit, "time": round((self.now + 1_000 - after) * 1_000)})
            self.assertEqual(self.publisher._is_recent(seen, PACE), expected, after)
            other = dataclasses.replace(seen, commit={**seen.commit, "kind": "open"})
            self.assertFalse(self.publisher._is_recent(other, PACE))

    def test_a_batch_that_is_not_carried_in_time_is_its_owners_to_commit(self) -> None:
        p = self.publisher
        p._looked_at = 100.0
        recent = dataclasses.replace(self.manifest, commit={**self.manifest.commit, "time": 1_099_000})
        old = dataclasses.replace(self.manifest, commit={**self.manifest.commit, "time": 1_000_000})
        left = dataclasses.replace(self.manifest, commit={**self.manifest.commit, "kind": "leave"})
        for seen, carrier_seen, is_awaited, patience in (
            (recent, 98.6, False, 9.0), (recent, 98.6, True, 9.0), (recent, 98.5, False, 1.5), (recent, 98.5, True, 0.75), (old, 99.9, False, 1.5), (left, 99.9, False, 0.0),
        ):
            p._carrier_seen_at = carrier_seen
            for waited, expected in (patience, True), (patience - 0.001, seen is left):
                p._announced = {(3, 0): 50.0}
                self.assertEqual(p._must_commit(batch(3), seen, 50.0 + waited, PACE, is_awaited), expected, (patience, waited))
        p._announced = {}
        self.assertFalse(p._must_commit(batch(3), left, 1e9, PACE, False), "it is not announced")

    def test_of_many_who_notice_each_has_its_turn(self) -> None:
        p = self.publisher
        p._idle_cycles, p._is_head_own = 4, True
        p._step_up(True, 1, PACE)
        self.assertEqual((p.is_carrying, p._take_over_at, p._is_head_own, p._idle_cycles), (True, None, False, 0))
        p.is_carrying = False
        for random, is_now in (0.3, True), (0.5, False):
            self.random = random
            delay = math.log(1 + random * 3) / math.log(4)
            p.is_carrying, p._take_over_at = False, None
            p._step_up(True, 4, PACE)
            self.assertEqual((p.is_carrying, p._take_over_at), (is_now, None if is_now else 100.0 + delay))
        turn = 100.0 + math.log(2.5) / math.log(4)
        for now, is_due in (turn - 0.01, False), (turn, True):
            self.now = now
            p._step_up(True, 4, PACE)
            self.assertEqual((p.is_carrying, p._take_over_at), (is_due, None if is_due else turn))
        p.is_carrying, p._take_over_at = False, 200.0
        p._step_up(False, 4, PACE)
        self.assertEqual((p.is_carrying, p._take_over_at), (False, None))

    def test_an_announcement_is_an_object_for_as_many_batches_as_it_holds(self) -> None:
        p = self.publisher
        batches = [batch(3), batch(4), batch(9)]

        def put(key: str, body: bytes) -> None:
            self.calls.append((key, body))
            self.now += 0.5

        self.store.put = put
        p._announce(batches)
        keys, _ = batch_intents(self.log.spec.uuid, batches)
        self.assertEqual((self.calls, self.learned), ([(key, b"") for key in keys], [0.5]))
        self.assertEqual((p._announced_at, p._announced, p.is_carrying), (100.0, {(3, 0): 101.0, (4, 0): 101.0, (9, 0): 101.0}, False))
        p._announce([batch(5, extents=60)])
        self.assertEqual((p.is_carrying, self.learned[1]), (True, 0.0), "too long for a name")
        p._announce([batch(6)])
        self.assertEqual((p.is_carrying, self.learned[2]), (False, 0.5))

    def test_a_follower_lists_only_if_it_is_far_behind(self) -> None:
        p = self.publisher
        p._rhythm = mock.Mock(interval=lambda pace: 0.5)
        for looked, expected in (98.5, ("walk", 3)), (98.4, "jump"):
            p._looked_at = looked
            p._read_head(batch(3), PACE)
            self.assertEqual(self.calls[-1], expected)
        for seq, expected in (3, False), (4, True):
            seen = dataclasses.replace(self.manifest, producers={"p": ProducerState(2, ME, seq, 9)})
            self.assertEqual(self.is_enough(seen), expected)
        self.assertFalse(self.is_enough(dataclasses.replace(self.manifest, producers={})))

    def look(self, left: list[Descriptor], found: Any = None, **state: Any) -> Publisher:
        p = self.publisher
        vars(p).update(state)
        self.outbox.batches, self.outbox.left = [batch(3), batch(4)], left
        self.manifest = found or self.manifest
        p._rhythm = mock.Mock(interval=lambda pace: 0.5)
        with mock.patch.object(p, "_step_up") as self.stepped, mock.patch.object(p, "_must_commit") as self.must:
            self.must.return_value = True
            p._look(PACE)
        return p

    def test_what_a_look_tells(self) -> None:
        first, second = batch(3), batch(4)
        newer = dataclasses.replace(self.manifest, version=10)
        p = self.look([second], newer, _looks_in_vain=3, _announced={(3, 0): 1.0, (4, 0): 2.0})
        self.assertEqual((self.outbox.settled, p._looked_at, p._looks_in_vain, p._announced), ([10], 100.0, 0, {(4, 0): 2.0}))
        self.assertEqual((p._carrier_seen_at, p._rhythm.see.mock_calls), (100.0, [mock.call(10, 1_099.0)]))
        self.assertEqual((self.must.mock_calls, self.stepped.mock_calls), ([mock.call(second, newer, 100.0, PACE, False)], [mock.call(True, 3, PACE)]))
        self.outbox.batches = [first]
        with mock.patch.object(self.outbox, "pending", lambda: [first]), mock.patch.object(p, "_step_up"):
            p._look(PACE)
            self.assertEqual(p._looks_in_vain, 1)
            p._look(PACE)
            self.assertEqual(p._looks_in_vain, 2)

    def test_an_old_version_or_one_of_no_carrier_tells_nothing_of_a_carrier(self) -> None:
        p = self.look([batch(4)], None, _carrier_seen_at=7.0)
        self.assertEqual((p._carrier_seen_at, p._rhythm.see.called), (7.0, True), "known before")
        other = dataclasses.replace(self.manifest, version=11, commit={**self.manifest.commit, "kind": "open"})
        p = self.look([batch(4)], other, _carrier_seen_at=7.0)
        self.assertEqual((p._carrier_seen_at, p._rhythm.see.called), (7.0, False))
        self.head.known = None
        self.assertEqual(self.look([batch(4)], dataclasses.replace(self.manifest, commit={**other.commit, "kind": "carrier"}), _carrier_seen_at=7.0)._carrier_seen_at, 100.0)

    def test_when_nothing_is_left_there_is_nothing_to_step_up_for_and_what_is_below_the_cutoff_is_uploaded_again(self) -> None:
        p = self.look([])
        self.assertEqual((self.must.called, self.stepped.mock_calls, p._announced, p._looks_in_vain), (False, [mock.call(False, 3, PACE)], {}, 0))
        self.assertEqual(self.outbox.expired, [])
        self.look([batch(4, 5), batch(5, 6), batch(6, 7)], dataclasses.replace(self.manifest, orphan_cutoff=6))
        self.assertEqual(self.outbox.expired, [[4]])
        for is_urgent, awaited in (True, False), (False, True), (False, False):
            self.outbox.awaited = awaited
            self.look([batch(4)], is_urgent=is_urgent)
            self.assertEqual(self.must.call_args[0][4], is_urgent or awaited)

    def follow(self, **state: Any) -> list[Any]:
        p = self.publisher
        vars(p).update(state)
        done: list[Any] = []
        self.wake: Any = None

        def rest(seconds: float, wake: Any) -> None:
            self.wake = wake
            done.append(("rest", round(seconds, 6)))

        with mock.patch.object(p, "_rest", rest), mock.patch.object(p, "_announce", lambda fresh: done.append(("announce", [b.seq for b in fresh]))), mock.patch.object(
            p, "_look", lambda pace: done.append("look")
        ), mock.patch.object(p, "_look_at", lambda oldest, pace, is_awaited, now: self.look_at):
            p._follow()
        return done

    def test_what_a_follower_does_next(self) -> None:
        p = self.publisher
        p._announced, p.is_urgent = {(1, 0): 1.0}, True
        self.look_at = math.inf
        self.assertEqual((self.follow(), p._announced, p.is_urgent), ([("rest", math.inf)], {}, True))
        self.assertEqual(self.wake(), [])
        self.outbox.waiting = False
        self.follow()
        self.assertFalse(p.is_urgent)
        self.outbox.batches, self.outbox.waiting = [batch(3), batch(4)], True
        # Announced 0.15 s apart, 0.05 s if a caller waits; what was due first is done first.
        for announced, look_at, urgent, expected in (
            ({}, 200.0, False, ("announce", [3, 4])), ({(3, 0): 1.0}, 200.0, False, ("announce", [4])), ({(3, 0): 1.0, (4, 0): 1.0}, 100.0, False, "look"),
            ({(3, 0): 1.0, (4, 0): 1.0}, 100.5, False, ("rest", 0.5)),
        ):
            self.look_at = look_at
            self.assertEqual(self.follow(_announced=announced, _announced_at=-math.inf, is_urgent=urgent), [expected])
        for announced_at, look_at, urgent, awaited, expected in (
            (99.85, 200.0, False, False, ("announce", [3, 4])), (99.9, 200.0, False, False, ("rest", 0.05)), (99.9, 100.02, False, False, ("rest", 0.02)),
            (99.9, 200.0, True, False, ("announce", [3, 4])), (99.9, 200.0, False, True, ("announce", [3, 4])), (99.8, 99.9, False, False, "look"),
            (99.9, 100.0, False, False, "look"), (99.75, 99.75 + PACE.announce, False, False, ("announce", [3, 4])), (100.0 - PACE.announce, 101.0, False, False, ("announce", [3, 4])),
        ):
            self.look_at, self.outbox.awaited = look_at, awaited
            self.assertEqual(self.follow(_announced={}, _announced_at=announced_at, is_urgent=urgent), [expected], (announced_at, look_at, urgent, awaited))

    def test_a_follower_wakes_when_somebody_waits_or_more_comes(self) -> None:
        self.outbox.batches = [batch(3)]
        self.look_at = 101.0
        for announced, more, awaited, expected in (
            ({(3, 0): 1.0}, [], False, False), ({(3, 0): 1.0}, [batch(4)], False, True), ({(3, 0): 1.0}, [], True, True), ({}, [batch(4)], False, False),
        ):
            self.outbox.batches, self.outbox.awaited = [batch(3)], False
            self.follow(_announced=announced, _announced_at=99.99, is_urgent=False)
            self.outbox.batches, self.outbox.awaited = [batch(3), *more], awaited
            self.assertEqual(self.wake(), expected, (announced, more, awaited))
        self.outbox.batches, self.outbox.awaited = [batch(3)], False
        self.follow(_announced={(3, 0): 1.0}, is_urgent=True)
        self.assertFalse(self.wake())
        self.publisher.is_urgent = False
        self.assertTrue(self.wake(), "nobody waits any more")

    def test_who_is_alone_carries_and_who_is_opened_by_a_carrier_has_seen_one(self) -> None:
        self.outbox.batches = [batch(3)]
        self.look_at = 200.0
        for time, seen in (1_099_000, 100.0), (1_000_000, -math.inf):
            self.manifest = dataclasses.replace(self.manifest, commit={**self.manifest.commit, "time": time})
            self.follow(_looked_at=-math.inf, _carrier_seen_at=-math.inf)
            self.assertEqual((self.publisher._looked_at, self.publisher._carrier_seen_at, self.publisher.is_carrying), (100.0, seen, False))
        self.manifest = dataclasses.replace(self.manifest, commit={**self.manifest.commit, "time": 1_099_000})
        self.follow(_looked_at=5.0, _carrier_seen_at=-math.inf)
        self.assertEqual((self.publisher._looked_at, self.publisher._carrier_seen_at), (5.0, -math.inf))
        self.alone()
        self.assertEqual((self.follow(), self.publisher.is_carrying), ([], True))


if __name__ == "__main__":
    unittest.main()
