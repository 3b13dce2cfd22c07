"""Property: a follower looks when its carrier's commit is due, waits as long as a carrier that is about may need, and takes over from one that is
gone, one of many first. Method: the decisions of a follower, asked at moments around each of their limits; no sleeping.
"""
from __future__ import annotations

import math
import threading
import time
import unittest
from dataclasses import replace
from unittest import mock

from batchweave.format.descriptor import Descriptor
from batchweave.format.manifest import Manifest
from batchweave.producer.pace import pace_of
from batchweave.producer.publisher import Publisher
from small_world import World, Writer

PACE = pace_of(0.1)  # patience 1.5, confirm 10, window 0.5, look 0.05
BATCH = Descriptor("p", 1, "aaaaaaaaaaaa", 0, 0, 0)
NAME = (0, 0)


class Decisions(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        writer = Writer(self.world.log, "p").open()
        self.publisher = Publisher(self.world.log, writer.holder, mock.Mock())
        self.manifest = self.world.log.head.newest()

    def seen(self, kind: str, age: float) -> Manifest:
        commit = {"id": "aaaaaaaaaaaa", "by": "other", "time": (time.time() - age) * 1e3, "kind": kind}
        return replace(self.manifest, commit=commit)

    def test_a_batch_is_committed_by_its_owner_when_nobody_carried_it_in_time(self) -> None:
        p = self.publisher

        def must(after: float, is_awaited: bool = False, kind: str = "carrier", age: float = 0) -> bool:
            return p._must_commit(BATCH, self.seen(kind, age), 100 + after, PACE, is_awaited)

        self.assertFalse(must(99), "it was never announced")
        p._announced[NAME] = 100
        # No carrier was seen: patience, and half of it where somebody waits.
        self.assertEqual([must(1.4), must(1.6), must(0.7, True), must(0.8, True)], [False, True, False, True])
        self.assertTrue(must(0, kind="leave"), "the carrier said that it is gone")
        # One was seen lately, by this clock and by its own: it gets longer.
        p._looked_at, p._carrier_seen_at = 100, 99
        self.assertFalse(must(1.6))
        self.assertTrue(must(60))
        self.assertTrue(must(1.6, age=3.1), "by its clock that was long ago")
        p._carrier_seen_at = 98
        self.assertTrue(must(1.6), "by this clock that was long ago")

    def test_a_carrier_was_about_lately_if_its_commit_is_at_most_twice_the_patience_old(self) -> None:
        ages = [self.publisher._is_recent(self.seen("carrier", age), PACE) for age in (-3.1, -2.9, 0, 2.9, 3.1)]
        self.assertEqual(ages, [False, True, True, True, False])

    def test_of_many_who_notice_each_takes_its_turn_and_lets_go_when_it_is_not_due_any_more(self) -> None:
        p = self.publisher

        def step(at: float, is_due: bool, uniform: float, crowd: int = 16) -> tuple[bool, float | None]:
            with mock.patch("time.monotonic", return_value=at), mock.patch("random.random", return_value=uniform):
                p._step_up(is_due, crowd, PACE)
            return p.is_carrying, p._take_over_at

        p._idle_cycles, p._is_head_own = 7, True
        self.assertEqual(step(50, False, 0), (False, None))
        self.assertEqual(step(50, True, 1), (False, 52), "the window, for each doubling of the crowd")
        self.assertEqual(step(51.9, True, 0), (False, 52), "drawn once")
        self.assertEqual((p._idle_cycles, p._is_head_own), (7, True))
        self.assertEqual(step(52, True, 0), (True, None))
        self.assertEqual((p._idle_cycles, p._is_head_own), (0, False))
        p.is_carrying = False
        self.assertEqual(step(60, True, 1), (False, 62))
        self.assertEqual(step(61, False, 1), (False, None), "somebody else did")
        self.assertEqual(step(63, True, 0), (True, None), "within the first window at once")

    def test_when_a_follower_looks_again(self) -> None:
        p = self.publisher

        def look_at(is_awaited: bool, now: float = 100) -> float:
            return p._look_at(BATCH, PACE, is_awaited, now)

        p._announced[NAME] = 100
        p._looked_at = 100
        self.assertAlmostEqual(look_at(False), 101.5, msg="no carrier was seen: patience")
        p._carrier_seen_at = 81
        self.assertAlmostEqual(look_at(False), 110, msg="one was: at leisure")
        p._carrier_seen_at = 79
        self.assertAlmostEqual(look_at(False), 101.5)
        p._looked_at = 101
        self.assertAlmostEqual(look_at(False), 101.75, msg="not sooner than half of the patience after a look")
        p._take_over_at = 300.0
        self.assertAlmostEqual(look_at(False), 300, msg="its turn")
        p._looked_at = 98
        self.assertAlmostEqual(look_at(True), 100, msg="what is known is too old: at once")
        p._take_over_at = 99.0
        self.assertAlmostEqual(look_at(True), 99)
        p._take_over_at = None
        p._looked_at = 100
        soon = look_at(True)
        self.assertLess(soon, 100.5)
        self.assertGreater(soon, 100)
        p._looks_in_vain = 10
        self.assertAlmostEqual(look_at(True), 100.75, msg="in vain, up to half of the patience")
        p._looks_in_vain = 10**6
        self.assertAlmostEqual(look_at(True), 100.75)
        p._take_over_at = 100.1
        self.assertAlmostEqual(look_at(True), 100.1)
        self.assertLess(look_at(True), math.inf)

    def test_looks_in_vain_are_counted_until_one_is_not(self) -> None:
        p = self.publisher
        p._outbox.pending.return_value = [BATCH]
        p._outbox.changed = threading.Lock()
        counts = []
        for _ in range(3):
            p._look(PACE)
            counts.append(p._looks_in_vain)
        p._outbox.pending.side_effect = [[BATCH], []]
        p._look(PACE)
        self.assertEqual((counts, p._looks_in_vain), ([1, 2, 3], 0))


if __name__ == "__main__":
    unittest.main()
