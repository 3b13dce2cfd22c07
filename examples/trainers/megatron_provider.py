"""Megatron-Core: what `get_batch(data_iterator)` of a pretraining script returns. `python megatron_provider.py URI OUT` calls it as the forward step does.

Ranks that differ only in tp and pp read the same rows. With `broadcast=("tp", "pp")` one of them reads for all.
"""
from __future__ import annotations

import os
import sys
from typing import Any, Iterator

import torch

from batchweave import StreamingDataset
from model import Seen


def data_iterator(uri: str, mesh: dict[str, Any], rank: int) -> Iterator[Any]:
    """In place of `build_pretraining_data_loader`: one item a microbatch."""
    for share in StreamingDataset(uri, mesh={**mesh, "order": "megatron"}, rank=rank, decode="torch", policy="global-batch"):
        for k in range(share["tokens"].shape[0]):
            yield {name: share[name][k].clone() for name in ("tokens", "labels", "loss_mask", "position_ids")}


def get_batch(iterator: Iterator[Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, torch.Tensor]:
    """tokens, labels, loss_mask, attention_mask, position_ids, as Megatron's forward_step unpacks them. Packed sequences need no mask of their own."""
    batch = next(iterator)
    return batch["tokens"].long(), batch["labels"].long(), batch["loss_mask"].float(), None, batch["position_ids"].long()


def main(uri: str, out: str) -> None:
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    seen = Seen()
    iterator = data_iterator(uri, {"dp": world, "tp": 1}, rank)
    while True:
        try:
            tokens, labels, loss_mask, _, position_ids = get_batch(iterator)
        except StopIteration:
            break
        assert tokens.shape == labels.shape == loss_mask.shape == position_ids.shape
        seen.add(tokens)
    seen.write(f"{out}.{rank}")


if __name__ == "__main__":
    main(*sys.argv[1:])
