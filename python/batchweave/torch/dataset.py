"""StreamingDataset and StreamingDataLoader: the log as torch expects it, and as a plain iterator where torch is absent."""
from __future__ import annotations

import multiprocessing
import os
from collections import deque
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Callable, Collection, Generic, Iterator, Literal, Mapping, Sequence, TypeVar, overload

from ..consumer.consumer import Consumer, projection_of, start_position
from ..consumer.epochs import EpochOrder, Last, is_epoch_state
from ..consumer.mesh import Place, is_spawned, mismatch, process_group, resolve_mesh
from ..consumer.projection import Layout, Policy, Projection, RowsPerRank
from ..consumer.reports import reports_of
from ..consumer.share import Decode, Share, check_decode
from ..errors import BatchWeaveError, invalid
from ..format.cursor import make_cursor, parse_cursor
from ..format.keys import assert_name
from ..lifecycle.checkpoints import DEFAULT_GROUP, Checkpoint, register_checkpoint
from ..namespace import Namespace, open_namespace
from .epoch_reading import EpochReading, count_iterations, kept_cursor, placed, tell_end
from .foreign_loader import check_loader
from .settings import check_settings

if TYPE_CHECKING:
    import numpy
    import torch
    from torch.utils.data import IterableDataset as _Base
    from typing_extensions import Unpack

    from .settings import DatasetSettings
else:
    try:
        from torch.utils.data import IterableDataset as _Base
    except ImportError:

        class _Base(Generic[TypeVar("_Item")]):
            pass


#: What iterating gives: a Share of tensors, arrays or bytes, or what `transform` makes of one.
T = TypeVar("T")
D = TypeVar("D")

#: What the processes of one dataset share: whether the start is fixed, its row and iteration, the pass of workers that read.
_FIXED, _ROW, _ITERATION, _YIELDED = range(4)
#: Arguments of Consumer that the dataset gives itself.
_OWN_SETTINGS = ("log", "place", "start", "policy", "layout", "rows_per_rank", "group", "wait_timeout", "stride", "offset", "finish", "finish_copies", "pulse", "order", "last")


