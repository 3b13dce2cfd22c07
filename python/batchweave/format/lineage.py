"""Lineage (FORMAT.md 12): which samples a batch was made of."""
from __future__ import annotations

import re
import struct
import zlib
from typing import Any, Sequence

from ..errors import BatchWeaveError, corrupt, invalid
from .checksum import crc32
from .stored_json import SAFE_INTEGER_MAX, as_integer, as_list, as_record, as_text, dump_json, load_json

_JSON_BYTES_MAX = 0x1000_0000
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")


def encode_lineage(samples: Sequence[dict[str, Any]]) -> bytes:
    """Samples are {"source": str, "id": str, "tokens": int, "row"?: int}, in the order in which the batch holds them."""
    numbers: dict[str, int] = {}
    last: dict[int, int] = {}
    columns: dict[str, Any] = {"sources": [], "source": [], "id": [], "tokens": []}
    for sample in samples:
        row = sample.get("row", 0)
        if not (
            isinstance(sample.get("source"), str)
            and isinstance(sample.get("id"), str)
            and all(type(n) is int and 0 <= n <= SAFE_INTEGER_MAX for n in (sample.get("tokens"), row))
        ):
            raise invalid(
                "A sample of lineage needs a source and an id (strings), tokens and, if at all, row (whole numbers)."
            )
        source = numbers.setdefault(sample["source"], len(numbers))
        text = sample["id"]
        number = int(text) if _NUMBER.fullmatch(text) and int(text) <= SAFE_INTEGER_MAX else None
        columns["source"].append(source)
        columns["id"].append(text if number is None else number - last.get(source, 0))
        columns["tokens"].append(sample["tokens"])
        if number is not None:
            last[source] = number
    columns["sources"] = list(numbers)
    if any("row" in sample for sample in samples):
        columns["row"] = [sample.get("row", -1) for sample in samples]
    text_bytes = dump_json(columns)
    if len(text_bytes) > _JSON_BYTES_MAX:
        raise BatchWeaveError(
            "LIMIT",
            f"The lineage of a batch takes {len(text_bytes)} bytes; at most {_JSON_BYTES_MAX} are possible. "
            "Record less per sample.",
            {"found": len(text_bytes), "limit": _JSON_BYTES_MAX},
        )
    body = zlib.compress(text_bytes)
    head = struct.pack("<4sII", b"LIN1", len(samples), len(text_bytes))
    return head + struct.pack("<I", crc32(body, crc32(head))) + body


def decode_lineage(data: bytes, where: str) -> list[dict[str, Any]]:
    """Decodes and checks a lineage block."""
    if len(data) < 16 or data[:3] != b"LIN":
        raise corrupt(where, "its lineage does not begin like one")
    magic, count, length, crc = struct.unpack_from("<4sIII", data)
    body = data[16:]
    if crc32(body, crc32(data[:12])) != crc:
        raise corrupt(where, "its lineage does not match its checksum")
    if magic != b"LIN1":
        raise BatchWeaveError(
            "UNSUPPORTED_FORMAT",
            f"The lineage of {where} has the layout {magic.decode('latin-1')!r}; this BatchWeave reads LIN1. "
            "Install a newer version.",
            {"key": where},
        )
    if length > _JSON_BYTES_MAX:
        raise corrupt(where, f"its lineage claims {length} bytes")
    try:
        text = zlib.decompressobj().decompress(body, length + 1)
        fields = load_json(text)
    except (zlib.error, ValueError):
        raise corrupt(where, "its lineage cannot be decompressed") from None
    if len(text) != length:
        raise corrupt(where, "its lineage has another length than it says")
    return _decode_columns(as_record(fields, where, "lineage"), count, where)


def _decode_columns(fields: dict[str, Any], count: int, where: str) -> list[dict[str, Any]]:
    def column(name: str) -> list[Any]:
        items = as_list(fields.get(name), where, f"lineage.{name}")
        if len(items) != count:
            raise corrupt(where, f"lineage.{name} has not {count} entries")
        return items

    sources = as_list(fields.get("sources"), where, "lineage.sources")
    source, ids, tokens = column("source"), column("id"), column("tokens")
    rows = column("row") if "row" in fields else None
    last: dict[int, int] = {}
    samples = []
    for i in range(count):
        number = as_integer(source[i], where, "lineage.source")
        name = as_text(sources[number] if number < len(sources) else None, where, "lineage.source")
        delta = ids[i]
        if isinstance(delta, (int, float)) and not isinstance(delta, bool):
            last[number] = as_integer(last.get(number, 0) + delta, where, "lineage.id")
            delta = str(last[number])
        sample = {
            "source": name,
            "id": as_text(delta, where, "lineage.id"),
            "tokens": as_integer(tokens[i], where, "lineage.tokens"),
        }
        if rows is not None and rows[i] != -1:
            sample["row"] = as_integer(rows[i], where, "lineage.row")
        samples.append(sample)
    return samples
