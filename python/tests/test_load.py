"""Python loaders write source logs exactly once, and the same whichever process writes them.

Method: real logs on folders, read back block by block; worker processes that throw, hang, crash and leak; loader processes that are killed.
"""
from __future__ import annotations

import hashlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from io import BytesIO
from typing import Any, Iterator

from batchweave import BatchWeaveError, open_namespace
from batchweave.format.sample_block import decode_sample_table
from batchweave.load import Item, LanePart, PreparedImage, PreparedSample, SampleWriter, Source, UnitReader, arrow, huggingface, load, stream, webdataset
from batchweave.load.fleet_hints import FleetHints
from batchweave.load.lane_claims import SHY_S, LaneClaims
from batchweave.load.lane_watch import LaneWatch, LogView
from batchweave.load.prepared_sample import as_prepared, decode_sample, encode_sample, split_sample
from batchweave.load.source_log import LaneState, open_source_log
from memory_store import MemoryStore

HERE = os.path.dirname(os.path.abspath(__file__))
PIPELINE = os.path.join(HERE, "load_pipeline.py")


class Blocks:
    """What a source log holds."""

    def __init__(self, uri: str) -> None:
        namespace = open_namespace(uri)
        self.info = namespace.info()
        self.tables, self.samples, self.faults, self.digests = [], [], [], []
        for share in namespace.consumer({"dp": 1}, 0, wait_timeout=60):
            table_bytes, payload = (piece.bytes for piece in share.slices)
            table = decode_sample_table(table_bytes, len(payload), uri)
            self.tables.append(table)
            self.digests.append(hashlib.sha256(bytes(table_bytes) + bytes(payload)).hexdigest())
            self.faults += [fault for _, fault in table.faults]
            for entry in table.samples:
                self.samples.append((entry.id, list(decode_sample(payload[entry.offset : entry.offset + entry.length]).tokens)))

    @property
    def ids(self) -> list[str]:
        return [id for id, _ in self.samples]


def run_loader(folder: str, source: str, *options: str, **environment: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "batchweave", "load", f"{PIPELINE}:{source}", "--uri", f"file://{folder}", "--workers", "1", *options]
    path = os.pathsep.join([os.path.dirname(HERE), *sys.path])
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, **environment}, stderr=subprocess.PIPE)


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="batchweave-load-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    @property
    def uri(self) -> str:
        return f"file://{self.folder}"


class WriterTest(Case):
    def test_every_sample_is_there_once_wherever_a_writer_stops(self) -> None:
        chance = random.Random(7)
        samples = [{"tokens": [n] * (1 + n % 5)} for n in range(100)]
        for _ in range(6):
            with SampleWriter(self.uri, "web", block_samples=7) as writer:
                start = writer.position or 0
                for n in range(start, min(100, start + chance.randrange(20))):
                    writer.add(samples[n], n + 1, str(n))
        with self.assertRaisesRegex(BatchWeaveError, "was given 6 samples, and [1-9][0-9]* are in"), SampleWriter(self.uri, "web", block_samples=7) as writer:
            writer.write(samples[:6])
        with SampleWriter(self.uri, "web", block_samples=7) as writer:
            left = 100 - (writer.position or 0)
            self.assertEqual(writer.write(samples), left)
        with SampleWriter(self.uri, "web", block_samples=7) as writer:
            self.assertEqual(writer.write(samples), 0)  # a job that is run again has nothing to do
        blocks = Blocks(f"{self.uri}/web")
        self.assertEqual(blocks.samples, [(str(n), [n] * (1 + n % 5)) for n in range(100)])
        self.assertTrue(blocks.info["closed"])

    def test_lanes_that_end_early_are_filled_by_others_and_the_last_closes_the_log(self) -> None:
        def write(lane: int, count: int) -> None:
            with SampleWriter(self.uri, "web", lane, 3, block_samples=2) as writer:
                for n in range(count):
                    writer.add({"tokens": [lane, n]}, n, f"{lane}:{n}")
                writer.end()

        write(0, 3)
        write(1, 0)
        self.assertFalse(open_namespace(f"{self.uri}/web").info()["closed"])
        write(2, 20)
        blocks = Blocks(f"{self.uri}/web")
        self.assertTrue(blocks.info["closed"])
        self.assertEqual(sorted(blocks.ids), sorted([f"0:{n}" for n in range(3)] + [f"2:{n}" for n in range(20)]))
        self.assertTrue(any(not table.samples for table in blocks.tables))

    def test_of_two_that_saw_the_same_epoch_one_opens_the_lane(self) -> None:
        first = SampleWriter(self.uri, "web", epoch=0)
        with self.assertRaises(BatchWeaveError) as caught:
            SampleWriter(self.uri, "web", epoch=0)
        self.assertEqual(caught.exception.code, "FENCED")
        first.close()

    def test_a_source_that_changed_is_refused(self) -> None:
        SampleWriter(self.uri, "web", print="one").close()
        with SampleWriter(self.uri, "web", print="one", block_samples=1) as writer:
            writer.add({"tokens": [1]}, 1)
            writer.add({"tokens": [2]}, 2)
        with self.assertRaises(BatchWeaveError) as caught:
            SampleWriter(self.uri, "web", print="two")
        self.assertIn("another state of its source", str(caught.exception))


