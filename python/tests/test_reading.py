"""Property: slices are read with as few ranges as there can be, each checked, in the order that was asked for; a short answer is asked for again, a damaged one once
more; and who waits in vain, or reports what nobody takes, says so in exact words.

Method: batches of several extents in memory, stores and clocks that write down how they are called, tables with values on both sides of each limit.
"""
from __future__ import annotations

import dataclasses
import json
import math
import os
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError, create_namespace
from batchweave.consumer import reader as reader_module
from batchweave.consumer import reports as reports_module
from batchweave.consumer import waiting as waiting_module
from batchweave.consumer.projection import Cell, IterationPlan
from batchweave.consumer.reader import RANGE_BYTES_MAX, SliceReader, plan_ranges
from batchweave.consumer.reports import Reports, reports_of
from batchweave.consumer.waiting import describe_wait, reclaimed, unless_reclaimed
from batchweave.format.keys import batch_key
from batchweave.format.producer_state import ProducerState
from memory_store import MemoryStore
from small_world import World, Writer


def refusal(test: unittest.TestCase, call: Any) -> BatchWeaveError:
    with test.assertRaises(BatchWeaveError) as caught:
        call()
    return caught.exception


class Ranges(unittest.TestCase):
    def test_slices_that_touch_are_one_read_up_to_a_limit(self) -> None:
        for entries, expected in (
            ([], []),
            ([(0, 4), (4, 6), (10, 1)], [(0, 10, [0, 1]), (10, 1, [2])]),
            ([(0, 4), (5, 1)], [(0, 4, [0]), (5, 1, [1])]),
            ([(4, 2), (0, 4)], [(4, 2, [0]), (0, 4, [1])]),
            ([(0, 10), (10, 0), (10, 0), (10, 1)], [(0, 10, [0, 1, 2]), (10, 1, [3])]),
            ([(0, 99), (99, 1)], [(0, 99, [0]), (99, 1, [1])]),
            ([(3, 5), (8, 5)], [(3, 10, [0, 1])]),
            ([(3, 5), (8, 6)], [(3, 5, [0]), (8, 6, [1])]),
        ):
            self.assertEqual(plan_ranges(entries, 10), expected)
        half = RANGE_BYTES_MAX // 2
        self.assertEqual(RANGE_BYTES_MAX, 67_108_864)
        self.assertEqual(len(plan_ranges([(0, half), (half, half)])), 1)
        self.assertEqual(len(plan_ranges([(0, half), (half, half + 1)])), 2)


