"""Property: what is stored is what was appended, whatever the caller does with its buffers afterwards.

Method: one buffer of each kind is filled again after every append while uploads are slow; all of it is read back.
"""
from __future__ import annotations

import array
import importlib.util
import threading
import unittest
from typing import Any

from batchweave import create_namespace
from memory_store import MemoryStore

_APPENDS = 200


class SlowStore(MemoryStore):
    """Uploads begin when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.may_upload = threading.Event()

    def put(self, key: str, body: Any) -> None:
        if key.startswith("batch/"):
            self.may_upload.wait(20)
        super().put(key, body)


class Buffers(unittest.TestCase):
    def stored(self, buffer: Any, fill: Any) -> list[bytes]:
        store = SlowStore()
        namespace = create_namespace("memory:test", rows=1, store=store)
        with namespace.producer("p") as producer:
            for i in range(_APPENDS):
                fill(i)
                producer.append([buffer])
            store.may_upload.set()
        namespace.end_log()
        with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
            return [bytes(share.slices[0].bytes) for share in consumer]

    def test_one_bytearray_filled_again_after_every_append(self) -> None:
        buffer = bytearray(64)
        found = self.stored(buffer, lambda i: buffer.__setitem__(slice(None), bytes([i]) * 64))
        self.assertEqual([i for i in range(_APPENDS) if found[i] != bytes([i]) * 64], [])

    def test_views_that_only_look_unchangeable(self) -> None:
        buffer = bytearray(64)
        found = self.stored(memoryview(buffer).toreadonly(), lambda i: buffer.__setitem__(slice(None), bytes([i]) * 64))
        self.assertEqual([i for i in range(_APPENDS) if found[i] != bytes([i]) * 64], [])

    def test_an_array_of_numbers(self) -> None:
        buffer = array.array("q", [0] * 8)

        def fill(i: int) -> None:
            for at in range(8):
                buffer[at] = i

        found = self.stored(buffer, fill)
        self.assertEqual([i for i in range(_APPENDS) if found[i] != array.array("q", [i] * 8).tobytes()], [])

    @unittest.skipIf(importlib.util.find_spec("numpy") is None, "numpy is not installed")
    def test_a_numpy_array(self) -> None:
        import numpy

        buffer = numpy.zeros(8, dtype="int64")
        found = self.stored(buffer, buffer.fill)
        self.assertEqual([i for i in range(_APPENDS) if found[i] != numpy.full(8, i, dtype="int64").tobytes()], [])

    def test_bytes_are_not_copied(self) -> None:
        store = SlowStore()
        namespace = create_namespace("memory:test", rows=2, store=store)
        producer = namespace.producer("p")
        whole = bytes(range(100))
        producer.append([whole, memoryview(whole)[50:]])
        kept = [piece.obj for piece in producer._entries[0].slices]
        store.may_upload.set()
        producer.close()
        self.assertTrue(all(each is whole for each in kept))


if __name__ == "__main__":
    unittest.main()
