"""A namespace: the log of batches behind one URI, and what users do with it."""
from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Literal, Mapping

from .consumer.consumer import Consumer
from .consumer.mesh import is_spawned, process_group, resolve_mesh
from .consumer.waiting import WAITS
from .env.ids import random_uuid
from .errors import BatchWeaveError, invalid, is_error
from .format.keys import (
    BATCH_PREFIX,
    BOUNDARY_PREFIX,
    INDEX_PREFIX,
    INTENT_PREFIX,
    LIVES_PREFIX,
    MANIFEST_PREFIX,
    NAMESPACE_KEY,
    assert_name,
    life_folder,
)
from .format.manifest import Manifest
from .format.namespace_spec import CELLS_MAX, LANES_MAX, NamespaceSpec, decode_namespace
from .format.pulse import PULSE_PREFIX
from .format.stored_json import seal_json
from .lifecycle.checkpoints import DEFAULT_GROUP, Checkpoint, commit_max_lag, live_checkpoints, register_checkpoint, release_checkpoint
from .lifecycle.pins import confirm_pins
from .log.head import BoundaryChain
from .log.log import Log
from .log.stage import lane_number, seq_in_log
from .observe.store_metrics import metered
from .producer.producer import Producer
from .store.object_store import RetryingStore, Store, open_store, path_of_file_uri
from .store.prefix import life_store
from .writer.row_writer import RowWriter

#: How often a namespace that is not there yet is looked for: at first, and at most.
_ABSENT_LOOK_S = 0.1
_ABSENT_LOOK_MAX_S = 2.0
#: Producers whose last commit is looked up.
_DETAIL_MAX = 64
#: An object of a life other than its boundary chain.
_IN_LIFE = re.compile(r"life/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(?!boundary/).+")


