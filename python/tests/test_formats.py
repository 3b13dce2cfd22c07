"""Property: every value that a stored object, a key, a cursor or a header may have is taken at the very edge of what FORMAT.md allows, and refused one step beyond.

Method: tables with values on both sides of each edge, written and read back; what the conformance cases have is not repeated.
"""
from __future__ import annotations

import dataclasses
import sys
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.format import checksum
from batchweave.format.cursor import make_cursor, parse_cursor, translate_cursor
from batchweave.format.descriptor import EXTENTS_MAX, Descriptor, Extent, decode_descriptor, is_stride
from batchweave.format.index_node import FANOUT, Run, decode_levels, decode_node, decode_reference, decode_root, decode_run, decode_segment, steps_per_node
from batchweave.format.keys import (
    LeavingIntent, OpeningIntent, assert_name, batch_intents, batch_key, life_folder, manifest_key, opening_intent_key, parse_intent_key, parse_manifest_key,
)
from batchweave.format.manifest import Manifest, decode_boundary, decode_manifest, genesis
from batchweave.format.namespace_spec import Ancestor, Fork, StepRange, decode_namespace
from batchweave.format.producer_state import LastBatch, ProducerState, decode_state, decode_table
from batchweave.format.pulse import PULSE_BYTES_MAX, PulseName, encode_pulse, parse_pulse_key
from batchweave.format.stored_json import SAFE_INTEGER_MAX, STORED_JSON_BYTES_MAX, UNKNOWN_DEPTH_MAX, check_unknown, crc_text, load_json, open_json, seal_json
from batchweave.log.draft import encode_manifest

UUID, OTHER = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5", "00000000-58a4-4d0c-9a3e-2b7c90d1e4f5"
ME = "0123456789ab"
MANY = SAFE_INTEGER_MAX
WRONG = (-1, MANY + 1, 1.5, True, "1", None)


class Cases(unittest.TestCase):
    def refused(self, call: Any, part: str = "", code: str = "CORRUPT") -> BatchWeaveError:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception.message)
        self.assertIn(part, caught.exception.message)
        return caught.exception

    def each_wrong(self, call: Any, fields: dict[str, Any]) -> None:
        """Every field of a whole number: refused with each wrong value, taken with 0 and the largest."""
        for name in fields:
            for bad in WRONG:
                self.refused(lambda: call({**fields, name: bad}))
            for good in 0, MANY:
                call({**fields, name: good})


class Cursors(Cases):
    def test_a_cursor_is_taken_as_text_bytes_or_object_and_only_whole(self) -> None:
        cursor = make_cursor(UUID, MANY, 0)
        text = '{"batchweave":1,"namespace":"%s","row":%d,"iteration":0}' % (UUID, MANY)
        for given in (cursor, text, text.encode(), {"batchweave": 1, "namespace": UUID, "row": MANY, "iteration": 0}):
            self.assertEqual(parse_cursor(given), cursor)
        for change, part in (
            ({"batchweave": True}, "it needs"), ({"batchweave": "1"}, "it needs"), ({"namespace": 5}, "it needs"), ({"row": MANY + 1}, '"row"'), ({"row": -1}, '"row"'),
            ({"row": True}, '"row"'), ({"iteration": -1}, '"iteration"'), ({"iteration": 1.5}, '"iteration"'), ({"iteration": 1}, '"check" does not match'),
        ):
            self.refused(lambda: parse_cursor({**cursor, **change}), part, "INVALID_ARGUMENT")
        self.refused(lambda: parse_cursor({**cursor, "batchweave": 2}), "version 2", "UNSUPPORTED_FORMAT")
        self.refused(lambda: parse_cursor([1]), "not an object", "INVALID_ARGUMENT")
        self.refused(lambda: parse_cursor("x"), "not JSON", "INVALID_ARGUMENT")

    def test_an_ancestors_cursor_goes_on_at_the_same_row_or_at_the_next_that_was_kept(self) -> None:
        def translate(row: int, *ranges: tuple[int, int, int], rows: int = 2) -> Any:
            fork = Fork([], Run(0, []), 0, [Ancestor(OTHER, "x", []), Ancestor(UUID, "x", [StepRange(*r) for r in ranges])], [])
            return translate_cursor(make_cursor(UUID, row, 9), fork, rows)

        whole = ((0, 0, 2), (0, 5, 5), (5, 0, 12), (5, 3, 14), (8, 0, 20))
        for step, r, expected in (
            (1, 0, None), (2, 0, 0), (4, 1, 0), (5, 0, 0), (5, 1, 1), (9, 1, 9), (10, 0, 10), (11, 1, 10), (12, 1, None), (13, 0, 10), (14, 1, 11), (16, 1, 15), (17, 0, 16), (20, 0, 16),
            (20, 1, None), (21, 0, None),
        ):
            found = translate(2 * step + r, *whole)
            self.assertEqual(found, None if expected is None else (expected, 9), (step, r))
        self.assertEqual(translate(24, (0, 0, 0), (3, 0, 4), (3, 5, 10)), (10, 9))
        self.assertEqual(translate(24, (0, 0, 0), (0, 1, 4), (1, 5, 10)), (6, 9))
        self.assertIsNone(translate(24))
        self.assertIsNone(translate_cursor(make_cursor(UUID, 4, 1), None, 2))


