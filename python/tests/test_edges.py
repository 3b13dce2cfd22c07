"""Property: small rules of the format and of a producer hold at their very edges: which batches share an intent, how many bytes an element of a tensor
takes, which slices are sealed, what a flush waits for, what a carrier tidies up.

Method: values on both sides of each edge, and what was written read back; producers on a store in memory.
"""
from __future__ import annotations

import contextlib
import dataclasses
import json
import struct
import threading
import time
import unittest
import zlib
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError, open_namespace
from batchweave.cli import main as cli
from batchweave.format.checksum import crc32
from batchweave.format.descriptor import Descriptor, Extent
from batchweave.format.keys import INTENT_PREFIX, batch_intents, batch_key, parse_intent_key
from batchweave.format.lineage import decode_lineage, encode_lineage
from batchweave.format.namespace_spec import decode_namespace
from batchweave.format.sample_block import SampleEntry, check_sample
from batchweave.format.seal import SEAL_BYTES, stride_for
from batchweave.format.stored_json import seal_json
from batchweave.format.tensors import decode_safetensors, require_package
from batchweave.log.log import Log
from batchweave.producer.publisher import Publisher
from hooked_store import HookedStore
from small_world import World, Writer

UUID = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5"
BYTES = {1: "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0", 2: "U16 I16 F16 BF16", 4: "U32 I32 F32", 8: "U64 I64 F64 C64"}


def batch(seq: int, base: int = 3, attempt: int = 0, epoch: int = 1, incarnation: str = "0123456789ab") -> Descriptor:
    return Descriptor("p", epoch, incarnation, seq, base, attempt, (Extent(2, 200, 100, 7 + seq),))


def tensors(header: Any, body: int) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body)


