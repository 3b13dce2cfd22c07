"""StreamingDataset and StreamingDataLoader: the log as torch expects it, and as a plain iterator where torch is absent."""
from __future__ import annotations

import difflib
import inspect
import multiprocessing
import os
from collections import deque
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterator, Sequence

from ..consumer.consumer import Consumer
from ..consumer.mesh import Place, resolve_mesh
from ..consumer.projection import RowsPerRank
from ..consumer.share import Decode, Share, check_decode
from ..errors import BatchWeaveError, invalid
from ..format.cursor import make_cursor, parse_cursor
from ..format.keys import assert_name
from ..format.tensors import require_package
from ..lifecycle.checkpoints import DEFAULT_GROUP, Checkpoint
from ..namespace import Namespace, open_namespace

if TYPE_CHECKING:
    _Base = object
else:
    try:
        from torch.utils.data import IterableDataset as _Base
    except ImportError:
        _Base = object

#: What the processes of one dataset share: whether the start is fixed, its row and iteration, the pass of workers that read.
_FIXED, _ROW, _ITERATION, _YIELDED = range(4)
#: Arguments of Consumer that the dataset gives itself.
_OWN_SETTINGS = ("log", "place", "start", "policy", "layout", "rows_per_rank", "group", "wait_timeout", "stride", "offset", "finish", "finish_copies", "pulse")