class Namespace:
    """One namespace. Cheap; holds no connection and no lock."""

    def __init__(self, uri: str, log: Log) -> None:
        self.uri = uri
        self.log = log

    @property
    def uuid(self) -> str:
        return self.log.spec.uuid

    @property
    def rows(self) -> int:
        return self.log.spec.rows

    @property
    def chunks(self) -> int:
        return self.log.spec.chunks

    def producer(self, id: str, epoch: int | None = None, **settings: Any) -> Producer:
        """Opens a producer id, fencing its holder, and reads its resume point.

        epoch: only if it was not opened since that epoch was seen, 0 for never; otherwise FENCED. pulse: leave hints of life beside the log.
        """
        assert_name(id, "Producer id")
        if self.log.spec.lanes is not None:
            lane_number(id, self.log.spec.lanes)
        return Producer(self.log, self.log.open_producer(id, epoch), **settings)

    def writer(
        self,
        id: str,
        tail: Literal["pad", "drop"] = "pad",
        pack: int | None = None,
        eos: int | None = None,
        joins: Mapping[str, Mapping[str, Any]] | None = None,
        pad: Mapping[str, float] | None = None,
        fill: Mapping[str, float] | None = None,
        user: Any = None,
        **settings: Any,
    ) -> RowWriter:
        """Opens a writer: it takes rows or documents and makes batches of them, each once. On a closed log it only finds that all is there.

        tail:  of rows that do not fill the last batch: "pad" adds rows that say they are none, "drop" leaves them out.
        pack:  the length of sequences that documents of tokens are packed into; `eos` ends each document.
        pad:   a value for each field whose rows differ in length: a share's are extended to its longest.
        joins: how readers put the parts of a field together (FORMAT.md 13).   fill: what padding rows hold; 0, and -100 in `labels`.
        Further settings are Producer's.
        """
        assert_name(id, "Writer id")
        shape: dict[str, Any] = {"tail": tail, "pack": pack, "eos": eos, "joins": joins, "pad": pad, "fill": fill, "user": user}
        manifest = self.log.head.jump()
        if manifest.closed:
            return RowWriter(id, self.uri, self.rows, self.chunks, None, self.log.find_resume_point(manifest, id), **shape)
        producer = self.producer(id, **settings)
        try:
            return RowWriter(id, self.uri, self.rows, self.chunks, producer, producer.resume_point, **shape)
        except BaseException:
            producer.stop()
            raise

    def consumer(
        self,
        mesh: Any = None,
        rank: int | None = None,
        start: Any = "earliest",
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Consumer:
        """One rank's view of the log. Mesh and rank default to what the launcher says in the environment."""
        if environment is None:
            place = resolve_mesh(mesh, rank, os.environ, process_group(), is_spawned())
        else:
            place = resolve_mesh(mesh, rank, environment)
        return Consumer(self.log, place, start, **settings)

    def checkpoint(
        self, id: str, cursor: Any, group: str = DEFAULT_GROUP, keep_last: int | None = None
    ) -> Checkpoint:
        """Registers a checkpoint: the data from `cursor` on stays until it is released. Every rank may call it."""
        return register_checkpoint(self.log, id, cursor, group, keep_last)

    def release(self, id: str, group: str = DEFAULT_GROUP) -> None:
        """Releases a checkpoint: the next reclaim may delete what only it kept."""
        release_checkpoint(self.log, id, group)

    def list_checkpoints(self) -> list[Checkpoint]:
        """The live checkpoints, by group, the newest first."""
        return live_checkpoints(self.log.head.jump(), self.rows)

    def set_max_lag(self, max_lag: int | None) -> None:
        """Steps that producers may be ahead of the slowest group's newest checkpoint; None removes the limit."""
        commit_max_lag(self.log, max_lag)

    def end_log(self, drop_waiting: bool = False) -> int:
        """Ends the log for all producers and ranks: no batch after the current end, and ranks stop there. Gives the end."""
        return self.log.close(drop_waiting).end

    def about_bytes(self) -> int:
        """About how many bytes the readable steps hold: those of the newest, times their number."""
        manifest = self.log.head.known or self.log.head.jump()
        count = manifest.end - manifest.trim
        if count == 0:
            return 0
        newest = [batch for i, batch in enumerate(manifest.tail.batches) if manifest.tail.start + i >= manifest.trim]
        # A run was sealed this very moment: the last batch of it must do.
        batches = newest or [self.log.index.locate(manifest, manifest.end - 1).descriptor]
        total = sum(extent.size for batch in batches for extent in batch.extents)
        return int(total / len(batches) * count + 0.5)

    def info(self) -> dict[str, Any]:
        """The state of the log at its head; the same fields as `batchweave info --json`."""
        manifest = self.log.head.jump()
        spec = self.log.spec
        info: dict[str, Any] = {
            "uri": self.uri,
            "uuid": spec.uuid,
            "grid": spec.grid,
            "order": spec.order,
            "createdMs": spec.created,
            "version": manifest.version,
            "closed": manifest.closed,
            "steps": {"trim": manifest.trim, "end": manifest.end},
            "lastCommit": _last_commit(manifest),
            "producers": self._producer_details(manifest),
            "silentTables": len(manifest.tables),
        }
        if spec.lanes is not None and manifest.waiting:
            lane = f"lane-{(manifest.end - spec.first_own_step) % spec.lanes}"
            info["waiting"] = {"batches": len(manifest.waiting), "missingStep": manifest.end, "lane": lane}
        info["checkpoints"] = [c._asdict() for c in live_checkpoints(manifest, spec.rows)]
        info["forks"] = [{"uri": p["uri"], "from": p["from"], "to": p["to"]} for p in manifest.pins.values()]
        info["origins"] = [
            {"uri": o.uri, "uuid": o.uuid, "steps": sum(r.steps for r in o.ranges)}
            for o in (spec.fork.origins if spec.fork else [])
        ]
        if manifest.max_lag is not None:
            info["maxLag"] = manifest.max_lag
        info["boundary"] = self.log.head.boundary.up_to
        info["orphanCutoff"] = manifest.orphan_cutoff
        return info

    def _producer_details(self, manifest: Manifest) -> list[dict[str, Any]]:
        """The one that changed last first. Nothing is decided by this: manifests are not verified, and intents are hints."""
        announced = {(b.producer, b.seq) for b in self.log.list_intents().batches}
        details = []
        for i, id in enumerate(sorted(manifest.producers, key=lambda id: (-manifest.producers[id].at, id))):
            state = manifest.producers[id]
            pending = sum(1 for producer, seq in announced if producer == id and seq >= state.seq)
            seq = seq_in_log(self.log.spec, manifest, id, state.seq)
            detail = {"id": id, "epoch": state.epoch, "seq": seq, "version": state.at, "hasLeft": state.has_left}
            detail.update(openings=state.epoch - state.made_by, pending=pending)
            last = self.log.head.read(state.at) if i < _DETAIL_MAX else None
            if last:
                detail["lastCommit"] = _last_commit(last)
            details.append(detail)
        return details


def _open_backend(uri: str, **settings: Any) -> Store:
    return RetryingStore(metered(open_store(uri, **settings)))


def _handle(uri: str, store: Store, spec: NamespaceSpec, settings: dict[str, Any]) -> Namespace:
    def open_other(place: str) -> Store:
        return _open_backend(place, **settings)

    log = Log(store, spec, open_other)
    confirm_pins(spec, log.head.newest().trim, open_other)
    return Namespace(uri, log)


def open_namespace(uri: str, store: Store | None = None, wait: float = 0.0, **settings: Any) -> Namespace:
    """Opens an existing namespace. A store of your own is used as it is, without our retries.

    wait: how many seconds to wait for one that is not created yet, as ranks do that start first.
    """
    backend = store or _open_backend(uri, **settings)
    data = _await_namespace(uri, backend, wait)
    return _handle(uri, backend, decode_namespace(data, f"{uri}/{NAMESPACE_KEY}"), settings)


def _await_namespace(uri: str, store: Store, wait: float) -> bytes:
    until = time.monotonic() + wait
    delay = _ABSENT_LOOK_S
    while (data := store.get(NAMESPACE_KEY)) is None:
        left = until - time.monotonic()
        if left <= 0:
            waited = f", and none was created within {wait:.0f} s" if wait > 0 else ""
            raise BatchWeaveError(
                "NO_NAMESPACE",
                f"There is no namespace at {uri}{waited}. Create one with create_namespace() or "
                f"`batchweave create {uri} --rows R --chunks C`.",
                {"uri": uri},
            )
        if delay == _ABSENT_LOOK_S:
            WAITS.warning("Waiting for a namespace at %s, at most %.0f s: it is not created yet.", uri, wait)
        time.sleep(min(delay, left))
        delay = min(2 * delay, _ABSENT_LOOK_MAX_S)
    return data


def create_namespace(
    uri: str, rows: int, chunks: int = 1, lanes: int | None = None, store: Store | None = None, **settings: Any
) -> Namespace:
    """Creates a namespace, or opens it when it exists with the same grid and order.

    A store other than a local folder is probed first: one that ignores the condition of a create is refused.
    """
    for name, value in (("rows", rows), ("chunks", chunks)):
        if type(value) is not int or value < 1:
            raise invalid(f"grid.{name} must be a whole number of at least 1, not {value}.")
    if rows * chunks > CELLS_MAX:
        raise invalid(
            f"A grid of {rows} x {chunks} has more than {CELLS_MAX} slices; use fewer rows or chunks and several batches per "
            "iteration."
        )
    if lanes is not None and (type(lanes) is not int or not 1 <= lanes <= LANES_MAX):
        raise invalid(f'order must be "commit", or "lanes" with 1 to {LANES_MAX} lanes.')
    order: dict[str, Any] = {"kind": "commit"} if lanes is None else {"kind": "lanes", "lanes": lanes}
    backend = store or _open_backend(uri, **settings)
    if backend.get(NAMESPACE_KEY) is None:
        _assert_empty(uri, backend)
        if store is None:
            _assert_outside(uri, lambda place: _open_backend(place, **settings))
        if store is None and not uri.startswith("file:"):
            from .store.probe import assert_safe

            assert_safe(backend)
        fields = {"grid": {"rows": rows, "chunks": chunks}, "order": order, "created": int(time.time() * 1_000)}
        data = seal_json("namespace", random_uuid(), fields, 2)
        delay = 0.05
        # The same bytes until there is a verdict. Whose it is then, is read back.
        while backend.create(NAMESPACE_KEY, data) == "unknown":
            time.sleep(delay)
            delay = min(2 * delay, 5.0)
    found = backend.get(NAMESPACE_KEY)
    if found is None:
        raise BatchWeaveError(
            "NO_NAMESPACE", f"The namespace at {uri} was deleted while it was being created. Try again.", {"uri": uri}
        )
    spec = decode_namespace(found, f"{uri}/{NAMESPACE_KEY}")
    if spec.rows != rows or spec.chunks != chunks or spec.order != order:
        raise BatchWeaveError(
            "GRID_MISMATCH",
            f"{uri} exists with {_shape(spec.rows, spec.chunks, spec.order)}, not {_shape(rows, chunks, order)}; both are "
            "fixed when a namespace is created. Open it as it is, or create another.",
            {"uri": uri},
        )
    return _handle(uri, backend, spec, settings)


#: Folders of a namespace's own objects.
_OWN_PREFIXES = (LIVES_PREFIX, MANIFEST_PREFIX, BOUNDARY_PREFIX, INDEX_PREFIX, BATCH_PREFIX, INTENT_PREFIX, PULSE_PREFIX, "probe/")


def _assert_outside(uri: str, open_other: Callable[[str], Store]) -> None:
    """Refuses a place among another namespace's own objects: deleting that one would delete this one."""
    is_file = uri[:5].lower() == "file:"
    # Of a folder its path decides, however it is written.
    segments = path_of_file_uri(uri).split("/") if is_file else uri.split("/")
    for i in range(2 if is_file else 3, len(segments)):
        if f"{segments[i]}/" not in _OWN_PREFIXES:
            continue
        above = "/".join(segments[:i])
        outer = Path(above).as_uri() if is_file else above
        if open_other(outer).get(NAMESPACE_KEY) is not None:
            raise BatchWeaveError(
                "NOT_EMPTY",
                f"{uri} lies among the objects of the namespace at {outer}. Choose a place beside it.",
                {"uri": uri, "outer": outer},
            )


def _shape(rows: int, chunks: int, order: dict[str, Any]) -> str:
    lanes = f" with {order['lanes']} lanes" if order["kind"] == "lanes" else ""
    return f"{rows} rows x {chunks} chunks, order {order['kind']}{lanes}"


def _assert_empty(uri: str, store: Store) -> None:
    """Nothing here stands in the way of a new life, but leftovers cost storage, and a life that was not deleted may be missed."""
    leftovers = [key for prefix in (MANIFEST_PREFIX, INDEX_PREFIX, BATCH_PREFIX, INTENT_PREFIX) for key in store.list(prefix, "", 1)[0]]
    lives = {match[1]: match[0] for key in store.list(LIVES_PREFIX)[0] if (match := _IN_LIFE.fullmatch(key))}
    for uuid, key in lives.items():
        try:
            BoundaryChain(life_store(store, life_folder(2, uuid)), uuid).look()
            leftovers.append(key)
        except BatchWeaveError as error:
            # A process that woke up after the deletion may have left something; it belongs to no namespace.
            if not is_error(error, "DELETED"):
                raise
    # namespace.json may have been created by a racing process meanwhile: then these are its objects.
    if not leftovers or store.get(NAMESPACE_KEY) is not None:
        return
    raise BatchWeaveError(
        "NOT_EMPTY",
        f"{uri} holds objects of an earlier namespace ({leftovers[0]}). Finish deleting it with `batchweave delete {uri}`, or use "
        "another place.",
        {"uri": uri, "key": leftovers[0]},
    )


def _last_commit(manifest: Manifest) -> dict[str, Any]:
    """Who made a version, what for (None in old logs), and when, by its maker's clock."""
    commit = manifest.commit
    return {"by": commit["by"], "kind": commit.get("kind"), "timeMs": commit["time"]}
