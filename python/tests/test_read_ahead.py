"""Property: reading ahead changes no iteration and not their order, sends one request for what many iterations share, and leaves no file open and no thread running.
Method: plans against their definition, by chance; stores in memory that count, fail and hang; files whose descriptors are counted.
"""
from __future__ import annotations

import itertools
import os
import random
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any

from batchweave import BatchWeaveError, create_namespace
from batchweave.consumer.prefetch import planned
from batchweave.consumer.projection import IterationPlan, Projection
from batchweave.namespace import Namespace
from batchweave.store.hedging import HedgedReads
from memory_store import MemoryStore


def filled(namespace: Namespace, batches: int, uneven: bool = False) -> Namespace:
    with namespace.producer("p") as p:
        for step in range(batches):
            p.append([bytes([step % 251]) * (1_000 + uneven * row) for row in range(namespace.rows)])
    namespace.end_log()
    return namespace


#: Threads of tests before these, whose stores never answer, are not theirs.
_BEFORE: set[threading.Thread] = set()


def setUpModule() -> None:
    _BEFORE.update(threading.enumerate())


def reading_threads() -> list[str]:
    ours = ("-prefetch", "-load", "-range", "-side")
    return [thread.name for thread in threading.enumerate() if thread.name.endswith(ours) and thread not in _BEFORE]


class PlannedAhead(unittest.TestCase):
    def test_every_worker_gets_its_iterations_in_order(self) -> None:
        for seed in range(300):
            chance = random.Random(seed)
            projection = Projection(chance.randint(1, 6), 1, 2, 1, rows_per_rank=lambda iteration: 1 + iteration * 7 % 5)
            stride = chance.randint(1, 5)
            offset = chance.randrange(stride)
            expected: list[IterationPlan] = []
            row = 0
            for iteration in range(40):
                plan = projection.plan(row, iteration)
                row = plan.next_row
                if iteration % stride == offset:
                    expected.append(plan)
            found = list(itertools.islice(planned(projection, 0, 0, stride, offset), len(expected)))
            self.assertEqual(found, expected, f"seed {seed}")

    def test_a_slice_table_that_many_iterations_want_is_read_once_and_again_after_a_failure(self) -> None:
        store = MemoryStore()
        store.is_near = True  # type: ignore[attr-defined]  # or a late one would be read twice
        namespace = filled(create_namespace("memory:test", rows=16, store=store), 4, uneven=True)
        original, tables, is_broken = store.get_range, [], [True]

        def get_range(key: str, start: int, length: int) -> bytes | None:
            if "/batch/" in key and start + length == len(store.objects[key]):
                tables.append(key)
                time.sleep(0.01)
                if is_broken[0]:
                    raise BatchWeaveError("STORE_DENIED", "not now", {})
            return original(key, start, length)

        store.get_range = get_range  # type: ignore[method-assign]
        with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
            with self.assertRaisesRegex(BatchWeaveError, "not now"):
                next(consumer)
            deadline = time.monotonic() + 60
            while "batchweave-load" in reading_threads() and time.monotonic() < deadline:
                time.sleep(0.01)  # what was begun before
            is_broken[0] = False
            tables.clear()
            self.assertEqual([share.slices[0].bytes[0] for share in consumer], [step for step in range(4) for _ in range(16)])
        self.assertEqual(len(tables), 4)

    def test_no_thread_stays_when_a_consumer_is_closed_in_the_middle(self) -> None:
        store = MemoryStore()
        namespace = filled(create_namespace("memory:test", rows=1, store=store), 50)
        for taken in (0, 1, 20, 50):
            for bytes_max in (1, 10**8):
                with namespace.consumer({"dp": 1}, 0, environment={}, prefetch_bytes_max=bytes_max) as consumer:
                    self.assertEqual([next(consumer).iteration for _ in range(taken)], list(range(taken)))
                self.assertEqual(reading_threads(), [])

    def test_of_two_reads_the_one_that_fails_does_not_count(self) -> None:
        reads = HedgedReads(4)
        self.addCleanup(reads.close)
        for _ in range(20):
            reads.hedger.note(100, 0.001)
        for first_fails in (True, False):
            calls = itertools.count()

            def call(calls: Any = calls, first_fails: bool = first_fails) -> int:
                turn = next(calls)
                time.sleep(0.3 if turn == 0 else 0.6 if first_fails else 0.001)
                if (turn == 0) == first_fails:
                    raise ValueError(f"read {turn}")
                return turn

            self.assertEqual(reads.begin(100, call, is_near=False).result(), 1 if first_fails else 0)

    @unittest.skipUnless(os.path.isdir("/proc/self/fd"), "needs /proc")
    def test_a_closed_consumer_leaves_no_file_open(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            namespace = filled(create_namespace(Path(folder, "ns").as_uri(), rows=1, durability="process-crash"), 200)
            before = len(os.listdir("/proc/self/fd"))
            consumer = namespace.consumer({"dp": 1}, 0, environment={})
            for _ in range(100):
                next(consumer)
            consumer.close()
            self.assertEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