class Descriptors(Cases):
    fields = {"epoch": 2, "seq": 7, "base": 5, "attempt": 1}

    def stored(self, fields: dict[str, Any], producer: Any = "p", incarnation: Any = ME, extents: Any = None, more: Any = ()) -> list[Any]:
        return [producer, fields["epoch"], incarnation, fields["seq"], fields["base"], fields["attempt"], [[1, 2, 3, 4]] if extents is None else extents, *more]

    def test_a_descriptor_is_read_back_as_it_was_written(self) -> None:
        extents = (Extent(1, 2, 3, 4),)
        for origin, stride, rest, more in (
            (None, None, (), []), (0, None, (), [0]), (3, None, (), [3]), (None, 9, (), [-1, 9]), (3, 9, (), [3, 9]), (None, 9, ("x", [1]), [-1, 9, "x", [1]]), (2, None, ("x",), [2, "x"]),
            (None, None, (8,), [-1, 8]), (None, MANY, (), [-1, MANY]),
        ):
            made = Descriptor("p", 2, ME, 7, 5, 1, extents, origin, stride, rest)
            self.assertEqual(made.stored(), self.stored(self.fields, more=more))
            self.assertEqual(decode_descriptor(made.stored(), "k"), made)
        for value, expected in (8, False), (9, True), (MANY, True), (MANY + 1, False), (True, False), (9.0, False), ("9", False):
            self.assertEqual(is_stride(value), expected, value)

    def test_every_field_of_a_descriptor_is_checked(self) -> None:
        self.each_wrong(lambda fields: decode_descriptor(self.stored(fields), "k"), self.fields)
        for changes in (
            {"producer": "-p"}, {"producer": 5}, {"incarnation": "x"}, {"incarnation": ""}, {"extents": []}, {"extents": [[1, 2, 3]]}, {"extents": [[1, 2, 3, -1]]}, {"extents": [[1, 2, 3, "4"]]},
            {"extents": 5}, {"more": [-2]}, {"more": ["x"]}, {"extents": [[1, 2, 3, 4]] * (EXTENTS_MAX + 1)},
        ):
            self.refused(lambda: decode_descriptor(self.stored(self.fields, **changes), "k"))
        self.assertEqual(len(decode_descriptor(self.stored(self.fields, extents=[[1, 2, 3, 4]] * EXTENTS_MAX), "k").extents), EXTENTS_MAX)
        self.assertEqual(decode_descriptor(self.stored(self.fields, incarnation="", extents=[]), "k").extents, ())
        self.refused(lambda: decode_descriptor(self.stored(self.fields)[:6], "k"), "descriptor.extents is not a list")
        self.refused(lambda: decode_descriptor([], "k"), "is not a name")
        self.refused(lambda: decode_descriptor(self.stored(self.fields, extents=[{}]), "k"), "", "UNSUPPORTED_FORMAT")
        deep: Any = 1
        for _ in range(UNKNOWN_DEPTH_MAX + 1):
            deep = [deep]
        decode_descriptor(self.stored(self.fields, more=[-1, deep[0]]), "k")
        self.refused(lambda: decode_descriptor(self.stored(self.fields, more=[-1, deep]), "k"), "nested more than 64")

    def test_unknown_values_may_be_nested_so_deep(self) -> None:
        deep: Any = 1
        for depth in range(UNKNOWN_DEPTH_MAX + 2):
            for value in [deep], [[5, deep]], iter([deep]):
                wanted = depth + (1 if isinstance(value, list) and isinstance(value[0], list) and value[0][:1] == [5] else 0)
                if wanted <= UNKNOWN_DEPTH_MAX:
                    check_unknown(value, "k")
                else:
                    self.refused(lambda: check_unknown(value, "k"), "nested more than 64")
            deep = {"a": deep} if depth % 2 else [deep]