class StreamingDataset(_Base):
    """Yields this rank's shares in order. `state_dict()` is the cursor of the last share the training loop got.

    uri:           s3://, gs://, az:// or file://.
    mesh, rank:    {"dp": 8, "cp": 2, "tp": 4, "pp": 1, "order": "megatron"}, or a torch DeviceMesh; default: RANK and WORLD_SIZE.
    decode:        "bytes", "numpy", "torch" (tensors of the safetensors layout, without copying) or a function of bytes.
    start:         "earliest", "latest", {"step": n}, {"row": n}, {"checkpoint": id} or a cursor; what `load_state_dict` gets goes before it.
    policy:        "per-rank" (dp x rows_per_rank rows an iteration) or "global-batch" (one batch an iteration).
    layout:        "contiguous" or "zigzag" (Megatron's context parallelism).
    broadcast:     axes along which one rank reads for its peers over torch.distributed, such as ("tp", "pp").
    wait_timeout:  seconds to wait for a batch before WAIT_TIMEOUT, or for a namespace that nobody has created yet.
    fields:        names of the tensors to join ahead of the loop, such as ("tokens", "labels"); default all. Others are joined when asked for.
    pin_memory:    with decode="torch": `share["name"]` is in page-locked memory where there is a GPU, for `.to(device, non_blocking=True)`.
    transform:     a function of a share, called on the threads that read ahead; the loop gets what it returns.
    pulse:         leave hints of life beside the log, so that `batchweave top` sees this rank: a few small objects a minute for the whole job.
    Further settings, such as prefetch_bytes_max, are Consumer's.
    """

    def __init__(
        self,
        uri: str,
        mesh: Any = None,
        rank: int | None = None,
        decode: Decode = "bytes",
        start: Any = "earliest",
        policy: str = "per-rank",
        layout: str = "contiguous",
        rows_per_rank: RowsPerRank = 1,
        group: str = DEFAULT_GROUP,
        broadcast: Sequence[str] = (),
        wait_timeout: float = 600.0,
        fields: Collection[str] | None = None,
        pin_memory: bool = False,
        transform: Callable[[Share], Any] | None = None,
        pulse: bool = True,
        store_settings: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_decode(decode)
        self.uri = uri
        self.place: Place = resolve_mesh(mesh, rank, os.environ)
        assert_name(group, "group")
        self.group = group
        self._decode = decode
        self._start = parse_cursor(start) if isinstance(start, dict) and "batchweave" in start else start
        self._broadcast = tuple(broadcast)
        if any(axis not in ("tp", "pp") for axis in self._broadcast):
            raise invalid(f'broadcast can be over "tp" and "pp", whose ranks read the same bytes, not {self._broadcast}.')
        if pin_memory and decode != "torch":
            raise invalid('pin_memory is for tensors: use decode="torch" with it.')
        if isinstance(fields, str) or (fields is not None and decode not in ("numpy", "torch")):
            raise invalid('fields is a list of names, for tensors: use decode="numpy" or "torch" with it.')
        self._fields = None if fields is None else tuple(fields)
        self._pin_memory = pin_memory
        self._transform = transform
        self._store_settings = store_settings or {}
        further = [name for name in inspect.signature(Consumer).parameters if name not in _OWN_SETTINGS]
        for name in settings:
            if name not in further:
                own = [name for name in inspect.signature(StreamingDataset).parameters if name not in ("uri", "settings")]
                near = difflib.get_close_matches(name, own + further, 1, 0.4)
                hint = f"; did you mean {near[0]!r}" if near else ""
                raise invalid(f"StreamingDataset has no setting {name!r}{hint}. It has: {', '.join(own + further)}.")
        self._settings: dict[str, Any] = {
            "policy": policy,
            "layout": layout,
            "rows_per_rank": rows_per_rank,
            "group": group,
            "wait_timeout": wait_timeout,
            "pulse": pulse,
            **settings,
        }
        self._namespace: Namespace | None = None
        self._namespace_pid = self._consumer_pid = 0
        self._consumer: Any = None
        self._state: dict[str, Any] | None = None
        self._is_in_loader = False
        self._unacknowledged: deque[dict[str, Any]] | None = None
        self._worker_state: dict[str, Any] | None = None
        self._worker_passes = 0
        self._shared: Any = multiprocessing.RawArray("q", 4)
        self._lock: Any = multiprocessing.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Connections and threads stay here. So does the lock, which a process that is spawned cannot have (a forked one can): it is
        # for agreeing on the start, so that is done now. A copy that goes elsewhere shares nothing.
        is_worker = get_spawning_popen() is not None
        if is_worker:
            self._resolved_start()
        shared = self._shared if is_worker else None
        return {**self.__dict__, "_namespace": None, "_consumer": None, "_lock": None, "_shared": shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = multiprocessing.Lock()
        if self._shared is None:
            self._shared = multiprocessing.RawArray("q", 4)

    @property
    def namespace(self) -> Namespace:
        """The namespace, opened when first needed, and anew in every process."""
        if self._namespace is None or self._namespace_pid != os.getpid():
            # Ranks may be started before whoever creates the namespace.
            self._namespace = open_namespace(self.uri, wait=self._settings["wait_timeout"], **self._store_settings)
            self._namespace_pid = os.getpid()
        return self._namespace

    # Torch's Stateful.

    def state_dict(self) -> dict[str, Any]:
        """Where training goes on: a small JSON-safe dict, the same on every rank, for any mesh."""
        info = _worker_info()
        if info is not None:
            # torchdata's StatefulDataLoader asks in each worker; what it gets means something to that worker only.
            state = dict(self._worker_state or self._resolved_start())
            return {**state, "worker": info.id, "workers": info.num_workers, "fresh": self._worker_state is None}
        if self._shared[_YIELDED] and not self._is_in_loader:
            raise invalid(
                "The worker processes of a DataLoader read this dataset, and only the loader knows what the training loop got. "
                "Use StreamingDataLoader(dataset, num_workers=...).state_dict(), or save share.next."
            )
        return dict(self._state or self._resolved_start())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave, on this or any other mesh."""
        info = _worker_info()
        if isinstance(state, dict) and "workers" in state:
            if info is None or info.num_workers != state["workers"]:
                raise invalid(
                    f"This state was saved by one of {state['workers']} workers and can only be loaded by as many. Save with "
                    "StreamingDataLoader to be free of that."
                )
            self._worker_state = dict(state)
            return
        self._state = parse_cursor(state)
        if self._unacknowledged is not None:
            self._unacknowledged.clear()
        self._worker_passes = 0
        with self._lock:
            self._shared[_FIXED] = self._shared[_YIELDED] = 0
        self._end_consumer()

    def acknowledge_by_hand(self) -> None:
        """From now on a batch counts as consumed when `acknowledge()` is called, not when it is handed out.

        For frameworks that take a batch before they have trained on the one before, as Lightning does; its callback calls this.
        """
        if self._unacknowledged is None:
            self._unacknowledged = deque()

    def acknowledge(self) -> None:
        """The loop has trained on the first batch that was handed out and not yet acknowledged."""
        if not self._unacknowledged:
            raise invalid("acknowledge() was called more often than batches were handed out.")
        self._state = self._unacknowledged.popleft()

    def _hand_out(self, following: dict[str, Any]) -> None:
        if self._unacknowledged is None:
            self._state = following
        else:
            self._unacknowledged.append(following)

    # Reading.

    def __iter__(self) -> Iterator[Any]:
        info = _worker_info()
        return self._iterate() if info is None else self._iterate_in_worker(info.id, info.num_workers)

    def _iterate(self) -> Iterator[Share]:
        if self._consumer is None or self._consumer_pid != os.getpid():
            # That of the process this one was forked from has no threads here.
            self._consumer = self._open_consumer(self._state or self._resolved_start())
            self._consumer_pid = os.getpid()
        consumer = self._consumer
        for share in consumer:
            if self._consumer is not consumer:
                return  # load_state_dict was called meanwhile
            if not self._is_in_loader:
                self._hand_out(share.next)
            yield share if self._is_in_loader or self._transform is None else share.value

    def _iterate_in_worker(self, worker: int, workers: int) -> Iterator[Any]:
        if self._broadcast:
            raise invalid("broadcast runs collectives, which worker processes cannot: use num_workers=0.")
        own = self._worker_state
        info = _worker_info()
        pass_id = (info.seed - info.id) % 0x7FFF_FFFF + 1  # the seed that all workers of one pass share
        if self._worker_passes > 0 or (own is None and self._shared[_YIELDED] not in (0, pass_id)):
            raise invalid(
                "A log is read once, and this DataLoader is iterated for a second time: its workers had read ahead of the "
                "training loop. Use StreamingDataLoader, which goes on where the loop stopped, or load_state_dict first."
            )
        self._worker_passes += 1
        position = own or self._resolved_start()
        start = {k: position[k] for k in ("batchweave", "namespace", "row", "iteration")}
        fresh = own is None or own.get("fresh", False)
        try:
            # One worker tells of the rank.
            tells = self._settings["pulse"] and worker == 0
            self._consumer = self._open_consumer(start, stride=workers, offset=worker if fresh else workers - 1, pulse=tells)
            for share in self._consumer:
                self._worker_state = share.next
                self._shared[_YIELDED] = pass_id
                yield share if self._is_in_loader or self._transform is None else share.value
        except BatchWeaveError as error:
            if not self._is_in_loader:
                raise
            yield error  # torch would make a RuntimeError of it; the loader raises it as it is

    def _open_consumer(self, start: Any, **worker: Any) -> Any:
        settings = {**self._settings, **worker, "finish": self._finish}
        if self._decode in ("numpy", "torch"):
            settings["finish_copies"] = 1
        if self._broadcast:
            from .broadcast import BroadcastConsumer

            return BroadcastConsumer(self.namespace.log, self.place, start, self._broadcast, settings)
        return Consumer(self.namespace.log, self.place, start, **settings)

    def _finish(self, share: Share) -> None:
        """From bytes to what the loop gets; on the threads that read ahead, so that the loop finds it done."""
        if _worker_info() is None:
            share.finish(self._decode, self.uri, self._pin_memory and _has_gpu(), self._fields)
        else:
            share.decode(self._decode, self.uri)  # CUDA must not be touched there, and rows travel to the trainer as they are
        if self._transform is not None:
            share.value = self._transform(share)

    def _resolved_start(self) -> dict[str, Any]:
        """The start as a cursor; looked up once, so that all workers of this dataset begin at the same row."""
        if self._state is not None:
            return self._state
        from ..consumer.consumer import start_position

        with self._lock:
            if not self._shared[_FIXED]:
                log = self.namespace.log
                manifest = log.head.jump() if self._start == "latest" else log.head.recent()
                self._shared[_ROW], self._shared[_ITERATION] = start_position(self._start, log, manifest)
                self._shared[_FIXED] = 1
            return make_cursor(self.namespace.uuid, self._shared[_ROW], self._shared[_ITERATION])

    def _end_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def close(self) -> None:
        """Ends the reading threads."""
        self._end_consumer()

    def stats(self) -> dict[str, Any]:
        """What this process read: bytes, requests, second (hedged) reads, and seconds that the loop waited for data."""
        reader = getattr(self._consumer, "reader", None)
        return {
            "read_bytes": reader.stats.bytes if reader else 0,
            "requests": reader.stats.requests if reader else 0,
            "hedged": reader.hedged_reads if reader else 0,
            "waited_s": self._consumer.waited if self._consumer else 0.0,
        }

    @property
    def leftover_rows(self) -> int | None:
        """At the end of a closed log: how many rows were too few for one more iteration."""
        return self._consumer.leftover_rows if self._consumer else None

    # Checkpoints.

    def checkpoint(self, id: str, state: dict[str, Any] | None = None, keep_last: int | None = None) -> Checkpoint:
        """Keeps the data from the current state on until it is released. Call it after the model's checkpoint is durable.

        Every rank may call it with the same id: it is registered once. `keep_last` releases all but the newest so many.
        """
        return self.namespace.checkpoint(id, state or self.state_dict(), self.group, keep_last)

    def release(self, id: str) -> None:
        """Releases a checkpoint when the model's own was deleted."""
        self.namespace.release(id, self.group)

    def list_checkpoints(self) -> list[Checkpoint]:
        """Live checkpoints of this dataset's group, the newest first."""
        return [c for c in self.namespace.list_checkpoints() if c.group == self.group]


class StreamingDataLoader:
    """torch's DataLoader around a StreamingDataset, with any number of workers, that knows what the training loop got.

    Takes DataLoader's keyword arguments; a share is a batch, so there is no batch_size. `collate_fn` turns a Share into what the
    loop gets, in the worker. `state_dict()` is the cursor after the last batch that was handed out, whatever workers read ahead.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        num_workers: int = 0,
        collate_fn: Callable[[Share], Any] | None = None,
        **settings: Any,
    ) -> None:
        require_package("torch")
        for name in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"):
            if settings.pop(name, None) not in (None, False):
                raise invalid(f"{name} does not go with a StreamingDataLoader: producers build the batches, a share is one.")
        self.dataset = dataset
        dataset._is_in_loader = True
        self._num_workers = num_workers
        self._tag = _Tag(collate_fn)
        if num_workers > 0 and not dataset.uri.startswith("file:"):
            # A forked child inherits the client's dead threads; a fresh process makes its own.
            settings.setdefault("multiprocessing_context", "spawn")
        self._settings = settings

    def __iter__(self) -> Iterator[Any]:
        from torch.utils.data import DataLoader

        # What workers had read ahead and the loop never got is read again.
        self.dataset.load_state_dict(self.dataset.state_dict())
        dataset: Any = self.dataset
        loader: Any = DataLoader(
            dataset, batch_size=None, num_workers=self._num_workers, collate_fn=self._tag, **self._settings
        )
        for cursor, value in loader:
            if isinstance(cursor, BatchWeaveError):
                raise cursor
            self.dataset._hand_out(cursor)
            yield value

    def state_dict(self) -> dict[str, Any]:
        """Where training goes on; the same on every rank, for any mesh and any number of workers."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave. Takes effect with the next `iter()`."""
        self.dataset.load_state_dict(state)


class _Tag:
    """Puts the cursor beside what the loop gets."""

    def __init__(self, collate: Callable[[Share], Any] | None) -> None:
        self._collate = collate

    def __call__(self, share: Any) -> tuple[Any, Any]:
        if isinstance(share, BatchWeaveError):
            return share, None
        if self._collate:
            return share.next, self._collate(share)
        return share.next, share if share.value is None else share.value


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _worker_info() -> Any:
    """Which worker of a DataLoader this process is; None in the trainer itself."""
    import sys

    if "torch" not in sys.modules:
        return None
    from torch.utils.data import get_worker_info

    return get_worker_info()

