"""Batch objects (FORMAT.md 11): slices, lineage, metadata, slice table, trailer. Every byte is under a checksum."""
from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import Any, NamedTuple, Sequence

from ..errors import BatchWeaveError, corrupt
from .checksum import crc32
from .descriptor import Descriptor, Extent, Named
from .seal import SEAL_BYTES, SEALED, SliceEntry, make_seal, open_sealed
from .stored_json import FORMAT_VERSION, as_integer, as_record, dump_json, load_json, unsupported_format, wrong_namespace

ENTRY_BYTES = 24
TRAILER_BYTES = 80
SLICE_BYTES_MAX = 2**32 - 1
SAFETENSORS_TYPE = "application/vnd.safetensors"
_MAGIC = b"TGB1"
_ENTRY = struct.Struct("<QIIII")
_TRAILER = struct.Struct("<QIIQII16sIIII8sI4s")


class Trailer(NamedTuple):
    """The fixed-size end of a batch object."""

    metadata_offset: int
    metadata_length: int
    metadata_crc: int
    table_offset: int
    table_length: int
    table_crc: int
    namespace: bytes
    first_cell: int
    cells: int
    extent: int
    format: int
    identity: bytes
    crc: int
    magic: bytes


@lru_cache(maxsize=64)
def _uuid_bytes(namespace: str) -> bytes:
    return bytes.fromhex(namespace.replace("-", ""))


def identity_of(d: Named, extent: int) -> bytes:
    """First 8 bytes of SHA-256 of the batch's name, so that an object under another batch's key is noticed."""
    text = f"{d.producer}-{d.epoch}-{d.seq}-{d.incarnation}.{extent}"
    return hashlib.sha256(text.encode()).digest()[:8]


def encode_extent(
    namespace: str,
    name: Named,
    extent: int,
    first_cell: int,
    slices: Sequence[Any],
    metadata: dict[str, Any],
    lineage: bytes | None = None,
    is_sealed: bool = False,
) -> tuple[list[Any], Extent]:
    """Buffers to store one after another, and the extent that a descriptor names.

    Base and attempt do not take part: uploading again stores the same bytes.
    """
    entries = bytearray()
    offset = 0
    body: list[Any] = []
    for i, piece in enumerate(slices):
        n, crc = len(piece), crc32(piece)
        if n:
            body.append(piece)
        if is_sealed:
            seal = make_seal(namespace, name, first_cell + i, crc)
            body.append(seal)
            entries += _ENTRY.pack(offset, n + SEAL_BYTES, crc32(seal, crc), n, SEALED)
            offset += n + SEAL_BYTES
        else:
            entries += _ENTRY.pack(offset, n, crc, n, 0)
            offset += n
    described: dict[str, Any] = {
        "producer": name.producer,
        "epoch": name.epoch,
        "incarnation": name.incarnation,
        "seq": name.seq,
        **metadata,
    }
    if lineage is not None:
        described["lineage"] = {"offset": offset, "length": len(lineage), "crc": crc32(lineage)}
        body.append(lineage)
        offset += len(lineage)
    block = dump_json(described)
    table = offset + len(block)
    head = _TRAILER.pack(
        offset, len(block), crc32(block), table, len(entries), crc32(entries),
        _uuid_bytes(namespace), first_cell, len(slices), extent, FORMAT_VERSION,
        identity_of(name, extent), 0, _MAGIC,
    )[:72]
    trailer = head + struct.pack("<I4s", crc32(head), _MAGIC)
    footer = bytes(entries) + trailer
    body += [block, footer]
    return body, Extent(len(slices), table + len(footer), table, crc32(footer[:-8]))


def decode_trailer(data: Any, where: str, namespace: str) -> Trailer:
    """Decodes and checks the last 80 bytes of a batch object."""
    if len(data) != TRAILER_BYTES:
        raise corrupt(where, "it is too short to be a batch")
    t = Trailer._make(_TRAILER.unpack(data))
    if t.magic != _MAGIC:
        raise corrupt(where, "it does not end like a batch")
    if crc32(memoryview(data)[:72]) != t.crc:
        raise corrupt(where, "its trailer's checksum does not match")
    if t.format != FORMAT_VERSION:
        raise unsupported_format(where, t.format)
    if t.namespace != _uuid_bytes(namespace):
        raise wrong_namespace(where, t.namespace.hex(), namespace)
    if t.table_length != t.cells * ENTRY_BYTES:
        raise corrupt(where, "its slice table has the wrong length")
    if t.metadata_offset + t.metadata_length != t.table_offset:
        raise corrupt(where, "its metadata does not end where its slice table begins")
    return t


class Footer:
    """The checked end of a batch object: `[table, size)`."""

    __slots__ = ("where", "trailer", "_table", "_data_bytes")

    def __init__(self, where: str, trailer: Trailer, table: Any) -> None:
        self.where = where
        self.trailer = trailer
        self._table = table
        self._data_bytes = trailer.metadata_offset

    def entry(self, i: int) -> SliceEntry:
        """Entry of the i-th slice of this extent."""
        entry = SliceEntry(*_ENTRY.unpack_from(self._table, i * ENTRY_BYTES))
        if entry.offset + entry.length > self._data_bytes:
            raise corrupt(self.where, f"slice {self.trailer.first_cell + i} lies outside its data", offset=entry.offset)
        return entry


def footer_check(footer: Any) -> int:
    """CRC-32 of `[table, size - 8)`: ties an object to the commit."""
    return crc32(memoryview(footer)[: max(0, len(footer) - 8)])


