"""A producer in Python for gpu_wait.py: the same preprocessing as a DataLoader's worker would do, published to the log. Needs no torch.

    PYTHONPATH=python python3 examples/train-gpt/produce_tokens.py URI NUMBER OF ROWS TOKENS
"""
from __future__ import annotations

import sys
from typing import Any

from batchweave import encode_safetensors, open_namespace
from batchweave.format.tensors import Tensor
from preprocess import rows


def encode_row(row: Any, tokens: int) -> bytes:
    data = row.tobytes()
    return encode_safetensors({"input_ids": Tensor("I32", (tokens,), data[:-4]), "labels": Tensor("I32", (tokens,), data[4:])})


def main() -> None:
    uri, number, of, batch_rows, tokens = sys.argv[1], *map(int, sys.argv[2:6])
    with open_namespace(uri).producer(f"tokenizer-{number}", buffered_batches_max=16, lag_poll_delay=0.2) as producer:
        source = rows(number, of, tokens)
        while True:
            producer.append([encode_row(next(source), tokens) for _ in range(batch_rows)], resume_point=producer.next_seq + 1)


if __name__ == "__main__":
    main()
