"""torchtitan: a data loader for its `build_dataloader_fn`. `python torchtitan_loader.py URI OUT` reads with it as the trainer does.

torchtitan asks for an iterable of (inputs by name, labels) that is Stateful: its checkpoints then hold the place in the log.
"""
from __future__ import annotations

import os
import sys
from typing import Any, Iterator

from batchweave import StreamingDataset
from model import Seen, as_batch

try:
    from torchtitan.components.dataloader import BaseDataLoader
except ImportError:
    from torch.distributed.checkpoint.stateful import Stateful as BaseDataLoader  # what it is made of


class LogDataLoader(BaseDataLoader):  # type: ignore[misc]
    """What `build_dataloader(dp_world_size, dp_rank, tokenizer, job_config)` returns."""

    def __init__(self, uri: str, dp_world_size: int, dp_rank: int) -> None:
        self._dataset = StreamingDataset(uri, mesh={"dp": dp_world_size}, rank=dp_rank, decode="torch", policy="global-batch")

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
        for share in self._dataset:
            batch = as_batch(share)
            yield {"input": batch["tokens"]}, batch["labels"]

    def state_dict(self) -> dict[str, Any]:
        return self._dataset.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._dataset.load_state_dict(state_dict)


def main(uri: str, out: str) -> None:
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    seen = Seen()
    loader = LogDataLoader(uri, world, rank)
    state: dict[str, Any] = {}
    for i, (inputs, _) in enumerate(loader):
        seen.add(inputs["input"])
        state = loader.state_dict()
        if i == 2:
            break
    # As after a crash: another process's loader goes on from the checkpoint.
    again = LogDataLoader(uri, world, rank)
    again.load_state_dict(state)
    for inputs, _ in again:
        seen.add(inputs["input"])
    seen.write(f"{out}.{rank}")


if __name__ == "__main__":
    main(*sys.argv[1:])
