"""Property: a batch object is exactly the bytes that FORMAT.md 11 describes, and one that differs in any field of its footer, its seals or its table is refused for
that very field.

Method: objects written out by hand beside those of the encoder; every field of a trailer changed with its checksums made right again; both sides of each length.
"""
from __future__ import annotations

import hashlib
import io
import json
import struct
import unittest
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.format import batch as module
from batchweave.format.batch import (
    ENTRY_BYTES, SLICE_BYTES_MAX, TRAILER_BYTES, _all_frames, check_block, decode_footer, decode_metadata, decode_slice, decode_trailer, encode_extent, footer_check,
    identity_of,
)
from batchweave.format.checksum import crc32
from batchweave.format.descriptor import BatchName, Descriptor, Extent
from batchweave.format.seal import SEAL_BYTES, SEALED, SealedTable, SliceEntry, make_seal, open_sealed, owner_crc

UUID = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5"
NAME = BatchName("p", 2, "0123456789ab", 7)
TRAILER = struct.Struct("<QIIQII16sIIII8sI4s")


class Objects(unittest.TestCase):
    def refused(self, call: Any, part: str, code: str = "CORRUPT") -> BatchWeaveError:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertIn(part, caught.exception.message)
        return caught.exception

    def make(self, slices: list[bytes], first: int = 0, number: int = 0, **settings: Any) -> tuple[bytes, Extent]:
        body, extent = encode_extent(UUID, NAME, number, first, slices, {"contentType": "text/plain"}, **settings)
        return b"".join(body), extent


class Encoding(Objects):
    def test_an_object_is_what_the_format_says_byte_for_byte(self) -> None:
        slices = [b"abc", b"", b"defgh"]
        for is_sealed, lineage in (False, None), (False, b"LINE"), (True, None), (True, b"LINE"):
            parts, entries, at = [], b"", 0
            for i, piece in enumerate(slices):
                owner = crc32(f"{UUID}/p-2-7-0123456789ab/{3 + i}".encode())
                stored = piece + (struct.pack("<II", owner, crc32(piece)) if is_sealed else b"")
                entries += struct.pack("<QIIII", at, len(stored), crc32(stored), len(piece), 2 if is_sealed else 0)
                parts.append(stored)
                at += len(stored)
            fields: dict[str, Any] = {"producer": "p", "epoch": 2, "incarnation": "0123456789ab", "seq": 7, "contentType": "text/plain"}
            if lineage:
                fields["lineage"] = {"offset": at, "length": 4, "crc": crc32(lineage)}
                parts.append(lineage)
                at += 4
            metadata = json.dumps(fields, separators=(",", ":")).encode()
            identity = hashlib.sha256(b"p-2-7-0123456789ab.1").digest()[:8]
            head = TRAILER.pack(
                at, len(metadata), crc32(metadata), at + len(metadata), 72, crc32(entries), bytes.fromhex(UUID.replace("-", "")), 3, 3, 1, 1, identity, 0, b"",
            )[:72]
            whole = b"".join(parts) + metadata + entries + head + struct.pack("<I4s", crc32(head), b"TGB1")
            table = at + len(metadata)
            data, extent = self.make(slices, 3, 1, is_sealed=is_sealed, lineage=lineage)
            self.assertEqual(data, whole)
            self.assertEqual(extent, Extent(3, len(whole), table, crc32(whole[table:-8])))
            descriptor = Descriptor(*NAME, 0, 0, (Extent(3, 0, 0, 0), extent))
            footer = decode_footer(whole[table:], "k", UUID, descriptor, 1, 3)
            found = [decode_slice(whole[e.offset : e.offset + e.length], "k", e) for e in map(footer.entry, range(3))]
            self.assertEqual([bytes(piece) for piece in found], slices)
        self.assertEqual((ENTRY_BYTES, TRAILER_BYTES, SLICE_BYTES_MAX, SEAL_BYTES, SEALED), (24, 80, 4_294_967_295, 8, 2))
        self.assertEqual(self.make([b"abc"])[0], self.make([b"abc"], is_sealed=False)[0])