class Slices(unittest.TestCase):
    """A log of two rows and two chunks: batch 0 in three extents, batch 1 sealed, in one."""

    def setUp(self) -> None:
        self.store = MemoryStore()
        namespace = create_namespace("memory:test", rows=2, chunks=2, store=self.store)
        with namespace.producer("p", extent_bytes_max=8) as p:
            p.append([b"abc", b"defgh", b"ijk", b"lmnopq"])
        with namespace.producer("p") as p:
            p.append([bytes([i]) * 5_000 for i in range(4)])
            p.append([b"same", b"size", b"here", b"too."])
        self.log, self.manifest = namespace.log, namespace.log.head.jump()
        self.reader = SliceReader(self.log, 2)
        self.addCleanup(self.reader.close)

    def read(self, *cells: tuple[int, int, int]) -> Any:
        self.prepared = self.reader.prepare(self.manifest, [Cell(*cell) for cell in cells])
        self.store.requests.clear()
        return self.reader.fetch(self.prepared)

    def test_each_cell_comes_from_its_extent_with_as_few_reads_as_there_can_be(self) -> None:
        extents = self.manifest.tail.batches[0].extents
        self.assertEqual([extent.cells for extent in extents], [2, 1, 1])
        found = self.read((0, 1, 1), (0, 0, 0), (0, 1, 0), (0, 0, 1))
        self.assertEqual([(s[:3], bytes(s.bytes)) for s in found], [((0, 1, 1), b"lmnopq"), ((0, 0, 0), b"abc"), ((0, 1, 0), b"ijk"), ((0, 0, 1), b"defgh")])
        self.assertEqual([(r.offset, r.length, len(r.wanted)) for r in self.prepared.ranges], [(0, 6, 1), (0, 8, 2), (0, 3, 1)])
        self.assertEqual((self.prepared.bytes, len(self.store.requests), found.joined), (17, 3, None))
        # Three tables, and three ranges.
        self.assertEqual(self.reader.stats.requests, 6)
        self.assertEqual(self.reader.stats.bytes, 17 + sum(extent.size - extent.table for extent in extents))

    def test_slices_of_one_length_that_lie_together_are_given_together(self) -> None:
        found = self.read((2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1))
        self.assertEqual((bytes(found.joined), found.gap), (b"samesizeheretoo.", 0))
        found = self.read((1, 0, 1), (1, 1, 0))
        self.assertEqual((len(found.joined), found.gap, [bytes(s.bytes)[:1] for s in found]), (2 * 5_008, 8, [b"\1", b"\2"]))
        self.assertEqual((self.prepared.bytes, self.prepared.ranges[0].offset), (10_016, 5_008))
        for cells in ([(0, 0, 0), (0, 0, 1)], [(2, 0, 0), (2, 1, 0)], [(2, 0, 0), (1, 0, 0)]):
            self.assertIsNone(self.read(*cells).joined, cells)
        self.assertEqual((found.joined.readonly, found[0].bytes.readonly), (False, False))

    def test_sealed_slices_need_no_table(self) -> None:
        self.store.requests.clear()
        self.reader.prepare(self.manifest, [Cell(1, 0, 0)])
        self.assertEqual(self.store.requests, [])
        self.reader.prepare(self.manifest, [Cell(2, 0, 0)])
        self.reader.prepare(self.manifest, [Cell(2, 1, 0)])
        self.assertEqual(len(self.store.requests), 1, "a table is read once")
        extent = self.manifest.tail.batches[2].extents[0]
        self.assertEqual(self.reader._footers._size, extent.size - extent.table)

    def test_a_compressed_slice_takes_memory_twice(self) -> None:
        (r,) = self.reader.prepare(self.manifest, [Cell(2, 0, 0)]).ranges
        entry = r.wanted[0][1]._replace(encoding=1, raw_length=50)
        with mock.patch.object(self.reader, "_table", lambda *_: SimpleNamespace(where=r.key, entry=lambda i: entry)):
            prepared = self.reader.prepare(self.manifest, [Cell(2, 0, 0)])
        self.assertEqual(prepared.bytes, 4 + 50)
        with mock.patch.object(reader_module, "_cut", lambda r, data: (data, [])):
            self.assertIsNone(self.reader.fetch(prepared).joined)

    def test_a_batch_with_fewer_cells_than_are_wanted_is_corrupt(self) -> None:
        batch = self.manifest.tail.batches[0]
        self.manifest.tail.batches[0] = batch._replace(extents=batch.extents[:2])
        said = refusal(self, lambda: self.reader.prepare(self.manifest, [Cell(0, 1, 1)]))
        self.assertIn("its extents hold 3 slices, and slice 3 is wanted", said.message)
        self.assertEqual(said.details["key"], batch_key(batch, 0))

    def test_a_short_answer_is_asked_for_four_times_and_a_damaged_one_twice(self) -> None:
        place = SimpleNamespace(store=SimpleNamespace(uri="memory:x"))

        def read(*answers: Any, check: Any = bytes) -> tuple[Any, int]:
            left = list(answers)
            place.store.get_range = lambda key, offset, length: left.pop(0)
            try:
                return self.reader._read_checked(place, "k", 7, 3, check), len(left)  # type: ignore[arg-type]
            except BatchWeaveError as error:
                return (error.code, error.message, error.details), len(left)

        with mock.patch.object(reader_module, "time") as time, mock.patch.object(reader_module, "random", mock.Mock(random=lambda: 0.5)):
            self.assertEqual(read(b"abc", b"no"), (b"abc", 1))
            self.assertEqual(time.sleep.call_count, 0)
            self.assertEqual(read(b"ab", b"", b"a", b"abc", b"no"), (b"abc", 1))
            self.assertEqual(time.sleep.call_count, 3)
            found, left = read(*[b"ab"] * 8, b"abc")
            self.assertEqual((found[0], left), ("CORRUPT", 1), "four short answers, twice")
            self.assertIn("3 bytes are expected at offset 7, and only 2 are there", found[1])
            self.assertEqual({k: found[2][k] for k in ("offset", "expected", "found")}, {"offset": 7, "expected": 3, "found": 2})
            self.assertEqual(time.sleep.call_count, 9)
            before = self.reader.stats.requests, self.reader.stats.bytes
            found, left = read(None, b"abc")
            self.assertEqual((found[0], found[2], left), ("MISSING_OBJECT", {"key": "k", "uri": "memory:x"}, 1))
            self.assertEqual((self.reader.stats.requests, self.reader.stats.bytes), (before[0] + 1, before[1]))
        checks: list[bytes] = []

        def check(data: bytes) -> bytes:
            checks.append(data)
            if data != b"abc":
                raise reader_module.corrupt("k", "it is damaged")
            return data

        self.assertEqual(read(b"abd", b"abc", b"no", check=check), (b"abc", 1))
        self.assertEqual((read(b"abd", b"abe", b"no", check=check)[0][0], checks), ("CORRUPT", [b"abd", b"abc", b"abd", b"abe"]))

    def test_a_table_that_could_not_be_read_is_read_again(self) -> None:
        key = next(k for k in self.store.objects if k.endswith(batch_key(self.manifest.tail.batches[2], 0)))
        data = self.store.objects.pop(key)
        for _ in range(2):
            self.assertEqual(refusal(self, lambda: self.reader.prepare(self.manifest, [Cell(2, 0, 0)])).code, "MISSING_OBJECT")
        self.store.objects[key] = data
        self.assertEqual(len(self.reader.prepare(self.manifest, [Cell(2, 0, 0)]).ranges), 1)
        self.assertEqual(self.reader.hedged_reads, 0)

    def test_tables_take_no_place_among_reads_that_bring_data_and_near_stores_are_read_at_once(self) -> None:
        for is_near in False, True:
            begun: list[Any] = []
            self.log.store.is_near = is_near
            reader = SliceReader(self.log, 2)
            begin = reader._reads.begin
            with mock.patch.object(reader._reads, "begin", lambda length, call, *more: begun.append((length, *more)) or begin(length, call, *more)):
                reader.fetch(reader.prepare(self.manifest, [Cell(2, 0, 1)]))
            reader.close()
            table = self.manifest.tail.batches[2].extents[0]
            self.assertEqual(begun, [(table.size - table.table, is_near, True), (4, is_near, False)])
        reader = SliceReader(self.log, 2)
        reader.close()
        reader._reads = mock.Mock()
        reader._begin_read(SimpleNamespace(store=None), "k", 0, 4, bytes)  # type: ignore[arg-type]
        self.assertEqual(reader._reads.begin.call_args[0][2:], (False, False), "a store that says nothing is far")
        reader.join(3.0)
        self.assertEqual(reader._reads.join.mock_calls, [mock.call(3.0)])