class Format(unittest.TestCase):
    def test_batches_share_an_intent_only_if_each_follows_the_one_before_and_all_are_read_back(self) -> None:
        for name, batches, count in (
            ("consecutive", [batch(0), batch(1), batch(2)], 1),
            ("a gap", [batch(0), batch(2)], 2),
            ("another base", [batch(0), batch(1, base=4)], 2),
            ("another attempt", [batch(0), batch(1, attempt=1)], 2),
            ("another epoch", [batch(0), batch(1, epoch=2)], 2),
            ("another incarnation", [batch(0), batch(1, incarnation="ba9876543210")], 2),
        ):
            keys, all_named = batch_intents(UUID, batches)
            found = [d for key in keys for d in parse_intent_key(UUID, key) or []]
            self.assertEqual((len(keys), all_named, found), (count, True, batches), name)

    def test_a_batch_with_more_extents_than_a_name_holds_is_left_to_its_owner(self) -> None:
        large = batch(1)._replace(extents=tuple(Extent(1, 9_000_000_000 + i, 8_000_000_000, 4_000_000_000) for i in range(60)))
        keys, all_named = batch_intents(UUID, [batch(0), large, batch(2)])
        found = [d for key in keys for d in parse_intent_key(UUID, key) or []]
        self.assertEqual((all_named, found), (False, [batch(0), batch(2)]))
        self.assertEqual(batch_intents(UUID, [large]), ([], False))

    def test_lanes_are_those_of_an_order_by_lanes_and_a_field_of_the_future_elsewhere(self) -> None:
        for order, lanes in (({"kind": "lanes", "lanes": 4}, 4), ({"kind": "commit"}, None), ({"kind": "commit", "lanes": 4}, None)):
            fields = {"grid": {"rows": 2, "chunks": 1}, "order": order, "created": 1}
            self.assertEqual(decode_namespace(seal_json("namespace", UUID, fields), "namespace.json").lanes, lanes)

    def test_producers_are_active_for_a_thousand_versions_unless_they_left_and_there_is_always_one(self) -> None:
        world = World()
        self.assertEqual(world.log.head.jump().active_producers, 1, "nobody yet")
        for id, expected in (("a", 1), ("b", 2), ("c", 3)):
            Writer(world.log, id).write(1)
            self.assertEqual(world.log.head.jump().active_producers, expected)
        newest = world.log.head.jump()
        since_a = newest.producers["a"].at
        for version, expected in ((since_a + 1_024, 3), (since_a + 1_025, 2), (since_a + 5_000, 1)):
            self.assertEqual(dataclasses.replace(newest, version=version).active_producers, expected, version)

    def test_every_type_has_its_bytes_and_not_one_more(self) -> None:
        for size, names in BYTES.items():
            for dtype in names.split():
                entry = {"t": {"dtype": dtype, "shape": [3], "data_offsets": [0, 3 * size]}}
                found, _ = decode_safetensors(tensors(entry, 3 * size))
                self.assertEqual(len(found["t"].data), 3 * size, dtype)
                entry["t"]["data_offsets"] = [0, 3 * size + 3]
                with self.assertRaises(BatchWeaveError):
                    decode_safetensors(tensors(entry, 3 * size + 3))

    def test_tensors_lie_side_by_side_behind_an_object(self) -> None:
        def two(begin: int) -> dict[str, Any]:
            return {
                "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                "b": {"dtype": "U8", "shape": [2], "data_offsets": [begin, begin + 2]},
            }

        self.assertEqual(set(decode_safetensors(tensors(two(2), 4))[0]), {"a", "b"})
        for header, body in ((two(3), 5), (two(1), 3), (b" {}", 0), (two(2), 5)):
            with self.assertRaises(BatchWeaveError):
                decode_safetensors(tensors(header, body))

    def test_slices_are_sealed_from_four_kilobytes_to_what_an_extent_holds(self) -> None:
        for length, most, expected in (
            (4_096, 1 << 20, 4_096 + SEAL_BYTES),
            (4_095, 1 << 20, None),
            (5_000, 5_000 + SEAL_BYTES, 5_000 + SEAL_BYTES),
            (5_000, 4_999 + SEAL_BYTES, None),
        ):
            self.assertEqual(stride_for([bytes(length)] * 2, most), expected, (length, most))
        self.assertIsNone(stride_for([], 1 << 20))
        self.assertEqual(stride_for([bytes(5_000)], 1 << 20), 5_000 + SEAL_BYTES)
        self.assertIsNone(stride_for([bytes(5_000), bytes(5_001)], 1 << 20))

    def test_lineage_has_a_column_of_rows_only_if_a_sample_has_one(self) -> None:
        for more, has_rows in (({}, False), ({"row": 0}, True)):
            samples = [{"source": "a", "id": "1", "tokens": 2}, {"source": "a", "id": "2", "tokens": 2, **more}]
            block = encode_lineage(samples)
            self.assertEqual(b'"row"' in zlib.decompress(block[16:]), has_rows)
            self.assertEqual(decode_lineage(block, "here"), samples)

    def test_a_sample_is_given_out_only_as_it_was_packed(self) -> None:
        entry = SampleEntry("a", 1, 0, 3, crc32(b"abc"), (), {})
        self.assertEqual(check_sample(b"abc", entry, "here"), b"abc")
        for wrong in (b"abd", b"ab", b"abcd"):
            with self.assertRaises(BatchWeaveError) as caught:
                check_sample(wrong, entry, "here")
            self.assertEqual(caught.exception.code, "CORRUPT")

    def test_a_number_that_is_none_says_what_is_allowed(self) -> None:
        for given, least in (("--iterations=-3", 1), ("--iterations=0", 1), ("--rank=x", 0)):
            with self.assertRaisesRegex(BatchWeaveError, f"it must be a whole number of at least {least}, such as 8, not '"):
                cli._parser().parse_args(["consume", "memory:", *given.split("=")])
        with self.assertRaisesRegex(BatchWeaveError, "--workers: it must be a whole number of at least 0"):
            cli._parser().parse_args(["load", "a.py:b", "--workers", "-1"])

    def test_a_message_that_holds_another_sentence_has_one_full_stop(self) -> None:
        self.assertEqual(BatchWeaveError("LIMIT", "It failed: there is no room.. Try again..").message, "It failed: there is no room. Try again.")
        for kept in ("Wait... Try a/.. and 0..3.", "Read ../x, not .. here: a/.."):
            self.assertEqual(BatchWeaveError("LIMIT", kept).message, kept)

    def test_a_package_is_missing_only_if_it_is_not_there(self) -> None:
        require_package("json")
        with self.assertRaises(BatchWeaveError) as caught:
            require_package("no_such_package_at_all")
        self.assertEqual(caught.exception.code, "MISSING_PACKAGE")


