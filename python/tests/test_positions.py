"""Property: where a rank starts, which rows an iteration of it takes, in the log's order or shuffled, and how many rows at the end are no samples, is exactly
what the formulas say; what they do not allow is refused, with the numbers in it.

Method: every case of small sizes against a model that is written another way; tables with values on both sides of each limit; no store where none is needed.
"""
from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import math
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError, create_namespace, open_namespace
from batchweave.consumer import epochs
from batchweave.consumer.consumer import Consumer, projection_of, start_position
from batchweave.consumer.epochs import EpochOrder, EpochProjection, padding_rows, parse_epoch_state, shuffled
from batchweave.consumer.mesh import resolve_mesh
from batchweave.consumer.prefetch import Prefetch, planned
from batchweave.consumer.projection import Cell, IterationPlan, Projection
from batchweave.consumer.reader import Slice, SliceReader
from batchweave.format.cursor import make_cursor
from batchweave.format.index_node import Run
from batchweave.format.namespace_spec import Ancestor, Fork, StepRange
from batchweave.format.stored_json import SAFE_INTEGER_MAX
from batchweave.log.log import Log
from memory_store import MemoryStore
from small_world import World, Writer

UUID = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5"
OTHER = "00000000-58a4-4d0c-9a3e-2b7c90d1e4f5"


def refusal(test: unittest.TestCase, call: Any) -> BatchWeaveError:
    with test.assertRaises(BatchWeaveError) as caught:
        call()
    return caught.exception


