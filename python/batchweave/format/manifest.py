"""Manifests and boundary markers (FORMAT.md 5, 6, 8 and 9): checked, with what this version does not know kept as it was stored.

A Manifest never changes; a commit works on a copy (draft.py).
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..errors import corrupt
from .descriptor import Descriptor, decode_descriptor
from .index_node import Level, Reference, Run, decode_levels, decode_reference, decode_run
from .namespace_spec import NamespaceSpec
from .producer_state import ProducerState, decode_state
from .stored_json import as_flag, as_id, as_integer, as_list, as_name, as_record, as_text, as_tuple, as_uuid, check_unknown, open_json

_KNOWN_FIELDS = frozenset(
    "format kind namespace version commit steps closed deleted index tail waiting producers tables checkpoints pins settings "
    "starving orphanCutoff boundaryHint crc32".split()
)


class Mark(NamedTuple):
    """A live checkpoint, in the order in which it is stored."""

    row: int
    iteration: int
    #: The version that registered it.
    version: int


@dataclass(frozen=True, eq=False)
class Manifest:
    """One version of the log's state."""

    namespace: str
    version: int
    #: {"id", "by", "time", "kind"?}
    commit: dict[str, Any]
    trim: int
    closed: bool
    #: True in the last version of a deleted namespace: every process that finds it stops.
    deleted: bool
    index: list[Level]
    tail: Run
    #: Batches of lanes, committed ahead of a step that is missing.
    waiting: dict[int, Descriptor]
    producers: dict[str, ProducerState]
    #: Sealed tables of silent producers.
    tables: list[Reference]
    #: By group: {"live": {id: Mark}, "released": [id...]}, and what this version does not know.
    checkpoints: dict[str, Any]
    pins: dict[str, Any]
    settings: dict[str, Any]
    #: The step for which ranks wait in vain because of maxLag.
    starving: int | None
    orphan_cutoff: int
    boundary_hint: int
    #: Fields that this version does not know, kept.
    rest: dict[str, Any]

    @property
    def end(self) -> int:
        """The first step not visible yet."""
        return self.tail.end

    @property
    def max_lag(self) -> int | None:
        """How many steps producers may be ahead of the slowest group's newest checkpoint."""
        return self.settings.get("maxLag")

    @cached_property
    def active_producers(self) -> int:
        """Producers that committed within the last 1,024 versions and have not closed; at least 1."""
        since = self.version - 1_024
        return max(1, sum(1 for s in self.producers.values() if s.at >= since and not s.has_left))

    @property
    def is_carriers(self) -> bool:
        """Whether a carrier made this version. Old logs do not say: there, a version with batches is taken for a carrier's."""
        if "kind" in self.commit:
            return bool(self.commit["kind"] == "carrier")
        return any(s.at == self.version and s.own_last for s in self.producers.values())

    @property
    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "version": self.version,
            "commit": self.commit,
            "steps": {"trim": self.trim, "end": self.end},
            "closed": self.closed,
            **({"deleted": True} if self.deleted else {}),
            "index": self.index,
            "tail": self.tail.stored(),
            **({"waiting": [[step, d.stored()] for step, d in self.waiting.items()]} if self.waiting else {}),
            "producers": {id: state.stored() for id, state in self.producers.items()},
            "tables": self.tables,
            "checkpoints": self.checkpoints,
            "pins": self.pins,
            **({"settings": self.settings} if self.settings else {}),
            **({} if self.starving is None else {"starving": self.starving}),
            "orphanCutoff": self.orphan_cutoff,
            "boundaryHint": self.boundary_hint,
            **self.rest,
        }


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
    end = as_integer(steps.get("end"), where, "steps.end")
    settings = as_record(f.get("settings", {}), where, "settings")
    if "maxLag" in settings:
        as_integer(settings["maxLag"], where, "settings.maxLag")
    check_unknown((v for k, v in settings.items() if k != "maxLag"), where)
    rest = {k: v for k, v in f.items() if k not in _KNOWN_FIELDS}
    check_unknown(rest.values(), where)
    manifest = Manifest(
        namespace=namespace,
        version=version,
        commit=commit,
        trim=as_integer(steps.get("trim"), where, "steps.trim"),
        closed=as_flag(f.get("closed"), where, "closed"),
        deleted=as_flag(f.get("deleted", False), where, "deleted"),
        index=decode_levels(f.get("index"), where),
        tail=decode_run(f.get("tail"), where),
        waiting=_decode_waiting(f.get("waiting", []), where),
        producers={
            as_name(id, where, "a name in producers"): decode_state(state, where)
            for id, state in as_record(f.get("producers"), where, "producers").items()
        },
        tables=[decode_reference(ref, where) for ref in as_list(f.get("tables"), where, "tables")],
        checkpoints={
            as_name(id, where, "a name in checkpoints"): _decode_group(group, where)
            for id, group in as_record(f.get("checkpoints"), where, "checkpoints").items()
        },
        pins={id: _check_pin(pin, where) for id, pin in as_record(f.get("pins"), where, "pins").items()},
        settings=settings,
        starving=as_integer(f["starving"], where, "starving") if "starving" in f else None,
        orphan_cutoff=as_integer(f.get("orphanCutoff"), where, "orphanCutoff"),
        boundary_hint=as_integer(f.get("boundaryHint"), where, "boundaryHint"),
        rest=rest,
    )
    if manifest.end != end:
        raise corrupt(where, "its tail does not reach its end step")
    if manifest.trim > end:
        raise corrupt(where, "its trim lies above its end step")
    return manifest


