"""Torch ranks whose memory `bench sources --baseline torch` compares.

  loader FOLDER SOURCES RANK RANKS WORKERS   a rank with a torch DataLoader of its own: every worker holds every source open with pyarrow
  reader URI RANK RANKS                      a rank that reads the log through batchweave's Python client
  bare                                       a rank that has imported torch and loads nothing
  probe                                      says which versions there are

Each prints one line of JSON with its process ids once it is in steady state, and idles until it is killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BATCH_SAMPLES = 64


class Sources(IterableDataset[torch.Tensor]):
    """All sources in turn, as a mixture draws from them: each an open file, its footer, and the row group it is in."""

    def __init__(self, paths: list[str], rank: int, ranks: int) -> None:
        self.paths = paths
        self.rank = rank
        self.ranks = ranks

    def __iter__(self) -> Iterator[torch.Tensor]:
        import pyarrow.parquet as pq  # already loaded by the rank: workers share it

        worker = get_worker_info()
        assert worker is not None
        index = self.rank * worker.num_workers + worker.id
        files = [pq.ParquetFile(path) for path in self.paths]
        groups: list[object] = [None] * len(files)
        rows = [0] * len(files)
        taken = [0] * len(files)
        # Each worker starts elsewhere, as shuffles do.
        at = index * len(files) // (self.ranks * worker.num_workers)
        while True:
            source = at % len(files)
            at += 1
            if groups[source] is None or rows[source] >= len(groups[source]):  # type: ignore[arg-type]
                group = taken[source] % files[source].num_row_groups
                groups[source] = files[source].read_row_group(group, columns=["text"]).column("text")
                taken[source] += 1
                rows[source] = 0
            text: str = groups[source][rows[source]].as_py()  # type: ignore[index]
            rows[source] += 1
            yield torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def join_samples(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(samples)


def ready(children: list[int]) -> None:
    print(json.dumps({"ready": True, "pid": os.getpid(), "children": children}), flush=True)


def idle() -> None:
    while True:
        time.sleep(60)


def loader(folder: str, sources: int, rank: int, ranks: int, workers: int) -> None:
    # Imported before workers are forked, as at the head of a trainer's file, so that they share its pages.
    import pyarrow.parquet  # noqa: F401

    paths = [str(Path(folder) / f"source-{i:03d}.parquet") for i in range(sources)]
    # prefetch_factor 2 is torch's default.
    batches = DataLoader(
        Sources(paths, rank, ranks), batch_size=BATCH_SAMPLES, num_workers=workers, collate_fn=join_samples
    )
    stream = iter(batches)
    # Every worker has drawn from every source twice by then.
    for _ in range(workers * (2 * sources // BATCH_SAMPLES + 1)):
        next(stream)
    ready([worker.pid for worker in stream._workers])  # type: ignore[attr-defined]
    idle()


def reader(uri: str, rank: int, ranks: int) -> None:
    from batchweave import open_namespace

    consumer = open_namespace(uri).consumer({"dp": ranks}, rank)
    for number, share in enumerate(consumer):
        # Tensors of it, as a trainer holds them.
        _held = share.decode("torch").data
        if number == 7:
            ready([])
        time.sleep(0.2)


if __name__ == "__main__":
    role, *args = sys.argv[1:]
    if role == "probe":
        import pyarrow

        print(f"torch {torch.__version__}, pyarrow {pyarrow.__version__}")
    elif role == "loader":
        folder, *numbers = args
        loader(folder, *map(int, numbers))
    elif role == "bare":
        ready([])
        idle()
    elif role == "reader":
        uri, *numbers = args
        reader(uri, *map(int, numbers))
    else:
        raise SystemExit(__doc__)
