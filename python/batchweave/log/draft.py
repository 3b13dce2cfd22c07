"""A draft: the next version of the state while it is being staged (FORMAT.md 15, 1 and 2). Nothing here touches the store."""
from __future__ import annotations

from typing import Any, NamedTuple

from ..format.checksum import crc32
from ..format.keys import index_key
from ..format.manifest import FANOUT, Manifest, steps_per_node
from ..format.stored_json import seal_json


class Stamp(NamedTuple):
    """Who makes the next version, as the manifest records it."""

    id: str
    by: str
    time: int
    boundary_hint: int
    #: What for; None: not written down.
    kind: str | None = None


class Draft:
    """A copy of a base manifest that stage functions change. Unknown fields of the base are carried over as they are."""

    def __init__(self, base: Manifest, stamp: Stamp) -> None:
        self.base = base
        self.version = base.version + 1
        self.producers = dict(base.producers)
        self.checkpoints = dict(base.checkpoints)
        self.pins = dict(base.pins)
        self.waiting = dict(base.waiting)
        self.trim = base.trim
        self.closed = base.closed
        self.starving = base.starving
        self.settings: dict[str, Any] = base.fields.get("settings", {})
        #: Index objects that must be written before the commit: (key, bytes).
        self.sealed: list[tuple[str, bytes]] = []
        self._stamp = stamp
        self._tail = list(base.tail["batches"])
        self._tail_start: int = base.tail["start"]
        self._levels = [[start, list(refs)] for start, refs in base.index]

    @property
    def end(self) -> int:
        """The first step not visible yet."""
        return self._tail_start + len(self._tail)

    @property
    def tables(self) -> list[Any]:
        return self.base.tables

    def push(self, descriptor: list[Any]) -> None:
        """Gives a batch the next step."""
        self._tail.append(descriptor)

    def _commit(self) -> dict[str, Any]:
        commit = {"id": self._stamp.id, "by": self._stamp.by, "time": self._stamp.time}
        return commit if self._stamp.kind is None else {**commit, "kind": self._stamp.kind}

    def finish(self) -> Manifest:
        """Seals what is full, drops index references below the trim, and gives the next version."""
        self._seal_tail()
        known_boundary = max(self._stamp.boundary_hint, self.base.boundary_hint)
        fields = {
            **self.base.fields,
            "version": self.version,
            "commit": self._commit(),
            "steps": {"trim": self.trim, "end": self.end},
            "closed": self.closed,
            "index": self._trimmed_levels(),
            "tail": {"start": self._tail_start, "batches": self._tail},
            "producers": self.producers,
            "checkpoints": self.checkpoints,
            "pins": self.pins,
            "boundaryHint": known_boundary,
        }
        fields.pop("waiting", None)
        if self.waiting:
            fields["waiting"] = [[step, d] for step, d in self.waiting.items()]
        fields.pop("settings", None)
        if self.settings:
            fields["settings"] = self.settings
        fields.pop("starving", None)
        # It says nothing once the end has moved on.
        if self.starving == self.end:
            fields["starving"] = self.starving
        return Manifest(self.base.namespace, fields)

    def _seal(self, kind: str, fields: dict[str, Any]) -> list[Any]:
        data = seal_json(kind, self.base.namespace, fields)
        ref = [self.base.version, self._stamp.id, len(self.sealed), crc32(data)]
        self.sealed.append((index_key(ref), data))
        return ref

    def _seal_tail(self) -> None:
        while len(self._tail) >= FANOUT:
            ref = self._seal("segment", {"start": self._tail_start, "batches": self._tail[:FANOUT]})
            self._push_ref(0, self._tail_start // FANOUT, ref)
            del self._tail[:FANOUT]
            self._tail_start += FANOUT

    def _push_ref(self, level: int, number: int, ref: list[Any]) -> None:
        if level == len(self._levels):
            self._levels.append([number, []])
        start, refs = self._levels[level]
        refs.append(ref)
        if (number + 1) % FANOUT != 0:
            return
        # The level is full: its last 64 objects get a parent. Those the trim has passed are left out of it.
        first = number + 1 - FANOUT
        below = [refs[n - start] if 0 <= n - start < len(refs) else 0 for n in range(first, number + 1)]
        fields = {"level": level + 1, "start": first * steps_per_node(level), "refs": below}
        parent = self._seal("node", fields)
        self._levels[level] = [number + 1, []]
        self._push_ref(level + 1, first // FANOUT, parent)

    def _trimmed_levels(self) -> list[Any]:
        levels = []
        for i, (start, refs) in enumerate(self._levels):
            drop = min(max(0, self.trim // steps_per_node(i) - start), len(refs))
            levels.append([start + drop, refs[drop:]])
        return levels


def encode_manifest(manifest: Manifest) -> bytes:
    """The stored bytes of a version."""
    return seal_json("manifest", manifest.namespace, manifest.fields, 2 if manifest.deleted else 1)
