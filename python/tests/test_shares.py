"""Property: the slices of a share become fields by exactly their rules, side by side in memory where they can, part by part where they must; a share says what it
holds, travels whole, and makes nothing twice.

Method: arrays with a number of its own in each element, joined by a model that places element after element; numpy and torch alike.
"""
from __future__ import annotations

import itertools
import pickle
import unittest
from importlib.util import find_spec
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.consumer import share as module
from batchweave.consumer.epochs import EpochOrder
from batchweave.consumer.projection import IterationPlan
from batchweave.consumer.reader import Slice, Slices
from batchweave.consumer.share import Share, check_decode, share_of
from batchweave.consumer.stacking import stack_rows
from batchweave.format.cursor import make_cursor
from batchweave.format.tensors import Tensor, encode_safetensors

UUID = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5"
KINDS = [name for name in ("numpy", "torch") if find_spec(name)]


def packed(*values: int, name: str = "ids", joins: Any = None, texts: Any = None) -> bytes:
    return encode_safetensors({name: Tensor("U8", (len(values),), bytes(values))}, texts or {}, joins)


def share_with(rows: int, *data: Any, **settings: Any) -> Share[Any]:
    chunks = max(1, len(data) // max(1, rows))
    return Share(4, [Slice(0, i // chunks, i % chunks, piece) for i, piece in enumerate(data)], rows, UUID, 8, 8 + rows, **settings)


class Bytes(unittest.TestCase):
    def test_where_a_share_began_and_where_the_next_begins(self) -> None:
        share = share_with(2, b"a", b"b")
        self.assertEqual((share.cursor, share.next), (make_cursor(UUID, 8, 4), make_cursor(UUID, 10, 5)))
        order = EpochOrder(UUID, 0, 6, epoch=None, epochs=9)
        share = share_with(2, b"a", b"b", order=order)
        self.assertEqual((share.cursor, share.next), (order.state(8, 4), order.state(10, 5)))
        self.assertEqual(repr(share), "Share(iteration=4, rows=2, slices=2)")

    def test_a_row_is_valid_unless_it_fills_up_and_it_is_looked_at_once(self) -> None:
        for rows, data, padding, expected in (
            (2, (b"a", b"b"), 0, [True, True]), (2, (b"a", b""), 0, [True, False]), (2, (b"a", b"b"), 1, [True, False]), (2, (b"a", b"x", b"b", b""), 0, [True, True]),
            (2, (b"", b"x", b"b", b"y"), 0, [False, True]), (0, (), 0, []),
        ):
            self.assertEqual(share_with(rows, *data, padding=padding).valid, expected)
        share = share_with(1, b"a")
        self.assertEqual(share.valid, [True], "no padding unless it is said")
        self.assertIs(share.valid, share.valid)

    def test_bytes_travel_once_and_are_not_decoded_on_the_way(self) -> None:
        whole = memoryview(b"xaby")
        share = share_with(2, whole[1:2], whole[2:3])
        there = pickle.loads(pickle.dumps(share))
        self.assertEqual((there._data, [s.bytes for s in there.slices], there._decode, there.nbytes), (None, [b"a", b"b"], "bytes", 2))
        there = pickle.loads(pickle.dumps(share.decode("bytes")))
        self.assertIs(there.data[0], there.slices[0].bytes)
        own = share_with(1, b"abc").decode(lambda data: memoryview(data)[1:])
        there = pickle.loads(pickle.dumps(own))
        self.assertEqual((there.data, there._decode, there.slices[0].bytes, there.nbytes), ([b"bc"], "bytes", None, 3))
        self.assertEqual(pickle.loads(pickle.dumps(share_with(1, b"a")))._joins, [])

    def test_a_share_of_bytes_has_no_fields(self) -> None:
        for share in share_with(1, b"a"), share_with(1, b"a").finish("bytes", "here"), share_with(0).finish("numpy", "here"):
            for call in (lambda: share["a"], share.keys, lambda: share.per_row("a")):
                with self.assertRaisesRegex(BatchWeaveError, "holds no tensors by name"):
                    call()
            self.assertNotIn("a", share)
        self.assertEqual(share_with(1, b"a").finish("bytes", "here")._data, [b"a"])
        mixed = share_with(2, b"a", b"b").decode(lambda data: {"x": 1} if data == b"a" else 5)
        self.assertIn("x", mixed)
        with self.assertRaisesRegex(BatchWeaveError, "holds no tensors by name"):
            mixed.keys()
        share = share_with(1, b"abc").finish(lambda data: {"x": len(data)}, "here")
        self.assertEqual((share._data, share._batch, share.keys()), ([{"x": 3}], {}, ["x"]))

    def test_ragged_shares_leave_out_what_is_no_row_with_all_its_chunks(self) -> None:
        plan = IterationPlan(3, 6, 9, 3, 3, 3, [], 1)
        slices = [Slice(0, r, c, data) for (r, c), data in zip(itertools.product(range(3), range(2)), (b"a", b"b", b"", b"d", b"e", b"f"))]
        kept = share_of(plan, slices, UUID, is_ragged=True)
        self.assertEqual((kept.rows, [s.bytes for s in kept.slices], kept._padding, [s.bytes for s in kept._model]), (1, [b"a", b"b"], 0, [b"a", b"b"]))
        slices[2] = slices[2]._replace(bytes=b"c")
        kept = share_of(plan, slices, UUID, is_ragged=True)
        self.assertEqual((kept.rows, [s.bytes for s in kept.slices]), (2, [b"a", b"b", b"c", b"d"]))
        whole = share_of(plan, slices, UUID)
        self.assertEqual((whole.rows, whole.slices, whole._padding, whole.valid, whole._model), (3, slices, 1, [True, True, False], ()))
        self.assertIs(share_of(plan._replace(padding=0), slices, UUID, is_ragged=True).slices, slices)

    def test_what_can_decode(self) -> None:
        for good in ("bytes", len):
            check_decode(good)  # type: ignore[arg-type]
        with self.assertRaisesRegex(BatchWeaveError, "decode must be"):
            check_decode("arrow")  # type: ignore[arg-type]
        with mock.patch.object(module, "require_package") as required:
            check_decode("numpy")
            check_decode("torch")
        self.assertEqual(required.mock_calls, [mock.call("numpy"), mock.call("torch")])


@unittest.skipIf("numpy" not in KINDS, "numpy is not installed")
class Fields(unittest.TestCase):
    def test_fields_are_of_the_library_that_was_asked_for(self) -> None:
        for kind in KINDS:
            for share in share_with(1, bytearray(packed(1, 2))).finish(kind, "here"), share_with(1, bytearray(packed(1, 2))).decode(kind):  # type: ignore[arg-type]
                self.assertEqual((type(share["ids"]).__module__.split(".")[0], share["ids"].tolist()), (kind, [[1, 2]]))

    def test_what_is_joined_is_made_once_and_nothing_else_is(self) -> None:
        import numpy

        data = encode_safetensors({"a": Tensor("U8", (2,), b"ab"), "b": Tensor("U8", (2,), b"cd")})
        for fields, names in (None, {"a", "b"}), (["a"], {"a"}), (["a", "none"], {"a"}):
            for together in False, True:
                share = share_with(2, data, data)
                if together:
                    share.slices = Slices(share.slices)
                    share.slices.joined = memoryview(bytearray(data + data))
                share.finish("numpy", "here", fields=fields)
                self.assertEqual((set(share._batch), share._data), (names, None), (fields, together))
                self.assertIs(share["a"], share["a"])
                if together:
                    self.assertTrue(numpy.shares_memory(share["a"], numpy.frombuffer(share.slices.joined, "u1")), "none was decoded by itself")
                self.assertIn("a", share)
                self.assertIsNone(share._data, "it was not decoded for that")
                self.assertEqual((share.get("a") is share["a"], share.get("z"), share.get("z", 5)), (True, None, 5))
                self.assertEqual(list(share.batch(["b"])), ["b"])
                self.assertEqual(sorted(share.batch()), ["a", "b"])

    def test_what_is_not_decoded_yet_is_on_the_other_side(self) -> None:
        there = pickle.loads(pickle.dumps(share_with(1, packed(1)).finish("numpy", "here")))
        self.assertEqual((there._decode, there._where, there["ids"].tolist()), ("numpy", "here", [[1]]))

    def test_a_field_that_is_not_there_names_one_that_is_like_it(self) -> None:
        share = share_with(1, packed(1, name="input_ids")).decode("numpy")
        for name, hint in ("input_id", "; did you mean 'input_ids'"), ("zzz", ""):
            with self.assertRaises(KeyError) as caught:
                share[name]
            self.assertEqual(caught.exception.args[0], f"{name!r} is in no slice of this share{hint}. It has: 'input_ids'.")
            with self.assertRaises(KeyError):
                share.per_row(name)

    def test_what_cannot_be_joined_is_left_to_who_asks(self) -> None:
        share = share_with(2, packed(1, 2), packed(3)).finish("numpy", "here")
        self.assertEqual((share._batch, [row.tolist() for row in share.per_row("ids")]), ({}, [[1, 2], [3]]))
        with self.assertRaisesRegex(BatchWeaveError, "cannot be joined"):
            share["ids"]
        bare = Share(0, [Slice(0, 0, 0, None)] * 2, 2, UUID, 0, 2, data=share_with(2, packed(1), packed(2)).decode("numpy").data)
        self.assertEqual(bare["ids"].tolist(), [[1], [2]], "without rules")

    def test_page_locked_memory_only_where_it_is_asked_for(self) -> None:
        if "torch" not in KINDS:
            self.skipTest("torch is not installed")
        import torch

        calls: list[Any] = []
        empty = torch.empty

        def locked(*args: Any, **settings: Any) -> Any:
            calls.append(settings.pop("pin_memory", None))
            return empty(*args, **settings)

        for pin in True, False:
            with mock.patch.object(torch, "empty", locked):
                share = share_with(2, bytearray(packed(1, 2)), bytearray(packed(3, 4))).finish("torch", "here", pin)
            self.assertEqual((share["ids"].tolist(), calls), ([[1, 2], [3, 4]], [True]))


@unittest.skipIf("numpy" not in KINDS, "numpy is not installed")
class Stacks(unittest.TestCase):
    def stacked(self, kind: str, shape: tuple[int, ...], rows: int, chunks: int, rule: Any, gap: int = 0, dtype: str = "I16") -> tuple[Any, Any, Any]:
        """What stacking gives, the parts it was made of, and the memory they lie in."""
        import numpy

        size = int(numpy.prod(shape))
        width = {"I16": "<i2", "U8": "u1", "F32": "<f4"}[dtype]
        parts = [numpy.arange(i * size, i * size + size).astype(width).reshape(shape) for i in range(rows * chunks)]
        joins = None if rule is None else {"x": rule}
        slices = [encode_safetensors({"x": part}, {}, joins) for part in parts]
        memory = memoryview(bytearray(b"".join(data + b"\xff" * gap for data in slices)))
        return stack_rows(memory, gap, rows * chunks, rows, kind, "here", None), parts, memory

    def test_rows_and_chunks_are_merged_along_their_axes(self) -> None:
        import numpy

        rules = [None, *({"chunks": c, "rows": r} for c, r in itertools.product((0, 1, 2), (0, 1, 2, "stack")))]
        for kind, shape, rows, chunks, rule in itertools.product(KINDS, ((2, 3, 4), (3, 2), (4,)), (1, 3), (1, 2), rules):
            axes = [axis for axis in (rule or {}).values() if axis != "stack"]
            if any(axis >= len(shape) for axis in axes) or (rule is None and chunks > 1 and len(shape) > 1):
                continue
            for gap in 0, 8:
                found, parts, memory = self.stacked(kind, shape, rows, chunks, rule, gap)
                chunk_axis = rule["chunks"] if rule else len(shape) - 1
                row_axis = rule["rows"] if rule else 0 if len(shape) > 1 else "stack"
                joined = [numpy.concatenate(parts[r * chunks : (r + 1) * chunks], chunk_axis) for r in range(rows)]
                expected = numpy.stack(joined) if row_axis == "stack" else numpy.concatenate(joined, row_axis)
                self.assertEqual((list(found["x"].shape), found["x"].tolist()), (list(expected.shape), expected.tolist()), (kind, shape, rows, chunks, rule))
                if chunks == 1 and row_axis == "stack":
                    found["x"][0] += 1
                    self.assertNotEqual(self.again(kind, memory, gap, rows)["x"].tolist(), expected.tolist(), "a view")

    def again(self, kind: str, memory: Any, gap: int, rows: int) -> Any:
        return stack_rows(memory, gap, rows, rows, kind, "here", None)

    def test_what_must_be_joined_part_by_part_is_named_and_left_out(self) -> None:
        for rule, chunks, is_left in (
            ({"chunks": "same", "rows": 0}, 2, True), ({"chunks": "same", "rows": 0}, 1, False), ({"chunks": 0, "rows": 0, "fold": True}, 2, True),
            ({"chunks": 0, "rows": 0, "fold": True}, 1, False), ({"chunks": 0, "rows": 0, "ends": True}, 1, True), ({"chunks": 0, "rows": 0}, 2, False),
        ):
            for kind in KINDS:
                found, _, _ = self.stacked(kind, (4,), 2, chunks, rule)
                self.assertEqual((list(found), found["x"] is None), (["x"], is_left), (rule, chunks))
        for shape, chunks in ((2, 3), 2), ((0,), 1), ((), 2):
            self.assertIsNone(self.stacked("numpy", shape, 2, chunks, None)[0]["x"], shape)
        self.assertEqual(self.stacked("numpy", (), 2, 1, {"chunks": "same", "rows": "stack"})[0]["x"].tolist(), [0, 1])

    def test_rules_that_are_of_no_use_here_are_left_to_joining(self) -> None:
        for text in '{"x":{"chunks":0,"rows":1}}', '{"x":{"chunks":1,"rows":0}}', '{"x":{"chunks":0,"rows":0,"new":1}}':
            data = encode_safetensors({"x": Tensor("U8", (4,), b"abcd")}, {"batchweave.join": text})
            for kind in KINDS:
                self.assertEqual(stack_rows(memoryview(bytearray(data * 2)), 0, 2, 2, kind, "here", None), {"x": None}, text)

    def test_slices_that_differ_are_not_stacked(self) -> None:
        one, other, longer = packed(1, 2), packed(3, 4, name="idz"), packed(1, 2, 3)
        for kind in KINDS:
            def stack(data: bytes, slices: int, fields: Any = None) -> Any:
                return stack_rows(memoryview(bytearray(data)), 0, slices, slices, kind, "here", fields)

            self.assertEqual(stack(one + other, 2), {})
            self.assertEqual(stack(one + longer, 2), {})
            self.assertEqual(stack(one + one + b"x", 2), {})
            self.assertEqual(stack(one + packed(5, 6), 2)["ids"].tolist(), [[1, 2], [5, 6]])
            self.assertEqual((stack(one + one, 2, ["none"]), list(stack(one + one, 2, ["ids"]))), ({}, ["ids"]))

    def test_bytes_whose_distance_is_no_multiple_of_the_element_are_left_where_a_library_cannot(self) -> None:
        data = encode_safetensors({"w": Tensor("U8", (1,), b"a"), "x": Tensor("F32", (1,), b"abcd")})
        for kind in KINDS:
            found = stack_rows(memoryview(bytearray(data * 2)), 0, 2, 2, kind, "here", ["x"])["x"]
            self.assertTrue(found is None if kind == "torch" else found.tobytes() == b"abcd" * 2)
            self.assertIsNotNone(stack_rows(memoryview(bytearray(data * 2)), 0, 2, 2, kind, "here", ["w"])["w"])


if __name__ == "__main__":
    unittest.main()