class Footers(Objects):
    def setUp(self) -> None:
        self.data, self.extent = self.make([b"abc", b"defgh"], 4, 1)
        self.footer = self.data[self.extent.table :]

    def changed(self, footer: bytes | None = None, **changes: Any) -> bytes:
        """The footer with fields of its trailer changed, and the trailer's checksum right."""
        data = footer or self.footer
        trailer = module.Trailer._make(TRAILER.unpack(data[-80:]))._replace(**changes)
        head = TRAILER.pack(*trailer)[:72]
        return data[:-80] + head + struct.pack("<I4s", crc32(head), trailer.magic)

    def decode(self, footer: bytes, number: int = 1, first: int = 4, name: Any = NAME, **changes: Any) -> Any:
        extent = Extent(2, self.extent.table + len(footer), self.extent.table, footer_check(footer))._replace(**changes)
        return decode_footer(footer, "k", UUID, Descriptor(*name, 0, 0, (extent, extent)), number, first)

    def test_a_trailer_is_refused_for_each_field_that_is_wrong(self) -> None:
        trailer = self.footer[-80:]
        self.assertEqual(decode_trailer(trailer, "k", UUID).cells, 2)
        for data, part, code in (
            (trailer[1:], "too short", "CORRUPT"), (b"x" + trailer, "too short", "CORRUPT"), (b"", "too short", "CORRUPT"),
            (trailer[:-1] + b"2", "does not end like a batch", "CORRUPT"), (b"\xff" + trailer[1:], "trailer's checksum", "CORRUPT"),
            (self.changed(format=2)[-80:], "version 2", "UNSUPPORTED_FORMAT"), (self.changed(format=0)[-80:], "version 0", "UNSUPPORTED_FORMAT"),
            (self.changed(namespace=bytes(16))[-80:], "belongs to namespace", "WRONG_NAMESPACE"),
            (self.changed(table_length=49)[-80:], "slice table has the wrong length", "CORRUPT"), (self.changed(cells=3)[-80:], "slice table has the wrong length", "CORRUPT"),
            (self.changed(metadata_length=1)[-80:], "does not end where its slice table begins", "CORRUPT"),
            (self.changed(metadata_offset=1)[-80:], "does not end where its slice table begins", "CORRUPT"),
        ):
            self.refused(lambda: decode_trailer(data, "k", UUID), part, code)

    def test_a_footer_is_that_of_the_commit_the_batch_and_the_extent(self) -> None:
        footer = self.decode(self.footer)
        self.assertEqual((footer.where, footer.trailer.extent, footer.entry(1)[:2]), ("k", 1, (3, 5)))
        said = self.refused(lambda: self.decode(self.footer, size=self.extent.size + 1), f"its footer has {len(self.footer)} bytes, expected {len(self.footer) + 1}")
        self.assertEqual(said.details["offset"], self.extent.table)
        said = self.refused(lambda: self.decode(self.footer, check=5), "does not match the commit")
        self.assertEqual((said.details["expected"], said.details["found"]), (5, self.extent.check))
        moved = self.changed(metadata_offset=7, table_offset=7 + decode_trailer(self.footer[-80:], "k", UUID).metadata_length)
        for data, settings, part in (
            (moved, {}, "describes another extent"), (self.footer, {"cells": 3}, "describes another extent"), (self.footer, {"first": 5}, "describes another extent"),
            (self.changed(extent=2), {}, "it is extent 2, expected 1"), (self.footer, {"number": 0}, "it is extent 1, expected 0"),
            (self.changed(identity=bytes(8)), {}, "another batch's object"), (self.footer, {"name": NAME._replace(seq=8)}, "another batch's object"),
            (self.footer[:-80] + bytes(8) + self.footer[-80:], {}, "slice table has the wrong length"),
        ):
            self.refused(lambda: self.decode(data, **settings), part)
        self.assertEqual(identity_of(NAME, 3), hashlib.sha256(b"p-2-7-0123456789ab.3").digest()[:8])
        self.assertEqual([footer_check(data) for data in (b"", b"abc", b"12345678", b"a12345678")], [0, 0, 0, crc32(b"a")])

    def test_a_slice_lies_within_the_data(self) -> None:
        end = decode_trailer(self.footer[-80:], "k", UUID).metadata_offset
        for offset, length, is_right in (0, end, True), (end, 0, True), (end - 3, 3, True), (end - 3, 4, False), (end + 1, 0, False), (1, end, False):
            entries = struct.pack("<QIIII", offset, length, 0, 0, 0) + self.footer[24:48]
            footer = self.decode(entries + self.footer[48:])
            if is_right:
                self.assertEqual(footer.entry(0)[:2], (offset, length))
            else:
                self.assertEqual(self.refused(lambda: footer.entry(0), "slice 4 lies outside its data").details["offset"], offset)

    def test_metadata_is_an_object_under_its_checksum(self) -> None:
        trailer = decode_trailer(self.footer[-80:], "k", UUID)
        block = self.data[trailer.metadata_offset : trailer.metadata_offset + trailer.metadata_length]
        self.assertEqual(decode_metadata(block, "k", trailer)["contentType"], "text/plain")
        for data in (block[:-1], block + b" ", b"[" + block[1:]):
            self.assertEqual(self.refused(lambda: decode_metadata(data, "k", trailer), "metadata does not match its checksum").details["offset"], trailer.metadata_offset)
        for data, part in (b"{", "not JSON"), (b"[]", "metadata is not an object"):
            self.refused(lambda: decode_metadata(data, "k", trailer._replace(metadata_length=len(data), metadata_crc=crc32(data))), part)
        check_block(b"abc", "k", 0, 3, crc32(b"abc"), "block")


