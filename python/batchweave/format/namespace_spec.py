"""namespace.json (FORMAT.md 4 and 17): the grid, the order and, in a fork, what it inherits."""
from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..errors import BatchWeaveError, corrupt
from .index_node import Reference, Run, decode_reference, decode_run
from .stored_json import (
    FORMAT_VERSION,
    FORMAT_VERSION_MAX,
    as_integer,
    as_list,
    as_record,
    as_text,
    as_tuple,
    as_uuid,
    open_json,
    unsupported_format,
)

CELLS_MAX = 65_536
LANES_MAX = 4_096


class StepRange(NamedTuple):
    """So many steps from `at` on are an ancestor's from its step `start` on. In the order in which it is stored."""

    at: int
    steps: int
    start: int


class Origin(NamedTuple):
    """An ancestor that holds batches of a fork."""

    uuid: str
    uri: str
    format: int
    root: Reference
    ranges: list[StepRange]
    #: What the numbers of its own origins are in this namespace.
    via: list[int]


class Ancestor(NamedTuple):
    """A log whose cursors have a place in this fork."""

    uuid: str
    uri: str
    ranges: list[StepRange]


class Fork(NamedTuple):
    """What a namespace inherits."""

    origins: list[Origin]
    tail: Run
    trim: int
    ancestors: list[Ancestor]
    tables: list[Reference]


class NamespaceSpec:
    """The parsed namespace.json."""

    __slots__ = ("format", "uuid", "rows", "chunks", "order", "lanes", "created", "fork", "first_own_step", "grid")

    def __init__(self, fields: dict[str, Any], fork: Fork | None) -> None:
        #: Of the format: where the objects are.
        self.format: int = fields["format"]
        self.uuid: str = fields["namespace"]
        self.grid: dict[str, int] = {"rows": fields["grid"]["rows"], "chunks": fields["grid"]["chunks"]}
        self.rows: int = self.grid["rows"]
        self.chunks: int = self.grid["chunks"]
        self.order: dict[str, Any] = fields["order"]
        #: Number of lanes, or None in commit order.
        self.lanes: int | None = fields["order"].get("lanes") if fields["order"]["kind"] == "lanes" else None
        self.created: int = fields["created"]
        self.fork = fork
        self.first_own_step: int = fork.tail.end if fork else 0


def decode_namespace(data: bytes, where: str) -> NamespaceSpec:
    """Decodes and checks namespace.json."""
    f = open_json(data, where, "namespace")
    as_uuid(f.get("namespace"), where, "namespace")
    grid = as_record(f.get("grid"), where, "grid")
    rows = as_integer(grid.get("rows"), where, "grid.rows")
    chunks = as_integer(grid.get("chunks"), where, "grid.chunks")
    order = as_record(f.get("order"), where, "order")
    if order.get("kind") == "lanes":
        as_integer(order.get("lanes"), where, "order.lanes")
    elif order.get("kind") != "commit":
        raise BatchWeaveError(
            "UNSUPPORTED_FORMAT",
            f"{where} has an order {json.dumps(order.get('kind'))} that this BatchWeave does not know. "
            "Install a newer version.",
            {"key": where},
        )
    as_integer(f.get("created"), where, "created")
    fork = _decode_fork(f["fork"], where) if "fork" in f else None
    if rows < 1 or chunks < 1 or rows * chunks > CELLS_MAX:
        raise corrupt(where, f"its grid of {rows} x {chunks} is empty or too large")
    if order.get("kind") == "lanes" and not 1 <= order["lanes"] <= LANES_MAX:
        raise corrupt(where, f"it has {order['lanes']} lanes, and 1 to {LANES_MAX} are possible")
    return NamespaceSpec(f, fork)


def _decode_fork(value: Any, where: str) -> Fork:
    fork = as_record(value, where, "fork")
    origins = [_decode_origin(item, where) for item in as_list(fork.get("origins"), where, "fork.origins")]
    tail = decode_run(fork.get("tail"), where)
    lowest = min([tail.start, *(r.at for origin in origins for r in origin.ranges)])
    trim = as_integer(fork.get("trim", lowest), where, "fork.trim")
    if trim > tail.end:
        raise corrupt(where, "its trim lies above its first own step")
    ancestors = [_decode_ancestor(item, where) for item in as_list(fork.get("ancestors", []), where, "fork.ancestors")]
    tables = [decode_reference(ref, where) for ref in as_list(fork.get("tables", []), where, "fork.tables")]
    return Fork(origins, tail, trim, ancestors, tables)


def _decode_origin(value: Any, where: str) -> Origin:
    origin = as_record(value, where, "origin")
    uuid = as_uuid(origin.get("uuid"), where, "origin.uuid")
    uri = as_text(origin.get("uri"), where, "origin.uri")
    version = as_integer(origin.get("format", 1), where, "format")
    if not FORMAT_VERSION <= version <= FORMAT_VERSION_MAX:
        raise unsupported_format(where, version)
    root = decode_reference(origin.get("root"), where)
    ranges = _decode_ranges(origin.get("ranges"), where)
    return Origin(uuid, uri, version, root, ranges, [as_integer(n, where, "via") for n in as_list(origin.get("via", []), where, "via")])


def _decode_ancestor(value: Any, where: str) -> Ancestor:
    ancestor = as_record(value, where, "ancestor")
    uuid = as_uuid(ancestor.get("uuid"), where, "ancestor.uuid")
    uri = as_text(ancestor.get("uri"), where, "ancestor.uri")
    return Ancestor(uuid, uri, _decode_ranges(ancestor.get("ranges"), where))


def _decode_ranges(value: Any, where: str) -> list[StepRange]:
    ranges = []
    for item in as_list(value, where, "ranges"):
        found = StepRange._make(as_tuple(item, 3, where, "range"))
        for field, n in zip(("at", "count", "from"), found):
            as_integer(n, where, f"range {field}")
        ranges.append(found)
    return ranges
