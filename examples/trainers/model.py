"""What the examples share: a model of two layers, and a note of every token that it was trained on."""
from __future__ import annotations

import json
from typing import Any

import torch

VOCABULARY = 4096


class TinyModel(torch.nn.Module):
    """Predicts the next token from the one before."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(VOCABULARY, 16)
        self.output = torch.nn.Linear(16, VOCABULARY)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.output(self.embedding(tokens.long()))
        return torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.long().flatten(), ignore_index=-100)


def as_batch(share: Any) -> dict[str, torch.Tensor]:
    """A share's tensors as a batch of sequences: [microbatches, sequences, slots] has the first two axes joined."""
    return {name: share[name].flatten(0, 1).clone() for name in ("tokens", "labels")}


class Seen:
    """The samples' own tokens, as often as they were trained on, for the test that runs these examples."""

    def __init__(self) -> None:
        self._tokens: list[int] = []

    def add(self, tokens: torch.Tensor) -> None:
        flat = tokens.flatten()
        self._tokens += flat[flat >= 1000].tolist()

    def write(self, path: str) -> None:
        with open(path, "w", encoding="ascii") as file:
            json.dump(self._tokens, file)
