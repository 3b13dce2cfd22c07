"""Property: reading ahead keeps to its bytes, its iterations and its order, waits as long as it says between two looks, and leaves nobody waiting who could go on.

Method: a prefetch whose thread does nothing, so that a test makes every move; stores, clocks and conditions that write down how they are called.
"""
from __future__ import annotations

import dataclasses
import itertools
import time
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.consumer import prefetch as module
from batchweave.consumer.prefetch import Prefetch, Slot
from batchweave.consumer.projection import IterationPlan, Projection
from batchweave.errors import corrupt
from small_world import World, Writer


class Idle(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        Writer(self.world.log, "p").write(2)
        self.manifest = self.world.log.head.jump()
        self.reader = mock.Mock(prepare=mock.Mock(return_value=SimpleNamespace(bytes=7)), fetch=mock.Mock(return_value=["slice"]))
        self.pools: list[Any] = []

    def prefetch(self, log: Any = None, pump: Any = lambda self: None, **settings: Any) -> Prefetch:
        def pool(*args: Any) -> Any:
            self.pools.append(mock.Mock(args=args))
            return self.pools[-1]

        def finish(plan: IterationPlan, slices: Any) -> Any:
            return (plan.iteration, slices)

        with mock.patch.object(Prefetch, "_pump", pump), mock.patch.object(module, "Pool", pool):
            found = Prefetch(log or self.world.log, self.reader, Projection(1, 1), 0, 0, finish, **settings)
        self.addCleanup(found.stop)
        return found

    def line(self, prefetch: Prefetch, *sizes: int | None) -> list[Slot]:
        slots = []
        for i, size in enumerate(sizes):
            slot = Slot(IterationPlan(i, i, i + 1, i, i, 1, []), self.manifest)
            slot.bytes = size
            slots.append(slot)
        prefetch._slots.extend(slots)
        prefetch._unadmitted.extend(slots)
        return slots


class Room(Idle):
    def test_threads_are_as_many_as_iterations_but_four_beside_the_store(self) -> None:
        near = SimpleNamespace(store=SimpleNamespace(is_near=True))
        far = SimpleNamespace(store=SimpleNamespace())
        for log, most, expected in (far, 32, 32), (None, 3, 3), (near, 32, 4), (near, 3, 3), (near, 4, 4):
            self.prefetch(log, iterations_max=most)
            self.assertEqual(self.pools[-1].args, (expected, "load"))

    def test_what_there_is_room_for_is_read_in_order_and_one_is_always(self) -> None:
        for sizes, most, admitted, held in (
            ([5, 5, None, 1], 10, 2, 10), ([5, 6, 1], 10, 1, 5), ([50, 1], 10, 1, 50), ([None, 1], 10, 0, 0), ([0, 0, 10, 1], 10, 3, 10), ([1, 9, 0], 10, 3, 10), ([1, 10], 10, 1, 1),
        ):
            prefetch = self.prefetch(bytes_max=most)
            slots = self.line(prefetch, *sizes)
            prefetch._admit()
            self.assertEqual([slot.admitted.is_set() for slot in slots], [True] * admitted + [False] * (len(sizes) - admitted), sizes)
            self.assertEqual((prefetch._held_bytes, [slot.held_bytes for slot in slots[:admitted]]), (held, list(sizes[:admitted])))
            self.assertEqual([slot.held_bytes for slot in slots[admitted:]], [0] * (len(sizes) - admitted))
        prefetch = self.prefetch(bytes_max=10)
        slots = self.line(prefetch, 6, 5, 5)
        prefetch._admit()
        with prefetch.changed:
            prefetch.take()
        self.assertEqual((prefetch.front, prefetch._held_bytes, len(prefetch._unadmitted)), (slots[1], 10, 0))

    def test_who_plans_is_woken_when_a_quarter_of_the_line_is_empty(self) -> None:
        for most, left, is_woken in (4, 3, True), (4, 4, False), (8, 6, True), (8, 7, False), (1, 0, True), (1, 1, False):
            prefetch = self.prefetch(iterations_max=most)
            self.line(prefetch, *[None] * (left + 1))
            prefetch._room = mock.Mock()
            prefetch.take()
            self.assertEqual(prefetch._room.notify.called, is_woken, (most, left))

    def test_a_stop_lets_go_of_all_who_wait(self) -> None:
        prefetch = self.prefetch()
        slots = self.line(prefetch, None, None)
        prefetch._room, prefetch.changed = mock.Mock(), mock.MagicMock()
        prefetch.stop()
        self.assertTrue(prefetch._is_stopped and all(slot.admitted.is_set() for slot in slots))
        self.assertTrue(prefetch.changed.notify_all.called and prefetch._room.notify_all.called and self.pools[-1].drop.called)
        with mock.patch.object(module, "join_threads") as joined:
            prefetch.join(3.0)
        self.assertEqual((joined.mock_calls, self.pools[-1].join.mock_calls), ([mock.call([prefetch._thread], 3.0)], [mock.call(3.0)]))
        self.assertEqual((prefetch._thread.daemon, prefetch._thread.name), (True, "batchweave-prefetch"))


class Loads(Idle):
    def test_an_iteration_is_prepared_admitted_read_and_made_and_whoever_waits_for_it_is_told(self) -> None:
        prefetch = self.prefetch(copies=2)
        first, second = self.line(prefetch, None, None)
        prefetch._room, prefetch.changed = mock.Mock(), mock.MagicMock()
        prefetch._load(first)
        self.assertEqual((first.bytes, first.held_bytes, first.value, first.is_done, first.error), (21, 21, (0, ["slice"]), True, None))
        self.assertEqual(prefetch.changed.notify_all.call_count, 1)
        prefetch._load(second)
        self.assertEqual((second.value, second.is_done), ((1, ["slice"]), True))
        self.assertEqual(prefetch.changed.notify_all.call_count, 1, "nobody waits for the second")
        self.assertEqual(self.reader.prepare.mock_calls[0], mock.call(self.manifest, []))
        self.reader.fetch.reset_mock()
        (third,) = self.line(prefetch, None)
        waits: list[bool] = []
        third.admitted = mock.Mock(wait=lambda: waits.append(self.reader.fetch.called))
        prefetch._load(third)
        self.assertEqual((waits, third.is_done), ([False], True), "it is read once it may be")

    def test_one_that_cannot_be_prepared_holds_up_none_behind_it(self) -> None:
        prefetch = self.prefetch()
        first, second = self.line(prefetch, None, 5)
        self.reader.prepare.side_effect = corrupt("k", "it is damaged")
        prefetch._load(first)
        self.assertEqual((first.is_done, type(first.error), second.admitted.is_set(), list(prefetch._unadmitted)), (True, BatchWeaveError, True, []))
        self.assertFalse(self.reader.fetch.called)

    def test_after_a_stop_nothing_is_read(self) -> None:
        prefetch = self.prefetch()
        (slot,) = self.line(prefetch, None)
        prefetch._is_stopped = True
        prefetch._load(slot)
        self.assertEqual((slot.is_done, slot.value, slot.error, self.reader.mock_calls), (True, None, None, []))
        # Stopped while it waited for room.
        prefetch = self.prefetch(bytes_max=5)
        first, second = self.line(prefetch, 5, None)
        prefetch._admit()
        self.reader.prepare.side_effect = lambda *_: (setattr(prefetch, "_is_stopped", True), second.admitted.set(), SimpleNamespace(bytes=7))[2]
        prefetch._load(second)
        self.assertEqual((second.is_done, second.value, self.reader.fetch.called), (True, None, False))


class Looks(Idle):
    """What a planned iteration waits for."""

    def look(self, plan: IterationPlan, script: list[Any], **settings: Any) -> tuple[Any, list[Any]]:
        """`script`: what each look finds, a manifest or None for nothing new."""
        calls: list[Any] = []
        versions = iter(script)

        def move(name: str) -> Any:
            calls.append(name)
            found = next(versions)
            if found is not None:
                head.newest = lambda: found
            return head.newest()

        head: Any = SimpleNamespace(newest=lambda: self.manifest, advance=lambda: move("advance"), jump=lambda: move("jump"))
        prefetch = self.prefetch(SimpleNamespace(head=head, store=None), **settings)
        clock = [100.0]

        def wait(seconds: float) -> None:
            calls.append(round(seconds, 6))
            clock[0] += seconds

        prefetch._room = mock.Mock(wait=wait)
        with mock.patch.object(module, "time", mock.Mock(monotonic=lambda: clock[0])), mock.patch.object(module, "random", mock.Mock(random=lambda: 0.25)):
            return prefetch._visible(plan), calls

    def later(self, version: int, **changes: Any) -> Any:
        return dataclasses.replace(self.manifest, version=self.manifest.version + version, **changes)

    def test_visible_is_what_the_log_has_and_nothing_is_asked_for_it(self) -> None:
        for step, expected in (0, self.manifest), (1, self.manifest):
            self.assertEqual(self.look(IterationPlan(0, step, step + 1, step, step, 1, []), []), (expected, []))
        closed = self.later(0, closed=True)
        self.manifest = closed
        self.assertEqual(self.look(IterationPlan(2, 2, 3, 2, 2, 1, []), []), (None, []))
        self.manifest = self.later(0, trim=1)
        self.assertEqual(self.look(IterationPlan(1, 1, 2, 1, 1, 1, []), []), (self.manifest, []))
        with self.assertRaisesRegex(BatchWeaveError, r"Row 0 \(step 0\) was reclaimed"):
            self.look(IterationPlan(0, 0, 1, 0, 0, 1, []), [])

    def test_looks_in_vain_are_half_again_as_far_apart_up_to_a_limit_and_a_version_begins_anew(self) -> None:
        plan = IterationPlan(2, 2, 3, 2, 2, 1, [])
        closed = self.later(9, closed=True)
        delays = [0.75 * delay for delay in (0.1, 0.15, 0.225, 0.3, 0.3)]
        found, calls = self.look(plan, [None] * 5 + [self.later(1), None, None, closed], poll_delay=0.1, poll_delay_max=0.3)
        self.assertIsNone(found)
        expected: list[Any] = [*itertools.chain(*(("advance", round(delay, 6)) for delay in delays)), "advance", "advance", 0.075, "advance", 0.1125, "advance"]
        self.assertEqual(calls, expected)
        found, calls = self.look(plan, [None, closed], poll_delay=0.4, poll_delay_max=0.3)
        self.assertEqual(calls, ["advance", 0.3, "advance"], "the limit is never below the first")

    def test_far_behind_it_jumps(self) -> None:
        plan = IterationPlan(2, 2, 3, 2, 2, 1, [])
        _, calls = self.look(plan, [*(self.later(i) for i in range(1, 7)), None, self.later(7, closed=True)])
        self.assertEqual(calls, ["advance"] * 4 + ["jump"] * 3 + [0.0375, "advance"])
        _, calls = self.look(plan, [None, *(self.later(i) for i in range(1, 6)), self.later(7, closed=True)])
        self.assertEqual(calls, ["advance", 0.0375] + ["advance"] * 4 + ["jump"] * 2)

    def test_a_stop_ends_the_wait(self) -> None:
        prefetch = self.prefetch()
        prefetch._is_stopped = True
        prefetch._room = mock.Mock(wait=mock.Mock(side_effect=AssertionError("nobody waits")))
        with self.assertRaises(module._Stopped):
            prefetch._visible(IterationPlan(2, 2, 3, 2, 2, 1, []))
        prefetch._is_stopped = False
        prefetch._room = mock.Mock(wait=lambda _: setattr(prefetch, "_is_stopped", True))
        with self.assertRaises(module._Stopped):
            prefetch._visible(IterationPlan(2, 2, 3, 2, 2, 1, []))


class Pumps(Idle):
    def run_pump(self, **settings: Any) -> Prefetch:
        pump = Prefetch._pump
        prefetch = self.prefetch(**settings)
        pump(prefetch)
        return prefetch

    def test_iterations_are_lined_up_until_the_log_ends_and_what_is_left_is_counted(self) -> None:
        self.world.log.close()
        prefetch = self.run_pump()
        self.assertEqual([slot.plan.iteration for slot in prefetch._slots], [0, 1])
        self.assertEqual((prefetch._unadmitted, prefetch.leftover_rows, prefetch.failure), (prefetch._slots, 0, None))
        self.assertEqual(self.pools[-1].post.call_count, 2)
        prefetch = self.prefetch()
        prefetch._projection = Projection(1, 1, 3, 0)
        prefetch._plans = iter([prefetch._projection.plan(0, 0)])
        Prefetch._pump(prefetch)
        self.assertEqual((len(prefetch._slots), prefetch.leftover_rows), (0, 2))
        prefetch = self.prefetch()
        prefetch._plans = iter([Projection(1, 1).plan(5, 5)])
        Prefetch._pump(prefetch)
        self.assertEqual(prefetch.leftover_rows, 0, "behind the end")

    def test_the_first_in_line_is_told_and_those_behind_it_are_not(self) -> None:
        self.world.log.close()
        pump = Prefetch._pump
        prefetch = self.prefetch()
        told: list[int] = []
        prefetch._room, prefetch.changed = mock.Mock(), mock.MagicMock()
        prefetch.changed.notify_all.side_effect = lambda: told.append(len(prefetch._slots))
        pump(prefetch)
        self.assertEqual(told, [1, 2], "the first of two, and the end")
        prefetch._plans = iter([])
        pump(prefetch)
        self.assertEqual(told, [1, 2, 2], "and a failure")

    def test_a_full_line_waits_for_room_and_a_failure_is_kept(self) -> None:
        prefetch = self.prefetch(iterations_max=1)
        waits: list[int] = []

        def wait(*_: Any) -> None:
            waits.append(len(prefetch._slots))
            prefetch._slots.popleft()
            if len(waits) == 2:
                prefetch._plans = iter([])

        prefetch._room = mock.Mock(wait=wait)
        Prefetch._pump(prefetch)
        self.assertEqual((waits, type(prefetch.failure)), ([1, 1], StopIteration))
        stopped = self.prefetch()
        stopped._is_stopped = True
        Prefetch._pump(stopped)
        self.assertEqual((len(stopped._slots), stopped.failure, stopped.leftover_rows, stopped.wanted), (0, None, None, None))

    def test_a_stop_while_it_waits_or_looks_plans_nothing_more(self) -> None:
        full = self.prefetch(iterations_max=1)
        full._room = mock.Mock(wait=lambda: (full._slots.clear(), setattr(full, "_is_stopped", True)))
        Prefetch._pump(full)
        self.assertEqual((full.wanted and full.wanted.iteration, len(full._slots), full.failure), (0, 0, None))
        looking = self.prefetch()
        with mock.patch.object(looking, "_visible", lambda plan: setattr(looking, "_is_stopped", True) or self.manifest):
            Prefetch._pump(looking)
        self.assertEqual((len(looking._slots), looking.failure), (0, None))


class Ended(unittest.TestCase):
    def test_a_prefetch_that_is_stopped_ends_its_threads(self) -> None:
        world = World()
        reader = mock.Mock()
        prefetch = Prefetch(world.log, reader, Projection(1, 1), 0, 0, lambda plan, slices: None, poll_delay=60.0)
        prefetch.stop()
        prefetch.join(time.monotonic() + 60)
        self.assertFalse(prefetch._thread.is_alive())


if __name__ == "__main__":
    unittest.main()