class SampleTest(unittest.TestCase):
    def test_a_sample_comes_back_as_it_was(self) -> None:
        image = PreparedImage(at=1, tokens=4, height=2, width=2, data=bytes(range(48)), patch_values=12)
        sample = as_prepared(PreparedSample([5, 0, 0, 0, 0, 9], [1, 0, 0, 0, 0, 1], [image], next_token=3))
        back = decode_sample(encode_sample(sample))
        self.assertEqual((list(back.tokens), back.loss_mask, back.next_token), ([5, 0, 0, 0, 0, 9], b"\1\0\0\0\0\1", 3))
        self.assertEqual((back.images[0].at, bytes(back.images[0].data.data), back.images[0].patch_values), (1, bytes(range(48)), 12))

    def test_long_samples_in_pieces_lose_no_prediction_and_cut_no_image(self) -> None:
        image = PreparedImage(at=3, tokens=4, height=2, width=2, data=b"file")
        pieces = split_sample(as_prepared({"tokens": list(range(10)), "images": [image]}), 5)
        assert pieces is not None
        self.assertEqual([list(p.tokens) for p in pieces], [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]])
        self.assertEqual([p.next_token for p in pieces], [None, 8, None])  # what an image holds is never predicted
        self.assertIsNone(split_sample(as_prepared({"tokens": list(range(10)), "images": [image]}), 3))


class FaultTest(Case):
    def test_a_transform_that_throws_hangs_crashes_or_takes_all_memory_costs_its_own_sample(self) -> None:
        process = run_loader(self.folder, "bad", LOAD_COUNT="60")
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors.decode())
        blocks = Blocks(f"{self.uri}/bad")
        self.assertEqual(blocks.ids, [str(n) for n in range(60) if n not in (11, 23, 37, 41, 53)])
        reasons = {fault["id"]: fault["reason"] for fault in blocks.faults}
        self.assertEqual(
            reasons,
            {
                "11": "ValueError: sample eleven is bad",
                "23": "it took more than 1 s",
                "37": "its worker was killed by SIGSEGV",
                "41": f"out of memory: its transforms took more than {200 << 20} bytes",
                "53": "its worker was ended with status 7",
            },
        )

    def test_by_default_a_fault_stops_the_load_and_names_the_sample(self) -> None:
        source = Source("stop", stream(lambda: range(20), "n"), transforms=[_fails_at_five], lanes=1)
        with self.assertRaises(BatchWeaveError) as caught:
            load(source, self.uri, workers=0)
        self.assertIn("Source stop failed at transform 5: ValueError: five", str(caught.exception))

    def test_too_many_faults_are_a_broken_pipeline(self) -> None:
        source = Source("rotten", stream(lambda: range(1000), "n"), transforms=[_fails_often], lanes=1, on_fault="skip")
        with self.assertRaises(BatchWeaveError) as caught:
            load(source, self.uri, workers=0)
        self.assertEqual(caught.exception.code, "LIMIT")

    def test_a_transform_that_makes_no_tokens_is_the_pipelines_fault(self) -> None:
        source = Source("none", stream(lambda: range(3), "n"), lanes=1, on_fault="skip")
        with self.assertRaises(BatchWeaveError) as caught:
            load(source, self.uri, workers=0)
        self.assertIn("has no tokens after its transforms", str(caught.exception))


def _fails_at_five(n: int) -> dict[str, Any]:
    if n == 5:
        raise ValueError("five")
    return {"tokens": [n]}


