"""Property: paths that few runs take do what they say: a mesh that torch describes, a share without rows, an opening that another process carried, a
full buffer, sixty-four groups, slices that cannot be decoded.

Method: each path is taken on purpose, in memory, with values on both sides of every choice.
"""
from __future__ import annotations

import contextlib
import json
import pickle
import struct
import threading
import unittest
from importlib.util import find_spec
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError, open_namespace
from batchweave.consumer.consumer import start_position
from batchweave.consumer.epochs import EpochOrder
from batchweave.consumer.mesh import Group, place_from_device_mesh, resolve_mesh
from batchweave.consumer.projection import IterationPlan, Projection
from batchweave.consumer.reader import Slice
from batchweave.consumer.share import Share, share_of
from batchweave.consumer.waiting import _hint
from batchweave.flow import threads
from batchweave.format.batch import SliceEntry, decode_slice, lineage_block
from batchweave.format.checksum import crc32
from batchweave.format.lineage import _decode_columns
from batchweave.format.keys import parse_intent_key
from batchweave.format.namespace_spec import _decode_ranges
from batchweave.format.padding import slice_is_padding
from batchweave.format.producer_state import LastBatch, ProducerState
from batchweave.format.seal import SEAL_BYTES
from batchweave.format import stored_json
from batchweave.format.stored_json import dump_json, seal_json
from batchweave.format.tensors import Tensor, decode_safetensors, encode_safetensors
from batchweave.log import log as log_module
from batchweave.log.stage import GROUPS_MAX
from batchweave.producer.publisher import Publisher
from hooked_store import HookedStore
from small_world import World, Writer


UUID = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5"


def code_of(test: unittest.TestCase, call: Any) -> str:
    with test.assertRaises(BatchWeaveError) as caught:
        call()
    return f"{caught.exception.code}: {caught.exception.message}"


