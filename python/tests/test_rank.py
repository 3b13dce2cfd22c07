"""Property: the loop of a rank hands out its iterations once and in order, whatever interrupts it; while it waits it says so after 10, 20, 40 seconds and gives up
when it was told to; what it tells of itself is exact; and it ends all that it began, in its own process only.

Method: a consumer on a log in memory, with clocks and conditions that a test moves, and parts that write down how they are called.
"""
from __future__ import annotations

import time
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.consumer import consumer as consumer_module
from batchweave.consumer.consumer import Consumer
from batchweave.consumer.epochs import EpochOrder
from batchweave.consumer.mesh import resolve_mesh
from batchweave.consumer.projection import IterationPlan
from batchweave.flow.threads import JOIN_S
from batchweave.format.cursor import make_cursor
from small_world import World, Writer

PLAN = IterationPlan(7, 6, 7, 6, 6, 1, [])


class Scripted:
    """A prefetch of which a test says what it shows, and a clock that only waiting moves."""

    def __init__(self, **shown: Any) -> None:
        self.now = 0.0
        self.calls: list[Any] = []
        self.changed = self
        self.front: Any = None
        self.failure: Any = None
        self.leftover_rows: int | None = None
        self.wanted: Any = PLAN
        self.then: dict[int, dict[str, Any]] = {}
        vars(self).update(shown)

    def __enter__(self) -> None:
        self.calls.append("enter")

    def __exit__(self, *_: Any) -> None:
        self.calls.append("exit")

    def release(self) -> None:
        self.calls.append("release")

    def acquire(self) -> None:
        self.calls.append("acquire")

    def take(self) -> None:
        self.calls.append("take")

    def wait(self, seconds: float | None = None) -> None:
        self.calls.append(seconds)
        self.now += seconds or 0.0
        waits = sum(not isinstance(call, str) for call in self.calls)
        vars(self).update(self.then.get(waits, {}))


