"""Property: what slices hold (tensors, the rules of joining them, sample blocks, lineage) is written byte for byte as FORMAT.md 12 and 13 say and read back, and what is
one step beyond a rule is refused for it.

Method: payloads written out by hand, tables with values on both sides of each edge; arrays by numpy and torch where they are installed.
"""
from __future__ import annotations

import json
import math
import struct
import unittest
import zlib
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.format import lineage as lineage_module
from batchweave.format import sample_block as block_module
from batchweave.format import tensors as tensors_module
from batchweave.format.checksum import crc32
from batchweave.format.join import join_field, join_rows, raw_bytes, rule_of
from batchweave.format.join_rule import FieldJoin, decode_joins, encode_joins, pipeline_joins, shape_rule
from batchweave.format.lineage import decode_lineage, encode_lineage
from batchweave.format.padding import PADDING, is_padding, slice_is_padding
from batchweave.format.sample_block import BlockSample, check_sample, decode_sample_table, encode_sample_block
from batchweave.format.stored_json import SAFE_INTEGER_MAX
from batchweave.format.tensors import Tensor, as_tensor, decode_safetensors, encode_safetensors, numpy_type, read_layout, to_numpy, to_torch, torch_type

MANY = SAFE_INTEGER_MAX
KINDS = [name for name in ("numpy", "torch") if find_spec(name)]


class Cases(unittest.TestCase):
    def refused(self, call: Any, part: str = "", code: str = "CORRUPT") -> BatchWeaveError:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception.message)
        self.assertIn(part, caught.exception.message)
        return caught.exception


class Lineage(Cases):
    def block(self, columns: Any, count: int, magic: bytes = b"LIN1", length: int | None = None, body: bytes | None = None) -> bytes:
        text = columns if isinstance(columns, bytes) else json.dumps(columns).encode()
        packed = zlib.compress(text) if body is None else body
        head = struct.pack("<4sII", magic, count, len(text) if length is None else length)
        return head + struct.pack("<I", crc32(head + packed)) + packed

    def test_ids_are_steps_from_the_one_before_of_their_source_where_they_are_numbers(self) -> None:
        ids = [("a", "5"), ("b", "7"), ("a", "3"), ("a", "x"), ("a", "10"), ("a", "05"), ("b", str(MANY)), ("b", str(MANY + 1)), ("a", "0"), ("b", "")]
        samples: list[dict[str, Any]] = [{"source": source, "id": id, "tokens": i} for i, (source, id) in enumerate(ids)]
        samples[2]["row"] = 0
        samples[3]["tokens"] = MANY
        samples[4]["row"] = MANY
        data = encode_lineage(samples)
        self.assertEqual(json.loads(zlib.decompress(data[16:])), {
            "sources": ["a", "b"], "source": [0, 1, 0, 0, 0, 0, 1, 1, 0, 1], "id": [5, 7, -2, "x", 7, "05", MANY - 7, str(MANY + 1), -10, ""],
            "tokens": [0, 1, 2, MANY, 4, 5, 6, 7, 8, 9], "row": [-1, -1, 0, -1, MANY, -1, -1, -1, -1, -1],
        })
        self.assertEqual(data[:12], struct.pack("<4sII", b"LIN1", 10, len(zlib.decompress(data[16:]))))
        self.assertEqual(decode_lineage(data, "k"), samples)
        self.assertEqual(decode_lineage(encode_lineage([]), "k"), [])

    def test_a_sample_has_two_texts_and_whole_numbers(self) -> None:
        good = {"source": "a", "id": "1", "tokens": 0}
        encode_lineage([good])
        for change in ({"source": 5}, {"id": 5}, {"tokens": -1}, {"tokens": MANY + 1}, {"tokens": True}, {"tokens": 1.0}, {"row": -1}, {"row": MANY + 1}, {"row": "1"}, {"tokens": None}):
            self.refused(lambda: encode_lineage([{**good, **change}]), "A sample of lineage needs", "INVALID_ARGUMENT")
        size = len(zlib.decompress(encode_lineage([good])[16:]))
        for most, is_right in (size, True), (size - 1, False):
            with mock.patch.object(lineage_module, "_JSON_BYTES_MAX", most):
                if is_right:
                    self.assertEqual(decode_lineage(encode_lineage([good]), "k"), [good])
                else:
                    self.assertEqual(self.refused(lambda: encode_lineage([good]), "", "LIMIT").details, {"found": size, "limit": most})

    def test_a_block_is_whole_and_says_so(self) -> None:
        columns = {"sources": ["a"], "source": [0], "id": ["x"], "tokens": [3]}
        sample = [{"source": "a", "id": "x", "tokens": 3}]
        data = self.block(columns, 1)
        self.assertEqual(decode_lineage(data, "k"), sample)
        text = json.dumps(columns).encode()
        for bad, part in (
            (data[:15], "does not begin like one"), (b"LIM1" + data[4:], "does not begin like one"), (data[:-1], "checksum"), (data[:4] + b"\2" + data[5:], "checksum"),
            (self.block(columns, 1, length=len(text) - 1), ""), (self.block(columns, 1, length=len(text) + 1), "another length"), (self.block(b"[1", 1), "cannot be decompressed"),
            (self.block(columns, 1, body=b"nonsense"), "cannot be decompressed"), (self.block([], 1), "not an object"), (self.block({**columns, "source": [1]}, 1), "lineage.source"),
            (self.block({**columns, "source": [-1]}, 1), "lineage.source"), (self.block({**columns, "id": [True]}, 1), "lineage.id"), (self.block({**columns, "id": [-1]}, 1), "lineage.id"),
            (self.block({**columns, "id": [1.5]}, 1), "lineage.id"), (self.block({**columns, "tokens": [-1]}, 1), "lineage.tokens"), (self.block({**columns, "row": [-2]}, 1), "lineage.row"),
            (self.block({**columns, "sources": [5]}, 1), "lineage.source"), (struct.pack("<4sII", b"LIN1", 0, 0) + struct.pack("<I", crc32(struct.pack("<4sII", b"LIN1", 0, 0))), "cannot be"),
        ):
            self.refused(lambda: decode_lineage(bad, "k"), part)
        self.refused(lambda: decode_lineage(self.block(columns, 1, b"LIN2"), "k"), "LIN2", "UNSUPPORTED_FORMAT")
        for most, is_right in (len(text), True), (len(text) - 1, False):
            with mock.patch.object(lineage_module, "_JSON_BYTES_MAX", most):
                if is_right:
                    decode_lineage(data, "k")
                else:
                    self.refused(lambda: decode_lineage(data, "k"), f"claims {len(text)} bytes")
        with mock.patch.object(lineage_module.zlib, "decompressobj") as made:
            made.return_value.decompress.return_value = text
            decode_lineage(data, "k")
        self.assertEqual(made.return_value.decompress.mock_calls, [mock.call(data[16:], len(text) + 1)], "one byte more than was said, and no other")


