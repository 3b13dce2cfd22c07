"""Cursors (FORMAT.md 14): where a consumer stands, independent of mesh and rank. Small JSON that a person can edit."""
from __future__ import annotations

from typing import Any

from ..errors import BatchWeaveError, invalid
from .checksum import crc32
from .namespace_spec import Fork
from .stored_json import FORMAT_VERSION, SAFE_INTEGER_MAX, crc_text, load_json


def _check_of(namespace: str, row: int, iteration: int) -> str:
    return crc_text(crc32(f"{FORMAT_VERSION}:{namespace}:{row}:{iteration}".encode("utf-8", "replace")))


def make_cursor(namespace: str, row: int, iteration: int) -> dict[str, Any]:
    """A cursor: plain JSON-safe values, the same on every rank."""
    return {
        "batchweave": FORMAT_VERSION,
        "namespace": namespace,
        "row": row,
        "iteration": iteration,
        "check": _check_of(namespace, row, iteration),
    }


def parse_cursor(value: Any) -> dict[str, Any]:
    """Reads a saved cursor: a dict or its JSON text. Does not say whether it belongs to this namespace."""
    cursor = value
    if isinstance(value, (str, bytes)):
        try:
            cursor = load_json(value.encode() if isinstance(value, str) else value)
        except ValueError:
            raise _not_a_cursor("it is not JSON", value) from None
    if not isinstance(cursor, dict):
        raise _not_a_cursor("it is not an object", value)
    version = cursor.get("batchweave")
    if type(version) is int and version != FORMAT_VERSION:
        raise BatchWeaveError(
            "UNSUPPORTED_FORMAT",
            f"The cursor has version {version}; this BatchWeave reads version {FORMAT_VERSION}. "
            "Install a version that reads it.",
            {"found": version},
        )
    namespace: Any = cursor.get("namespace")
    row: Any = cursor.get("row")
    iteration: Any = cursor.get("iteration")
    if version != FORMAT_VERSION or type(version) is not int or not isinstance(namespace, str):
        raise _not_a_cursor('it needs "batchweave": 1 and a "namespace"', value)
    if not _is_whole(row):
        raise _not_a_cursor('"row" is not a whole number', value)
    if not _is_whole(iteration):
        raise _not_a_cursor('"iteration" is not a whole number', value)
    if "check" in cursor and cursor["check"] != _check_of(namespace, row, iteration):
        raise _not_a_cursor(
            'its "check" does not match its content (remove "check" if you edited it on purpose)', value
        )
    return make_cursor(namespace, row, iteration)


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= SAFE_INTEGER_MAX


def _not_a_cursor(what: str, value: Any) -> BatchWeaveError:
    return invalid(
        f"This is not a cursor: {what}. Pass what `share.next` or `state_dict()` gave, or \"earliest\" or \"latest\".",
        value=value if isinstance(value, (dict, str)) else str(value),
    )


def translate_cursor(cursor: dict[str, Any], fork: Fork | None, rows: int) -> tuple[int, int] | None:
    """Row and iteration of an ancestor's cursor in a fork (FORMAT.md 17); None when it has no place here."""
    ranges = next((a.ranges for a in fork.ancestors if a.uuid == cursor["namespace"]), []) if fork else []
    step, r = divmod(cursor["row"], rows)
    if not ranges or step < ranges[0].start:
        return None
    for i, (at, count, start) in enumerate(ranges[1:], 1):
        if count == 0 and start < step or count > 0 and start + count <= step:
            continue
        if start <= step < start + count:
            return (at + step - start) * rows + r, cursor["iteration"]
        if step < start or (i == len(ranges) - 1 and r == 0):
            return at * rows, cursor["iteration"]
        return None
    return None
