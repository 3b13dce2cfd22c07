"""Megatron-Core: what `get_batch(data_iterator)` of a pretraining script returns. `python megatron_provider.py URI OUT` trains a small model of Megatron's
parallel layers with it (a GPTModel takes the same five, and a GPU).

Ranks that differ only in tp and pp read the same rows. With `broadcast=("tp", "pp")` one of them reads for all.
"""
from __future__ import annotations

import sys
from typing import Any, Iterator

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.model_parallel_config import ModelParallelConfig
from torch import distributed

from batchweave import StreamingDataset
from model import VOCABULARY, Seen


def data_iterator(uri: str) -> Iterator[dict[str, torch.Tensor]]:
    """In place of `build_pretraining_data_loader`: one item a microbatch, on the mesh that Megatron was initialized with."""
    mesh = {
        "dp": parallel_state.get_data_parallel_world_size(), "tp": parallel_state.get_tensor_model_parallel_world_size(),
        "pp": parallel_state.get_pipeline_model_parallel_world_size(), "order": "megatron",
    }
    for share in StreamingDataset(uri, mesh=mesh, rank=distributed.get_rank(), decode="torch", policy="global-batch"):
        for k in range(share["tokens"].shape[0]):
            yield {name: share[name][k].clone() for name in ("tokens", "labels", "loss_mask", "position_ids")}


def get_batch(iterator: Iterator[Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, torch.Tensor]:
    """tokens, labels, loss_mask, attention_mask, position_ids, as Megatron's forward_step unpacks them. Packed sequences need no mask of their own."""
    batch = next(iterator)
    return batch["tokens"].long(), batch["labels"].long().clamp(min=0), batch["loss_mask"].float(), None, batch["position_ids"].long()


class Model(torch.nn.Module):
    """Predicts the next token from the one before, with an embedding and an output that are divided by vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        config = ModelParallelConfig(use_cpu_initialization=True, gradient_accumulation_fusion=False)
        init = torch.nn.init.xavier_normal_
        self.embedding = tensor_parallel.VocabParallelEmbedding(VOCABULARY, 16, init_method=init, config=config)
        self.output = tensor_parallel.ColumnParallelLinear(16, VOCABULARY, config=config, init_method=init, bias=False)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits, _ = self.output(self.embedding(tokens).transpose(0, 1).contiguous())
        return tensor_parallel.vocab_parallel_cross_entropy(logits.float(), labels.transpose(0, 1).contiguous()).transpose(0, 1)


def main(uri: str, out: str) -> None:
    distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=1, pipeline_model_parallel_size=1)
    seen = Seen()
    iterator = data_iterator(uri)
    model = Model()
    while True:
        try:
            tokens, labels, loss_mask, _, position_ids = get_batch(iterator)
        except StopIteration:
            break
        assert tokens.shape == labels.shape == loss_mask.shape == position_ids.shape
        (torch.sum(model(tokens, labels) * loss_mask) / loss_mask.sum()).backward()
        seen.add(tokens)
    seen.write(f"{out}.{distributed.get_rank()}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