class Keys(Cases):
    def test_keys_hold_numbers_up_to_the_last(self) -> None:
        for version in (0, 1, MANY):
            self.assertEqual(parse_manifest_key(manifest_key(version)), version)
        for key in (manifest_key(MANY + 1), "manifest/1.json", "x" + manifest_key(1), manifest_key(1) + "x", manifest_key(1).replace("0", "a", 1)):
            self.assertIsNone(parse_manifest_key(key))
        self.assertEqual((life_folder(1, UUID), life_folder(2, UUID)), ("", f"life/{UUID}/"))
        d = Descriptor("p", 2, ME, 7, 5, 1)
        self.assertEqual(batch_key(d, 3), f"batch/{checksum.crc32(f'p-2-7-{ME}1'.encode()) & 255:02x}/00000000000000000005/p-2-7-{ME}1.3.tgb")
        for good in ("a", "_a.b-c", "0" * 64):
            assert_name(good, "It")
        for bad in ("", "-a", ".a", "0" * 65, "a/b", "__proto__", 5, None):
            self.refused(lambda: assert_name(bad, "It"), "It ", "INVALID_ARGUMENT")

    def test_an_intent_is_exactly_what_its_name_says(self) -> None:
        def sealed(name: str, namespace: str = UUID) -> str:
            return f"intent/0/{name}-{crc_text(checksum.crc32(f'{namespace}/{name}'.encode()))}"

        for name, expected in (
            (f"p-{MANY}-open-{ME}", OpeningIntent("p", MANY, ME)), (f"p-0-open-{ME}", OpeningIntent("p", 0, ME)), (f"p-{MANY + 1}-open-{ME}", None), (f"p-01-open-{ME}", None),
            (f"-p-1-open-{ME}", None), (f"p-5-left-{ME}", LeavingIntent("p", 5, ME)), (f"p-{MANY + 1}-left-{ME}", None), (f"-p-1-left-{ME}", None), (f"p-00-left-{ME}", None),
            (f"p-2-7-{ME}0-5-1.2.3.4", [Descriptor("p", 2, ME, 7, 5, 0, (Extent(1, 2, 3, 4),))]), (f"p-02-7-{ME}0-5-1.2.3.4", None), (f"p-2-07-{ME}0-5-1.2.3.4", None),
            (f"p-2-7-{ME}00-5-1.2.3.4", None), (f"p-2-7-{ME}0-05-1.2.3.4", None), (f"-p-2-7-{ME}0-5-1.2.3.4", None), (f"p-2-7-{ME}0-5-1.2.3.04", None), (f"p-2-7-{ME}0-5-1.2.3.{MANY + 1}", None),
            (f"p-2-7-{ME}0-5-1.2.3.4s9", [Descriptor("p", 2, ME, 7, 5, 0, (Extent(1, 2, 3, 4),), None, 9)]), (f"p-2-7-{ME}0-5-1.2.3.4s8", None), (f"p-2-7-{ME}0-5-1.2.3.4s09", None),
            (f"p-2-{MANY}-{ME}0-5-1.2.3.4", [Descriptor("p", 2, ME, MANY, 5, 0, (Extent(1, 2, 3, 4),))]), (f"p-2-{MANY}-{ME}0-5-1.2.3.4_...", None),
            (f"p-2-7-{ME}0-5-1.2.3.4_..5.", [Descriptor("p", 2, ME, 7 + i, 5, 0, (Extent(1, 2, 3 + 2 * i, 4),)) for i in range(2)]), (f"p-2-7-{ME}0-5-1.2.3.4_...-...", None),
            (f"p-2-7-{ME}0-5-1.2.3.4-5.6.7.8_...", [Descriptor("p", 2, ME, 7, 5, 0, (Extent(1, 2, 3, 4), Extent(5, 6, 7, 8))), Descriptor("p", 2, ME, 8, 5, 0, (Extent(1, 2, 3, 4),))]),
            (f"p-2-7-{ME}0-5-1.2.3.4s9_...s", [Descriptor("p", 2, ME, 7 + i, 5, 0, (Extent(1, 2, 3, 4),), None, 9) for i in range(2)]),
            (f"p-2-7-{ME}0-5-1.2.3.4s9_...", [Descriptor("p", 2, ME, 7 + i, 5, 0, (Extent(1, 2, 3, 4),), None, None if i else 9) for i in range(2)]), (f"p-2-7-{ME}0-5-1.2.3.4_...s", None),
            ("nonsense", None),
        ):
            self.assertEqual(parse_intent_key(UUID, sealed(name)), expected, name)
        self.assertIsNone(parse_intent_key(UUID, sealed(f"p-0-open-{ME}", OTHER)))
        self.assertIsNone(parse_intent_key(UUID, "x" + sealed(f"p-0-open-{ME}")))
        shard = f"{checksum.crc32(b'p') % 16:x}"
        self.assertTrue(opening_intent_key(UUID, OpeningIntent("p", 3, ME)).startswith(f"intent/{shard}/p-3-open-{ME}-"))

    def test_a_name_holds_as_many_batches_as_fit_into_240_characters(self) -> None:
        def batch(seq: int, table: int, stride: int | None = None) -> Descriptor:
            return Descriptor("p", 2, ME, seq, 5, 0, (Extent(1, 2, table, 4),), None, stride)

        for stride in None, 9:
            for width in range(1, 16):
                batches = [batch(seq, int(f"1{seq:0{width}d}"), stride) for seq in range(60)]
                keys, all_named = batch_intents(UUID, batches)
                names = [key.split("/")[2] for key in keys]
                self.assertTrue(all_named and all(len(name) <= 240 for name in names))
                self.assertTrue(all(len(name) > 240 - width - 8 for name in names[:-1]), "none has room for one more")
                found = [d for key in keys for d in parse_intent_key(UUID, key) or []]
                self.assertEqual(found, batches)
        for length in range(1, 65):
            large = Descriptor("p" * length, 2, ME, 7, 5, 0, tuple(Extent(10**8, 10**9, 10**9, 10**8) for _ in range(4)))
            keys, all_named = batch_intents(UUID, [large])
            name = f"{'p' * length}-2-7-{ME}0-5-" + "-".join(["100000000.1000000000.1000000000.100000000"] * 4)
            self.assertEqual(all_named, len(name) + 9 <= 240, length)