class Waits(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        Writer(self.world.log, "p").write(4)
        self.manifest = self.world.log.head.jump()
        self.plan = IterationPlan(3, 2, 3, 2, 2, 1, [])

    def test_a_missing_object_is_reclaimed_gone_or_looked_for_in_the_newest_version(self) -> None:
        calls: list[Any] = []

        def call(code: str, times: int = 9) -> Any:
            def read(manifest: Any) -> Any:
                calls.append(manifest.version)
                if len(calls) <= times:
                    raise BatchWeaveError(code, "as told", {})
                return "read"

            calls.clear()
            return unless_reclaimed(self.world.log, self.plan, self.manifest, read)

        version = self.manifest.version
        self.assertEqual(call("CORRUPT", 0), "read")
        with mock.patch.object(self.world.log.head, "jump", side_effect=AssertionError):
            self.assertEqual(refusal(self, lambda: call("CORRUPT")).code, "CORRUPT")
        self.assertEqual((refusal(self, lambda: call("MISSING_OBJECT")).code, calls), ("MISSING_OBJECT", [version]))
        for trim, expected in (3, "RECLAIMED"), (2, "read"):
            newest = dataclasses.replace(self.manifest, version=version + 1, trim=trim)
            with mock.patch.object(self.world.log.head, "jump", lambda: newest):
                if expected == "read":
                    self.assertEqual((call("MISSING_OBJECT", 1), calls), ("read", [version, version + 1]))
                else:
                    said = refusal(self, lambda: call("MISSING_OBJECT", 1))
                    self.assertEqual((said.code, said.details["row"], said.details["oldestRow"]), ("RECLAIMED", 2, 3))

    def test_what_was_reclaimed_is_said_in_rows_and_steps(self) -> None:
        said = reclaimed(9, dataclasses.replace(self.manifest, trim=3), 4)
        self.assertEqual(said.message.split(". ")[0], "Row 9 (step 2) was reclaimed; the oldest row left is 12 (step 3)")

    def say(self, waited: float = 3.0, now: float = 50.0, log: Any = None, **changes: Any) -> str:
        plan = changes.pop("plan", IterationPlan(7, 5, 6, 5, 5, 1, []))
        manifest = dataclasses.replace(self.manifest, commit={**self.manifest.commit, "time": 42_000}, **changes)
        with mock.patch.object(waiting_module, "time", mock.Mock(time=lambda: now)):
            said = describe_wait(log or self.world.log, manifest, plan, waited)
        self.assertEqual(said.details, {"missing": max(manifest.end, plan.first_step), "lastStep": plan.last_step, "iteration": 7, "version": manifest.version})
        return said.message

    def test_who_waits_says_for_what_and_on_whom(self) -> None:
        states = {f"p{i}": ProducerState(1, "0123456789ab", 1, i) for i in range(7)}
        self.assertEqual(
            self.say(producers={"p": ProducerState(1, "0123456789ab", 4, 5)}),
            "Waited 3.0 s for step 5 (iteration 7): the head is version 5 with steps up to 3, and nothing was committed for 8.0 s. Producers, by their last commit: "
            "p (version 5). Check that producers run and can write, raise wait_timeout if they are slow, or close the log if it is complete.",
        )
        named = "p6 (version 6), p5 (version 5), p4 (version 4), p3 (version 3), p2 (version 2)"
        self.assertIn(f"by their last commit: {named} and 2 more. Check", self.say(producers=states))
        self.assertIn("by their last commit: p4 (version 4), p3", self.say(producers={k: v for k, v in states.items() if v.at < 5}))
        self.assertNotIn("more.", self.say(producers={k: v for k, v in states.items() if v.at < 5}))
        empty = self.say(producers={}, tail=self.manifest.tail._replace(batches=[]), plan=IterationPlan(7, 0, 3, 0, 2, 1, []))
        self.assertIn("for step 0 to 2 (iteration 7): the head is version 5 with no step yet, and", empty)
        self.assertIn("No producer has ever opened this namespace.", empty)
        for plan, text in (IterationPlan(7, 2, 5, 2, 4, 1, []), "for step 4 (iter"), (IterationPlan(7, 2, 6, 2, 5, 1, []), "for step 4 to 5 (iter"):
            self.assertIn(text, self.say(plan=plan))
        for waited, text in (9.94, "Waited 9.9 s"), (10.0, "Waited 10 s"), (61.4, "Waited 61 s"):
            self.assertIn(text, self.say(waited))
        self.assertIn("nothing was committed for 0.0 s", self.say(now=1.0))

    def test_of_lanes_the_one_that_is_missing_is_named(self) -> None:
        log: Any = SimpleNamespace(spec=SimpleNamespace(lanes=3, first_own_step=2))
        waiting = {9: self.manifest.tail.batches[0], 10: self.manifest.tail.batches[0]}
        self.assertIn("The missing step is lane-2's, which has never committed: restart its producer or let another process open lane-2.", self.say(log=log))
        self.assertNotIn("wait behind it", self.say(log=log))
        self.assertIn(
            "2 batches of other lanes wait behind it. The missing step is lane-2's, which committed last at version 9:",
            self.say(log=log, waiting=waiting, producers={"lane-2": ProducerState(1, "0123456789ab", 4, 9)}),
        )


class Told(unittest.TestCase):
    """Reports of a trainer."""

    def setUp(self) -> None:
        self.reports = Reports("memory:log", "g", {"a": 1})
        self.clock = [1_000.0]
        time = mock.patch.object(reports_module, "time", mock.Mock(monotonic=lambda: self.clock[0]))
        time.start()
        self.addCleanup(time.stop)
        self.producer = mock.Mock()

    def sent(self) -> list[Any]:
        return [json.loads(call[0][0][0]) for call in self.producer.append.call_args_list]

    def test_numbers_have_names_and_there_are_not_too_many(self) -> None:
        with mock.patch.object(self.reports, "_open", lambda: self.producer):
            for good in ({"n" * 256: 1}, {str(i): i for i in range(4_096)}, {"a": -0.5}):
                self.reports.report(1, good)
            for bad in ({"n" * 257: 1}, {"a": math.inf}, {"a": math.nan}, {1: 1}):
                self.assertIn("finite numbers by name, not", refusal(self, lambda: self.reports.report(1, bad)).message)  # type: ignore[arg-type]
            self.assertEqual(refusal(self, lambda: self.reports.report(1, {str(i): i for i in range(4_097)})).code, "LIMIT")

    def test_what_comes_within_five_seconds_goes_with_the_next(self) -> None:
        with mock.patch.object(self.reports, "_open", lambda: self.producer):
            for after, step, values in (0, 1, {"a": 1}), (4.75, 2, {"a": 2, "b": 3}), (0.25, 3, {"b": 4}), (5, 4, {}):
                self.clock[0] += after
                self.reports.report(step, values)
        self.assertEqual(self.sent(), [
            {"v": 1, "step": 1, "values": {"a": 1.0}}, {"v": 1, "step": 3, "values": {"a": 2.0, "b": 4.0}}, {"v": 1, "step": 4, "values": {}},
        ])
        self.assertEqual(self.producer.append.call_args[1], {"content_type": "application/json"})

    def test_one_producer_sends_them_another_one_after_a_failure_and_one_in_each_process(self) -> None:
        made = mock.Mock()
        made.return_value.producer.return_value = self.producer
        with mock.patch("batchweave.namespace.create_namespace", made):
            for _ in range(2):
                self.reports.report(1, {"a": 1})
                self.clock[0] += 5
            self.assertEqual(made.mock_calls[:2], [mock.call("memory:log.reports", 1, 1, a=1), mock.call().producer("trainer-g")])
            self.assertEqual(made.call_count, 1)
            self.producer.append.side_effect = OSError("full")
            with self.assertLogs("batchweave", "WARNING"):
                self.reports.report(1, {"a": 1})
            self.producer.append.side_effect = None
            self.clock[0] += 5
            self.reports.report(1, {"b": 1})
            self.assertEqual((made.call_count, self.sent()[-1]["values"]), (2, {"b": 1.0}))
            self.reports._pid = -1
            self.reports.close()
            self.assertFalse(self.producer.close.called, "a parent's")
            self.assertEqual((self.reports._open(), made.call_count, self.reports._pid), (self.producer, 3, os.getpid()))
            self.reports._pid = -1
            self.reports._open()
            self.assertEqual(made.call_count, 4)
        self.reports.close()
        self.reports.close()
        self.assertEqual(self.producer.close.call_count, 1)
        self.assertIs(reports_of("memory:r", "g", {}), reports_of("memory:r", "g", {}))
        self.assertIsNot(reports_of("memory:r", "g", {}), reports_of("memory:r", "h", {}))


if __name__ == "__main__":
    unittest.main()
