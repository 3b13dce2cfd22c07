"""torchtitan: a data loader for its `Trainer.Config.dataloader`. `python torchtitan_loader.py URI OUT` builds it and reads with it as the trainer does.

torchtitan asks for an iterable of (inputs by name, labels) that is Stateful: its distributed checkpoints then hold the place in the log. The place is the
same for all ranks, and good on any number of them.
"""
from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Iterator

import torch.distributed.checkpoint as checkpoint
from torch import distributed
from torchtitan.components.dataloader import BaseDataLoader

from batchweave import StreamingDataset
from model import Seen, as_batch


class LogDataLoader(BaseDataLoader):  # type: ignore[misc]
    """In the trainer's config: `dataloader = LogDataLoader.Config(uri="s3://train/runs/7b")`."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # type: ignore[misc]
        uri: str = ""

    def __init__(self, config: Config, *, dp_world_size: int, dp_rank: int, **_: Any) -> None:
        self._dataset = StreamingDataset(config.uri, mesh={"dp": dp_world_size}, rank=dp_rank, decode="torch", policy="global-batch")

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
    if world > 1:
        distributed.init_process_group("gloo")
    seen = Seen()

    def build() -> LogDataLoader:
        # What torchtitan's Trainer calls.
        return LogDataLoader.Config(uri=uri).build(dp_world_size=world, dp_rank=rank, tokenizer=None, seq_len=64, local_batch_size=1)

    loader = build()
    for i, (inputs, _) in enumerate(loader):
        seen.add(inputs["input"])
        if i == 2:
            break
    checkpoint.save({"dataloader": loader}, checkpoint_id=f"{out}.checkpoint")
    # As after a crash: another process's loader goes on from the checkpoint.
    again = build()
    checkpoint.load({"dataloader": again}, checkpoint_id=f"{out}.checkpoint")
    for inputs, _ in again:
        seen.add(inputs["input"])
    seen.write(f"{out}.{rank}")
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