def _fails_often(n: int) -> dict[str, Any]:
    if n % 4 == 0:
        raise ValueError("often")
    return {"tokens": [n]}


class FleetTest(Case):
    def test_loaders_killed_and_added_leave_the_log_that_one_alone_writes(self) -> None:
        alone = run_loader(self.folder + "/alone", "doubled", LOAD_COUNT="80")
        alone.communicate(timeout=120)
        expected = Blocks(f"{self.uri}/alone/doubled")
        self.assertEqual(len(expected.ids), 160)
        folder = self.folder + "/many"
        for kills in range(2):
            loaders = [run_loader(folder, "doubled", LOAD_COUNT="80", LOAD_DELAY="0.1") for _ in range(1 + kills % 2)]
            begun = self.steps(folder)
            while self.steps(folder) < begun + 3:
                time.sleep(0.1)
            for loader in loaders:
                loader.send_signal(signal.SIGKILL)
                loader.communicate()
        self.assertFalse(open_namespace(f"file://{folder}/doubled").info()["closed"])
        loaders = [run_loader(folder, "doubled", LOAD_COUNT="80") for _ in range(2)]
        for loader in loaders:
            _, errors = loader.communicate(timeout=120)
            self.assertEqual(loader.returncode, 0, errors.decode())
        found = Blocks(f"{self.uri}/many/doubled")
        self.assertEqual(found.samples, expected.samples)
        self.assertEqual(found.digests, expected.digests)
        self.assertEqual(len(set(found.ids)), 160)

    @staticmethod
    def steps(folder: str, source: str = "doubled") -> int:
        try:
            return int(open_namespace(f"file://{folder}/{source}").info()["steps"]["end"])
        except BatchWeaveError:
            return 0

    def test_a_loader_that_is_told_to_stop_frees_its_lanes_at_once(self) -> None:
        first = run_loader(self.folder, "plain", LOAD_COUNT="400", LOAD_DELAY="0.02")
        while self.steps(self.folder, "plain") < 2:
            self.assertIsNone(first.poll())
            time.sleep(0.1)
        first.send_signal(signal.SIGTERM)
        _, errors = first.communicate(timeout=240)
        self.assertEqual(first.returncode, 128 + signal.SIGTERM, errors.decode())
        _, lanes = open_source_log(self.uri, "plain", None).look(with_leavings=True)
        self.assertTrue(all(lane.is_free for lane in lanes), lanes)
        second = run_loader(self.folder, "plain", LOAD_COUNT="400")
        second.communicate(timeout=240)
        self.assertEqual(sorted(map(int, Blocks(f"{self.uri}/plain").ids)), list(range(400)))


