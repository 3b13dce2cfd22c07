"""Property: memory that anybody still looks at is never handed out again, and what nobody looks at is. Method: views of several kinds."""
from __future__ import annotations

import ctypes
import unittest

from batchweave.store.buffers import BufferPool

SIZE = 100_000


class Buffers(unittest.TestCase):
    def test_in_use_while_a_view_of_a_view_lives(self) -> None:
        pool = BufferPool()
        first = pool.take(SIZE)
        first[:3] = b"one"
        part = memoryview(first)[1:3]
        address = id(first.obj)
        del first
        second = pool.take(SIZE)
        self.assertNotEqual(id(second.obj), address)
        second[:3] = b"two"
        self.assertEqual(bytes(part), b"ne")
        del part
        third = pool.take(SIZE)
        self.assertEqual(id(third.obj), address, "used again")
        self.assertEqual((len(second), len(third)), (SIZE, SIZE))

    def test_arrays_and_tensors_count_as_views(self) -> None:
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        pool = BufferPool()
        view = pool.take(SIZE)
        array = numpy.frombuffer(view[8:16], dtype="i4")
        address = id(view.obj)
        del view
        self.assertNotEqual(id(pool.take(SIZE).obj), address)
        try:
            import torch
        except ImportError:
            torch = None  # type: ignore[assignment]
        if torch is not None:
            view = pool.take(SIZE)
            address = id(view.obj)
            tensor = torch.frombuffer(view[8:16], dtype=torch.int32)[1:]
            del view
            self.assertNotEqual(id(pool.take(SIZE).obj), address)
            del tensor
        self.assertEqual(len(array), 2)

    def test_begins_where_a_cache_line_does(self) -> None:
        pool = BufferPool()
        for view in [pool.take(n) for n in (SIZE, SIZE, 1 << 20, (1 << 20) + 1)]:
            self.assertEqual(ctypes.addressof(ctypes.c_char.from_buffer(view)) % 64, 0)
            self.assertFalse(view.readonly)

    def test_keeps_no_more_than_it_may_and_small_ones_not_at_all(self) -> None:
        pool = BufferPool(bytes_max=300_000)
        held = [pool.take(SIZE) for _ in range(10)]
        self.assertLessEqual(pool._bytes, 300_000)
        held.clear()
        self.assertEqual(len(pool.take(2 * SIZE)), 2 * SIZE)
        self.assertLessEqual(pool._bytes, 300_000)
        self.assertEqual(len(pool.take(10)), 10)


if __name__ == "__main__":
    unittest.main()