class Rank(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        Writer(self.world.log, "p").write(6)

    def consumer(self, **settings: Any) -> Consumer:
        found = Consumer(self.world.open(), resolve_mesh({"dp": 1}, 0, {}), **settings)
        self.addCleanup(found.close)
        return found

    def wait(self, consumer: Consumer, prefetch: Scripted) -> Any:
        with mock.patch.object(consumer_module, "time", mock.Mock(monotonic=lambda: prefetch.now)):
            return consumer._wait_front(prefetch, 0.0)  # type: ignore[arg-type]

    def test_a_wait_is_told_after_ten_twenty_and_forty_seconds_and_ends_when_it_was_said(self) -> None:
        consumer = self.consumer(wait_timeout=45)
        prefetch = Scripted()
        with self.assertLogs("batchweave.wait", "WARNING") as logs, self.assertRaises(BatchWeaveError) as caught:
            self.wait(consumer, prefetch)
        self.assertEqual(caught.exception.code, "WAIT_TIMEOUT")
        self.assertIn("Waited 45 s for step 6 (iteration 7)", caught.exception.message)
        self.assertEqual([line.split("Waited ")[1].split(" for")[0] for line in logs.output], ["10 s", "20 s", "40 s"])
        self.assertEqual(prefetch.calls, ["enter", *[2.0] * 22, 1.0, "exit"])

    def test_what_comes_is_taken_what_failed_is_raised_and_an_end_is_an_end(self) -> None:
        consumer = self.consumer(wait_timeout=3)
        slot = SimpleNamespace(is_done=False, error=None, plan=PLAN, value="share")
        prefetch = Scripted(then={2: {"front": slot}})
        slot_done = Scripted(front=slot)
        slot_done.wait = lambda seconds=None: (slot_done.calls.append(seconds), setattr(slot, "is_done", True))  # type: ignore[method-assign,assignment]
        self.assertEqual(self.wait(consumer, slot_done), (PLAN, "share"))
        self.assertEqual(slot_done.calls, ["enter", None, "take", "exit"])
        self.assertEqual(self.wait(consumer, prefetch), (PLAN, "share"))
        self.assertEqual(prefetch.calls, ["enter", 2.0, 1.0, "take", "exit"])
        slot.error = ValueError("read")
        for bad, message in (Scripted(front=slot), "read"), (Scripted(failure=ValueError("planned"), leftover_rows=1), "planned"):
            with self.assertRaisesRegex(ValueError, message):
                self.wait(consumer, bad)
            self.assertEqual(bad.calls, ["enter", "exit"])
        self.assertIsNone(self.wait(consumer, Scripted(leftover_rows=0)))
        # Before anything is planned, or known, there is nothing to complain of.
        self.assertIsNone(self.wait(consumer, Scripted(wanted=None, then={4: {"leftover_rows": 2}})))
        consumer._log.head.known = None
        late = Scripted(then={4: {"leftover_rows": 2}})
        self.assertIsNone(self.wait(consumer, late))
        self.assertEqual(late.calls, ["enter", 2.0, 1.0, 0.001, 0.001, "exit"])

    def test_whether_producers_are_held_up_is_looked_at_without_the_lock_and_only_if_they_can_be(self) -> None:
        for max_lag, last_step, is_looked in (5, 6, True), (5, 7, True), (5, 5, False), (None, 6, False):
            consumer = self.consumer(group="g")
            known = consumer._log.head.newest()
            known.settings.pop("maxLag", None)
            if max_lag is not None:
                known.settings["maxLag"] = max_lag
            prefetch = Scripted(wanted=PLAN._replace(last_step=last_step), then={2: {"leftover_rows": 0}})
            with mock.patch.object(consumer_module, "watch_starvation", lambda *args: prefetch.calls.append(f"look {args[1:]}")):
                self.wait(consumer, prefetch)
            looks = [["release", f"look {(last_step, waited, 'g')}", "acquire"] if is_looked else [] for waited in (0.0, 2.0)]
            self.assertEqual(prefetch.calls, ["enter", *looks[0], 2.0, *looks[1], 2.0, "exit"])

    def test_a_worker_goes_on_at_its_own_next_iteration_also_after_a_failure(self) -> None:
        consumer = self.consumer(stride=2, offset=1)
        self.assertEqual(next(consumer).iteration, 1)
        self.assertEqual(consumer.cursor, make_cursor(self.world.log.spec.uuid, 3, 3))
        prefetch = consumer._prefetch
        assert prefetch is not None
        prefetch.stop()
        consumer._prefetch = None
        self.assertEqual(next(consumer).iteration, 3)
        self.assertEqual(consumer.cursor, make_cursor(self.world.log.spec.uuid, 5, 5))

    def test_one_prefetch_serves_the_whole_loop_and_all_ends_with_it(self) -> None:
        made: list[Any] = []
        self.world.log.close()
        consumer = self.consumer(finish=made.append)
        shares, seen = [], set()
        for share in consumer:
            shares.append(share)
            seen.add(id(consumer._prefetch))
            self.assertIsNone(consumer._waiting_since)
            self.assertTrue(0 <= consumer.last_wait < time.monotonic())
        self.assertEqual((len(shares), len(seen), consumer.leftover_rows), (6, 1, 0))
        self.assertEqual({id(share) for share in shares}, {id(share) for share in made})
        self.assertTrue(consumer._is_closed)
        self.assertIsNone(consumer._prefetch)
        with self.assertRaises(StopIteration):
            next(consumer)

    def test_after_a_failure_the_same_iteration_is_tried_again(self) -> None:
        consumer = self.consumer(wait_timeout=0)
        for _ in range(2):
            consumer._row = 0
            self.world.store.objects, kept = {}, self.world.store.objects
            with self.assertRaises(BatchWeaveError):
                next(consumer)
            self.assertEqual((consumer._prefetch, consumer._waiting_since), (None, None))
            self.world.store.objects = kept
        consumer._wait_timeout = 60
        self.assertEqual(next(consumer).iteration, 0)

    def test_what_a_rank_tells_of_itself(self) -> None:
        consumer = self.consumer(group="g")
        consumer._row, consumer._iteration, consumer.waited, consumer._waiting_since = 4, 9, 1.5, 10.0
        consumer.reader.stats.add(30)
        consumer.reader.stats.add(4)
        with mock.patch.object(consumer_module, "time", mock.Mock(monotonic=lambda: 12.5)):
            self.assertEqual(consumer.facts(), {
                "group": "g", "rank": 0, "worldSize": 1, "iteration": 9, "step": 4, "lagSteps": 2, "waitedMs": 4_000, "waitingMs": 2_500, "readBytes": 34,
                "requests": 2, "client": "python",
            })
            consumer._waiting_since = None
            self.assertEqual((consumer.waiting, consumer.facts()["waitedMs"], consumer.facts()["waitingMs"]), (0.0, 1_500, 0))
        consumer._row = 8
        self.assertEqual(consumer.facts()["lagSteps"], 0)
        consumer._order = EpochOrder("n", 2, 3, epoch=None, epochs=2)
        for row, step in (0, 2), (4, 3), (5, 4), (6, 2), (7, 2):
            consumer._row = row
            self.assertEqual(consumer.facts()["step"], step, row)
        self.assertEqual(consumer.cursor, consumer._order.state(7, 9))
        consumer._log.head.known = None
        self.assertEqual(consumer.facts()["lagSteps"], 0)

    def test_epochs_go_on_where_their_state_says(self) -> None:
        order = EpochOrder(self.world.log.spec.uuid, 1, 3, epoch=None, epochs=2)
        consumer = self.consumer(order=order, start=order.state(4, 9))
        self.assertEqual(consumer.cursor, order.state(4, 9))
        share = next(consumer)
        self.assertEqual((share.iteration, share.slices[0].step, share.next), (9, 2, order.state(5, 10)))

    def test_whoever_measures_is_told_of_every_share_and_of_the_end_and_nobody_else_is(self) -> None:
        for is_heard in True, False:
            watcher = mock.Mock(watch=mock.Mock(return_value=is_heard))
            with mock.patch.object(consumer_module, "rank_metrics", watcher):
                with self.consumer() as consumer:
                    share = next(consumer)
                told = [mock.call(consumer, 0, share.nbytes, consumer.last_wait)] if is_heard else []
                self.assertEqual((watcher.handed_out.mock_calls, watcher.forget.called), (told, is_heard))

    def test_a_pulse_is_left_once_if_it_is_asked_for_and_ends_with_the_reader(self) -> None:
        for pulse in True, False:
            with mock.patch.object(consumer_module, "Pulse") as made, mock.patch.object(consumer_module, "JOIN_S", 5.0):
                consumer = self.consumer(pulse=pulse, group="g" * 60)
                next(consumer)
                next(consumer)
                log = consumer._log
                before = time.monotonic()
                reader, prefetch = consumer.reader, mock.Mock(wraps=consumer._prefetch)
                consumer._prefetch = prefetch
                with mock.patch.object(reader, "join", wraps=reader.join) as joined, mock.patch.object(reader, "close", wraps=reader.close) as closed:
                    consumer.close()
            self.assertEqual(made.mock_calls[:1], [mock.call(log.store, log.spec.uuid, "rank", "g" * 50 + "-0", consumer.facts, 1)] if pulse else [])
            self.assertEqual((made.call_count, made.return_value.stop.call_count), (int(pulse), int(pulse)))
            for until in [*joined.call_args[0], *prefetch.join.call_args[0], *(made.return_value.join.call_args[0] if pulse else [])]:
                self.assertTrue(before + 4 < until <= time.monotonic() + 5)
            self.assertEqual((consumer._pulse, consumer._prefetch, closed.called), (None, None, True))
        self.assertGreater(JOIN_S, 0)

    def test_a_forked_process_reads_nothing_and_ends_nothing_of_its_parents(self) -> None:
        consumer = self.consumer()
        next(consumer)
        prefetch, own = consumer._prefetch, consumer._pid
        assert prefetch is not None
        consumer._pid = -1
        with self.assertRaisesRegex(BatchWeaveError, "was forked from"):
            next(consumer)
        consumer.close()
        self.assertEqual((consumer._prefetch, prefetch._is_stopped), (None, False))
        consumer._pid, consumer._prefetch = own, prefetch
        consumer.close()
        self.assertTrue(prefetch._is_stopped)


if __name__ == "__main__":
    unittest.main()
