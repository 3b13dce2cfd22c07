"""Stored JSON objects (FORMAT.md 3): one line of JSON that ends with the checksum of all bytes before that ending."""
from __future__ import annotations

import json
import re
from typing import Any, Iterable

from ..errors import BatchWeaveError, corrupt
from .checksum import crc32

#: The version of an object that the first FORMAT.md describes. What it has no word for says the newest.
FORMAT_VERSION = 1
FORMAT_VERSION_MAX = 2
SAFE_INTEGER_MAX = 2**53 - 1
UNKNOWN_DEPTH_MAX = 64
#: Bytes of a stored JSON object at most.
STORED_JSON_BYTES_MAX = 64 * 1024 * 1024
_ENDING_BYTES = len(',"crc32":"00000000"}\n')


def crc_text(crc: int) -> str:
    """8 lower-case hex digits."""
    return f"{crc:08x}"


def dump_json(value: Any) -> bytes:
    """Compact JSON as JSON.stringify writes it. A lone surrogate, which UTF-8 cannot hold, is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def _number(text: str) -> int | float:
    # 1.0 and 1e3 are whole numbers in JSON; JavaScript reads them so.
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= SAFE_INTEGER_MAX else value


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Readers differ in which of two they take, so neither is taken.
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return record


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def load_json(data: bytes | bytearray | memoryview) -> Any:
    """Strict JSON: no NaN, no byte order mark, no name twice in an object, whole numbers as int. Raises ValueError."""
    try:
        return json.loads(str(data, "utf-8"), parse_float=_number, parse_constant=_refuse, object_pairs_hook=_record)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def seal_json(kind: str, namespace: str, fields: dict[str, Any], version: int = FORMAT_VERSION) -> bytes:
    """Encodes a stored object: format, kind and namespace in front, the checksum at the end."""
    head = {"format": version, "kind": kind, "namespace": namespace}
    body = dump_json({**head, **{k: v for k, v in fields.items() if k not in head and k != "crc32"}})[:-1]
    if len(body) + _ENDING_BYTES > STORED_JSON_BYTES_MAX:
        raise BatchWeaveError(
            "LIMIT",
            f"A {kind} of {len(body) + _ENDING_BYTES} bytes would be larger than the {STORED_JSON_BYTES_MAX} that readers take. Release "
            "checkpoints and forks, or let fewer batches wait.",
            {"found": len(body) + _ENDING_BYTES, "limit": STORED_JSON_BYTES_MAX},
        )
    return body + f',"crc32":"{crc_text(crc32(body))}"}}\n'.encode("ascii")


def open_json(data: bytes, where: str, kind: str, namespace: str | None = None) -> dict[str, Any]:
    """Decodes and checks, in this order: ending, checksum, JSON, format, kind, namespace."""
    if len(data) <= _ENDING_BYTES:
        raise corrupt(where, f"it has only {len(data)} bytes")
    split = len(data) - _ENDING_BYTES
    found = crc_text(crc32(memoryview(data)[:split]))
    ending = bytes(data[split:]).decode("latin-1")
    if ending != f',"crc32":"{found}"}}\n':
        raise corrupt(where, "its checksum does not match its bytes", expected=ending[10:18], found=found)
    try:
        fields = load_json(data)
    except ValueError:
        raise corrupt(where, "it is not JSON, or a name in it occurs twice") from None
    # An object it is: its ending is one's.
    version = as_integer(fields.get("format"), where, "format")
    if not FORMAT_VERSION <= version <= FORMAT_VERSION_MAX:
        raise unsupported_format(where, version)
    if fields.get("kind") != kind:
        raise corrupt(where, f"it is a {json.dumps(fields.get('kind'))}, expected a {kind}")
    if namespace is not None and fields.get("namespace") != namespace:
        raise wrong_namespace(where, as_text(fields.get("namespace"), where, "namespace"), namespace)
    checked: dict[str, Any] = fields
    return checked


def unsupported_format(where: str, found: int) -> BatchWeaveError:
    """UNSUPPORTED_FORMAT: a version of FORMAT.md that this code does not read."""
    return BatchWeaveError(
        "UNSUPPORTED_FORMAT",
        f"{where} has format version {found}; this BatchWeave reads versions {FORMAT_VERSION} to "
        f"{FORMAT_VERSION_MAX}. Install a version that reads it.",
        {"key": where, "found": found, "supported": FORMAT_VERSION_MAX},
    )


def wrong_namespace(where: str, found: str, expected: str) -> BatchWeaveError:
    """WRONG_NAMESPACE: an object that another namespace's writer left under this key."""
    return BatchWeaveError(
        "WRONG_NAMESPACE",
        f"{where} belongs to namespace {found}, expected {expected}: the namespace was deleted and made again, "
        "or its folder holds two. Open it anew, or delete the leftovers.",
        {"key": where, "found": found, "expected": expected},
    )


# Reading values of any writer: every mismatch is CORRUPT and names the object and the field.


def as_integer(value: Any, where: str, field: str) -> int:
    """A whole number from 0 to 2^53 - 1."""
    if type(value) is int and 0 <= value <= SAFE_INTEGER_MAX:
        return value
    raise corrupt(where, f"{field} is not a whole number")


def as_text(value: Any, where: str, field: str) -> str:
    """A string."""
    if isinstance(value, str):
        return value
    raise corrupt(where, f"{field} is not a string")


_ID = re.compile(r"[0-9a-v]{12}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def is_name(value: Any) -> bool:
    """Whether a value can be a producer id, a checkpoint id or a group."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and value != "__proto__"


def as_name(value: Any, where: str, field: str) -> str:
    """A producer id, a checkpoint id or a group: it becomes part of keys."""
    if is_name(value):
        found: str = value
        return found
    raise corrupt(where, f"{field} is not a name")


def as_id(value: Any, where: str, field: str) -> str:
    """A commit id or an incarnation: 12 characters of 0-9a-v. It becomes part of keys."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise corrupt(where, f"{field} is not an id")


def as_uuid(value: Any, where: str, field: str) -> str:
    """The uuid of a namespace."""
    if isinstance(value, str) and _UUID.fullmatch(value):
        return value
    raise corrupt(where, f"{field} is not a uuid")


def as_flag(value: Any, where: str, field: str) -> bool:
    """A boolean."""
    if isinstance(value, bool):
        return value
    raise corrupt(where, f"{field} is not true or false")


def as_list(value: Any, where: str, field: str) -> list[Any]:
    """A list."""
    if isinstance(value, list):
        return value
    raise corrupt(where, f"{field} is not a list")


def as_record(value: Any, where: str, field: str) -> dict[str, Any]:
    """An object."""
    if isinstance(value, dict):
        return value
    raise corrupt(where, f"{field} is not an object")


def as_tuple(value: Any, length: int, where: str, field: str) -> list[Any]:
    """A list of exactly `length` elements: a layout that only a new format version may extend."""
    items = as_list(value, where, field)
    if len(items) != length:
        raise corrupt(where, f"{field} has {len(items)} elements, expected {length}")
    return items


def check_unknown(values: Iterable[Any], where: str) -> None:
    """What is kept without being understood must not be nested too deeply."""
    level = list(values)
    depth = 0
    while level:
        if depth > UNKNOWN_DEPTH_MAX:
            raise corrupt(where, f"an unknown field is nested more than {UNKNOWN_DEPTH_MAX} levels deep")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
        depth += 1