class StreamingDataset(_Base[T]):
    """Yields this rank's shares in order. `state_dict()` is where the training loop stands.

    uri:           s3://, gs://, az:// or file://.
    mesh, rank:    {"dp": 8, "cp": 2, "tp": 4, "pp": 1, "order": "megatron"}, or a torch DeviceMesh; default: torch.distributed, RANK and WORLD_SIZE, Slurm, MPI.
    decode:        "bytes", "numpy", "torch" (tensors of the safetensors layout, without copying) or a function of bytes.
    start:         "earliest", "latest", {"step": n}, {"row": n}, {"checkpoint": id} or a cursor; what `load_state_dict` gets goes before it.
    rows_per_rank: rows of a share; default: a batch of the grid divided by dp, one at least. A number, a schedule [[0, 1], [1000, 2]], or a function of the iteration.
    policy:        "per-rank" (dp x rows_per_rank rows an iteration) or "global-batch" (one batch an iteration, which dp must divide).
    layout:        "contiguous" or "zigzag" (Megatron's context parallelism).
    epochs:        how often a log that has ended is read in one loop; default once, and once more whenever it is iterated again.
    shuffle, seed, shuffle_window: rows in an order by the seed, the same on every mesh; windows of so many rows are shuffled, and the rows in each.
    last:          rows too few for one more iteration at the end are "drop"ped (and that is said), "pad"ded with repeats (see share.valid), or "ragged".
    broadcast:     axes along which one rank reads for its peers over torch.distributed, such as ("tp", "pp").
    wait_timeout:  seconds to wait for a batch before WAIT_TIMEOUT, or for a namespace that is not created yet.
    fields:        names of the tensors to join ahead of the loop, such as ("tokens", "labels"); default all. Others are joined when asked for.
    pin_memory:    with decode="torch": `share["name"]` is in page-locked memory where there is a GPU, for `.to(device, non_blocking=True)`.
    transform:     a function of a share, called on the threads that read ahead; the loop gets what it returns.
    pulse:         leave hints of life beside the log, so that `batchweave top` sees this rank: a few small objects a minute for the whole job.
    Further settings, such as prefetch_bytes_max, are Consumer's.
    """

    @overload
    def __init__(
        self: "StreamingDataset[D]", uri: str, mesh: Any = ..., rank: int | None = ..., *, transform: Callable[[Share[Any]], D],
        decode: Literal["bytes", "numpy", "torch"] | Callable[[Any], Any] = ..., **settings: "Unpack[DatasetSettings]",
    ) -> None: ...
    @overload
    def __init__(
        self: "StreamingDataset[Share[torch.Tensor]]", uri: str, mesh: Any = ..., rank: int | None = ..., *, decode: Literal["torch"],
        **settings: "Unpack[DatasetSettings]",
    ) -> None: ...
    @overload
    def __init__(
        self: "StreamingDataset[Share[numpy.ndarray[Any, Any]]]", uri: str, mesh: Any = ..., rank: int | None = ..., *, decode: Literal["numpy"],
        **settings: "Unpack[DatasetSettings]",
    ) -> None: ...
    @overload
    def __init__(
        self: "StreamingDataset[Share[memoryview]]", uri: str, mesh: Any = ..., rank: int | None = ..., *, decode: Literal["bytes"] = ...,
        **settings: "Unpack[DatasetSettings]",
    ) -> None: ...
    @overload
    def __init__(
        self: "StreamingDataset[Share[D]]", uri: str, mesh: Any = ..., rank: int | None = ..., *, decode: Callable[[Any], D],
        **settings: "Unpack[DatasetSettings]",
    ) -> None: ...
    def __init__(
        self,
        uri: str,
        mesh: Any = None,
        rank: int | None = None,
        decode: Decode = "bytes",
        start: Any = "earliest",
        policy: Policy = "per-rank",
        layout: Layout = "contiguous",
        rows_per_rank: RowsPerRank | None = None,
        epochs: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        shuffle_window: int = 16_384,
        last: Last = "drop",
        group: str = DEFAULT_GROUP,
        broadcast: Sequence[str] = (),
        wait_timeout: float = 600.0,
        fields: Collection[str] | None = None,
        pin_memory: bool = False,
        transform: Callable[[Share[Any]], Any] | None = None,
        pulse: bool = True,
        store_settings: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_decode(decode)
        self.uri = uri
        self.place: Place = resolve_mesh(mesh, rank, os.environ, process_group(), is_spawned())
        #: Whether mesh and rank were both given; if not, the process that iterates finds them again.
        self._is_placed = hasattr(mesh, "mesh_dim_names") or (mesh is not None and rank is not None)
        self._place_pid = os.getpid()
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
        self._store_settings = dict(store_settings or {})
        check_settings(settings, StreamingDataset.__init__, Consumer, _OWN_SETTINGS)
        self._reading = EpochReading(epochs, seed if shuffle else None, shuffle_window, last)
        if last == "ragged" and self._broadcast:
            raise invalid('broadcast sends shares of one size: use last="pad" with it.')
        self._settings: dict[str, Any] = {
            "policy": policy,
            "layout": layout,
            "rows_per_rank": rows_per_rank,
            "last": last,
            "group": group,
            "wait_timeout": wait_timeout,
            "pulse": pulse,
            **settings,
        }
        self._namespace: Namespace | None = None
        self._namespace_pid = self._consumer_pid = 0
        self._consumer: Any = None
        #: What consumers read that this dataset no longer has.
        self._figures: dict[str, Any] = {"read_bytes": 0, "requests": 0, "hedged": 0, "waited_s": 0.0}
        self._state: dict[str, Any] | None = None
        self._opened_at: int | None = None
        #: A pass is an epoch, or all of `epochs`. Whether one has come to its end, which it was, and where the loop stood.
        self._is_ended = False
        self._passed: dict[str, Any] | None = None
        self._is_in_loader = False
        self._unacknowledged: deque[dict[str, Any]] | None = None
        self._worker_state: dict[str, Any] | None = None
        self._worker_passes = 0
        self._shared: Any = multiprocessing.RawArray("q", 4)
        self._lock: Any = multiprocessing.Lock()

    def __getstate__(self) -> dict[str, Any]:
        check_loader()
        # Connections and threads stay here. So does the lock, which a process that is spawned cannot have (a forked one can): it is
        # for agreeing on the start, so that is done now. A copy that goes elsewhere shares nothing.
        is_worker = get_spawning_popen() is not None
        if is_worker and self._state is None:
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
            # Ranks may be started before the process that creates the namespace.
            self._namespace = open_namespace(self.uri, wait=self._settings["wait_timeout"], **self._store_settings)
            self._namespace_pid = os.getpid()
            if self._opened_at is None:
                self._opened_at = self._namespace.log.head.newest().version
        return self._namespace

    # Torch's Stateful.

    def state_dict(self) -> dict[str, Any]:
        """Where training goes on: a small JSON-safe dict, the same on every rank, for any mesh."""
        info = _worker_info()
        if info is not None:
            # torchdata's StatefulDataLoader asks in each worker; what it gets means something to that worker only.
            state = dict(self._worker_state or self._begin())
            return {**state, "worker": info.id, "workers": info.num_workers, "fresh": self._worker_state is None}
        if self._shared[_YIELDED] and not self._is_in_loader:
            raise invalid(
                "The worker processes of a DataLoader read this dataset, and only the loader knows what the training loop got. "
                "Use StreamingDataLoader(dataset, num_workers=...).state_dict(), or save share.next."
            )
        return dict(self._state or self._begin())

    @property
    def epoch(self) -> int:
        """The epoch that the training loop is in, from 0."""
        state = self._state
        return int(state["epoch"]) if state is not None and is_epoch_state(state) else 0

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
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
        self._state = self._reading.parsed(state)
        self._is_ended, self._passed = False, None
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
        self._passed = following
        if self._unacknowledged is None:
            self._state = following
        else:
            self._unacknowledged.append(following)

    # Reading.

    def __iter__(self) -> Iterator[T]:
        check_loader()
        info = _worker_info()
        if info is not None:
            return self._iterate_in_worker(info.id, info.num_workers)
        self._check_place()
        return self._iterate()

    def __len__(self) -> int:
        """Iterations of one pass, on this mesh: an epoch, or all of `epochs`. Only a log that has ended has a length."""
        manifest = self.namespace.log.head.jump()
        if not manifest.closed:
            raise TypeError(f"{self.uri} has no length yet: it is still open, and batches may follow. namespace.end_log() ends it.")
        if self._reading.is_ordered or is_epoch_state(self._state):
            order = self._order_of(self._state or self._begin())
            return count_iterations(self._projection(order), self._reading.pass_rows(order))
        rows = manifest.end * self.namespace.rows - self._resolved_start()["row"]
        return count_iterations(self._projection(None), max(0, rows))

    def __bool__(self) -> bool:
        return True  # whatever its length

    def _check_place(self) -> None:
        """Made before the process group was, or in the process that started this one, a dataset may take itself for the only one."""
        if self._is_placed:
            return
        group = process_group()
        if group is not None and group != (self.place.rank, self.place.world_size):
            raise mismatch(
                f"This dataset was made for rank {self.place.rank} of {self.place.world_size}, and torch.distributed says that this process is rank {group.rank} of "
                f"{group.size}. Make it after init_process_group, in each process, or pass mesh and rank.",
                rank=self.place.rank,
                launched=group.rank,
            )
        if group is None and self.place.world_size == 1 and self._place_pid != os.getpid() and is_spawned():
            resolve_mesh(None, None, os.environ, None, True)

    def _iterate(self) -> Iterator[Any]:
        if self._is_ended and not self._begin_pass():
            return
        if self._consumer is None or self._consumer_pid != os.getpid():
            # That of the process this one was forked from has no threads here.
            self._consumer = self._open_consumer(self._state or self._begin())
            self._consumer_pid = os.getpid()
        consumer = self._consumer
        count = 0
        for share in consumer:
            if self._consumer is not consumer:
                return  # load_state_dict was called meanwhile
            if not self._is_in_loader:
                self._hand_out(share.next)
            count += 1
            yield share if self._is_in_loader or self._transform is None else share.value
        if self._consumer is consumer and not self._is_in_loader:
            self._end_pass(count)

    def _end_pass(self, count: int) -> None:
        """The log, or what was asked for of it, was read to its end: what was left is said."""
        self._is_ended = True
        state = self._passed or self._state or self._begin()
        order = self._order_of(state) if is_epoch_state(state) else None
        projection = self._projection(order)
        at = state["row"] if order is None else order.position(state)[0]
        left = projection.end_row(self.namespace.log.head.newest().end) - at
        tell_end(self.uri, projection, left, state["iteration"], count)

    def _begin_pass(self) -> bool:
        """The next epoch. False: there is none."""
        state = self._passed or self._state or self._begin()
        following = self._reading.next_epoch(self._order_of(state), state["iteration"], self.uri)
        if following is None:
            return False
        self.load_state_dict(following)
        return True

    def _begin(self) -> dict[str, Any]:
        """The state of a loop that has not begun."""
        cursor = self._resolved_start()
        return self._order_of(cursor).state(0, cursor["iteration"]) if self._reading.is_ordered else cursor

    def _order_of(self, state: dict[str, Any]) -> EpochOrder:
        """The order that a state is a place in; of a cursor, epoch 0."""
        return self._reading.order(self.namespace.log, self.uri, state, self._resolved_start)

    def _projection(self, order: EpochOrder | None) -> Projection:
        shape = {name: self._reading_settings()[name] for name in ("policy", "layout", "rows_per_rank", "last")}
        return projection_of(self.namespace.log, self.place, order=order, **shape)

    def _reading_settings(self) -> dict[str, Any]:
        rows_per_rank = self._settings["rows_per_rank"]
        if rows_per_rank is None:
            # As if each batch of the grid was divided among the ranks; but any dp will do.
            is_whole = self._settings["policy"] == "global-batch"
            rows_per_rank = 1 if is_whole else max(1, self.namespace.rows // self.place.data_ranks)
        return {**self._settings, "rows_per_rank": rows_per_rank}

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
        self._figures = dict.fromkeys(self._figures, 0)  # those of the process that started this one are not its own
        position = own or self._state or self._begin()
        start = {name: value for name, value in position.items() if name not in ("worker", "workers", "fresh")}
        fresh = own is None or own.get("fresh", False)
        try:
            # One worker tells of the rank.
            tells = self._settings["pulse"] and worker == 0
            self._consumer = self._open_consumer(start, stride=workers, offset=worker if fresh else workers - 1, pulse=tells)
            for share in self._consumer:
                self._worker_state = share.next
                self._shared[_YIELDED] = pass_id
                share.told = (worker, self.stats())
                yield share if self._is_in_loader or self._transform is None else share.value
            if worker == 0 and not self._is_in_loader:
                # Else the loader says it. One worker does, and only what was left.
                tell_end(self.uri, self._consumer.projection, self._consumer.leftover_rows or 0, self._consumer.cursor["iteration"], 1)
        except BatchWeaveError as error:
            if not self._is_in_loader:
                raise
            yield error  # torch would make a RuntimeError of it; the loader raises it as it is

    def _open_consumer(self, start: Any, **worker: Any) -> Any:
        settings = {**self._reading_settings(), **worker, "finish": self._finish}
        if self._reading.is_ordered or is_epoch_state(start):
            settings["order"] = order = self._order_of(start)
            start = placed(order, start)
        if self._decode in ("numpy", "torch"):
            settings["finish_copies"] = 1
        if self._broadcast:
            from .broadcast import BroadcastConsumer

            return BroadcastConsumer(self.namespace.log, self.place, start, self._broadcast, settings)
        return Consumer(self.namespace.log, self.place, start, **settings)

    def _finish(self, share: Share[Any]) -> None:
        """From bytes to what the loop gets; on the threads that read ahead, so that the loop finds it done."""
        if _worker_info() is None:
            share.finish(self._decode, self.uri, self._pin_memory and _has_gpu(), self._fields)
        else:
            share.decode(self._decode, self.uri)  # CUDA must not be touched there, and rows travel to the trainer as they are
        if self._transform is not None:
            share.value = self._transform(share)

    def _resolved_start(self) -> dict[str, Any]:
        """`start` as a cursor; looked up once, so that all workers of this dataset begin at the same row."""
        with self._lock:
            if not self._shared[_FIXED]:
                log = self.namespace.log
                manifest = log.head.jump() if self._start == "latest" else log.head.recent()
                self._shared[_ROW], self._shared[_ITERATION] = start_position(self._start, log, manifest)
                self._shared[_FIXED] = 1
            return make_cursor(self.namespace.uuid, self._shared[_ROW], self._shared[_ITERATION])

    def _end_consumer(self) -> None:
        if self._consumer is not None:
            self._figures = self.stats()
            self._consumer.close()
            self._consumer = None

    def close(self) -> None:
        """Ends the reading threads."""
        self._end_consumer()

    def stats(self) -> dict[str, Any]:
        """What this process read, in all epochs: bytes, requests, second (hedged) reads, and seconds that the loop waited for data."""
        reader = getattr(self._consumer, "reader", None)
        now = (reader.stats.bytes, reader.stats.requests, reader.hedged_reads) if reader else (0, 0, 0)
        waited = self._consumer.waited if self._consumer else 0.0
        return {name: before + more for (name, before), more in zip(self._figures.items(), (*now, waited))}

    @property
    def leftover_rows(self) -> int | None:
        """At the end of a log, or of an epoch: how many rows were too few for one more iteration."""
        return self._consumer.leftover_rows if self._consumer else None

    # Checkpoints.

    def checkpoint(self, id: str, state: dict[str, Any] | None = None, keep_last: int | None = None) -> Checkpoint:
        """Keeps the data from the current state on until it is released. Call it after the model's checkpoint is durable.

        Every rank may call it with the same id: it is registered once. `keep_last` releases all but the newest so many.
        """
        log = self.namespace.log
        return register_checkpoint(log, id, kept_cursor(state or self.state_dict()), self.group, keep_last, since=self._opened_at)

    def report(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Tells the pipeline's producers numbers, such as the loss of each source: `callbackMix` gets them as `metrics`.

        Only rank 0's are sent, at most every five seconds; what comes sooner goes with the next. A store that fails costs the report,
        never the training. step: of the log; by default where this dataset stands, 0 where only a loader with workers knows.
        """
        if self.place.rank == 0:
            at = int((self._state or {}).get("row", 0)) // self.namespace.rows if step is None else step
            reports_of(self.uri, self.group, self._store_settings).report(at, values)

    def release(self, id: str) -> None:
        """Releases a checkpoint when the model's own was deleted."""
        self.namespace.release(id, self.group)

    def list_checkpoints(self) -> list[Checkpoint]:
        """Live checkpoints of this dataset's group, the newest first."""
        return [c for c in self.namespace.list_checkpoints() if c.group == self.group]


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

