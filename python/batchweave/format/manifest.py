"""Namespaces, manifests and index objects (FORMAT.md 4 to 9): checked, and otherwise kept as they were stored.

State stays in its stored form, plain lists and dicts, so that whoever writes it again keeps what it does not know.
Nobody changes what a Manifest holds; a commit works on a copy (draft.py).
"""
from __future__ import annotations

import json
from typing import Any

from ..errors import BatchWeaveError, corrupt
from .batch import EXTENTS_MAX
from .stored_json import (
    FORMAT_VERSION,
    FORMAT_VERSION_MAX,
    as_flag,
    as_id,
    as_integer,
    as_list,
    as_name,
    as_record,
    as_text,
    as_tuple,
    as_uuid,
    check_unknown,
    open_json,
    unsupported_format,
)

FANOUT = 64
CELLS_MAX = 65_536
LANES_MAX = 4_096

#: Positions in a producer state: [epoch, incarnation, seq, at, last, left, ...]; `left` may be absent
STATE_EPOCH, STATE_INCARNATION, STATE_SEQ, STATE_AT, STATE_LAST, STATE_LEFT = range(6)

_KNOWN_FIELDS = frozenset(
    "format kind namespace version commit steps closed deleted index tail waiting producers tables checkpoints pins settings "
    "starving orphanCutoff boundaryHint crc32".split()
)


def steps_per_node(level: int) -> int:
    """Steps under one index object of a level (0: segments)."""
    found: int = FANOUT ** (level + 1)
    return found


def check_reference(value: Any, where: str) -> list[Any]:
    """[base, commitId, k, check]"""
    ref = as_tuple(value, 4, where, "reference")
    as_integer(ref[0], where, "reference.base")
    as_id(ref[1], where, "reference.commitId")
    as_integer(ref[2], where, "reference.k")
    as_integer(ref[3], where, "reference.check")
    return ref


_EXTENT_FIELDS = ("extent.cells", "extent.size", "extent.table", "extent.check")


def check_descriptor(value: Any, where: str) -> list[Any]:
    """[producer, epoch, incarnation, seq, base, attempt, extents, origin?, ...]"""
    d = as_list(value, where, "a descriptor")
    get = d if len(d) >= 7 else d + [None] * (7 - len(d))
    as_name(get[0], where, "descriptor.producer")
    as_integer(get[1], where, "descriptor.epoch")
    as_integer(get[3], where, "descriptor.seq")
    as_integer(get[4], where, "descriptor.base")
    as_integer(get[5], where, "descriptor.attempt")
    extents = as_list(get[6], where, "descriptor.extents")
    # A step that was trimmed before its fork was made has no extents and no incarnation: nobody looks it up.
    if extents or get[2] != "":
        as_id(get[2], where, "descriptor.incarnation")
        if not 1 <= len(extents) <= EXTENTS_MAX:
            raise corrupt(where, f"a batch has {len(extents)} extents")
    for extent in extents:
        if isinstance(extent, dict):
            raise BatchWeaveError(
                "UNSUPPORTED_FORMAT",
                f"{where} references a batch by a kind of extent this BatchWeave does not know. Install a newer version.",
                {"key": where},
            )
        for field, n in zip(_EXTENT_FIELDS, as_tuple(extent, 4, where, "extent")):
            as_integer(n, where, field)
    if len(d) > 7 and d[7] != -1:
        as_integer(d[7], where, "descriptor.origin")
    if len(d) > 8:
        check_unknown(d[8:], where)
    return d


def origin_of(descriptor: list[Any]) -> int | None:
    """Position in the holder's fork.origins when an ancestor holds the objects."""
    return None if len(descriptor) < 8 or descriptor[7] == -1 else descriptor[7]


def check_run(value: Any, where: str) -> dict[str, Any]:
    """{"start": S, "batches": [descriptor...]}"""
    if not isinstance(value, dict):
        raise corrupt(where, "a run of batches is not an object")
    as_integer(value.get("start"), where, "start")
    for d in as_list(value.get("batches"), where, "batches"):
        check_descriptor(d, where)
    return value


def check_levels(value: Any, where: str) -> list[Any]:
    """A list of [start, [reference...]]."""
    for item in as_list(value, where, "index"):
        level = as_tuple(item, 2, where, "index level")
        as_integer(level[0], where, "index level start")
        for ref in as_list(level[1], where, "index level refs"):
            check_reference(ref, where)
    found: list[Any] = value
    return found