class Readers(unittest.TestCase):
    def test_a_rank_that_waited_in_vain_says_for_how_long_nothing_came(self) -> None:
        world = World()
        Writer(world.log, "p").write(1)
        consumer = open_namespace("memory:test", store=world.store).consumer({"dp": 1}, 0, environment={}, wait_timeout=0.05)
        next(consumer)
        with self.assertRaises(BatchWeaveError) as caught:
            next(consumer)
        self.assertRegex(caught.exception.message, r"for step 1 .*nothing was committed for (\d\.\d|\d\d?) s\.")
        consumer.close()


class Producers(unittest.TestCase):
    def test_a_flush_waits_for_what_was_accepted_before_it_and_for_nothing_later(self) -> None:
        world = World()
        store = HookedStore(world.store)
        may_upload = threading.Event()
        store.after_put = lambda key: may_upload.wait(60) and None if "p-1-1-" in key.rpartition("/")[2] else None
        producer = open_namespace("memory:test", store=store).producer("p")
        producer.append([b"first"])
        flushed = threading.Thread(target=producer.flush)
        flushed.start()
        producer.append([b"second"])  # its upload hangs until the flush is over
        flushed.join(60)
        self.assertFalse(flushed.is_alive())
        may_upload.set()
        producer.close()

    def test_a_follower_wakes_for_a_batch_that_is_not_announced_yet_and_hurries_only_if_somebody_waits(self) -> None:
        world = World()
        Writer(world.log, "other").write(1)
        with mock.patch.object(Publisher, "run", lambda self: None):
            producer = open_namespace("memory:test", store=world.store).producer("p")
        publisher, wakes = producer._publisher, []

        def append() -> Any:
            ticket = producer.append([b"x"])
            while any(entry.descriptor is None for entry in list(producer._entries.values())):
                time.sleep(0.001)
            return ticket

        append()
        with mock.patch.object(publisher, "_rest", lambda _, wake: wakes.append(wake)):
            while not wakes:
                publisher._follow()
        self.assertFalse(wakes[0](), "nothing is new")
        ticket = append()
        self.assertTrue(wakes[0]())
        self.assertFalse(publisher._outbox.is_awaited())
        with self.assertRaises(BatchWeaveError):
            ticket.wait(0.01)
        self.assertTrue(publisher._outbox.is_awaited())
        producer._stop()

    def test_a_resume_point_in_an_object_that_is_too_small_for_one_is_missing(self) -> None:
        world = World()
        Writer(world.log, "p").write(1)
        key = batch_key(world.log.head.jump().tail.batches[0], 0)
        for start, is_there in ((0, True), (-5, False)):
            with contextlib.nullcontext() if is_there else self.assertRaisesRegex(BatchWeaveError, "resume point"):
                self.assertEqual(len(world.log._range(key, start, 10)), 10)

    def test_a_carrier_removes_the_intents_that_are_in(self) -> None:
        world = World()
        follower = Writer(world.log, "follower").open()
        for key in batch_intents(world.log.spec.uuid, [follower.upload()])[0]:
            world.log.store.put(key, b"")
        carrier = open_namespace("memory:test", store=world.store).producer("carrier")
        carrier.append([b"x"])
        carrier.flush()
        carrier.append([b"y"])
        carrier.close()
        self.assertFalse(Log.list_intents(world.open()).batches)
        self.assertFalse([key for key in world.store.objects if INTENT_PREFIX in key and "-left-" not in key and "-open-" not in key])


if __name__ == "__main__":
    unittest.main()
