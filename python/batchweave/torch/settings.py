"""The settings of a StreamingDataset: their types, and what people who come from other libraries look for."""
from __future__ import annotations

import difflib
import inspect
from typing import Any, Collection, Mapping, Sequence, TypedDict

from ..consumer.epochs import Last
from ..consumer.projection import Layout, Policy, RowsPerRank
from ..errors import invalid

#: Settings of other datasets, and what does it here.
_ELSEWHERE = {
    "batch_size": "a share is a batch: rows_per_rank=n sets how many rows of it a rank gets, and the namespace's grid how many there are",
    "local": "there is no cache on the disk: shares are read ahead into memory (prefetch_bytes_max), whole rows by range",
    "remote": "pass it as the first argument, the uri",
    "predownload": "use prefetch_bytes_max and prefetch_iterations_max",
    "cache_limit": "there is no cache on the disk; prefetch_bytes_max limits the memory",
    "cache_dir": "there is no cache on the disk; prefetch_bytes_max limits the memory",
    "max_cache_size": "there is no cache on the disk; prefetch_bytes_max limits the memory",
    "shuffle_seed": "use shuffle=True, seed=n",
    "shuffle_block_size": "use shuffle_window=n, in rows",
    "drop_last": 'use last="drop", "pad" or "ragged"',
    "num_canonical_nodes": "it is not needed: the order of rows is the same on every mesh",
    "split": "a namespace is one split; make one for each",
    "profile": 'use store_settings={"profile": "NAME"}, or set AWS_PROFILE; boto3 reads it',
    "world_size": 'use mesh={"dp": n}',
    "num_workers": "use StreamingDataLoader(dataset, num_workers=n)",
    "collate_fn": "use transform=, or StreamingDataLoader(dataset, collate_fn=...)",
}


class DatasetSettings(TypedDict, total=False):
    """All settings but uri, mesh, rank, decode and transform."""

    start: Any
    policy: Policy
    layout: Layout
    rows_per_rank: RowsPerRank | None
    epochs: int | None
    shuffle: bool
    seed: int
    shuffle_window: int
    last: Last
    group: str
    broadcast: Sequence[str]
    wait_timeout: float
    fields: Collection[str] | None
    pin_memory: bool
    pulse: bool
    store_settings: Mapping[str, Any] | None
    prefetch_bytes_max: int
    prefetch_iterations_max: int
    reads_in_flight_max: int
    poll_delay: float
    poll_delay_max: float


def check_settings(given: Mapping[str, Any], own: Any, further: Any, hidden: Collection[str]) -> None:
    """Refuses settings that there are not, with a word on what there is."""
    more = [name for name in inspect.signature(further).parameters if name not in hidden]
    for name in given:
        if name in more:
            continue
        named = [name for name in inspect.signature(own).parameters if name not in ("self", "uri", "settings")]
        if name in _ELSEWHERE:
            raise invalid(f"StreamingDataset has no setting {name!r}: {_ELSEWHERE[name]}.", setting=name)
        near = difflib.get_close_matches(name, named + more, 1, 0.4)
        hint = f"; did you mean {near[0]!r}" if near else ""
        raise invalid(f"StreamingDataset has no setting {name!r}{hint}. It has: {', '.join(named + more)}.", setting=name)