def check_state(value: Any, where: str) -> list[Any]:
    """[epoch, incarnation, seq, at, last, left, ...]"""
    s = as_list(value, where, "producer state")
    get = s + [None] * (5 - len(s))
    as_integer(get[0], where, "producer.epoch")
    as_id(get[1], where, "producer.incarnation")
    as_integer(get[2], where, "producer.seq")
    as_integer(get[3], where, "producer.at")
    last = get[4]
    if isinstance(last, list):
        if get[2] == 0:
            raise corrupt(where, "a producer has a last batch and no first")
        items = as_tuple(last, 5 if len(last) == 5 else 7, where, "producer.last")
        for field, n in zip(("base", "attempt", "extent", "size", "check"), items):
            as_integer(n, where, f"last.{field}")
        if len(items) == 7:
            as_integer(items[5], where, "last.epoch")
            as_id(items[6], where, "last.incarnation")
    elif type(last) is not int or last != 0:
        check_reference(as_record(last, where, "producer.last").get("table"), where)
    if len(s) > STATE_LEFT:
        as_integer(s[STATE_LEFT], where, "producer.left")
    check_unknown(s[STATE_LEFT + 1 :], where)
    return s


def has_left(state: list[Any]) -> bool:
    """Whether the producer's holder closed it. Whoever opens it again is another epoch, which has not."""
    return len(state) > STATE_LEFT and state[STATE_LEFT] == state[STATE_EPOCH]