class Starts(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        Writer(self.world.log, "p").write(6)
        spec = self.world.log.spec
        self.log: Any = SimpleNamespace(spec=SimpleNamespace(rows=4, uuid=spec.uuid, fork=None))
        self.manifest = dataclasses.replace(self.world.log.head.jump(), trim=2)

    def at(self, start: Any) -> tuple[int, int]:
        return start_position(start, self.log, self.manifest)

    def test_a_step_or_a_row_is_a_whole_number_that_is_not_reclaimed(self) -> None:
        for start, expected in (
            ("earliest", (8, 0)), ("latest", (24, 0)), ({"step": 2}, (8, 0)), ({"row": 9}, (9, 0)), ({"row": 9, "iteration": 5}, (9, 5)),
            ({"step": 3, "row": 1}, (12, 0)), ({"row": SAFE_INTEGER_MAX}, (SAFE_INTEGER_MAX, 0)), ({"row": 8, "iteration": SAFE_INTEGER_MAX}, (8, SAFE_INTEGER_MAX)),
            (make_cursor(self.log.spec.uuid, 8, 3), (8, 3)),
        ):
            self.assertEqual(self.at(start), expected, start)
        for bad in (-1, SAFE_INTEGER_MAX + 1, 1.0, True, "1", None):
            for name in ("step", "row", "iteration"):
                said = refusal(self, lambda: self.at({"row": 9, name: bad}))
                self.assertEqual((said.code, said.message), ("INVALID_ARGUMENT", f"start.{name} must be a whole number, not {bad}."))
        said = refusal(self, lambda: self.at({"row": 7}))
        self.assertEqual(said.code, "RECLAIMED")
        self.assertTrue(said.message.startswith("Row 7 (step 1) was reclaimed; the oldest row left is 8 (step 2)."), said.message)
        self.assertEqual(said.details, {"row": 7, "oldestRow": 8, "trim": 2, "version": self.manifest.version})

    def test_behind_the_end_of_a_closed_log_nothing_will_come(self) -> None:
        self.manifest = dataclasses.replace(self.manifest, closed=True)
        self.assertEqual(self.at({"row": 24}), (24, 0))
        for trim, left in (2, "its last row is 23 (step 5)"), (5, "its last row is 23 (step 5)"), (6, "it holds no rows"):
            self.manifest = dataclasses.replace(self.manifest, trim=trim)
            said = refusal(self, lambda: self.at({"row": 25}))
            message = f"Row 25 (step 6) will never exist: the log is closed and {left}. Start at or before row 24."
            self.assertEqual((said.code, said.message, said.details), ("INVALID_ARGUMENT", message, {"row": 25, "end": 6, "closed": True}))

    def test_a_cursor_of_an_ancestor_has_a_place_in_its_fork_or_is_refused(self) -> None:
        ancestor = Ancestor(OTHER, "memory:other", [StepRange(0, 0, 0), StepRange(3, 10, 1)])
        self.log.spec.fork = Fork([], Run(0, []), 0, [ancestor], [])
        self.assertEqual(self.at(make_cursor(OTHER, 4 * 2 + 3, 7)), (4 * 4 + 3, 7))
        said = refusal(self, lambda: self.at(make_cursor(UUID, 12, 7)))
        self.assertEqual((said.code, said.details), ("WRONG_NAMESPACE", {"found": UUID, "expected": self.log.spec.uuid}))

    def consumer(self, log: Log | None = None, **settings: Any) -> Consumer:
        found = Consumer(log or self.world.open(), resolve_mesh({"dp": 1}, 0, {}), **settings)
        self.addCleanup(found.close)
        return found

    def test_only_the_end_and_checkpoints_need_the_newest_version(self) -> None:
        namespace = open_namespace("memory:test", store=self.world.store)
        namespace.checkpoint("c", make_cursor(namespace.uuid, 2, 2))
        for start, looks in ("earliest", "recent"), ({"row": 3}, "recent"), ("latest", "jump"), ({"checkpoint": "c"}, "jump"), (make_cursor(namespace.uuid, 2, 2), "recent"):
            log = self.world.open()
            log.head.load()
            calls = []
            with mock.patch.object(log.head, "jump", lambda: calls.append("jump") or log.head.newest()), mock.patch.object(
                log.head, "recent", lambda: calls.append("recent") or log.head.newest()
            ):
                self.consumer(log, start=start)
            self.assertEqual(calls, [looks], start)

    def test_limits_are_at_least_one_and_a_start_that_cannot_be_gone_on_from_is_refused_at_once(self) -> None:
        for name, least in ("wait_timeout", 0), ("prefetch_bytes_max", 1), ("prefetch_iterations_max", 1), ("reads_in_flight_max", 1):
            self.consumer(**{name: least})
            for bad in (least - 1, "1", None, math.nan):
                said = refusal(self, lambda: self.consumer(**{name: bad}))
                self.assertEqual(said.message, f"{name} must be a number of at least {least}, not {bad}.")
        pairs = create_namespace("memory:pairs", rows=2, store=MemoryStore())
        said = refusal(self, lambda: self.consumer(pairs.log, start={"row": 1}, policy="global-batch"))
        self.assertIn("Row 1 is inside batch 0", said.message)

    def test_what_is_not_said_is_what_the_guide_says(self) -> None:
        def defaults(call: Any) -> dict[str, Any]:
            return {name: p.default for name, p in inspect.signature(call).parameters.items() if p.default is not p.empty}

        next(self.consumer())
        self.assertEqual(defaults(Consumer), {
            "start": "earliest", "policy": "per-rank", "layout": "contiguous", "rows_per_rank": 1, "group": "default", "wait_timeout": 600.0,
            "prefetch_bytes_max": 268_435_456, "prefetch_iterations_max": 32, "reads_in_flight_max": 16, "poll_delay": 0.05, "poll_delay_max": 1.0, "stride": 1,
            "offset": 0, "finish": None, "finish_copies": 0, "pulse": False, "order": None, "last": "drop",
        })
        self.assertEqual(defaults(Prefetch), {
            "bytes_max": 268_435_456, "iterations_max": 32, "poll_delay": 0.05, "poll_delay_max": 1.0, "stride": 1, "offset": 0, "copies": 0,
        })
        self.assertEqual(defaults(SliceReader), {"reads_in_flight_max": 16, "footer_bytes_max": 16_777_216})
        self.assertEqual(defaults(projection_of), {"policy": "per-rank", "layout": "contiguous", "rows_per_rank": 1, "order": None, "last": "drop"})
        self.assertEqual(defaults(Projection), {
            "data_ranks": 1, "d": 0, "chunk_ranks": 1, "c": 0, "policy": "per-rank", "layout": "contiguous", "rows_per_rank": 1,
        })
        self.assertEqual(EpochOrder("n", 3, 9)[3:], (None, 0, 0, 1, 0))
        found = projection_of(self.world.log, resolve_mesh({"dp": 1}, 0, {}), order=EpochOrder("n", 3, 9), last="pad")
        assert isinstance(found, EpochProjection)
        self.assertEqual((found.last, found.end_row(1)), ("pad", 9))
        self.assertEqual(IterationPlan(0, 0, 0, 0, 0, 0, []).padding, 0)


class Projections(unittest.TestCase):
    def test_a_worker_of_several_gets_every_nth_iteration_from_its_own_first_on(self) -> None:
        projection = Projection(2, 1, rows_per_rank=3)
        for stride, offset in itertools.product((1, 2, 3), (0, 1, 2)):
            found = [(plan.iteration, plan.row, plan.next_row) for plan in itertools.islice(planned(projection, 5, 7, stride, offset), 4)]
            numbers = [offset + stride * i for i in range(4)]
            self.assertEqual(found, [(7 + n, 5 + 3 * n, 8 + 3 * n) for n in numbers], (stride, offset))

    def test_the_first_row_that_is_read_is_that_of_the_plan_unless_rows_are_shuffled(self) -> None:
        for row, step, expected in (9, 2, 9), (9, 1, 4), (8, 2, 8), (11, 3, 12), (4, 1, 4):
            self.assertEqual(IterationPlan(0, row, row + 1, step, step, 1, []).first_row(4), expected)

    def test_schedules_ascend_from_zero_and_take_whole_rows(self) -> None:
        for good in (1, 65_536, [[0, 1]], ((0, 2), (5, 65_536)), [[0, 1], [1, 2], [7, 3]]):
            Projection(2, 1, rows_per_rank=good)
        for bad, part in (
            (0, "is 0;"), (65_537, "is 65537;"), (1.0, "is 1.0;"), (True, "is True;"), ([], "empty"), ("4", "empty"), (None, "empty"),
            ([[1, 1]], "[0] starts at iteration 1"), ([[0, 1], [0, 1]], "[1] starts at iteration 0"), ([[0, 1], [5, 1], [4, 1]], "[2] starts at iteration 4"),
            ([[0.0, 1]], "[0] starts"), ([[0, 0]], "[0] is 0;"), ([[0, 1], [2, 65_537]], "[1] is 65537;"), ([[0, 1], 5], "[1] is not"), ([[0]], "[0] is not"),
            ([[0, 1, 2]], "[0] is not"), ([[False, 1]], "[0] starts"),
        ):
            self.assertIn(part, refusal(self, lambda: Projection(2, 1, rows_per_rank=bad)).message, bad)
        rows = Projection(2, 1, rows_per_rank=[[0, 1], [3, 5], [4, 2]])
        self.assertEqual([rows.rows_of_rank(i) for i in range(6)], [1, 1, 1, 5, 2, 2])
        own = Projection(2, 1, rows_per_rank=lambda i: i)
        self.assertEqual((own.rows_of_rank(1), own.rows_of_rank(65_536)), (1, 65_536))
        for bad in 0, 65_537:
            self.assertIn(f"rows_per_rank({bad}) is {bad};", refusal(self, lambda: own.rows_of_rank(bad)).message)
        steady = [Projection(2, 1, rows_per_rank=4), Projection(2, 1, policy="global-batch"), rows, own]
        self.assertEqual([p.is_steady for p in steady], [True, True, False, False])

    def test_a_global_batch_is_divided_without_a_rest_and_begins_at_a_batch(self) -> None:
        said = refusal(self, lambda: Projection(6, 1, 4, 0, policy="global-batch"))
        self.assertEqual((said.code, said.details), ("MESH_MISMATCH", {"dp": 4, "rows": 6, "fits": [1, 2, 3, 6]}))
        self.assertIn("dp can be 1, 2, 3 or 6,", said.message)
        self.assertIn("does not go with", refusal(self, lambda: Projection(6, 1, 2, 0, policy="global-batch", rows_per_rank=2)).message)
        projection = Projection(6, 1, 3, 2, policy="global-batch")
        self.assertEqual((projection.rows_of_rank(9), projection.end_row(4)), (2, 24))
        self.assertEqual(projection.plan(12, 2), IterationPlan(2, 12, 18, 2, 2, 2, [Cell(2, 4, 0), Cell(2, 5, 0)]))
        said = refusal(self, lambda: projection.plan(13, 2))
        self.assertTrue(said.message.startswith(
            'Row 13 is inside batch 2, and policy "global-batch" starts at a whole batch of 6 rows. Start from row 12 (repeats 1) or row 18 (skips 5)'
        ), said.message)
        self.assertEqual(said.details, {"row": 13, "before": 12, "after": 18})

    def test_every_rank_gets_its_rows_and_its_chunks(self) -> None:
        for rows, ranks, n, row in itertools.product((1, 3, 4), (1, 2, 3), (1, 2, 5), (0, 1, 7)):
            for d in range(ranks):
                own = range(row + d * n, row + d * n + n)
                cells = [Cell(r // rows, r % rows, chunk) for r in own for chunk in (2, 3)]
                after = row + ranks * n
                expected = IterationPlan(4, row, after, row // rows, (after - 1) // rows, n, cells)
                self.assertEqual(Projection(rows, 4, ranks, d, 2, 1, rows_per_rank=n).plan(row, 4), expected)
        for chunk_ranks, expected in (1, [[0, 1, 2, 3, 4, 5, 6, 7]]), (2, [[0, 1, 6, 7], [2, 3, 4, 5]]), (4, [[0, 7], [1, 6], [2, 5], [3, 4]]):
            found = [Projection(1, 8, 1, 0, chunk_ranks, c, layout="zigzag").own_chunks for c in range(chunk_ranks)]
            self.assertEqual(found, expected)
        for chunk_ranks, layout, fits in (3, "contiguous", [1, 2, 4, 8]), (3, "zigzag", [1, 2, 4]), (8, "zigzag", [1, 2, 4]), (5, "contiguous", [1, 2, 4, 8]):
            said = refusal(self, lambda: Projection(1, 8, 1, 0, chunk_ranks, 0, layout=layout))
            self.assertEqual(said.details, {"cp": chunk_ranks, "chunks": 8, "fits": fits})
            self.assertEqual("in zigzag (2 x cp groups)" in said.message, layout == "zigzag")
        self.assertEqual(refusal(self, lambda: Projection(1, 3, 1, 0, 2, 0, layout="zigzag")).details["fits"], [1])
        for what, value in ("policy", "all"), ("layout", "zag"):
            self.assertIn(f'{what} must be "', refusal(self, lambda: Projection(1, 8, **{what: value})).message)


class EpochOrders(unittest.TestCase):
    def test_the_order_of_a_seed_never_changes(self) -> None:
        self.assertEqual([shuffled(3, 1, w, 6) for w in (-1, 0, 1)], [[5, 1, 0, 3, 2, 4], [3, 1, 0, 4, 2, 5], [5, 2, 1, 4, 0, 3]])
        self.assertEqual(hashlib.sha256(repr(shuffled(2**40, 5, 9, 3_000)).encode()).hexdigest()[:16], "03cf62cbe4091d6a")
        self.assertEqual((shuffled(1, 0, 0, 0), shuffled(1, 0, 0, 1)), ([], [0]))

    def test_windows_and_the_rows_in_them_change_places_and_what_is_left_stays_behind(self) -> None:
        for rows, window, padding, seed in itertools.product((1, 5, 8, 13), (1, 3, 4, 13, 50), (0, 1, 3), (None, 4)):
            padding = min(padding, rows)
            order = EpochOrder(UUID, 100, rows, seed, window, None, 3, padding)
            self.assertEqual(order.end, 3 * rows)
            for epoch in range(3):
                samples = list(range(rows - padding))
                windows = [samples[i : i + window] for i in range(0, len(samples), window)]
                full = [w for w in windows if len(w) == window]
                numbers = shuffled(4, epoch, -1, len(full)) + list(range(len(full), len(windows)))
                mixed = [windows[n][i] for n in numbers for i in shuffled(4, epoch, n, len(windows[n]))]
                expected = (samples if seed is None else mixed) + list(range(rows - padding, rows))
                self.assertEqual([order.row(epoch * rows + k) - 100 for k in range(rows)], expected, (rows, window, padding, seed))

    def test_a_state_says_epoch_and_row_and_is_read_back_only_whole(self) -> None:
        every, second = (EpochOrder(UUID, 7, 10, 3, 4, epoch, 5, 2) for epoch in (None, 1))
        fields = {"batchweave": "epochs-1", "namespace": UUID, "first": 7, "rows": 10, "seed": 3, "window": 4, "padding": 2}
        for order, at, place in (every, 23, (2, 3)), (second, 13, (1, 3)), (second, 20, (1, 10)), (every, 20, (2, 0)):
            state = order.state(at, 9)
            shown = {**fields, "epoch": place[0], "row": place[1], "iteration": 9}
            self.assertEqual({k: v for k, v in state.items() if k != "check"}, shown)
            self.assertEqual((parse_epoch_state(state), order.position(state)), (state, (at, 9)))
        self.assertEqual((every.end, second.end), (50, 20))
        plain = {k: v for k, v in every.state(23, 9).items() if k != "check"}
        for name in ("epoch", "row", "iteration", "first", "rows", "window", "padding"):
            for bad in (-1, 1.0, True, "1", None, SAFE_INTEGER_MAX + 1):
                self.assertIn("not a whole number", refusal(self, lambda: parse_epoch_state({**plain, name: bad})).message, (name, bad))
            self.assertEqual(parse_epoch_state({**plain, "rows": SAFE_INTEGER_MAX, name: SAFE_INTEGER_MAX})[name], SAFE_INTEGER_MAX)
            self.assertEqual(parse_epoch_state({**plain, "padding": 0, name: 0})[name], 0)
        for name, bad in ("namespace", 5), ("seed", True), ("seed", "x"), ("seed", 1.5):
            self.assertIn("not a whole number", refusal(self, lambda: parse_epoch_state({**plain, name: bad})).message)
        for seed in None, -5:
            self.assertEqual(parse_epoch_state({**plain, "seed": seed})["seed"], seed)
        self.assertEqual(parse_epoch_state({**plain, "padding": 10})["padding"], 10)
        self.assertIn("more rows that are no samples than rows", refusal(self, lambda: parse_epoch_state({**plain, "padding": 11})).message)
        self.assertIn('"check" does not match', refusal(self, lambda: parse_epoch_state({**every.state(23, 9), "row": 4})).message)

    def test_what_is_left_at_the_end_is_dropped_filled_up_or_shared(self) -> None:
        for rows, ranks, n, row in itertools.product((7, 12), (1, 3, 8), (1, 2), (0, 2, 6, 7, 12)):
            order = EpochOrder(UUID, 20, rows)
            left = max(0, rows - row)
            parts = [list(range(row + d * left // ranks, row + (d + 1) * left // ranks)) for d in range(ranks)]
            for last, d in itertools.product(("drop", "pad", "ragged"), range(ranks)):
                plan = EpochProjection(order, last, 5, 2, ranks, d, 1, 0, "per-rank", "contiguous", n).plan(row, 3)
                if left >= ranks * n:
                    own, padding, after = list(range(row + d * n, row + d * n + n)), 0, row + ranks * n
                elif left == 0 or last == "drop":
                    self.assertEqual(plan, IterationPlan(3, row, row, 1 << 62, 1 << 62, 0, []))
                    continue
                else:
                    padding = n - len(parts[d]) if last == "pad" else int(not parts[d])
                    own, after = parts[d] + (parts[d][-1:] or [row]) * padding, rows
                places = [divmod(20 + at, 5) for at in own]
                cells = [Cell(step, r, chunk) for step, r in places for chunk in (0, 1)]
                steps = [step for step, _ in places]
                self.assertEqual(plan, IterationPlan(3, row, after, min(steps), max(steps), len(own), cells, padding), (rows, ranks, n, row, last, d))
        self.assertEqual(EpochProjection(EpochOrder(UUID, 20, 7, epoch=2), "drop", 5, 2).end_row(99), 21)

    def test_rows_at_the_end_that_are_no_samples_are_counted_in_few_reads(self) -> None:
        asked: list[int] = []
        closed: list[int] = []
        samples = 0

        class Reader:
            def __init__(self, log: Any, reads: int) -> None:
                assert reads == 1, "one after another"
                self.rows = log.spec.rows

            def prepare(self, manifest: Any, cells: list[Cell]) -> list[Cell]:
                return cells

            def fetch(self, cells: list[Cell]) -> list[Slice]:
                asked.extend(cell.step * self.rows + cell.row for cell in cells)
                return [Slice(*cell, b"x" if asked[-1] < samples else b"") for cell in cells]

            def close(self) -> None:
                closed.append(1)

        with mock.patch.object(epochs, "SliceReader", Reader), mock.patch.object(epochs, "_PADDED_BATCHES_MAX", 3):
            for rows, end in itertools.product((1, 2, 5), (1, 3, 5)):
                for samples, first in itertools.product(range(rows * end + 1), range(0, rows * end, 2)):
                    asked.clear()
                    log, manifest = SimpleNamespace(spec=SimpleNamespace(rows=rows)), SimpleNamespace(end=end)
                    expected = rows * end - max(first, samples, (end - 3) * rows)
                    self.assertEqual(padding_rows(log, manifest, first), expected, (rows, end, samples, first))  # type: ignore[arg-type]
                    self.assertTrue(all(first <= row < rows * end for row in asked), (asked, first))
                    self.assertLessEqual(len(asked), 3 * (1 + math.ceil(math.log2(rows))), "halving")
        self.assertEqual(len(closed), sum(1 for rows, end in itertools.product((1, 2, 5), (1, 3, 5)) for _ in itertools.product(range(rows * end + 1), range(0, rows * end, 2))))


if __name__ == "__main__":
    unittest.main()
