"""Loaders of others that would lose data or stumble over shares: noticed when they ask for the first share, and told what to use instead."""
from __future__ import annotations

import sys
from typing import Any

from ..errors import invalid

_FRAMES_MAX = 60


def check_loader() -> None:
    """Refuses to be read through Accelerate's sharding wrappers, or by a DataLoader that would batch batches.

    Looks at who is calling: a worker that was forked still has its parent's frames, and a dataset that is pickled for one is asked then.
    """
    if "torch.utils.data" not in sys.modules:
        return
    from torch.utils.data import DataLoader, default_collate

    frame = sys._getframe(1)
    for _ in range(_FRAMES_MAX):
        owner: Any = frame.f_locals.get("self")
        kind = type(owner)
        if kind.__module__ == "accelerate.data_loader" and kind.__name__ in ("DataLoaderDispatcher", "IterableDatasetShard") and _processes(owner) > 1:
            raise invalid(
                "Accelerate's prepare() wrapped a plain DataLoader around this dataset, and divides or dispatches what is divided already: the rows of all ranks "
                "but one would be lost. Use StreamingDataLoader(dataset): prepare() leaves it as it is."
            )
        if isinstance(owner, DataLoader) and owner.batch_size is not None and (owner.collate_fn is default_collate or _is_trainers(owner.collate_fn)):
            raise invalid(
                f"A share is a batch already, and this DataLoader would make batches of {owner.batch_size} of them. Use StreamingDataLoader(dataset), or "
                "DataLoader(dataset, batch_size=None). With transformers' Trainer, have get_train_dataloader return the StreamingDataLoader (docs/guide/python.md, Frameworks)."
            )
        if frame.f_back is None:
            return
        frame = frame.f_back


def _is_trainers(collate: Any) -> bool:
    """Whether transformers' Trainer made this loader of a dataset it was given: its collator was not written for shares."""
    return (getattr(collate, "__module__", None) or type(collate).__module__).startswith("transformers.")


def _processes(owner: Any) -> int:
    found: int = getattr(owner, "num_processes", 0) or getattr(getattr(owner, "state", None), "num_processes", 1)
    return found
