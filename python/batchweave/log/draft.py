"""A draft: the next version of the state while it is being staged (FORMAT.md 15, 1 and 2). Nothing here touches the store."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..format.checksum import crc32
from ..format.descriptor import Descriptor
from ..format.index_node import FANOUT, Level, Reference, Run, steps_per_node
from ..format.keys import index_key
from ..format.manifest import Manifest
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
        self.settings = base.settings
        #: Index objects that must be written before the commit: (key, bytes).
        self.sealed: list[tuple[str, bytes]] = []
        self._stamp = stamp
        self._tail = Run(base.tail.start, list(base.tail.batches))
        self._levels = [Level(start, list(refs)) for start, refs in base.index]

    @property
    def end(self) -> int:
        """The first step not visible yet."""
        return self._tail.end

    @property
    def tables(self) -> list[Reference]:
        return self.base.tables

    def push(self, descriptor: Descriptor) -> None:
        """Gives a batch the next step."""
        self._tail.batches.append(descriptor)

    def _commit(self) -> dict[str, Any]:
        commit = {"id": self._stamp.id, "by": self._stamp.by, "time": self._stamp.time}
        return commit if self._stamp.kind is None else {**commit, "kind": self._stamp.kind}

    def finish(self) -> Manifest:
        """Seals what is full, drops index references below the trim, and gives the next version."""
        self._seal_tail()
        return replace(
            self.base,
            version=self.version,
            commit=self._commit(),
            trim=self.trim,
            closed=self.closed,
            index=self._trimmed_levels(),
            tail=self._tail,
            waiting=self.waiting,
            producers=self.producers,
            checkpoints=self.checkpoints,
            pins=self.pins,
            settings=self.settings,
            # It says nothing once the end has moved on.
            starving=self.starving if self.starving == self.end else None,
            boundary_hint=max(self._stamp.boundary_hint, self.base.boundary_hint),
        )

    def _seal(self, kind: str, fields: dict[str, Any]) -> Reference:
        data = seal_json(kind, self.base.namespace, fields)
        ref = Reference(self.base.version, self._stamp.id, len(self.sealed), crc32(data))
        self.sealed.append((index_key(ref), data))
        return ref

    def _seal_tail(self) -> None:
        while len(self._tail.batches) >= FANOUT:
            start, batches = self._tail
            self._tail = Run(start + FANOUT, batches[FANOUT:])
            self._push_ref(0, start // FANOUT, self._seal("segment", Run(start, batches[:FANOUT]).stored()))

    def _push_ref(self, level: int, number: int, ref: Reference) -> None:
        if level == len(self._levels):
            self._levels.append(Level(number, []))
        start, refs = self._levels[level]
        refs.append(ref)
        if (number + 1) % FANOUT != 0:
            return
        # The level is full: its last 64 objects get a parent. Those the trim has passed are left out of it.
        first = number + 1 - FANOUT
        below = [refs[n - start] if 0 <= n - start < len(refs) else 0 for n in range(first, number + 1)]
        fields = {"level": level + 1, "start": first * steps_per_node(level), "refs": below}
        parent = self._seal("node", fields)
        self._levels[level] = Level(number + 1, [])
        self._push_ref(level + 1, first // FANOUT, parent)

    def _trimmed_levels(self) -> list[Level]:
        levels = []
        for i, (start, refs) in enumerate(self._levels):
            drop = min(max(0, self.trim // steps_per_node(i) - start), len(refs))
            levels.append(Level(start + drop, refs[drop:]))
        return levels


def encode_manifest(manifest: Manifest) -> bytes:
    """The stored bytes of a version."""
    return seal_json("manifest", manifest.namespace, manifest.fields, 2 if manifest.deleted else 1)