def plain(entry: Any, size: int) -> bytes:
    text = json.dumps({"t": entry}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


class DeviceMesh:
    """As much of torch's as is asked for: named dimensions, slowest first."""

    def __init__(self, rank: int, **sizes: int) -> None:
        self.mesh_dim_names = tuple(sizes)
        self._sizes = list(sizes.values())
        self._rank = rank

    def size(self, dim: int) -> int:
        return self._sizes[dim]

    def get_local_rank(self, name: str) -> int:
        rest = self._rank
        for dim in reversed(range(len(self._sizes))):
            rest, at = divmod(rest, self._sizes[dim])
            if self.mesh_dim_names[dim] == name:
                return at
        raise KeyError(name)

    def get_rank(self) -> int:
        return self._rank


class Meshes(unittest.TestCase):
    def test_dimensions_of_a_device_mesh_that_divide_rows_are_one(self) -> None:
        mesh = DeviceMesh(29, pp=2, dp_replicate=2, dp_shard=2, cp=2, tp=2)
        place = place_from_device_mesh(mesh)
        # 29 is 1 1 1 0 1: the second half of pp, the last of four dp ranks, the first chunk.
        self.assertEqual(place[:6], (29, 32, 4, 3, 2, 0))
        self.assertEqual(place.coordinates, {"pp": 1, "dp": 3, "cp": 0, "tp": 1})
        self.assertEqual(place.text, "pp 2, dp_replicate 2, dp_shard 2, cp 2, tp 2")
        self.assertEqual(place_from_device_mesh(DeviceMesh(19, pp=2, dp_replicate=2, dp_shard=2, cp=2, tp=2))[:6], (19, 32, 4, 0, 2, 1))
        for name in ("dp", "data", "fsdp", "hsdp", "ep"):
            self.assertEqual(place_from_device_mesh(DeviceMesh(1, **{name: 3}))[:6], (1, 3, 3, 1, 1, 0), name)
        self.assertEqual(place_from_device_mesh(DeviceMesh(0, dp=1, odd=1)).d, 0)
        self.assertIn("'odd'", code_of(self, lambda: place_from_device_mesh(DeviceMesh(0, dp=1, odd=2))))
        self.assertIn("no mesh_dim_names", code_of(self, lambda: place_from_device_mesh(DeviceMesh(0))))
        self.assertEqual(resolve_mesh(mesh, 29, {}).rank, 29)
        self.assertEqual(resolve_mesh(mesh, None, {}).rank, 29)
        self.assertIn("Leave rank out", code_of(self, lambda: resolve_mesh(mesh, 28, {})))

    def test_torchs_process_group_counts_before_launchers_and_must_not_be_contradicted(self) -> None:
        self.assertEqual(resolve_mesh(None, None, {}, Group(2, 4))[:4], (2, 4, 4, 2))
        self.assertEqual(resolve_mesh({"tp": 2}, None, {"RANK": "2", "WORLD_SIZE": "4"}, Group(2, 4))[:4], (2, 4, 2, 1))
        # srun starts torchrun: its own numbers are of launchers, not of ranks.
        self.assertEqual(resolve_mesh(None, None, {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Group(2, 4)).rank, 2)
        for environment in ({"RANK": "1"}, {"BATCHWEAVE_RANK": "3"}, {"WORLD_SIZE": "8"}, {"BATCHWEAVE_WORLD_SIZE": "2"}):
            self.assertIn("One of them is wrong", code_of(self, lambda: resolve_mesh(None, None, environment, Group(2, 4))), environment)
        # What is given whole counts, whatever torch says.
        self.assertEqual(resolve_mesh({"dp": 2}, 1, {}, Group(2, 4))[:2], (1, 2))


class Shares(unittest.TestCase):
    def slice(self, row: int, values: bytes, metadata: dict[str, str] | None = None) -> Slice:
        data = encode_safetensors({"ids": Tensor("U8", (len(values),), values)}, metadata or {})
        return Slice(0, row, 0, data)

    def test_what_no_row_is_left_of_still_has_its_fields(self) -> None:
        if find_spec("numpy") is None:
            self.skipTest("numpy is not installed")
        padding = Slice(0, 0, 0, b"")
        for rows, left, shape in ([padding, padding], [], (0, 2)), ([self.slice(0, b"ab"), padding], [0], (1, 2)):
            rows = [self.slice(0, b"ab", {"batchweave.padding": ""}), padding] if not left else rows
            share = share_of(IterationPlan(3, 6, 8, 3, 3, 2, []), rows, UUID, is_ragged=True).decode("numpy")
            self.assertEqual(("ids" in share, "none" in share), (True, False), "before anything is joined")
            self.assertEqual((share.rows, share["ids"].shape, share.keys(), len(share.per_row("ids"))), (len(left), shape, ["ids"], len(left)))
            self.assertEqual((share.get("none"), share.get("none", 7), "ids" in share), (None, 7, True))
            self.assertEqual(share.valid, [True] * len(left))
        whole = share_of(IterationPlan(3, 6, 8, 3, 3, 2, [], 1), [self.slice(0, b"ab"), self.slice(1, b"cd")], UUID, is_ragged=True)
        self.assertEqual([s.row for s in whole.slices], [0], "what fills up the last iteration is no row")

    def test_padding_is_nothing_or_what_says_so_and_never_garbage(self) -> None:
        padded = self.slice(0, b"ab", {"batchweave.padding": "1"}).bytes
        named = self.slice(0, b"batchweave.padding").bytes
        cut = (len(padded)).to_bytes(8, "little") + b"batchweave.padding"
        for data, expected in ((b"", True), (padded, True), (named, False), (b"text", False), (cut, False), (b"\x12" + bytes(7) + b"batchweave.padding", False)):
            self.assertEqual(slice_is_padding(data), expected, data)
        rows = [self.slice(0, b"ab"), Slice(0, 1, 0, padded), self.slice(2, b"cd"), self.slice(3, b"ef")]
        share = Share(0, rows, 4, UUID, 0, 4, padding=1)
        self.assertEqual(share.valid, [True, False, True, False])

    def test_a_share_travels_whole_decoded_or_not(self) -> None:
        raw = Share(1, [Slice(0, 0, 0, memoryview(b"xaby")[1:3]), Slice(0, 1, 0, b"cd")], 2, UUID, 2, 4)
        raw.value = "made"
        for share in (raw, raw.decode("bytes")):
            there = pickle.loads(pickle.dumps(share))
            self.assertEqual([s.bytes for s in there.slices], [b"ab", b"cd"])
            self.assertEqual((there.nbytes, there.rows, there.value, there.cursor, there.next), (4, 2, "made", raw.cursor, raw.next))
        self.assertEqual(pickle.loads(pickle.dumps(raw)).data, [b"ab", b"cd"])
        own = Share(1, [Slice(0, 0, 0, b"ab"), Slice(0, 1, 0, b"cd")], 2, UUID, 2, 4).decode(lambda data: data[:1])
        there = pickle.loads(pickle.dumps(own))
        self.assertEqual((there.data, [s.bytes for s in there.slices], there.nbytes), ([b"a", b"c"], [None, None], 4))
        if find_spec("numpy") is None:
            self.skipTest("numpy is not installed")
        joined = Share(1, [self.slice(0, b"ab"), self.slice(1, b"cd")], 2, UUID, 2, 4).finish("numpy", "here")
        there = pickle.loads(pickle.dumps(joined))
        self.assertEqual([held["ids"].tolist() for held in there.data], [[97, 98], [99, 100]])


class Formats(unittest.TestCase):
    def test_a_slice_is_given_out_only_as_its_entry_says(self) -> None:
        def entry(data: bytes, encoding: int, raw: int, length: int | None = None, owner: int = -1) -> SliceEntry:
            return SliceEntry(0, len(data) if length is None else length, crc32(data), raw, encoding, owner)

        self.assertEqual(bytes(decode_slice(b"abc", "k", entry(b"abc", 0, 3))), b"abc")
        sealed = b"abc" + bytes(SEAL_BYTES)
        self.assertEqual(bytes(decode_slice(sealed, "k", entry(sealed, 2, 3))), b"abc")
        for data, encoding, raw, length, expected in (
            (b"abc", 0, 4, None, "CORRUPT"),
            (b"abc", 0, 3, 4, "CORRUPT"),
            (sealed, 2, 4, None, "CORRUPT"),
            (b"abc", 3, 3, None, "UNSUPPORTED_ENCODING"),
        ):
            self.assertIn(expected, code_of(self, lambda: decode_slice(data, "k", entry(data, encoding, raw, length))))
        self.assertIn("checksum", code_of(self, lambda: decode_slice(b"abd", "k", entry(b"abc", 0, 3))))

    def test_zstd_of_one_frame_or_more_and_never_more_than_was_said(self) -> None:
        try:
            import zstandard
        except ImportError:
            self.skipTest("the package zstandard is not installed")
        one, two = (zstandard.ZstdCompressor().compress(text) for text in (b"a" * 1_000, b"b" * 500))

        def decode(data: bytes, raw: int) -> bytes:
            return bytes(decode_slice(data, "k", SliceEntry(0, len(data), crc32(data), raw, 1, -1)))

        self.assertEqual(decode(one, 1_000), b"a" * 1_000)
        self.assertEqual(decode(one + two, 1_500), b"a" * 1_000 + b"b" * 500)
        for data, raw in ((one, 999), (one, 1_001), (one + two, 1_000), (one[:-3], 1_000), (b"no frame", 8)):
            self.assertIn("CORRUPT", code_of(self, lambda: decode(data, raw)), (len(data), raw))

    def test_lineage_is_where_the_metadata_says(self) -> None:
        self.assertIsNone(lineage_block({}, "k"))
        self.assertEqual(lineage_block({"lineage": {"offset": 8, "length": 9, "crc": 10}}, "k"), (8, 9, 10))

    def test_a_column_of_lineage_has_an_entry_for_each_sample(self) -> None:
        whole = {"sources": ["a"], "source": [0, 0], "id": ["1", "2"], "tokens": [3, 4]}
        self.assertEqual([s["tokens"] for s in _decode_columns(whole, 2, "k")], [3, 4])
        for column in "source", "id", "tokens", "row":
            for items in [0], [0, 0, 0]:
                self.assertIn("CORRUPT", code_of(self, lambda: _decode_columns({**whole, column: items}, 2, "k")), (column, items))

    def test_an_object_is_sealed_up_to_the_very_size_that_readers_take(self) -> None:
        size = len(seal_json("namespace", UUID, {"a": "x" * 100}))
        for most, is_right in (size, True), (size - 1, False):
            with mock.patch.object(stored_json, "STORED_JSON_BYTES_MAX", most):
                with contextlib.nullcontext() if is_right else self.assertRaisesRegex(BatchWeaveError, "larger than"):
                    self.assertEqual(len(seal_json("namespace", UUID, {"a": "x" * 100})), size)

    def test_sizes_of_a_tensor_are_whole_and_no_truth_values(self) -> None:
        for shape in ([True], [1.5], [-1], ["1"], [None]):
            entry = {"dtype": "U8", "shape": shape, "data_offsets": [0, 1]}
            self.assertRaises(BatchWeaveError, lambda: decode_safetensors(plain(entry, 1)))
        for offsets in ([False, 1], [0.5, 1], [0, 1.5], [0], [0, 1, 1], [1, 0]):
            entry = {"dtype": "U8", "shape": [1], "data_offsets": offsets}
            self.assertRaises(BatchWeaveError, lambda: decode_safetensors(plain(entry, 1)))

    def test_the_epoch_that_made_the_last_batch(self) -> None:
        last = LastBatch(1, 0, 0, 9, 9, 2, "0123456789ab")
        for found, expected in (None, 0), (last, 2), ((3, "v0u1t2s3r4q5", 0, 77), 4):
            self.assertEqual(ProducerState(5, "0123456789ab", 3, 1, found).made_by, expected)

    def test_half_a_character_is_escaped(self) -> None:
        self.assertEqual(dump_json({"a": "\ud800", "b": 1}), b'{"a":"\\ud800","b":1}')
        self.assertEqual(dump_json({"a": "é"}), '{"a":"é"}'.encode())
        for odd in ("é", "\ud800"):
            with self.assertRaises(ValueError):
                dump_json({"a": odd, "b": float("nan")})

    def test_ranges_of_a_fork_are_whole_numbers(self) -> None:
        for ranges, is_right in ([[0, 2, 1]], True), ([[0, 2, 1.5]], False), ([["0", 2, 1]], False), ([[0, -2, 1]], False), ([[0, 2]], False):
            with contextlib.nullcontext() if is_right else self.assertRaises(BatchWeaveError):
                self.assertEqual(_decode_ranges(ranges, "namespace.json"), ranges if not is_right else [(0, 2, 1)])

    def test_chunks_that_cannot_be_divided_say_what_can(self) -> None:
        for layout, fits in ("contiguous", "1, 2, 4 or 8"), ("zigzag", "1, 2 or 4"):
            said = code_of(self, lambda: Projection(1, 8, 1, 0, 3, 0, layout=layout))
            self.assertIn(f"cp can be {fits}.", said)


class Logs(unittest.TestCase):
    def test_an_opening_that_loses_twice_is_carried_by_who_wins(self) -> None:
        world = World()
        Writer(world.log, "other").write(1)
        carrier = Writer(world.open(), "carrier").open()
        store = HookedStore(world.store)

        def lose(key: str, body: Any, call: Any) -> str:
            # Somebody else is always first; once the intent is there, it is carried.
            carrier.write(1)
            return call()

        store.around_create = lose
        log = world.open(store)
        published: list[str] = []

        def carry(key: str) -> None:
            if parse_intent_key(world.log.spec.uuid, key) is not None or "-open-" in key:
                published.append(key)
                with open_namespace("memory:test", store=world.store).producer("helper") as helper:
                    helper.append([b"x"])

        store.after_put = carry
        opening = log.open_producer("late")
        self.assertEqual(len(published), 1)
        self.assertEqual((opening.holder.epoch, opening.seq), (1, 0))
        self.assertEqual(world.log.head.jump().producers["late"].incarnation, opening.holder.incarnation)

    def test_an_opening_that_nobody_lets_in_is_contended(self) -> None:
        world = World()
        rival = Writer(world.open(), "rival").open()
        store = HookedStore(world.store)

        def lose(key: str, body: Any, call: Any) -> str:
            rival.write(1)
            return call()

        store.around_create = lose
        clock = [0.0]
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            clock[0] += seconds

        time = mock.Mock(monotonic=lambda: clock[0], time=lambda: 1_700_000_000.0, sleep=sleep)
        with mock.patch.object(log_module, "time", time), mock.patch.object(log_module, "_OPEN_ROUNDS_MAX", 9):
            self.assertIn("CONTENDED", code_of(self, lambda: world.open(store).open_producer("late")))
        self.assertLessEqual(max(waits), 12.0)

    def test_the_group_that_has_no_live_checkpoint_makes_room_for_another_and_no_other_does(self) -> None:
        world = World()
        Writer(world.log, "p").write(2)
        namespace = open_namespace("memory:test", store=world.store)
        cursor = next(namespace.consumer({"dp": 1}, 0, environment={})).cursor
        for i in range(GROUPS_MAX):
            namespace.checkpoint("c", cursor, group=f"g{i}")
        self.assertIn("LIMIT", code_of(self, lambda: namespace.checkpoint("c", cursor, group="more")))
        namespace.checkpoint("d", cursor, group="g5")
        for id in ("c", "d"):
            namespace.release(id, group="g5")
        namespace.checkpoint("c", cursor, group="more")
        groups = set(world.log.head.jump().checkpoints)
        self.assertEqual((len(groups), "g5" in groups, "more" in groups), (GROUPS_MAX, False, True))

    def test_a_log_with_batches_that_wait_is_closed_only_by_who_drops_them(self) -> None:
        world = World(lanes=2)
        Writer(world.log, "lane-1").write(1)
        self.assertEqual(len(world.log.head.jump().waiting), 1)
        self.assertIn("wait", code_of(self, world.log.close))
        self.assertTrue(world.log.close(drop_waiting=True).closed)

    def test_where_a_rank_starts(self) -> None:
        world = World()
        Writer(world.log, "p").write(3)
        manifest = world.log.head.jump()
        self.assertEqual(start_position("earliest", world.log, manifest), (0, 0))
        self.assertEqual(start_position("latest", world.log, manifest), (3, 0))

    def test_a_rank_that_waits_for_a_lane_says_whose_it_is(self) -> None:
        world = World(lanes=2)
        manifest = world.log.head.jump()
        self.assertIn("close the log", _hint(manifest, None))
        self.assertIn("has never committed", _hint(manifest, "lane-1"))
        self.assertNotIn("wait behind it", _hint(manifest, "lane-1"))


class Readers(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        Writer(self.world.log, "p").write(12)

    def consumer(self, **settings: Any) -> Any:
        found = open_namespace("memory:test", store=self.world.store).consumer({"dp": 1}, 0, environment={}, **settings)
        self.addCleanup(found.close)
        return found

    def test_no_more_iterations_are_read_ahead_than_were_asked_for(self) -> None:
        for most in 1, 3:
            consumer = self.consumer(prefetch_iterations_max=most)
            next(consumer)
            prefetch = consumer._prefetch
            while len(prefetch._slots) < most:
                threading.Event().wait(0.001)
            for _ in range(6):
                threading.Event().wait(0.02)  # in which one more could come
                with prefetch.changed:
                    self.assertLessEqual(len(prefetch._slots), most)
                next(consumer)

    def test_a_closed_reader_gives_nothing_and_goes_on_from_its_cursor_elsewhere(self) -> None:
        consumer = self.consumer()
        next(consumer)
        consumer.close()
        with self.assertRaises(StopIteration):
            next(consumer)
        self.assertIsNone(consumer._prefetch)
        self.assertEqual(next(self.consumer(start=consumer.cursor)).iteration, 1)

    def test_a_worker_of_several_gets_its_own_iterations(self) -> None:
        for offset in 0, 2:
            consumer = self.consumer(stride=3, offset=offset)
            self.assertEqual([next(consumer).iteration for _ in range(3)], [offset, offset + 3, offset + 6])

    def test_windows_change_places_and_the_rows_that_fill_none_stay_last(self) -> None:
        for seed in 2, 3, 5:
            order = EpochOrder(UUID, 100, 18, seed, 4)
            rows = [order.row(at) - 100 for at in range(18)]
            self.assertEqual(sorted(rows), list(range(18)))
            windows = [sorted(rows[at : at + 4]) for at in range(0, 16, 4)]
            self.assertEqual(sorted(windows), [list(range(at, at + 4)) for at in range(0, 16, 4)])
            self.assertEqual(sorted(rows[16:]), [16, 17])
            self.assertNotEqual(windows, sorted(windows), seed)
        self.assertEqual([EpochOrder(UUID, 100, 18).row(at) for at in (0, 17, 18)], [100, 117, 100])

    def test_threads_end_with_the_process(self) -> None:
        consumer = self.consumer()
        next(consumer)
        producer = open_namespace("memory:test", store=self.world.store).producer("q")
        self.assertIn(producer, list(threads._owners))
        self.assertIn(consumer._prefetch, list(threads._owners))
        producer.close()


class Producers(unittest.TestCase):
    def test_a_full_buffer_takes_no_more_and_hurries(self) -> None:
        for settings in ({"buffered_batches_max": 2}, {"buffered_bytes_max": 8}):
            world = World()
            with mock.patch.object(Publisher, "run", lambda self: None):
                producer = open_namespace("memory:test", store=world.store).producer("p", **settings)
            producer.append([b"1234"])
            producer.append([b"5678"])
            self.assertFalse(producer._publisher.is_urgent)
            third = threading.Thread(target=lambda: producer.append([b"9"]), daemon=True)
            third.start()
            with producer._changed:
                self.assertTrue(producer._changed.wait(120), "whoever publishes is told")
            self.assertTrue(producer._publisher.is_urgent)
            self.assertEqual(producer.pending_batches, 2)
            with producer._changed:
                producer._buffered_bytes -= producer._entries.pop(0).bytes
                producer._changed.notify_all()
            third.join(60)
            self.assertEqual((third.is_alive(), sorted(producer._entries)), (False, [1, 2]))
            producer._stop()


if __name__ == "__main__":
    unittest.main()
