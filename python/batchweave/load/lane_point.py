"""The resume point of a lane of a source log: where its reader goes on, how much it has written, and whether it has ended."""
from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import BatchWeaveError, invalid

_KIND = "source-lane"


class LanePoint(NamedTuple):
    """`at`: what the reader calls a position, None before the first sample. `used`: samples written so far."""

    lane: int
    lanes: int
    print: str = ""
    at: Any = None
    used: int = 0
    seq: int = 0
    is_over: bool = False


def encode_point(point: LanePoint) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "v": 1, "kind": _KIND, "source": point.print, "lane": [point.lane, point.lanes], "at": point.at, "used": point.used, "seq": point.seq,
    }
    if point.is_over:
        fields["over"] = 1
    return fields


def decode_point(value: Any, lane: int, lanes: int, print: str | None, where: str) -> LanePoint:
    """`print`: of what decides the order of samples here; None: not compared. None as value: the lane has written nothing."""
    if value is None:
        return LanePoint(lane, lanes, print or "")
    if not isinstance(value, dict) or value.get("kind") != _KIND or value.get("v") != 1:
        raise invalid(f"{where} has a resume point of another kind: its log was not filled by loaders. Use another place for this source.", where=where)
    if value.get("lane") != [lane, lanes]:
        raise invalid(f"{where} goes on from lane {value.get('lane')}, not {[lane, lanes]}. The number of lanes of a source log is fixed.", where=where)
    if print is not None and value.get("source") != print:
        raise BatchWeaveError(
            "INVALID_ARGUMENT",
            f"{where} was filled from another state of its source ({value.get('source')!r}, now {print!r}): its files, seed, lanes, block size or "
            "settings that decide the order have changed. Put them back, or write to another place.",
            {"where": where, "expected": print, "found": value.get("source")},
        )
    return LanePoint(lane, lanes, value.get("source", ""), value.get("at"), int(value.get("used", 0)), int(value.get("seq", 0)), value.get("over") == 1)
