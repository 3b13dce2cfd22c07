"""From a step to its descriptor: the tail, the sealed index, or an ancestor's (FORMAT.md 7 and 17)."""
from __future__ import annotations

import threading
from typing import Any, Callable, NamedTuple, TypeVar

from ..errors import BatchWeaveError, corrupt
from ..flow.once import Once
from ..format.checksum import crc32
from ..format.descriptor import Descriptor
from ..format.index_node import FANOUT, Level, Reference, Run, decode_node, decode_root, decode_segment, steps_per_node
from ..format.keys import index_key, life_folder
from ..format.manifest import Manifest
from ..format.namespace_spec import NamespaceSpec, Origin
from ..store.object_store import Store
from ..store.prefix import life_store

T = TypeVar("T")

_CACHED_MAX = 64


class BatchPlace(NamedTuple):
    """Where a batch's objects are: this namespace's store, or an ancestor's."""

    descriptor: Descriptor
    store: Store
    namespace: str


class StepIndex:
    """Looks steps up. Index objects are immutable, so the last few stay in memory."""

    def __init__(self, store: Store, spec: NamespaceSpec, open_origin: Callable[[str], Store]) -> None:
        self._store = store
        self._spec = spec
        self._open_origin = open_origin
        self._cache: Once[Any] = Once(_CACHED_MAX)
        self._origins: dict[int, Store] = {}
        self._lock = threading.Lock()
        self._run = Run(0, [])

    def locate(self, manifest: Manifest, step: int) -> BatchPlace:
        """The batch at `step`, which must be in [trim, end) of the verified manifest."""
        if not manifest.trim <= step < manifest.end:
            raise _outside(manifest, step)
        place = self._find(manifest, step)
        if not place.descriptor.extents:
            # Only a step that was trimmed before its fork was made has no objects.
            raise corrupt(self._store.uri, f"step {step} is promised, and no batch is there", step=step)
        return place

    def _find(self, manifest: Manifest, step: int) -> BatchPlace:
        tail = manifest.tail
        if step >= tail.start:
            return self._place(tail.batches[step - tail.start])
        if self._spec.fork is None:
            # The batch of a step never changes, so the segment used last answers for all its steps, whatever the manifest.
            run = self._run
            if not run.start <= step < run.end:
                run = self._run = self._find_run(self._store, self._spec.uuid, manifest.index, step)
            return self._place(run.batches[step - run.start])
        for number, origin in enumerate(self._spec.fork.origins):
            for at, count, start in origin.ranges:
                if at <= step < at + count:
                    return self._locate_inherited(number, start + step - at)
        return self._place(self._descend(self._store, self._spec.uuid, manifest.index, step))

    def read_object(
        self, store: Store, namespace: str, ref: Reference, decode: Callable[[bytes, str, str], T]
    ) -> T:
        """Reads and checks an index object of this namespace or an ancestor."""
        key = index_key(ref)

        def load() -> tuple[Any, int]:
            data = store.get(key)
            if data is None:
                raise BatchWeaveError(
                    "MISSING_OBJECT",
                    f"{key} is referenced by the log and is not in {store.uri}. If a reclaim passed meanwhile, load the head "
                    "again; otherwise restore it.",
                    {"key": key},
                )
            if crc32(data) != ref.check:
                raise BatchWeaveError(
                    "CORRUPT",
                    f"{key} does not match the reference to it. Restore it from a replica or a backup.",
                    {"key": key, "expected": ref.check, "found": crc32(data)},
                )
            return decode(data, key, namespace), 1

        found: T = self._cache.get(f"{namespace}/{key}", load)
        return found

    def _descend(self, store: Store, namespace: str, levels: list[Level], step: int) -> Descriptor:
        run = self._find_run(store, namespace, levels, step)
        return run.batches[step - run.start]

    def _find_run(self, store: Store, namespace: str, levels: list[Level], step: int) -> Run:
        """The segment that holds the step."""
        for level, (start, refs) in enumerate(levels):
            position = step // steps_per_node(level) - start
            ref = refs[position] if 0 <= position < len(refs) else None
            for below in range(level, 0, -1):
                if not ref:
                    break
                node = self.read_object(store, namespace, ref, decode_node)
                expected = node.level == below and node.start == step - step % steps_per_node(below)
                _assert_place(ref, expected, step)
                ref = node.refs[step // steps_per_node(below - 1) % FANOUT]
            if ref:
                run = self.read_object(store, namespace, ref, decode_segment)
                _assert_place(ref, run.start == step - step % FANOUT, step)
                return run
        raise BatchWeaveError(
            "CORRUPT", f"Step {step} is in no index object of {store.uri}. Run `batchweave verify`.", {"step": step}
        )

    def _locate_inherited(self, number: int, step: int) -> BatchPlace:
        origin, store = self._origin(number)
        root = self.read_object(store, origin.uuid, origin.root, decode_root)
        tail = root.tail
        if step >= tail.start:
            if step >= tail.end:
                raise corrupt(index_key(origin.root), f"it does not reach step {step}")
            descriptor = tail.batches[step - tail.start]
        else:
            descriptor = self._descend(store, origin.uuid, root.levels, step)
        inner = descriptor.origin
        if inner is None:
            return BatchPlace(descriptor, store, origin.uuid)
        # The ancestor is a fork itself and inherited this batch: its numbers are not ours.
        return self._place_at(descriptor, origin.via[inner] if inner < len(origin.via) else -1)

    def _place(self, descriptor: Descriptor) -> BatchPlace:
        if descriptor.origin is None:
            return BatchPlace(descriptor, self._store, self._spec.uuid)
        return self._place_at(descriptor, descriptor.origin)

    def _place_at(self, descriptor: Descriptor, number: int) -> BatchPlace:
        origin, store = self._origin(number)
        return BatchPlace(descriptor, store, origin.uuid)

    def _origin(self, number: int) -> tuple[Origin, Store]:
        origins = self._spec.fork.origins if self._spec.fork else []
        if not 0 <= number < len(origins):
            raise BatchWeaveError(
                "CORRUPT",
                f"A batch of {self._store.uri} names origin {number}, which namespace.json does not list.",
                {"origin": number},
            )
        origin = origins[number]
        with self._lock:
            if number not in self._origins:
                folder = life_folder(origin.format, origin.uuid)
                self._origins[number] = life_store(self._open_origin(origin.uri), folder)
            return origin, self._origins[number]


def _assert_place(ref: Reference, is_expected: bool, step: int) -> None:
    """A reference that leads to another part of the index must not give another step's batch."""
    if not is_expected:
        raise corrupt(index_key(ref), f"it does not cover step {step}, for which the index names it")


def _outside(manifest: Manifest, step: int) -> BatchWeaveError:
    """Gone, or not there yet: people must do different things about the two."""
    trim, end = manifest.trim, manifest.end
    details = {"step": step, "trim": trim, "end": end}
    if step < trim:
        left = f"holds steps {trim} to {end - 1}; ask for one of those" if trim < end else "holds no step now"
        message = f"Step {step} was reclaimed, and nothing brings it back: the log {left}."
        return BatchWeaveError("RECLAIMED", message, details)
    last = "nothing is published yet" if end == 0 else f"the last step is {end - 1}"
    if manifest.closed:
        return BatchWeaveError(
            "INVALID_ARGUMENT", f"Step {step} does not exist: the log is closed and {last}.", details
        )
    message = (
        f"Step {step} is not published yet: {last}, and the log is open. Ask again when producers have come that far."
    )
    return BatchWeaveError("INVALID_ARGUMENT", message, details)
