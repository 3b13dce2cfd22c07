"""Index objects (FORMAT.md 7 and 17): segments and nodes, what a pin keeps of them, and the references that lead to them."""
from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import corrupt
from .descriptor import Descriptor, decode_descriptor
from .stored_json import as_id, as_integer, as_list, as_tuple, open_json

FANOUT = 64


class Reference(NamedTuple):
    """Names an index object, in the order in which it is stored."""

    base: int
    commit_id: str
    k: int
    #: CRC-32 of the whole object.
    check: int


class Run(NamedTuple):
    """Descriptors of consecutive steps."""

    start: int
    batches: list[Descriptor]

    @property
    def end(self) -> int:
        """The first step behind them."""
        return self.start + len(self.batches)

    def stored(self) -> dict[str, Any]:
        """As JSON."""
        return {"start": self.start, "batches": [d.stored() for d in self.batches]}


class Level(NamedTuple):
    """References to consecutive index objects of one level, in the order in which it is stored."""

    start: int
    refs: list[Reference]


class Node(NamedTuple):
    """64 index objects of the level below; None where the trim had passed."""

    level: int
    start: int
    refs: list[Reference | None]


class Root(NamedTuple):
    """What a pin keeps: index and tail as of the version it was committed on."""

    levels: list[Level]
    tail: Run


def steps_per_node(level: int) -> int:
    """Steps under one index object of a level (0: segments)."""
    found: int = FANOUT ** (level + 1)
    return found


def decode_reference(value: Any, where: str) -> Reference:
    """[base, commitId, k, check]"""
    ref = Reference._make(as_tuple(value, 4, where, "reference"))
    as_integer(ref.base, where, "reference.base")
    as_id(ref.commit_id, where, "reference.commitId")
    as_integer(ref.k, where, "reference.k")
    as_integer(ref.check, where, "reference.check")
    return ref


def decode_run(value: Any, where: str) -> Run:
    """{"start": S, "batches": [descriptor...]}"""
    if not isinstance(value, dict):
        raise corrupt(where, "a run of batches is not an object")
    start = as_integer(value.get("start"), where, "start")
    return Run(start, [decode_descriptor(d, where) for d in as_list(value.get("batches"), where, "batches")])


def decode_levels(value: Any, where: str) -> list[Level]:
    """A list of [start, [reference...]]."""
    levels = []
    for item in as_list(value, where, "index"):
        start, refs = as_tuple(item, 2, where, "index level")
        as_integer(start, where, "index level start")
        levels.append(Level(start, [decode_reference(ref, where) for ref in as_list(refs, where, "index level refs")]))
    return levels


def decode_segment(data: bytes, where: str, namespace: str) -> Run:
    """A full segment: 64 descriptors."""
    run = decode_run(open_json(data, where, "segment", namespace), where)
    if len(run.batches) != FANOUT or run.start % FANOUT != 0:
        raise corrupt(where, "it is not a full segment")
    return run


def decode_node(data: bytes, where: str, namespace: str) -> Node:
    """A node: 64 references, or 0 where the trim had passed."""
    f = open_json(data, where, "node", namespace)
    listed = as_list(f.get("refs"), where, "refs")
    refs = [None if type(ref) is int and ref == 0 else decode_reference(ref, where) for ref in listed]
    if len(refs) != FANOUT:
        raise corrupt(where, f"it has {len(refs)} references, expected {FANOUT}")
    return Node(as_integer(f.get("level"), where, "level"), as_integer(f.get("start"), where, "start"), refs)


def decode_root(data: bytes, where: str, namespace: str) -> Root:
    """The index and the tail that a pin keeps."""
    f = open_json(data, where, "root", namespace)
    return Root(decode_levels(f.get("index"), where), decode_run(f.get("tail"), where))
