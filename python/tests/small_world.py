"""A namespace on a store in memory, a producer that is quick to write, and a reclaimer's two moves on the chain: announce, then delete names."""
from __future__ import annotations

from typing import Any

from batchweave import create_namespace
from batchweave.format.batch import encode_extent
from batchweave.format.descriptor import BatchName, Descriptor
from batchweave.format.keys import MANIFEST_PREFIX, batch_key, boundary_key, parse_manifest_key
from batchweave.format.stored_json import seal_json
from batchweave.log.log import Log
from batchweave.log.stage import Holder
from batchweave.store.object_store import Store
from memory_store import MemoryStore


class World:
    """One namespace, and as many processes on it as a test opens."""

    def __init__(self, **settings: Any) -> None:
        self.store = MemoryStore()
        self.log = create_namespace("memory:test", rows=1, store=self.store, **settings).log

    def open(self, store: Store | None = None) -> Log:
        """Another process's view."""
        return Log(store or self.store, self.log.spec, lambda uri: self.store)


class Writer:
    """A producer without a cadence."""

    def __init__(self, log: Log, id: str) -> None:
        self.log = log
        self.id = id
        self.seq = 0
        self.holder = Holder(id, 0, "")

    def open(self) -> "Writer":
        opening = self.log.open_producer(self.id)
        self.holder, self.seq = opening.holder, opening.seq
        return self

    def upload(self, text: str = "x") -> Descriptor:
        """Uploads the next batch; gives its descriptor."""
        name = BatchName(*self.holder, self.seq)
        body, extent = encode_extent(self.log.spec.uuid, name, 0, 0, [text.encode()], {"contentType": "text/plain"}, None)
        descriptor = Descriptor(*name, self.log.head.newest().version, 0, (extent,))
        self.log.store.put(batch_key(descriptor, 0), body)
        self.seq += 1
        return descriptor

    def commit(self, batches: list[Descriptor]) -> None:
        while self.log.attempt_batches(self.holder, batches).outcome not in ("committed", "nothing"):
            pass

    def write(self, count: int) -> "Writer":
        if not self.holder.incarnation:
            self.open()
        for _ in range(count):
            self.commit([self.upload()])
        return self


def announce(log: Log, up_to: int) -> None:
    """Creates the next boundary marker."""
    log.head.boundary.look()
    n = log.head.boundary.n + 1
    assert log.store.create(boundary_key(n), seal_json("boundary", log.spec.uuid, {"n": n, "upTo": up_to})) == "created"


def reclaim(log: Log, kept: int = 2) -> None:
    """Announces the boundary, then deletes every name up to it."""
    up_to = log.head.jump().version - kept
    announce(log, up_to)
    keys, _ = log.store.list(MANIFEST_PREFIX)
    log.store.delete([key for key in keys if (parse_manifest_key(key) or 0) <= up_to])


def move_on(log: Log, count: int = 12) -> None:
    """Others commit, and a reclaim deletes every version they passed."""
    Writer(log, "other").write(count)
    reclaim(log)


def occurrences(log: Log, producer: str, seq: int) -> int:
    """How often a batch is in the log."""
    manifest = log.head.jump()
    found = [log.locate(manifest, step).descriptor for step in range(manifest.trim, manifest.end)]
    return sum(d.producer == producer and d.seq == seq for d in found)