class ClaimTest(unittest.TestCase):
    """Who takes and gives up which lane, on a clock of the test's own: the rules that loaders in TypeScript have."""

    def setUp(self) -> None:
        self.now = 0.0
        self.watch = LaneWatch()
        self.claims = LaneClaims(self.watch, lambda: self.now)

    def look(self, lanes: list[LaneState], end: int = 0, reached: int = 0) -> LogView:
        view = LogView(end, lanes, max(end, reached), 0, False)
        self.watch.observe(view, self.now)
        return view

    def test_processes_that_start_together_take_a_few_at_a_time(self) -> None:
        lanes = [LaneState(lane, 0, 0, 0, True, None) for lane in range(32)]
        self.look(lanes)
        taken = []
        for _ in range(4):
            chosen = self.claims.free(lanes, set(), 32)
            taken.append(len(chosen))
            self.claims.learn([True] * len(chosen))
        self.assertEqual(taken, [1, 2, 4, 8])
        self.claims.learn([True, False])  # another process wanted the same
        self.assertEqual(len(self.claims.free(lanes, set(), 32)), 1)

    def late(self, seconds: float, epoch: int, seq: int = 5) -> list[int]:
        """Another lane has written above this one, so it is wanted."""
        self.now = seconds
        lanes = [LaneState(0, epoch, 1, seq, False, None), LaneState(1, 1, 1, seq + 1, False, None)]
        self.look(lanes, end=2 * seq, reached=2 * seq + 2)
        return [lane.lane for lane in self.claims.standing(lanes, {1}, 4, False)]

    def test_a_lane_is_taken_over_only_after_it_stood_still_and_later_each_time(self) -> None:
        self.assertEqual([self.late(0, 1), self.late(2.9, 1), self.late(3.1, 1)], [[], [], [0]])
        self.assertEqual([self.late(4, 2), self.late(9.9, 2), self.late(10.1, 2)], [[], [], [0]])  # one opening without a block
        self.assertEqual([self.late(11, 3), self.late(22.9, 3), self.late(23.1, 3)], [[], [], [0]])

    def test_a_lane_whose_blocks_take_long_is_given_three_times_as_long(self) -> None:
        for seq in range(1, 6):
            self.late(10.0 * seq, 1, seq)
        self.assertEqual([self.late(79.0, 1), self.late(81.0, 1)], [[], [0]])

    def test_a_lane_that_no_constructor_waits_for_is_left_alone(self) -> None:
        lanes = [LaneState(0, 1, 1, 40, False, None), LaneState(1, 1, 1, 5, False, None)]
        for self.now in (0.0, 100.0):
            self.look(lanes, end=11)
        self.assertEqual(self.claims.standing(lanes, {1}, 4, False), [], "lane 0 is far ahead of lane 1")

    def test_who_holds_more_than_others_for_long_gives_up_the_lane_needed_last_and_leaves_it_to_them(self) -> None:
        lanes = [LaneState(lane, 1, 1, 5 - (lane == 2), False, None) for lane in range(3)]
        view = self.look(lanes, end=14)
        self.assertIsNone(self.claims.surplus(view, [0, 1, 2], True))
        self.now = SHY_S + 0.1
        self.assertEqual(self.claims.surplus(view, [0, 1, 2], True), 1)
        self.assertIsNone(self.claims.surplus(view, [0, 2], True), "not two at once")
        free = [LaneState(1, 2, 1, 5, True, None)]
        self.assertEqual(self.claims.free(free, {0, 2}, 4), [])
        self.now += SHY_S
        self.assertEqual(self.claims.free(free, {0, 2}, 4), free)


class HintTest(unittest.TestCase):
    def test_loaders_of_a_source_tell_each_other_what_they_hold_and_read_what_others_want(self) -> None:
        """Words are compared within one source; what constructors leave is read as they write it."""
        store = MemoryStore()
        first, second, other = FleetHints(store, "web"), FleetHints(store, "web"), FleetHints(store, "books")
        now = int(time.time() * 1_000)
        store.put(f"hint/want/web/17-{now}-0123456789ab", b"")
        store.put(f"hint/want/web/3-{now - 400_000}-0123456789ab", b"")
        store.put("hint/want/web/junk", b"")
        self.assertEqual([want.block for want in first.read(4)], [17])
        self.assertEqual(store.list("hint/want/")[0], [f"hint/want/web/17-{now}-0123456789ab"], "the rest is removed")
        other.read(9)
        second.read(1)
        self.assertFalse(second.is_above_share(1))
        first.read(4)
        self.assertTrue(first.is_above_share(4))
        self.assertFalse(first.is_above_share(2))
        self.assertEqual(len(store.list("hint/hold-of/web/")[0]), 2)
        first.leave()
        second.leave()
        self.assertEqual(store.list("hint/hold-of/web/")[0], [])


_PROCESSOR = ("transformers", "tokenizers", "PIL", "torchvision")


class ProcessorTest(Case):
    @unittest.skipIf(any(importlib.util.find_spec(name) is None for name in _PROCESSOR), f"one of {', '.join(_PROCESSOR)} is not installed")
    def test_the_example_with_a_processor_prepares_every_picture_but_the_broken_one(self) -> None:
        example = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples", "processor", "captions.py")
        command = [sys.executable, "-m", "batchweave", "load", f"{example}:captions", "--uri", self.uri, "--workers", "1", "--json"]
        run = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.path.dirname(HERE)}, capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(run.returncode, 0, run.stderr)
        blocks = Blocks(f"{self.uri}/captions")
        self.assertEqual(sorted(map(int, blocks.ids)), [n for n in range(48) if n != 7])
        self.assertEqual([fault["id"] for fault in blocks.faults], ["7"])
        patches = {patches for table in blocks.tables for entry in table.samples for patches in entry.images}
        self.assertEqual(patches, {8})


def everything(reader: Any, lanes: int, epochs: int = 1, shuffle: bool = False) -> list[list[Item]]:
    return [list(reader.read(LanePart(lane, lanes, "seed", epochs, shuffle), None)) for lane in range(lanes)]