class Checksums(unittest.TestCase):
    def test_a_faster_library_is_used_only_if_it_is_right(self) -> None:
        import zlib

        def wrong(data: bytes, start: int = 0) -> int:
            return 5

        for found, expected in (zlib.crc32, "isal"), (wrong, "zlib"):
            isal = SimpleNamespace(isal_zlib=SimpleNamespace(crc32=found))
            with mock.patch.dict(sys.modules, {"isal": isal}):  # type: ignore[dict-item]
                crc, source = checksum._load()
            self.assertEqual((source, crc(b"123456789")), (expected, 0xCBF43926))
        with mock.patch.dict(sys.modules, {"isal": None}):
            self.assertEqual(checksum._load()[1], "zlib")


class Objects(Cases):
    """Manifests, markers, tables and namespaces."""

    def spec(self, rows: Any = 2, chunks: Any = 2, **more: Any) -> Any:
        fields = {"grid": {"rows": rows, "chunks": chunks}, "order": {"kind": "commit"}, "created": 1, **more}
        return decode_namespace(seal_json("namespace", more.pop("uuid", UUID), fields), "namespace.json")

    def test_the_grid_and_the_lanes_have_limits(self) -> None:
        for rows, chunks, is_right in (1, 1, True), (65_536, 1, True), (256, 256, True), (65_537, 1, False), (0, 1, False), (1, 0, False), (257, 256, False), (-1, 1, False), (True, 1, False):
            if is_right:
                self.assertEqual((self.spec(rows, chunks).rows, self.spec(rows, chunks).chunks), (rows, chunks))
            else:
                self.refused(lambda: self.spec(rows, chunks))
        for lanes, is_right in (1, True), (4_096, True), (0, False), (4_097, False), (None, False), ("2", False):
            order = {"kind": "lanes", "lanes": lanes}
            if is_right:
                self.assertEqual(self.spec(order=order).lanes, lanes)
            else:
                self.refused(lambda: self.spec(order=order))
        self.refused(lambda: self.spec(order={"kind": "new"}), "order", "UNSUPPORTED_FORMAT")
        self.assertIsNone(self.spec(order={"kind": "commit", "lanes": 5}).lanes)
        for bad in WRONG:
            self.refused(lambda: self.spec(created=bad))

    def test_a_fork_begins_where_its_parts_say(self) -> None:
        def origin(ranges: Any, **more: Any) -> dict[str, Any]:
            return {"uuid": OTHER, "uri": "x", "root": [1, ME, 0, 7], "ranges": ranges, **more}

        for fork, trim, first in (
            ({"origins": [], "tail": {"start": 5, "batches": []}}, 5, 5), ({"origins": [origin([[3, 2, 9], [2, 1, 0]])], "tail": {"start": 5, "batches": []}}, 2, 5),
            ({"origins": [], "tail": {"start": 5, "batches": []}, "trim": 5}, 5, 5), ({"origins": [], "tail": {"start": 5, "batches": []}, "trim": 0}, 0, 5),
        ):
            spec = self.spec(fork=fork)
            self.assertEqual((spec.fork.trim, spec.first_own_step), (trim, first))
        self.refused(lambda: self.spec(fork={"origins": [], "tail": {"start": 5, "batches": []}, "trim": 6}), "trim lies above")
        for format, is_right in (1, True), (2, True), (0, False), (3, False):
            fork = {"origins": [origin([], format=format)], "tail": {"start": 0, "batches": []}}
            if is_right:
                self.assertEqual(self.spec(fork=fork).fork.origins[0].format, format)
            else:
                self.refused(lambda: self.spec(fork=fork), "", "UNSUPPORTED_FORMAT")
        self.assertEqual(self.spec(fork={"origins": [origin([])], "tail": {"start": 0, "batches": []}}).fork.origins[0].format, 1)

    def manifest(self, **changes: Any) -> Manifest:
        made = encode_manifest(genesis(self.spec()))
        fields = {**load_json(made), "version": 4, "commit": {"id": ME, "by": "x", "time": 1}, **changes}
        return decode_manifest(seal_json("manifest", UUID, {k: v for k, v in fields.items() if v is not ...}), "k", UUID, 4)

    def test_a_manifest_ends_where_its_tail_does_and_is_trimmed_below(self) -> None:
        for trim, end, is_right in (5, 5, True), (0, 5, True), (6, 5, False), (0, 6, False), (0, 4, False):
            changes = {"steps": {"trim": trim, "end": end}, "tail": {"start": 5, "batches": []}}
            if is_right:
                self.assertEqual((self.manifest(**changes).trim, self.manifest(**changes).end), (trim, 5))
            else:
                self.refused(lambda: self.manifest(**changes))
        for version in (5, True, "4", 4.5):
            self.refused(lambda: self.manifest(version=version), "it says version")

    def test_a_manifest_never_changes_and_is_itself_alone(self) -> None:
        found = self.manifest()
        with self.assertRaises(dataclasses.FrozenInstanceError):
            found.version = 5  # type: ignore[misc]
        self.assertNotEqual(found, dataclasses.replace(found))
        for is_deleted in True, False:
            fields = load_json(encode_manifest(dataclasses.replace(found, deleted=is_deleted)))
            self.assertEqual(fields.get("deleted"), True if is_deleted else None)

    def test_version_0_of_a_fork_is_what_it_inherits(self) -> None:
        fork = {"origins": [], "tail": {"start": 5, "batches": []}, "trim": 3, "tables": [[1, ME, 0, 7]]}
        for spec, expected in (self.spec(fork=fork), (3, 5, 1)), (self.spec(), (0, 0, 0)):
            found = genesis(spec)
            self.assertEqual((found.trim, found.end, len(found.tables), found.version, found.closed, found.deleted), (*expected, 0, False, False))
            self.assertEqual((found.orphan_cutoff, found.boundary_hint, found.starving, found.max_lag), (0, 0, None, None))

    def test_every_part_of_a_manifest_is_checked(self) -> None:
        deep: Any = 1
        for _ in range(UNKNOWN_DEPTH_MAX + 1):
            deep = [deep]
        pin = {"fork": OTHER, "uri": "x", "created": 1, "confirmed": True, "from": 0, "to": 1, "root": [1, ME, 0, 7]}
        group = {"live": {"c": [1, 2, 3]}, "released": ["d"]}
        commit = {"id": ME, "by": "x", "time": 1}
        good: dict[str, Any] = {"pins": {OTHER: pin}, "checkpoints": {"g": group}, "settings": {"maxLag": 5, "new": 1}, "starving": 3, "commit": {**commit, "kind": "x"}, "new": deep[0]}
        self.assertEqual(self.manifest(**good).max_lag, 5)
        for changes in (
            *({"pins": {OTHER: {**pin, name: bad}}} for name, bad in (("fork", "x"), ("uri", 5), ("created", -1), ("confirmed", 1), ("from", -1), ("to", "1"), ("root", [1, ME, 0]), ("new", deep))),
            *({"pins": {OTHER: {k: v for k, v in pin.items() if k != name}}} for name in pin),
            *({"checkpoints": {"g": {**group, name: bad}}} for name, bad in (("live", {"c": [1, 2]}), ("live", {"c": [1, 2, -3]}), ("live", {"-c": [1, 2, 3]}), ("released", ["-d"]), ("released", 5), ("new", deep))),
            *({"commit": {**commit, name: bad}} for name, bad in (("id", "x"), ("by", 5), ("time", -1), ("kind", 5))),
            {"settings": {"maxLag": -1}}, {"settings": {"maxLag": "5"}}, {"settings": {"new": deep}}, {"settings": 5}, {"starving": -1}, {"closed": 1}, {"deleted": 1}, {"orphanCutoff": -1}, {"boundaryHint": "1"},
            {"new": deep}, {"waiting": [[1]]}, {"waiting": [[-1, ["p", 2, ME, 7, 5, 1, [[1, 2, 3, 4]]]]]}, {"producers": {"-p": [2, ME, 3, 4, 0]}}, {"tables": [5]}, {"checkpoints": {"-g": group}}, {"pins": []},
        ):
            self.refused(lambda: self.manifest(**changes))
        self.assertEqual(STORED_JSON_BYTES_MAX, 67_108_864)

    def test_who_carried_a_version_is_said_or_guessed(self) -> None:
        last = LastBatch(1, 0, 0, 9, 9, 2, ME)
        own, old = ProducerState(2, ME, 3, 4, last), ProducerState(2, ME, 3, 3, last)
        for kind, states, expected in (
            ("carrier", [], True), ("open", [own], False), (None, [own], True), (None, [old], False), (None, [own._replace(last=None)], False), (None, [own._replace(epoch=3)], False),
        ):
            found = self.manifest(commit={"id": ME, "by": "x", "time": 1, **({"kind": kind} if kind else {})}, producers={f"p{i}": s.stored() for i, s in enumerate(states)})
            self.assertEqual(found.is_carriers, expected, (kind, states))

    def test_states_are_read_back_as_they_were_written(self) -> None:
        last = LastBatch(5, 1, 2, 300, 7, 2, ME)
        for state, stored in (
            (ProducerState(2, ME, 3, 4), [2, ME, 3, 4, 0]), (ProducerState(2, ME, 3, 4, last), [2, ME, 3, 4, [5, 1, 2, 300, 7]]),
            (ProducerState(3, ME, 3, 4, last), [3, ME, 3, 4, [5, 1, 2, 300, 7, 2, ME]]), (ProducerState(2, ME, 3, 4, left=2), [2, ME, 3, 4, 0, 2]),
            (ProducerState(2, ME, 3, 4, rest=("x",)), [2, ME, 3, 4, 0, 0, "x"]), (ProducerState(2, ME, 3, 4, decode_reference([1, ME, 0, 7], "k")), [2, ME, 3, 4, {"table": [1, ME, 0, 7]}]),
        ):
            self.assertEqual((state.stored(), decode_state(stored, "k")), (stored, state))
        for at in (0, 2, 3):
            for bad in WRONG:
                self.refused(lambda: decode_state([bad if i == at else v for i, v in enumerate([2, ME, 3, 4, 0])], "k"))
        for stored in ([2, "x", 3, 4, 0], [2, ME, 0, 4, [5, 1, 2, 300, 7]], [2, ME, 3, 4, 1], [2, ME, 3, 4, False], [2, ME, 3, 4], [2, ME, 3, 4, [5, 1, 2, 300]], [2, ME, 3, 4, [5, 1, 2, 300, 7, 2]],
                       [2, ME, 3, 4, [5, 1, 2, 300, 7, 2, "x"]], [2, ME, 3, 4, [5, 1, 2, -1, 7]], [2, ME, 3, 4, 0, -1], [2, ME, 3, 4, {"table": 5}]):
            self.refused(lambda: decode_state(stored, "k"))
        for left, expected in (0, False), (1, False), (2, True), (3, False):
            self.assertEqual(ProducerState(2, ME, 3, 4, left=left).has_left, expected)
        table = {"q": [[2, ME, 3, 4, 0], "point"]}
        self.assertEqual(decode_table(seal_json("table", UUID, {"producers": table}), "k", UUID)["q"].resume_point, "point")
        for bad in ({"-q": table["q"]}, {"q": [table["q"][0]]}, {"q": [[], 1]}, []):
            self.refused(lambda: decode_table(seal_json("table", UUID, {"producers": bad}), "k", UUID))

    def test_index_objects_are_full_and_at_their_place(self) -> None:
        batch = ["p", 2, ME, 7, 5, 1, [[1, 2, 3, 4]]]
        for count, start, is_right in (64, 0, True), (64, 128, True), (63, 0, False), (65, 0, False), (64, 1, False):
            data = seal_json("segment", UUID, {"start": start, "batches": [batch] * count})
            if is_right:
                self.assertEqual(decode_segment(data, "k", UUID).end, start + 64)
            else:
                self.refused(lambda: decode_segment(data, "k", UUID), "not a full segment")
        ref = [1, ME, 0, 7]
        for refs, is_right in ([0] * 64, True), ([0, ref] * 32, True), ([ref] * 63, False), ([ref] * 65, False), ([False] + [ref] * 63, False), ([1] + [ref] * 63, False):
            data = seal_json("node", UUID, {"level": 1, "start": 64, "refs": refs})
            if is_right:
                self.assertEqual([r and list(r) for r in decode_node(data, "k", UUID).refs], [r or None for r in refs])
            else:
                self.refused(lambda: decode_node(data, "k", UUID))
        for bad in ([1, ME, 0], [1, ME, 0, 7, 8], [-1, ME, 0, 7], [1, "x", 0, 7], [1, ME, -1, 7], [1, ME, 0, -7], 5):
            self.refused(lambda: decode_reference(bad, "k"))
        for bad in (5, [[0]], [[0, 5]], [[-1, []]], [[0, [5]]], [["0", []]]):
            self.refused(lambda: decode_levels(bad, "k"))
        self.assertEqual([(level.start, len(level.refs)) for level in decode_levels([[3, [ref]], [0, []]], "k")], [(3, 1), (0, 0)])
        for bad in (5, {"start": -1, "batches": []}, {"start": 0}, {"batches": []}):
            self.refused(lambda: decode_run(bad, "k"))
        root = decode_root(seal_json("root", UUID, {"index": [[0, [ref]]], "tail": {"start": 64, "batches": [batch]}}), "k", UUID)
        self.assertEqual((root.tail.end, len(root.levels)), (65, 1))
        self.assertEqual((FANOUT, [steps_per_node(level) for level in range(3)]), (64, [64, 4_096, 262_144]))

    def test_markers_have_their_number_and_a_boundary(self) -> None:
        def decode(fields: dict[str, Any], n: int = 3) -> Any:
            return decode_boundary(seal_json("boundary", UUID, fields), "k", UUID, n)

        self.assertEqual((decode({"n": 3, "upTo": 9}), decode({"n": 3, "upTo": 9, "deleted": True})), ((9, False), (9, True)))
        for bad in ({"n": 4, "upTo": 9}, {"n": 3, "upTo": -1}, {"n": 3}, {"upTo": 9}, {"n": 3, "upTo": 9, "deleted": 1}):
            self.refused(lambda: decode(bad))

    def test_stored_json_has_a_kind_a_format_and_a_namespace(self) -> None:
        for version, is_right in (1, True), (2, True), (0, False), (3, False):
            data = seal_json("x", UUID, {"a": 1}, version)
            if is_right:
                self.assertEqual(open_json(data, "k", "x", UUID)["a"], 1)
            else:
                self.refused(lambda: open_json(data, "k", "x", UUID), "", "UNSUPPORTED_FORMAT")
        data = seal_json("x", UUID, {"a": 1, "kind": "y", "crc32": "z", "format": 9})
        self.assertEqual(open_json(data, "k", "x"), {"format": 1, "kind": "x", "namespace": UUID, "a": 1, "crc32": data[-11:-3].decode()})
        self.refused(lambda: open_json(data, "k", "y", UUID), "expected a y")
        self.refused(lambda: open_json(data, "k", "x", OTHER), "", "WRONG_NAMESPACE")
        self.refused(lambda: open_json(data[:-1] + b" ", "k", "x", UUID), "checksum")
        self.refused(lambda: open_json(b"x" * 21, "k", "x", UUID))
        for body in (b'["' + b"x" * 40 + b'"', b'{"a":1}', b"5" * 30):
            self.refused(lambda: open_json(body + f',"crc32":"{crc_text(checksum.crc32(body))}"}}\n'.encode(), "k", "x"), "it is not JSON")
        self.assertEqual(load_json(b"[1.0,1e3,1.5,9007199254740991.0,9007199254740992.0,-1.0]"), [1, 1_000, 1.5, MANY, float(MANY + 1), -1])
        self.assertEqual([type(n) for n in load_json(b"[1.0,9007199254740991.0,9007199254740992.0]")], [int, int, float])
        for bad in (b"NaN", b"\xef\xbb\xbf1", b'{"a":1,"a":2}', b"[" * 100_000, b"\xff"):
            with self.assertRaises(ValueError):
                load_json(bad)