class Rules(Cases):
    def test_a_rule_fits_the_tensor_it_is_for(self) -> None:
        shapes, dtypes = {"x": (2, 3), "e": (4,)}, {"x": "I32", "e": "I32"}
        for joins in (
            {"x": {"chunks": 1, "rows": 0}}, {"x": {"chunks": "same", "rows": "stack"}}, {"x": {"chunks": 0, "rows": 1, "pad": -1.5, "fold": True, "optional": True}},
            {"e": {"chunks": 0, "rows": 0, "ends": True}},
        ):
            self.assertEqual(json.loads(encode_joins(joins, shapes, dtypes)), joins)
        for joins, part in (
            ({"y": {"chunks": 0, "rows": 0}}, "not among the tensors"), ({"x": {"chunks": 2, "rows": 0}}, "has no axis 2"), ({"x": {"chunks": 0, "rows": 2}}, "has no axis 2"),
            ({"x": {"chunks": 0}}, "which no reader knows"), ({"x": {"chunks": 0, "rows": 0, "ends": True}}, "running ends"), ({"e": {"chunks": 0, "rows": "stack", "ends": True}}, "running ends"),
        ):
            self.refused(lambda: encode_joins(joins, shapes, dtypes), part, "INVALID_ARGUMENT")
        for dtype in ("U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F32", "F64"):
            encode_joins({"x": {"chunks": 0, "rows": 0, "pad": 5}}, shapes, {"x": dtype})
        for dtype in ("BOOL", "F16", "BF16", "C64", "F8_E4M3"):
            encode_joins({"x": {"chunks": 0, "rows": 0, "pad": 0}}, shapes, {"x": dtype})
            encode_joins({"x": {"chunks": 0, "rows": 0}}, shapes, {"x": dtype})
            self.refused(lambda: encode_joins({"x": {"chunks": 0, "rows": 0, "pad": 5}}, shapes, {"x": dtype}), f"5 cannot fill up {dtype}", "INVALID_ARGUMENT")

    def rules(self, rule: Any) -> Any:
        return decode_joins({"batchweave.join": json.dumps({"x": rule})}, "k")["x"]

    def test_a_rule_of_a_kind_to_come_is_known_to_be_unknown(self) -> None:
        for rule, expected in (
            ({"chunks": 0, "rows": 0}, FieldJoin(0, 0)), ({"chunks": MANY, "rows": "stack"}, FieldJoin(MANY, "stack")), ({"chunks": "same", "rows": 1, "pad": 0}, FieldJoin("same", 1, pad=0)),
            ({"chunks": 0, "rows": 0, "pad": 1.5, "fold": True, "ends": True, "optional": True}, FieldJoin(0, 0, True, True, 1.5, True)),
        ):
            self.assertEqual(self.rules(rule), expected)
        for rule in (
            5, {"chunks": 0}, {"rows": 0}, {"chunks": -1, "rows": 0}, {"chunks": 0, "rows": -1}, {"chunks": MANY + 1, "rows": 0}, {"chunks": True, "rows": 0}, {"chunks": "stack", "rows": 0},
            {"chunks": 0, "rows": "same"}, {"chunks": 0, "rows": 0, "new": 1}, {"chunks": 0, "rows": 0, "fold": False}, {"chunks": 0, "rows": 0, "ends": 1}, {"chunks": 0, "rows": 0, "pad": True},
            {"chunks": 0, "rows": 0, "pad": "0"}, {"chunks": 0, "rows": 0, "pad": None}, {"chunks": 0.5, "rows": 0},
        ):
            self.assertIsNone(self.rules(rule), rule)
        with mock.patch("batchweave.format.join_rule.load_json", return_value={"x": {"chunks": 0, "rows": 0, "pad": math.inf}}):
            self.assertIsNone(decode_joins({"batchweave.join": '{"inf":1}'}, "k")["x"])
        for text in ("[]", "{", "5"):
            self.refused(lambda: decode_joins({"batchweave.join": text}, "k"), "is not rules by name")
        self.assertEqual(decode_joins({}, "k"), {})

    def test_slices_that_hold_a_field_agree_on_one_rule(self) -> None:
        one, other, optional = FieldJoin(0, 0), FieldJoin(1, 0), FieldJoin(0, 0, optional=True)
        held = {"x": SimpleNamespace(shape=(2,))}
        for slices, joins, expected in (
            ([held, held], [{"x": one}, {"x": one}], one), ([held, held], [{}, {}], FieldJoin("same", "stack")), ([held, {}], [{"x": optional}, {}], optional), ([{}, held], [{}, {"x": optional}], optional),
        ):
            self.assertEqual(rule_of("x", slices, joins, 1), expected)
        for slices, joins, part in (
            ([held, held], [{"x": one}, {"x": other}], "different things"), ([held, held], [{"x": one}, {}], "different things"), ([held], [{"x": None}], "does not know"),
            ([held, {}, {}], [{"x": one}] * 3, "2 of 3 slices do not hold it"),
        ):
            self.refused(lambda: rule_of("x", slices, joins, 1), part, "INVALID_ARGUMENT")
        self.assertEqual(rule_of("x", [held, held], [{}, {}], 2), FieldJoin(0, "stack"))
        data = encode_safetensors({"x": Tensor("U8", (2,), b"ab")}, {"k": "v"}, {"x": {"chunks": 0, "rows": 0}})
        self.assertEqual(decode_safetensors(data)[1], {"k": "v", "batchweave.join": '{"x":{"chunks":0,"rows":0}}'})
        self.assertEqual(decode_safetensors(encode_safetensors({"x": Tensor("U8", (2,), b"ab")}, {"k": "v"}))[1], {"k": "v"})

    def test_pipelines_of_before_say_what_they_are_in_other_words(self) -> None:
        whole = {"microbatches": "1", "sequences": "2", "seq_length": "16", "layout": "zigzag"}
        self.assertEqual(decode_joins(whole, "k"), pipeline_joins("zigzag", 16))
        for name in whole:
            self.assertEqual(decode_joins({k: v for k, v in whole.items() if k != name}, "k"), {}, name)
        for change in ({"layout": "new"}, {"seq_length": "x"}, {"seq_length": "١"}, {"seq_length": "²"}):
            self.assertEqual(decode_joins({**whole, **change}, "k"), {})
        for layout, slots, once in ("contiguous", FieldJoin(2, 0), FieldJoin("same", 0)), ("zigzag", FieldJoin(2, 0, True), FieldJoin("same", 0)), ("whole", FieldJoin(0, 0), FieldJoin(0, 0)):
            rules = pipeline_joins(layout, 16)
            self.assertEqual([rules[name] for name in ("tokens", "input_ids", "labels", "position_ids", "segment_ids", "loss_mask")], [slots] * 6)
            self.assertEqual((rules["max_seqlen"], rules["cu_seqlens"]), (once, once._replace(pad=16)))
            for name in ("pixel_values", "image_bytes", "image_grid", "image_rank", "image_target"):
                self.assertEqual(rules[name], FieldJoin(0, 0, optional=True))
            for name in ("image_cu_seqlens", "image_byte_ends"):
                self.assertEqual(rules[name], FieldJoin(0, 0, ends=True, optional=True))

    def test_slices_that_say_nothing_are_joined_where_their_shape_leaves_one_way(self) -> None:
        for shape, chunks, expected in (
            ((), 1, FieldJoin("same", "stack")), ((3,), 1, FieldJoin("same", "stack")), ((2, 3), 1, FieldJoin("same", 0)), ((3,), 2, FieldJoin(0, "stack")), ((1, 3), 2, FieldJoin(1, 0)),
            ((1, 1, 3), 2, FieldJoin(2, 0)), ((1, 1), 2, FieldJoin(1, 0)),
        ):
            self.assertEqual(shape_rule("x", shape, chunks), expected)
        for shape in ((), (2, 3), (2, 1), (1, 2, 3)):
            self.refused(lambda: shape_rule("x", shape, 2), f"nor does the shape {list(shape)}", "INVALID_ARGUMENT")