class Sealed(Objects):
    def test_a_sealed_slice_is_that_of_its_batch_and_its_place(self) -> None:
        owner = owner_crc(UUID, NAME, 3)
        stored = b"abc" + make_seal(UUID, NAME, 3, crc32(b"abc"))
        self.assertEqual(bytes(open_sealed(stored, "k", owner)), b"abc")
        self.assertEqual(bytes(decode_slice(stored, "k", SliceEntry(0, 11, 0, 3, SEALED, owner))), b"abc")
        self.assertEqual(bytes(open_sealed(make_seal(UUID, NAME, 3, 0), "k", owner)), b"")
        self.refused(lambda: open_sealed(stored, "k", owner_crc(UUID, NAME, 4)), "is not that slice of this batch")
        said = self.refused(lambda: open_sealed(b"abd" + stored[3:], "k", owner), "does not match its checksum")
        self.assertEqual((said.details["expected"], said.details["found"]), (crc32(b"abc"), crc32(b"abd")))
        self.refused(lambda: decode_slice(stored, "k", SliceEntry(0, 12, 0, 4, SEALED, owner)), "has 11 bytes, expected 12")
        # The owner 0 is one too.
        self.refused(lambda: decode_slice(stored, "k", SliceEntry(0, 11, crc32(stored), 3, SEALED, 0)), "is not that slice of this batch")
        self.assertEqual(bytes(decode_slice(stored, "k", SliceEntry(0, 11, crc32(stored), 3, SEALED))), b"abc")

    def test_slices_of_one_length_need_no_table(self) -> None:
        descriptor = Descriptor(*NAME, 0, 0, (Extent(2, 300, 30, 1), Extent(2, 300, 33, 1)), stride=11)
        table = SealedTable(UUID, descriptor, 1, 2)
        for i in range(3):
            self.assertEqual(table.entry(i), SliceEntry(11 * i, 11, 0, 3, SEALED, owner_crc(UUID, NAME, 2 + i)))
        self.refused(lambda: table.entry(3), "slices of 11 bytes do not fit before its table")
        self.refused(lambda: SealedTable(UUID, descriptor, 0, 0).entry(2), "do not fit")


class Compressed(Objects):
    """`compression.zstd` is in Python 3.14 only: a stand-in with its calls, of frames that say their length in a byte."""

    class Zstd:
        class ZstdDecompressor:
            eof, unused_data = False, b""

            def decompress(self, data: bytes, max_length: int) -> bytes:
                length, rest = data[0], data[1:]
                found = rest[: min(length, max_length)]
                self.eof = len(found) == length
                self.unused_data = rest[length:] if self.eof else b""
                return found

    def test_frames_one_after_another_never_more_than_one_byte_over_what_was_said(self) -> None:
        for data, limit, expected in (
            (b"\3abc", 3, b"abc"), (b"\3abc\2de", 5, b"abcde"), (b"\3abc\2de", 3, b"abcd"), (b"\3abc\2de", 4, b"abcde"), (b"\5abcde", 3, b"abcd"), (b"", 3, b""), (b"\0", 3, b""),
            (b"\3abc\0\2de", 5, b"abcde"), (b"\5abcde\2fg", 3, b"abcd"),
        ):
            self.assertEqual(bytes(_all_frames(self.Zstd, data, limit)), expected, (data, limit))
        for data, limit in ((b"\5abc", 5), (b"\5abc", 3), (b"\3abc\2d", 9)):
            with self.assertRaises(EOFError):
                _all_frames(self.Zstd, data, limit)

    def test_the_package_zstandard_is_read_as_a_stream(self) -> None:
        asked: list[Any] = []

        class Reader(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                asked.append(size)
                return super().read(size)

        class Package:
            class ZstdDecompressor:
                decompressobj = None

                def stream_reader(self, data: bytes, read_across_frames: bool) -> Any:
                    asked.append(read_across_frames)
                    return Reader(data)

        self.assertEqual((bytes(_all_frames(Package, b"abcdef", 3)), asked), (b"abcd", [True, 4]))
        self.assertEqual(bytes(_all_frames(Package, b"abcdef", 9)), b"abcdef")

    def test_the_package_reads_one_byte_over_what_was_said_and_no_more(self) -> None:
        try:
            import zstandard
        except ImportError:
            self.skipTest("the package zstandard is not installed")
        data = zstandard.ZstdCompressor().compress(b"a" * 1_000)
        self.assertEqual([len(_all_frames(zstandard, data, limit)) for limit in (10, 999, 1_000, 1_001)], [11, 1_000, 1_000, 1_000])

    def test_without_a_decoder_the_package_is_named(self) -> None:
        with mock.patch.dict("sys.modules", {"compression": None, "zstandard": None}):
            self.refused(lambda: decode_slice(b"abc", "k", SliceEntry(0, 3, crc32(b"abc"), 9, 1)), "zstandard", "UNSUPPORTED_ENCODING")


if __name__ == "__main__":
    unittest.main()