class Pulses(Cases):
    def test_a_pulse_is_late_after_two_beats_and_ten_seconds(self) -> None:
        name = PulseName("rank", "g-0", 1_000, 500, ME)
        self.assertEqual((name.is_late(1_000 + 2 * 500 + 10_000), name.is_late(1_000 + 2 * 500 + 10_001)), (False, True))
        for at, every, expected in (MANY, 0, True), (0, MANY, True), (MANY + 1, 0, False), (0, MANY + 1, False):
            key = f"pulse/rank/g-0-{at}-{every}-{ME}"
            self.assertEqual(parse_pulse_key(key), PulseName("rank", "g-0", at, every, ME) if expected else None)
        self.assertIsNone(parse_pulse_key(f"pulse/rank/-g-1-1-{ME}"))

    def test_facts_that_do_not_fit_are_left_out_the_last_first(self) -> None:
        name = PulseName("rank", "g-0", 1_000, 500, ME)
        whole = encode_pulse(UUID, name, "h" * 300, 7, 5, {"a": 1, "b": ""})
        fields = open_json(whole, "k", "pulse", UUID)
        self.assertEqual({k: fields[k] for k in ("role", "name", "at", "every", "host", "pid", "started", "facts")}, {
            "role": "rank", "name": "g-0", "at": 1_000, "every": 500, "host": "h" * 255, "pid": 7, "started": 5, "facts": {"a": 1, "b": ""},
        })
        self.assertNotIn("cut", fields)
        self.assertNotIn("machine", fields)
        self.assertEqual(open_json(encode_pulse(UUID, name, "h", 7, 5, {}, "m"), "k", "pulse", UUID)["machine"], "m")
        room = PULSE_BYTES_MAX - len(whole)
        for more, is_cut in (room, False), (room + 1, True):
            data = encode_pulse(UUID, name, "h" * 300, 7, 5, {"a": 1, "b": "x" * more})
            fields = open_json(data, "k", "pulse", UUID)
            self.assertEqual((fields.get("cut"), list(fields["facts"]), len(data) <= PULSE_BYTES_MAX), (True if is_cut else None, ["a"] if is_cut else ["a", "b"], True))
        self.assertEqual(PULSE_BYTES_MAX, 4_096)


if __name__ == "__main__":
    unittest.main()