@unittest.skipIf("numpy" not in KINDS, "numpy is not installed")
class Joins(Cases):
    def arrays(self, kind: str, *values: Any, dtype: str = "int32") -> list[Any]:
        if kind == "torch":
            import torch

            return [torch.tensor(value, dtype=getattr(torch, dtype)) for value in values]
        import numpy

        return [numpy.array(value, dtype) for value in values]

    def join(self, kind: str, rows: int, rule: Any, *values: Any, dtype: str = "int32") -> Any:
        slices = [{} if array is None else {"x": array} for array in (None if v is None else self.arrays(kind, v, dtype=dtype)[0] for v in values)]
        joins: Any = [{"x": rule} if rule else {}] * len(slices)
        return join_field("x", slices, joins, rows)

    def test_parts_are_joined_by_their_rule(self) -> None:
        for kind in KINDS:
            for rows, rule, values, expected in (
                (1, FieldJoin(0, 0, fold=True), [[1, 2], [3, 4]], [1, 3, 4, 2]), (1, FieldJoin(0, 0, fold=True), [[1, 2, 3]], [1, 2, 3]), (2, FieldJoin("same", 0, fold=True), [[1], [2]], [1, 2]),
                (1, FieldJoin(1, 0, fold=True), [[[1, 2]], [[3, 4]]], [[1, 3, 4, 2]]), (2, FieldJoin(0, 0, ends=True), [[0, 2, 5], [0, 1]], [0, 2, 5, 6]), (1, FieldJoin(0, 0, ends=True), [[0]], [0]),
                (2, FieldJoin(0, "stack", pad=9), [[1], [2, 3]], [[1, 9], [2, 3]]), (2, FieldJoin(0, 0, pad=9), [[[1], [2]], [[3, 4]]], [[1, 9], [2, 9], [3, 4]]),
                (2, FieldJoin(0, 0, optional=True), [[1, 2], None], [1, 2]), (2, FieldJoin("same", 0), [[1], [1], [2], [2]], [1, 1 + 1]), (2, FieldJoin(0, "stack"), [[1], [2], [3], [4]], [[1, 2], [3, 4]]),
            ):
                self.assertEqual(self.join(kind, rows, rule, *values).tolist(), expected, (kind, rule))
            rows = join_rows("x", [{"x": self.arrays(kind, [1])[0]}, {}, {}, {}], [{"x": FieldJoin(0, 0, optional=True)}] * 4, 2)
            self.assertEqual((rows[0].tolist(), rows[1]), ([1], None))
            (alone,) = self.arrays(kind, [1, 2])
            self.assertIs(join_field("x", [{"x": alone}], [{"x": FieldJoin(0, 0)}], 1), alone, "one alone is not copied")
            self.assertEqual(type(self.join(kind, 2, FieldJoin(0, 0), [1], [2])).__module__.split(".")[0], kind)
            self.assertEqual(raw_bytes(self.arrays(kind, [[1, 2], [3, 4]])[0].T), struct.pack("<4i", 1, 3, 2, 4))

    def test_parts_that_do_not_fit_are_told_why(self) -> None:
        for kind in KINDS:
            for rows, rule, values, part in (
                (1, FieldJoin(0, 0, fold=True), [[1, 2, 3], [4, 5]], "a part of 3 has no two halves"), (1, FieldJoin("same", 0), [[1], [2]], "they differ"), (1, FieldJoin("same", 0), [[1], [1, 1]], "they differ"),
                (2, FieldJoin(0, 0), [[[1]], [[1, 2]]], "another one is as large as"), (2, FieldJoin(1, 1), [[1], [2]], "have no common axis 1"), (2, FieldJoin(0, 0), [[1], [[2]]], "have no common axis 0"),
                (2, FieldJoin(0, 0), [[1], None], "1 of 2 slices do not hold it"), (1, FieldJoin(0, 0, ends=True), [[1, 2]], "running ends"), (1, FieldJoin(1, 0, ends=True), [[[0]]], "running ends"),
                (2, FieldJoin(0, 0, ends=True), [[0], []], "running ends"), (1, FieldJoin(0, 0, ends=True), [[[0, 1]]], "running ends"), (2, FieldJoin(0, 1, ends=True), [[0, 1], [0, 1]], "running ends"),
            ):
                self.refused(lambda: self.join(kind, rows, rule, *values), part, "INVALID_ARGUMENT")
            self.refused(lambda: self.join(kind, 1, FieldJoin(0, 0, ends=True), [0.0, 1.0], dtype="float32"), "running ends", "INVALID_ARGUMENT")
            self.refused(lambda: self.join(kind, 2, FieldJoin(0, 0, ends=True), [0, 100], [0, 100], dtype="int8"), "the end 200 is too large for", "INVALID_ARGUMENT")
            mixed = [{"x": self.arrays(kind, [1])[0]}, {"x": self.arrays(kind, [1], dtype="int64")[0]}]
            self.refused(lambda: join_field("x", mixed, [{"x": FieldJoin(0, 0)}] * 2, 2), "their dtypes differ", "INVALID_ARGUMENT")
            for joins, part in ([{"x": FieldJoin(0, 0)}, {}], "different things"), ([{"x": None}] * 2, "of a kind that this version does not know"):
                self.refused(lambda: rule_of("x", mixed, joins, 1), part, "INVALID_ARGUMENT")