class Manifest:
    """One version of the log's state. `fields` is what is stored; nobody changes it."""

    __slots__ = ("fields", "namespace", "version", "waiting", "_active")

    def __init__(self, namespace: str, fields: dict[str, Any]) -> None:
        self.namespace = namespace
        self.fields = fields
        self.version: int = fields["version"]
        self.waiting: dict[int, list[Any]] = {step: d for step, d in fields.get("waiting", [])}
        self._active: int | None = None

    @property
    def commit(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fields["commit"]
        return found

    @property
    def trim(self) -> int:
        found: int = self.fields["steps"]["trim"]
        return found

    @property
    def end(self) -> int:
        found: int = self.fields["steps"]["end"]
        return found

    @property
    def closed(self) -> bool:
        found: bool = self.fields["closed"]
        return found

    @property
    def deleted(self) -> bool:
        """True in the last version of a deleted namespace: whoever finds it stops."""
        found: bool = self.fields.get("deleted", False)
        return found

    @property
    def index(self) -> list[Any]:
        found: list[Any] = self.fields["index"]
        return found

    @property
    def tail(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fields["tail"]
        return found

    @property
    def producers(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = self.fields["producers"]
        return found

    @property
    def tables(self) -> list[Any]:
        found: list[Any] = self.fields["tables"]
        return found

    @property
    def checkpoints(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fields["checkpoints"]
        return found

    @property
    def pins(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fields["pins"]
        return found

    @property
    def max_lag(self) -> int | None:
        found: int | None = self.fields.get("settings", {}).get("maxLag")
        return found

    @property
    def starving(self) -> int | None:
        return self.fields.get("starving")

    @property
    def orphan_cutoff(self) -> int:
        found: int = self.fields["orphanCutoff"]
        return found

    @property
    def boundary_hint(self) -> int:
        found: int = self.fields["boundaryHint"]
        return found

    @property
    def active_producers(self) -> int:
        """Producers that committed within the last 1,024 versions and have not closed; at least 1."""
        if self._active is None:
            since = self.version - 1_024
            self._active = max(1, sum(1 for s in self.producers.values() if s[STATE_AT] >= since and not has_left(s)))
        return self._active

    @property
    def is_carriers(self) -> bool:
        """Whether a carrier made this version. Old logs do not say: there, whoever committed batches is taken for one."""
        if "kind" in self.commit:
            return bool(self.commit["kind"] == "carrier")
        # A last batch of the state's own epoch and incarnation leaves both out.
        return any(
            s[STATE_AT] == self.version and isinstance(s[STATE_LAST], list) and len(s[STATE_LAST]) == 5
            for s in self.producers.values()
        )


def decode_manifest(data: bytes, where: str, namespace: str, version: int) -> Manifest:
    """Decodes and checks a manifest. `version` is the one its name says."""
    f = open_json(data, where, "manifest", namespace)
    if f.get("version") != version or type(f.get("version")) is not int:
        raise corrupt(where, f"it says version {f.get('version')}")
    commit = as_record(f.get("commit"), where, "commit")
    as_id(commit.get("id"), where, "commit.id")
    as_text(commit.get("by"), where, "commit.by")
    as_integer(commit.get("time"), where, "commit.time")
    if "kind" in commit:
        as_text(commit["kind"], where, "commit.kind")
    steps = as_record(f.get("steps"), where, "steps")
    trim = as_integer(steps.get("trim"), where, "steps.trim")
    end = as_integer(steps.get("end"), where, "steps.end")
    as_flag(f.get("closed"), where, "closed")
    as_flag(f.get("deleted", False), where, "deleted")
    check_levels(f.get("index"), where)
    tail = check_run(f.get("tail"), where)
    for item in as_list(f.get("waiting", []), where, "waiting"):
        step, d = as_tuple(item, 2, where, "waiting entry")
        as_integer(step, where, "waiting step")
        check_descriptor(d, where)
    for id, state in as_record(f.get("producers"), where, "producers").items():
        as_name(id, where, "a name in producers")
        check_state(state, where)
    for ref in as_list(f.get("tables"), where, "tables"):
        check_reference(ref, where)
    for id, group in as_record(f.get("checkpoints"), where, "checkpoints").items():
        as_name(id, where, "a name in checkpoints")
        _check_group(group, where)
    for pin in as_record(f.get("pins"), where, "pins").values():
        _check_pin(pin, where)
    if "settings" in f:
        settings = as_record(f["settings"], where, "settings")
        if "maxLag" in settings:
            as_integer(settings["maxLag"], where, "settings.maxLag")
        check_unknown((v for k, v in settings.items() if k != "maxLag"), where)
    if "starving" in f:
        as_integer(f["starving"], where, "starving")
    as_integer(f.get("orphanCutoff"), where, "orphanCutoff")
    as_integer(f.get("boundaryHint"), where, "boundaryHint")
    check_unknown((v for k, v in f.items() if k not in _KNOWN_FIELDS), where)
    if tail["start"] + len(tail["batches"]) != end:
        raise corrupt(where, "its tail does not reach its end step")
    if trim > end:
        raise corrupt(where, "its trim lies above its end step")
    return Manifest(namespace, f)


def _check_group(value: Any, where: str) -> None:
    group = as_record(value, where, "checkpoint group")
    for id, mark in as_record(group.get("live"), where, "live").items():
        as_name(id, where, "a name in live")
        for field, n in zip(("row", "iteration", "version"), as_tuple(mark, 3, where, "checkpoint")):
            as_integer(n, where, f"checkpoint {field}")
    for released in as_list(group.get("released"), where, "released"):
        as_name(released, where, "released id")
    check_unknown((v for k, v in group.items() if k not in ("live", "released")), where)


def _check_pin(value: Any, where: str) -> None:
    pin = as_record(value, where, "pin")
    as_uuid(pin.get("fork"), where, "pin.fork")
    as_text(pin.get("uri"), where, "pin.uri")
    as_integer(pin.get("created"), where, "pin.created")
    as_flag(pin.get("confirmed"), where, "pin.confirmed")
    as_integer(pin.get("from"), where, "pin.from")
    as_integer(pin.get("to"), where, "pin.to")
    check_reference(pin.get("root"), where)
    known = ("fork", "uri", "created", "confirmed", "from", "to", "root")
    check_unknown((v for k, v in pin.items() if k not in known), where)


def decode_segment(data: bytes, where: str, namespace: str) -> dict[str, Any]:
    """A full segment: 64 descriptors."""
    run = check_run(open_json(data, where, "segment", namespace), where)
    if len(run["batches"]) != FANOUT or run["start"] % FANOUT != 0:
        raise corrupt(where, "it is not a full segment")
    return run


def decode_node(data: bytes, where: str, namespace: str) -> dict[str, Any]:
    """A node: 64 references, or 0 where the trim had passed."""
    f = open_json(data, where, "node", namespace)
    refs = as_list(f.get("refs"), where, "refs")
    for ref in refs:
        if type(ref) is not int or ref != 0:
            check_reference(ref, where)
    if len(refs) != FANOUT:
        raise corrupt(where, f"it has {len(refs)} references, expected {FANOUT}")
    as_integer(f.get("level"), where, "level")
    as_integer(f.get("start"), where, "start")
    return f


def decode_root(data: bytes, where: str, namespace: str) -> dict[str, Any]:
    """What a pin keeps: index and tail as of the version it was committed on."""
    f = open_json(data, where, "root", namespace)
    check_levels(f.get("index"), where)
    check_run(f.get("tail"), where)
    return f


def decode_table(data: bytes, where: str, namespace: str) -> dict[str, list[Any]]:
    """Silent producers: id -> [state, resume point or None]."""
    f = open_json(data, where, "table", namespace)
    producers = as_record(f.get("producers"), where, "producers")
    for producer, value in producers.items():
        as_name(producer, where, "a producer id")
        check_state(as_tuple(value, 2, where, f"producers.{producer}")[0], where)
    return producers


def decode_boundary(data: bytes, where: str, namespace: str, n: int) -> tuple[int, bool]:
    """The highest version whose name may be gone, as of marker n, and whether it is the last one of a deleted namespace."""
    f = open_json(data, where, "boundary", namespace)
    if f.get("n") != n:
        raise corrupt(where, f"it says number {f.get('n')}")
    return as_integer(f.get("upTo"), where, "upTo"), as_flag(f.get("deleted", False), where, "deleted")


class NamespaceSpec:
    """The parsed namespace.json."""

    __slots__ = ("format", "uuid", "rows", "chunks", "order", "lanes", "created", "fork", "first_own_step", "grid")

    def __init__(self, fields: dict[str, Any]) -> None:
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
        self.fork: dict[str, Any] | None = fields.get("fork")
        tail: dict[str, Any] = self.fork["tail"] if self.fork else {"start": 0, "batches": []}
        self.first_own_step: int = tail["start"] + len(tail["batches"])


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
    if "fork" in f:
        _check_fork(f["fork"], where)
    if rows < 1 or chunks < 1 or rows * chunks > CELLS_MAX:
        raise corrupt(where, f"its grid of {rows} x {chunks} is empty or too large")
    if order.get("kind") == "lanes" and not 1 <= order["lanes"] <= LANES_MAX:
        raise corrupt(where, f"it has {order['lanes']} lanes, and 1 to {LANES_MAX} are possible")
    return NamespaceSpec(f)


def _check_ranges(value: Any, where: str) -> None:
    for item in as_list(value, where, "ranges"):
        for field, n in zip(("at", "count", "from"), as_tuple(item, 3, where, "range")):
            as_integer(n, where, f"range {field}")


def _check_fork(value: Any, where: str) -> None:
    fork = as_record(value, where, "fork")
    for item in as_list(fork.get("origins"), where, "fork.origins"):
        origin = as_record(item, where, "origin")
        as_uuid(origin.get("uuid"), where, "origin.uuid")
        as_text(origin.get("uri"), where, "origin.uri")
        version = as_integer(origin.get("format", 1), where, "format")
        if not FORMAT_VERSION <= version <= FORMAT_VERSION_MAX:
            raise unsupported_format(where, version)
        check_reference(origin.get("root"), where)
        _check_ranges(origin.get("ranges"), where)
        for n in as_list(origin.get("via", []), where, "via"):
            as_integer(n, where, "via")
    tail = check_run(fork.get("tail"), where)
    if "trim" in fork and as_integer(fork["trim"], where, "fork.trim") > tail["start"] + len(tail["batches"]):
        raise corrupt(where, "its trim lies above its first own step")
    for item in as_list(fork.get("ancestors", []), where, "fork.ancestors"):
        ancestor = as_record(item, where, "ancestor")
        as_uuid(ancestor.get("uuid"), where, "ancestor.uuid")
        as_text(ancestor.get("uri"), where, "ancestor.uri")
        _check_ranges(ancestor.get("ranges"), where)
    for ref in as_list(fork.get("tables", []), where, "fork.tables"):
        check_reference(ref, where)


def genesis(spec: NamespaceSpec) -> Manifest:
    """Version 0: the state before the first commit. It is never stored; it follows from namespace.json alone."""
    fork = spec.fork or {}
    tail = fork.get("tail", {"start": 0, "batches": []})
    lowest = [r[0] for origin in fork.get("origins", []) for r in origin["ranges"]]
    trim = fork.get("trim", min([tail["start"], *lowest]))
    return Manifest(
        spec.uuid,
        {
            "version": 0,
            "commit": {"id": "genesis", "by": "namespace.json", "time": spec.created},
            "steps": {"trim": trim, "end": tail["start"] + len(tail["batches"])},
            "closed": False,
            "index": [],
            "tail": tail,
            "producers": {},
            "tables": fork.get("tables", []),
            "checkpoints": {},
            "pins": {},
            "orphanCutoff": 0,
            "boundaryHint": 0,
        },
    )