def decode_footer(data: Any, where: str, namespace: str, name: Descriptor, extent: int, first_cell: int) -> Footer:
    """Decodes the bytes `[table, size)` of extent number `extent` of the descriptor `name`."""
    cells, size, table, check = name.extents[extent]
    expected = size - table
    if len(data) != expected:
        raise corrupt(where, f"its footer has {len(data)} bytes, expected {expected}", offset=table)
    found = footer_check(data)
    if found != check:
        raise corrupt(where, "its footer does not match the commit", offset=table, expected=check, found=found)
    view = memoryview(data)
    t = decode_trailer(view[-TRAILER_BYTES:], where, namespace)
    if t.table_offset != table or t.cells != cells or t.first_cell != first_cell:
        raise corrupt(where, "its footer describes another extent")
    if t.extent != extent:
        raise corrupt(where, f"it is extent {t.extent}, expected {extent}")
    if t.identity != identity_of(name, extent):
        raise corrupt(where, "it is another batch's object")
    if t.cells * ENTRY_BYTES + TRAILER_BYTES != expected:
        raise corrupt(where, "its slice table has the wrong length")
    return Footer(where, t, view[: t.cells * ENTRY_BYTES])


def decode_metadata(data: Any, where: str, trailer: Trailer) -> dict[str, Any]:
    """Decodes and checks the metadata block."""
    check_block(data, where, trailer.metadata_offset, trailer.metadata_length, trailer.metadata_crc, "metadata")
    try:
        value = load_json(bytes(data))
    except ValueError:
        raise corrupt(where, "its metadata is not JSON") from None
    return as_record(value, where, "metadata")


def lineage_block(metadata: dict[str, Any], where: str) -> tuple[int, int, int] | None:
    """Offset, length and CRC-32 of the lineage block, if the batch has one."""
    if "lineage" not in metadata:
        return None
    block = as_record(metadata["lineage"], where, "metadata.lineage")
    offset, length, crc = (as_integer(block.get(k), where, f"lineage.{k}") for k in ("offset", "length", "crc"))
    return offset, length, crc


def check_block(data: Any, where: str, offset: int, length: int, crc: int, what: str) -> None:
    """Checks the bytes of a block against its length and checksum."""
    if len(data) != length or crc32(data) != crc:
        raise corrupt(where, f"its {what} does not match its checksum", offset=offset)


def decode_slice(stored: Any, where: str, entry: SliceEntry) -> Any:
    """The bytes of a slice, after its stored bytes were checked against its entry. Those stored as they are, are not copied."""
    offset, length, crc, raw_length, encoding, owner = entry
    if len(stored) != length:
        raise corrupt(where, f"a slice has {len(stored)} bytes, expected {length}", offset=offset)
    if owner >= 0:
        return open_sealed(stored, where, owner)
    found = crc32(stored)
    if found != crc:
        raise corrupt(where, "a slice does not match its checksum", offset=offset, expected=crc, found=found)
    if encoding == 0:
        if length != raw_length:
            raise corrupt(where, f"a slice has {length} bytes, expected {raw_length}", offset=offset)
        return stored
    if encoding == SEALED:
        if length != raw_length + SEAL_BYTES:
            raise corrupt(where, f"a slice has {length - SEAL_BYTES} bytes, expected {raw_length}", offset=offset)
        return memoryview(stored)[:raw_length]
    if entry.encoding != 1:
        raise BatchWeaveError(
            "UNSUPPORTED_ENCODING",
            f"A slice of {where} has the encoding number {entry.encoding}, which this BatchWeave does not know "
            "(it knows none, zstd and sealed). Install a newer version.",
            {"key": where, **entry._asdict()},
        )
    return _decompress(stored, where, entry)


def _decompress(stored: Any, where: str, entry: SliceEntry) -> bytearray:
    try:
        from compression import zstd
        failure: tuple[type[Exception], ...] = (zstd.ZstdError, EOFError)
    except ImportError:
        try:
            import zstandard as zstd  # type: ignore[import-not-found,no-redef,unused-ignore]
            failure = (zstd.ZstdError, EOFError)
        except ImportError:
            raise BatchWeaveError(
                "UNSUPPORTED_ENCODING",
                f"A slice of {where} has the encoding zstd, which needs Python 3.14 or the package zstandard. "
                'Run pip install zstandard (the extra "zstd"), or write with encoding "none".',
                {"key": where, **entry._asdict()},
            ) from None
    try:
        raw = _all_frames(zstd, bytes(stored), entry.raw_length)
    except failure:
        raise corrupt(where, "a slice cannot be decompressed", offset=entry.offset) from None
    if len(raw) != entry.raw_length:
        raise corrupt(
            where, f"a slice decompresses to {len(raw)} bytes, expected {entry.raw_length}", offset=entry.offset
        )
    return raw


def _all_frames(zstd: Any, data: bytes, limit: int) -> bytearray:
    """One or more frames, never more than one byte over the limit: a few bytes must not become gigabytes."""
    raw = bytearray()
    while data and len(raw) <= limit:
        if hasattr(zstd, "ZstdDecompressor") and not hasattr(zstd.ZstdDecompressor(), "decompressobj"):
            frame = zstd.ZstdDecompressor()
            raw += frame.decompress(data, max_length=limit + 1 - len(raw))
            if not frame.eof and len(raw) <= limit:
                raise EOFError
            data = frame.unused_data if frame.eof else b""
            continue
        with zstd.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            raw += reader.read(limit + 1)
        data = b""
    return raw