class Tensors(Cases):
    def header(self, entries: Any, body: bytes) -> bytes:
        text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
        return struct.pack("<Q", len(text)) + text + body

    def test_tensors_are_written_widest_first_and_aligned(self) -> None:
        data = encode_safetensors({"b": Tensor("U8", (3,), b"abc"), "a": Tensor("U8", (1,), b"d"), "w": Tensor("I64", (1,), b"12345678"), "n": Tensor("F32", (0, 4), b"")}, {"k": "v"})
        (length,) = struct.unpack_from("<Q", data)
        text = data[8 : 8 + length]
        self.assertEqual((length % 8, json.loads(text)), (0, {
            "__metadata__": {"k": "v"}, "w": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}, "n": {"dtype": "F32", "shape": [0, 4], "data_offsets": [8, 8]},
            "a": {"dtype": "U8", "shape": [1], "data_offsets": [8, 9]}, "b": {"dtype": "U8", "shape": [3], "data_offsets": [9, 12]},
        }))
        self.assertEqual((data[8 + length :], list(json.loads(text))), (b"12345678dabc", ["__metadata__", "w", "n", "a", "b"]))
        found, metadata = decode_safetensors(data)
        self.assertEqual(({n: (t.dtype, t.shape, bytes(t.data)) for n, t in found.items()}["b"], metadata), (("U8", (3,), b"abc"), {"k": "v"}))
        self.assertNotIn(b"__metadata__", encode_safetensors({"a": Tensor("U8", (1,), b"d")}))
        for count in range(9):
            made = encode_safetensors({"x" * (1 + count): Tensor("U8", (1,), b"d")})
            self.assertEqual(struct.unpack_from("<Q", made)[0] % 8, 0)

    def test_a_header_that_says_something_wrong_is_refused_for_it(self) -> None:
        one = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
        self.assertEqual(len(decode_safetensors(self.header({"a": one}, b"ab"))[0]), 1)
        self.assertEqual(decode_safetensors(struct.pack("<Q", 2) + b"{}")[0], {})
        self.assertEqual(decode_safetensors(self.header({"a": {"dtype": "U8", "shape": [MANY, 0], "data_offsets": [0, 0]}}, b""))[0]["a"].shape, (MANY, 0))
        for data, part in (
            (b"1234567", "only 7 bytes"), (struct.pack("<Q", 3) + b"{}", "claims a header of 3 bytes"), (struct.pack("<Q", 2**60), "claims a header"), (self.header(b" {}", b""), "brace"),
            (self.header(b"{x}", b""), "not JSON"), (self.header({"__metadata__": 5}, b""), "not strings by name"), (self.header({"__metadata__": {"a": 1}}, b""), "not strings by name"),
            (self.header({"a": one}, b"abc"), "its tensors take 2 bytes of 3"), (self.header({"a": one}, b"a"), "its tensors take 2 bytes of 1"),
            (self.header({"a": {**one, "data_offsets": [1, 3]}}, b"abc"), '"a" leaves a hole before it'), (self.header({"a": one, "b": {**one, "data_offsets": [1, 3]}}, b"abc"), '"b" overlaps another'),
            (self.header({"a": {**one, "dtype": "X"}}, b"ab"), "is not known"), (self.header({"a": {**one, "dtype": 5}}, b"ab"), "is not known"), (self.header({"a": 5}, b"ab"), "is not known"),
            (self.header({"a": {**one, "shape": 2}}, b"ab"), "not whole numbers"), (self.header({"a": {**one, "shape": [MANY + 1]}}, b"ab"), "not whole numbers"),
            (self.header({"a": {**one, "data_offsets": [0, 2, 2]}}, b"ab"), "two whole numbers"), (self.header({"a": {**one, "data_offsets": 5}}, b"ab"), "two whole numbers"),
            (self.header({"a": {**one, "shape": [1]}}, b"ab"), "has 2 bytes, its shape and dtype make 1"), (self.header({"a": {**one, "dtype": "U16"}}, b"ab"), "make 4"),
        ):
            self.refused(lambda: decode_safetensors(data), part)
        with mock.patch.object(tensors_module, "_HEADER_BYTES_MAX", 2):
            read_layout(struct.pack("<Q", 2) + b"{}", "k")
            self.refused(lambda: read_layout(struct.pack("<Q", 3) + b"{ }", "k"), "claims a header of 3 bytes")
        for most, again in (2, 1), (1, 0):
            with mock.patch.object(tensors_module, "_REMEMBERED_BYTES_MAX", most), mock.patch.object(tensors_module, "_layout_again", return_value=((), {})) as remembered:
                read_layout(struct.pack("<Q", 2) + b"{}", "k")
            self.assertEqual(remembered.call_count, again)

    def test_what_cannot_be_stored_is_refused(self) -> None:
        for tensors, part in (
            ({"__metadata__": Tensor("U8", (1,), b"a")}, "is not a name for a tensor"), ({"a": Tensor("X", (1,), b"a")}, "has the dtype 'X'"), ({"a": Tensor("U8", (2,), b"a")}, "a has 1 bytes, its shape [2] and U8 make 2."),
            ({"a": 5}, "neither a numpy array nor a torch tensor"),
        ):
            self.refused(lambda: encode_safetensors(tensors), part, "INVALID_ARGUMENT")

    @unittest.skipIf("numpy" not in KINDS, "numpy is not installed")
    def test_arrays_of_every_dtype_are_stored_and_given_back(self) -> None:
        import numpy

        for dtype, name in tensors_module._NUMPY.items():
            for array in numpy.arange(6).astype(name).reshape(2, 3), numpy.arange(6).astype(name).reshape(2, 3).T, numpy.zeros((0, 2), name), numpy.array(1).astype(name):
                found = as_tensor("x", array)
                self.assertEqual((found.dtype, found.shape), (dtype, array.shape))
                self.assertTrue((to_numpy(found) == array).all() and to_numpy(found).dtype == array.dtype)
        big = numpy.arange(3).astype(">i4")
        self.assertEqual(to_numpy(as_tensor("x", big)).tolist(), [0, 1, 2])
        self.assertEqual([numpy_type(dtype) for dtype in ("BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I32")], ["<u2", "u1", "u1", "u1", "<i4"])
        self.refused(lambda: as_tensor("x", numpy.array(["a"])), "does not know", "INVALID_ARGUMENT")

    @unittest.skipIf("torch" not in KINDS, "torch is not installed")
    def test_torchs_tensors_of_every_dtype_are_stored_and_given_back(self) -> None:
        import torch

        for dtype, name in tensors_module._TORCH.items():
            if not hasattr(torch, name):
                continue
            self.assertIs(torch_type(dtype), getattr(torch, name))
            size = tensors_module.DTYPE_BYTES[dtype]
            tensor = torch.tensor(list(bytes(6 * size)), dtype=torch.uint8).view(getattr(torch, name)).reshape(2, 3)
            for value in tensor, tensor.T, tensor[:0]:
                found = as_tensor("x", value)
                self.assertEqual((found.dtype, found.shape, len(found.data)), (dtype, tuple(value.shape), value.numel() * size))
                back = to_torch(found._replace(data=bytearray(found.data)))
                self.assertEqual((back.dtype, tuple(back.shape)), (value.dtype, tuple(value.shape)))
        self.assertEqual(bytes(as_tensor("x", torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).T).data), b"\1\3\2\4")
        with mock.patch.dict(tensors_module._TORCH, {"U8": "no_such_dtype"}):
            self.refused(lambda: torch_type("U8"), "no dtype for U8", "UNSUPPORTED_ENCODING")
        self.refused(lambda: as_tensor("x", torch.zeros(1, dtype=torch.complex128)), "does not know", "INVALID_ARGUMENT")

    def test_a_row_that_fills_up_says_so_or_is_empty(self) -> None:
        for data, metadata, expected in (b"", {}, True), (b"a", {}, False), (b"a", {PADDING: ""}, True):
            self.assertEqual(is_padding(data, metadata), expected)
        padded = encode_safetensors({"a": Tensor("U8", (1,), b"a")}, {PADDING: ""})
        for data, expected in (b"", True), (padded, True), (padded[:-1], False), (padded + b"x", False), (struct.pack("<Q", len(padded)) + padded[8:], False), (b"short", False):
            self.assertEqual(slice_is_padding(data), expected, data)
        plain = encode_safetensors({PADDING: Tensor("U8", (1,), b"a")})
        self.assertFalse(slice_is_padding(plain))
        with mock.patch("batchweave.format.padding.read_layout", side_effect=AssertionError):
            self.assertFalse(slice_is_padding(encode_safetensors({"a": Tensor("U8", (18,), PADDING.encode())})), "it is not looked into")


