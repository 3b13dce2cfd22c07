"""StreamingDataLoader: torch's DataLoader around a StreamingDataset, which knows what the training loop got."""
from __future__ import annotations

import time
from typing import Any, Callable, Generic, Iterator, Mapping, TypeVar, overload

from ..errors import BatchWeaveError, invalid
from ..format.tensors import require_package
from .dataset import StreamingDataset

T = TypeVar("T")
S = TypeVar("S")
D = TypeVar("D")
#: What other loaders call what the dataset has under another name.
_OTHER_WAYS = {
    "batch_size": "say StreamingDataset(rows_per_rank=n)",
    "shuffle": "say StreamingDataset(shuffle=True, seed=n)",
    "drop_last": 'say StreamingDataset(last="drop")',
    "sampler": "each rank is given its rows",
    "batch_sampler": "each rank is given its rows",
}


class StreamingDataLoader(Generic[T]):
    """torch's DataLoader around a StreamingDataset, with any number of workers, that knows what the training loop got.

    Takes DataLoader's keyword arguments; a share is a batch, so there is no batch_size. `collate_fn` turns a Share into what the
    loop gets, in the worker. `state_dict()` is the cursor after the last batch that was handed out, whatever workers read ahead.
    """

    @overload
    def __init__(
        self: "StreamingDataLoader[D]", dataset: StreamingDataset[S], num_workers: int = ..., *, collate_fn: Callable[[S], D], **settings: Any
    ) -> None: ...
    @overload
    def __init__(self, dataset: StreamingDataset[T], num_workers: int = ..., collate_fn: None = ..., **settings: Any) -> None: ...
    def __init__(
        self,
        dataset: StreamingDataset[Any],
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        **settings: Any,
    ) -> None:
        require_package("torch")
        for name, way in _OTHER_WAYS.items():
            if settings.pop(name, None) not in (None, False):
                raise invalid(f"{name} does not go with a StreamingDataLoader, whose batches are the dataset's shares: {way}.")
        self.dataset = dataset
        dataset._is_in_loader = True
        self._num_workers = num_workers
        self._figures = dict(dataset._figures)
        self._waited = 0.0
        self._tag = _Tag(collate_fn)
        if num_workers > 0 and not dataset.uri.startswith("file:"):
            # A forked child inherits the client's dead threads; a fresh process makes its own.
            settings.setdefault("multiprocessing_context", "spawn")
        self._settings = settings

    def __iter__(self) -> Iterator[T]:
        from torch.utils.data import DataLoader

        dataset: Any = self.dataset
        dataset._check_place()
        if dataset._is_ended:
            if not dataset._begin_pass():
                return
        else:
            # What workers had read ahead and the loop never got is read again.
            dataset.load_state_dict(dataset.state_dict())
        loader: Any = DataLoader(
            dataset, batch_size=None, num_workers=self._num_workers, collate_fn=self._tag, **self._settings
        )
        count = 0
        told: dict[int, dict[str, Any]] = {}
        before, batches = self._figures, iter(loader)
        while True:
            begun = time.monotonic()
            try:
                cursor, value, of_worker = next(batches)
            except StopIteration:
                break
            if isinstance(cursor, BatchWeaveError):
                raise cursor
            if of_worker is not None:
                told[of_worker[0]] = of_worker[1]
                self._waited += time.monotonic() - begun
                self._figures = {name: n + sum(each[name] for each in told.values()) for name, n in before.items()}
            dataset._hand_out(cursor)
            count += 1
            yield value
        dataset._end_pass(count)

    def stats(self) -> dict[str, Any]:
        """What the dataset's `stats()` says; with workers, the sum of theirs as of the batches that the loop got, and how long the loop waited for these."""
        return self.dataset.stats() if self._num_workers == 0 else {**self._figures, "waited_s": self._waited}

    def __len__(self) -> int:
        """Iterations of one pass, on this mesh."""
        return len(self.dataset)

    def __bool__(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Any]:
        """Where training goes on; the same on every rank, for any mesh and any number of workers."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` gave. Takes effect with the next `iter()`."""
        self.dataset.load_state_dict(state)


class _Tag:
    """Puts the cursor beside what the loop gets, and what the worker has read."""

    def __init__(self, collate: Callable[[Any], Any] | None) -> None:
        self._collate = collate

    def __call__(self, share: Any) -> tuple[Any, Any, Any]:
        if isinstance(share, BatchWeaveError):
            return share, None, None
        if self._collate:
            return share.next, self._collate(share), share.told
        return share.next, share if share.value is None else share.value, share.told