def _decode_waiting(value: Any, where: str) -> dict[int, Descriptor]:
    waiting = {}
    for item in as_list(value, where, "waiting"):
        step, d = as_tuple(item, 2, where, "waiting entry")
        waiting[as_integer(step, where, "waiting step")] = decode_descriptor(d, where)
    return waiting


def _decode_group(value: Any, where: str) -> dict[str, Any]:
    group = as_record(value, where, "checkpoint group")
    live = {}
    for id, stored in as_record(group.get("live"), where, "live").items():
        mark = live[as_name(id, where, "a name in live")] = Mark._make(as_tuple(stored, 3, where, "checkpoint"))
        for field, n in zip(Mark._fields, mark):
            as_integer(n, where, f"checkpoint {field}")
    for released in as_list(group.get("released"), where, "released"):
        as_name(released, where, "released id")
    check_unknown((v for k, v in group.items() if k not in ("live", "released")), where)
    return {**group, "live": live}


def _check_pin(value: Any, where: str) -> dict[str, Any]:
    pin = as_record(value, where, "pin")
    as_uuid(pin.get("fork"), where, "pin.fork")
    as_text(pin.get("uri"), where, "pin.uri")
    as_integer(pin.get("created"), where, "pin.created")
    as_flag(pin.get("confirmed"), where, "pin.confirmed")
    as_integer(pin.get("from"), where, "pin.from")
    as_integer(pin.get("to"), where, "pin.to")
    decode_reference(pin.get("root"), where)
    known = ("fork", "uri", "created", "confirmed", "from", "to", "root")
    check_unknown((v for k, v in pin.items() if k not in known), where)
    return pin


def decode_boundary(data: bytes, where: str, namespace: str, n: int) -> tuple[int, bool]:
    """The highest version whose name may be gone, as of marker n, and whether it is the last one of a deleted namespace."""
    f = open_json(data, where, "boundary", namespace)
    if f.get("n") != n:
        raise corrupt(where, f"it says number {f.get('n')}")
    return as_integer(f.get("upTo"), where, "upTo"), as_flag(f.get("deleted", False), where, "deleted")


def genesis(spec: NamespaceSpec) -> Manifest:
    """Version 0: the state before the first commit. It is never stored; it follows from namespace.json alone."""
    fork = spec.fork
    return Manifest(
        namespace=spec.uuid,
        version=0,
        commit={"id": "genesis", "by": "namespace.json", "time": spec.created},
        trim=fork.trim if fork else 0,
        closed=False,
        deleted=False,
        index=[],
        tail=fork.tail if fork else Run(0, []),
        waiting={},
        producers={},
        tables=fork.tables if fork else [],
        checkpoints={},
        pins={},
        settings={},
        starving=None,
        orphan_cutoff=0,
        boundary_hint=0,
        rest={},
    )