class Blocks(Cases):
    samples = [BlockSample("a", 3, b"abc", (4, 5), {"f": 1.5}), BlockSample("", 0, b""), BlockSample("é", 0xFFFF_FFFF, bytearray(b"de"), (), {"g": 2})]

    def test_a_block_is_a_table_and_what_it_tells_of(self) -> None:
        table, payload = encode_sample_block("s", self.samples, [(0, {"why": 1}), (3, None)])
        self.assertEqual(payload, b"abcde")
        found = decode_sample_table(table, 5, "k")
        self.assertEqual((found.source, found.faults), ("s", [(0, {"why": 1}), (3, None)]))
        self.assertEqual([tuple(entry) for entry in found.samples], [
            ("a", 3, 0, 3, crc32(b"abc"), (4, 5), {"f": 1.5}), ("", 0, 3, 0, 0, (), {}), ("é", 0xFFFF_FFFF, 3, 2, crc32(b"de"), (), {"g": 2.0}),
        ])
        tensors, metadata = decode_safetensors(table)
        self.assertEqual({n: (t.dtype, t.shape) for n, t in tensors.items()}, {
            **{n: ("U32", (3,)) for n in ("length", "crc", "tokens", "id_length", "image_count")}, "images": ("U32", (2,)), "ids": ("U8", (3,)), "feature/f": ("F64", (3,)), "feature/g": ("F64", (3,)),
        })
        self.refused(lambda: check_sample(b"ab", found.samples[0], "k"), "sample 'a' has 2 bytes, not 3")
        self.refused(lambda: check_sample(b"abd", found.samples[0], "k"), "sample 'a' does not match its checksum")
        bare, _ = encode_sample_block("s", [BlockSample("a", 3, b"abc")])
        self.assertEqual((set(decode_safetensors(bare)[0]), decode_safetensors(bare)[1]), ({"length", "crc", "tokens", "id_length", "ids"}, {"source": "s"}))
        self.assertEqual((decode_sample_table(bare, 3, "k").samples[0].images, decode_sample_table(bare, 3, "k").faults), ((), []))

    def test_samples_and_blocks_have_limits(self) -> None:
        for bad in (
            BlockSample(5, 1, b""), BlockSample("a", -1, b""), BlockSample("a", 2**32, b""), BlockSample("a", 1.5, b""), BlockSample("a", 1, b"", (-1,)), BlockSample("a", 1, b"", (2**32,)),  # type: ignore[arg-type]
            BlockSample("a", 1, b"", (), {"f": math.nan}), BlockSample("a", 1, b"", (), {"f": math.inf}), BlockSample("a", 1, b"", (), {"f": "1"}),  # type: ignore[dict-item]
        ):
            self.refused(lambda: encode_sample_block("s", [bad]), "A sample of a block needs", "INVALID_ARGUMENT")
        encode_sample_block("s", [BlockSample("a", 0, b"", (0, 0xFFFF_FFFF), {"f": 0})])
        self.assertEqual((block_module.BLOCK_SAMPLES_MAX, block_module.BLOCK_BYTES_MAX), (1_048_576, 4_294_967_295))
        for samples, size, is_right in (3, 5, True), (2, 5, False), (3, 4, False):
            with mock.patch.object(block_module, "BLOCK_SAMPLES_MAX", samples), mock.patch.object(block_module, "BLOCK_BYTES_MAX", size):
                if is_right:
                    encode_sample_block("s", self.samples)
                else:
                    self.assertEqual(self.refused(lambda: encode_sample_block("s", self.samples), "Write smaller blocks", "LIMIT").details, {"samples": 3, "bytes": 5})

    def test_a_table_whose_columns_do_not_fit_is_refused(self) -> None:
        table, _ = encode_sample_block("s", self.samples, [(1, 2)])
        tensors, metadata = decode_safetensors(table)

        def decode(changes: Any = None, size: int = 5, texts: Any = None) -> Any:
            parts = {**tensors, **(changes or {})}
            return decode_sample_table(encode_safetensors({n: t for n, t in parts.items() if t is not None}, metadata if texts is None else texts), size, "k")

        self.assertEqual(len(decode().samples), 3)
        short = Tensor("U32", (2,), bytes(8))
        for name in ("crc", "tokens", "id_length", "image_count"):
            self.refused(lambda: decode({name: short}), f"column {name} has not 3 entries")
            self.refused(lambda: decode({name: Tensor("I32", (3,), bytes(12))}), f"no column {name} of U32")
        for changes, part in (
            ({"length": None}, "no column length of U32"), ({"length": Tensor("U32", (3, 1), bytes(12))}, "no column length"), ({"crc": None}, "no column crc"), ({"ids": None}, "no column ids of U8"),
            ({"ids": Tensor("U8", (4,), b"abcd")}, "column ids has 4 entries, not 3"), ({"images": Tensor("U32", (1,), bytes(4))}, "column images has 1 entries, not 2"),
            ({"ids": Tensor("U8", (3,), b"a\xff\xff")}, "not UTF-8"), ({"feature/f": Tensor("F64", (2,), bytes(16))}, "column feature/f has not 3"), ({"feature/f": Tensor("F32", (3,), bytes(12))}, "no column feature/f of F64"),
        ):
            self.refused(lambda: decode(changes), part)
        for size in 4, 6:
            self.refused(lambda: decode(size=size), f"its samples take 5 bytes and its payload has {size}")
        self.refused(lambda: decode(texts={}), "names no source")
        for faults, is_right in ("[[0,1],[3,2]]", True), ("[]", True), ("[[4,1]]", False), ("[[-1,1]]", False), ("[[0]]", False), ("[[0,1,2]]", False), ("{}", False), ("[5]", False), ("[[true,1]]", False), ("x", False):
            if is_right:
                self.assertEqual(decode(texts={"source": "s", "faults": faults}).faults, [tuple(pair) for pair in json.loads(faults)])
            else:
                self.refused(lambda: decode(texts={"source": "s", "faults": faults}), "not a list of [sample, fault]")


if __name__ == "__main__":
    unittest.main()
