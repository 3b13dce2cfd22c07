"""Property: what is told to a disk ahead of reading changes no iteration and their order, and takes a bounded number of open files and announcements.
Method: plans against their definition, by chance; files that pretend to come from a disk, of shares with many objects, and of a disk that becomes slow.
"""
from __future__ import annotations

import itertools
import os
import random
import resource
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from batchweave import create_namespace
from batchweave.consumer import reader
from batchweave.consumer.plans import Plans
from batchweave.consumer.projection import IterationPlan, Projection
from batchweave.consumer.reader import SliceReader
from batchweave.namespace import Namespace
from batchweave.store.file_store import FileStore, OpenFile
from batchweave.store.hedging import Reading


def log_of(folder: str, batches: int) -> Namespace:
    namespace = create_namespace(Path(folder, "ns").as_uri(), rows=1, durability="process-crash")
    with namespace.producer("p") as p:
        for step in range(batches):
            p.append([bytes([step % 251]) * 1_000])
    namespace.close()
    return namespace


def pretended_disk() -> Any:
    fetched = itertools.count(0, 10**9)
    return mock.patch.object(reader, "_fetched_bytes", lambda: next(fetched))


class PlannedAhead(unittest.TestCase):
    def test_whatever_is_looked_at_and_put_back_every_worker_gets_its_iterations_in_order(self) -> None:
        for seed in range(1_000):
            chance = random.Random(seed)
            fails_at = chance.randrange(60)

            def rows_per_rank(iteration: int, fails_at: int = fails_at) -> int:
                if iteration == fails_at:
                    raise ValueError("no such iteration")
                return 1 + iteration * 7 % 5

            projection = Projection(chance.randint(1, 6), 1, 2, 1, rows_per_rank=rows_per_rank)
            stride = chance.randint(1, 5)
            offset = chance.randrange(stride)
            expected: list[IterationPlan] = []
            row = 0
            for iteration in range(fails_at):
                plan = projection.plan(row, iteration)
                row = plan.next_row
                if iteration % stride == offset:
                    expected.append(plan)
            plans = Plans(projection, 0, 0, stride, offset)
            taken: list[IterationPlan] = []
            looked: list[IterationPlan] = []
            is_over = False
            while not is_over:
                kind = chance.random()
                try:
                    if kind < 0.5:
                        taken.append(plans.next())
                    elif kind < 0.65 and taken:
                        plans.put_back(taken.pop())
                    else:
                        looked += plans.look(chance.randint(1, 16), chance.randint(0, 80))
                except ValueError:
                    is_over = kind < 0.5
            self.assertEqual(taken, expected, f"seed {seed}")
            iterations = [plan.iteration for plan in looked]
            self.assertEqual(iterations, sorted(set(iterations)), f"seed {seed}: each is announced once")

    def test_shares_of_many_objects_do_not_use_up_the_open_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            namespace = log_of(folder, 600)
            for rows, work_s in ((1, 0.0), (20, 0.0), (20, 0.002)):
                opened: set[Any] = set()
                most = [0]
                begin, close = OpenFile.__init__, OpenFile.close

                def note_begin(self: OpenFile, *args: Any) -> None:
                    begin(self, *args)
                    opened.add(id(self))
                    most[0] = max(most[0], len(opened))

                def note_close(self: OpenFile) -> None:
                    opened.discard(id(self))
                    close(self)

                with pretended_disk(), mock.patch.object(OpenFile, "__init__", note_begin), mock.patch.object(OpenFile, "__del__", note_close):
                    with namespace.consumer({"dp": 1}, 0, environment={}, rows_per_rank=rows) as consumer:
                        consumer.reader.is_from_disk = True
                        steps = []
                        for share in consumer:
                            steps += [s.step for s in share.slices]
                            time.sleep(work_s)
                self.assertEqual(steps, list(range(600 - 600 % rows)))
                self.assertLess(most[0], 100, f"{rows} objects each")

    @unittest.skipUnless(os.path.isdir("/proc/self/fd"), "needs /proc")
    def test_what_is_prepared_keeps_few_files_open_and_none_that_somebody_needs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            namespace = log_of(folder, 300)
            log = namespace.log
            manifest = log.head.newest()
            plans = [Projection(1, 1, 1, 0, rows_per_rank=8).plan(8 * i, i) for i in range(33)]
            slices = SliceReader(log)
            self.addCleanup(slices.close)

            def read(prepared: Any) -> list[int]:
                return [s.bytes[0] for s in slices.fetch(prepared, Reading())]

            before = len(os.listdir("/proc/self/fd"))
            waiting = [slices.prepare(manifest, plan.cells, Reading()) for plan in plans[1:]]
            self.assertLess(len(os.listdir("/proc/self/fd")) - before, 64)
            self.assertGreater(len(os.listdir("/proc/self/fd")) - before, 8, "some are kept")
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            others = []
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
                with self.assertRaisesRegex(OSError, "Too many open files"):
                    while True:
                        others.append(os.open(os.devnull, os.O_RDONLY))
                begun = time.monotonic()
                # The first in line, which all others wait for: they have what it needs.
                self.assertEqual(read(slices.prepare(manifest, plans[0].cells, Reading())), list(range(8)))
                for i, prepared in enumerate(waiting, 1):
                    self.assertEqual(read(prepared), [step % 251 for step in range(8 * i, 8 * i + 8)])
                self.assertLess(time.monotonic() - begun, 5)
            finally:
                for fd in others:
                    os.close(fd)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    @unittest.skipUnless(os.path.isdir("/proc/self/fd"), "needs /proc")
    def test_a_closed_consumer_leaves_no_file_open(self) -> None:
        with tempfile.TemporaryDirectory() as folder, pretended_disk():
            namespace = log_of(folder, 200)
            before = len(os.listdir("/proc/self/fd"))
            consumer = namespace.consumer({"dp": 1}, 0, environment={})
            for _ in range(100):
                next(consumer)
            consumer.close()
            until = time.monotonic() + 10
            while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < until:
                time.sleep(0.01)
            self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_on_a_disk_that_becomes_slow_announcements_do_not_pile_up(self) -> None:
        delay_s = [0.0]
        get_range, read_small = FileStore.get_range, OpenFile.read_small

        def slow_range(self: FileStore, *args: Any) -> Any:
            time.sleep(delay_s[0])
            return get_range(self, *args)

        def slow_small(self: OpenFile, *args: Any) -> Any:
            time.sleep(delay_s[0])
            return read_small(self, *args)

        with tempfile.TemporaryDirectory() as folder, pretended_disk(), mock.patch.object(FileStore, "get_range", slow_range), \
                mock.patch.object(OpenFile, "read_small", slow_small):
            namespace = log_of(folder, 600)
            with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
                for share in consumer:
                    self.assertEqual(share.slices[0].bytes[0], share.iteration % 251)
                    delay_s[0] = 0.002 if share.iteration > 70 else 0.0
                    self.assertLess(len(consumer.reader.ahead._announced), 100)
                self.assertFalse(consumer.reader.is_near)


if __name__ == "__main__":
    unittest.main()