class ReaderTest(Case):
    def check(self, make: Any, count: int, lanes: int = 3, shuffle: bool = False) -> None:
        """Every lane resumes at every position with what follows it, and the lanes together have everything once an epoch."""
        whole = everything(make(), lanes, 2, shuffle)
        ids = [item.id for lane in whole for item in lane]
        self.assertEqual(len(ids), 2 * count)
        self.assertEqual(len(set(ids)), 2 * count)
        for lane, items in enumerate(whole):
            for k in range(0, len(items), max(1, len(items) // 11)):
                rest = list(make().read(LanePart(lane, lanes, "seed", 2, shuffle), items[k].after))
                self.assertEqual([(i.id, i.value) for i in rest], [(i.id, i.value) for i in items[k + 1 :]], f"lane {lane} behind {k}")

    def test_a_stream(self) -> None:
        self.check(lambda: stream(lambda: range(50), "n"), 50)
        self.check(lambda: stream(lambda lane, lanes: range(lane, 50, lanes), "n"), 50)

    def test_units_fewer_and_more_than_lanes(self) -> None:
        for units in (1, 2, 3, 7):
            self.check(lambda units=units: _Letters(units), units * 9, shuffle=True)

    def test_webdataset_archives(self) -> None:
        for shard in range(2):
            with tarfile.open(f"{self.folder}/{shard}.tar", "w") as archive:
                for n in range(20):
                    for ending, data in (("txt", b"text %d" % n), ("cls", b"%d" % n)):
                        info = tarfile.TarInfo(f"{shard}-{n}.{ending}")
                        info.size = len(data)
                        archive.addfile(info, BytesIO(data))
        self.check(lambda: webdataset(f"{self.folder}/*.tar"), 40)
        value = everything(webdataset(f"{self.folder}/*.tar"), 1)[0][3].value
        self.assertEqual(value, {"__key__": "0-3", "txt": b"text 3", "cls": b"3"})

    def test_an_archive_that_is_cut_off_costs_its_rest_and_is_named(self) -> None:
        self.test_webdataset_archives()
        with open(f"{self.folder}/0.tar", "r+b") as file:
            file.truncate(9_000)
        items = everything(webdataset(f"{self.folder}/*.tar"), 1)[0]
        broken = [item for item in items if item.error]
        self.assertEqual([(item.stage, item.id.split(" at ")[0]) for item in broken], [("shard", "0.tar")])
        self.assertEqual(len([item for item in items if item.id.startswith("1.tar")]), 20)

    def test_parquet_through_pyarrow(self) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            self.skipTest(f"pyarrow is not installed ({error})")
        for n in range(2):
            rows = list(range(40 * n, 40 * n + 40))
            parquet.write_table(pa.table({"n": rows, "text": [f"t{r}" for r in rows]}), f"{self.folder}/{n}.parquet", row_group_size=15)
        self.check(lambda: arrow(f"{self.folder}/*.parquet"), 80)
        values = [item.value for lane in everything(arrow(f"{self.folder}/*.parquet", columns=["n"]), 3) for item in lane]
        self.assertEqual(sorted(value["n"] for value in values), list(range(80)))

    def test_hugging_face_datasets(self) -> None:
        try:
            import datasets
        except ImportError as error:
            self.skipTest(f"datasets is not installed ({error})")
        rows = datasets.Dataset.from_dict({"n": list(range(600))})
        self.check(lambda: huggingface(rows), 600, lanes=2, shuffle=True)
        streaming = rows.to_iterable_dataset(num_shards=4)
        self.check(lambda: huggingface(lambda: rows.to_iterable_dataset(num_shards=4)), 600, lanes=2)
        self.check(lambda: huggingface(lambda: rows.to_iterable_dataset(num_shards=1)), 600, lanes=3)
        self.assertEqual(everything(huggingface(streaming), 1)[0][5].value, {"n": 5})


class _Letters(UnitReader):
    def __init__(self, count: int) -> None:
        self._count = count

    def units(self) -> Any:
        from batchweave.load import Unit

        return [Unit(chr(97 + i), "9", i) for i in range(self._count)]

    def samples(self, unit: Any, passed: int) -> Iterator[tuple[str, Any]]:
        for n in range(passed, 9):
            yield f"{unit.name}{n}", n


if __name__ == "__main__":
    unittest.main()
