"""A rollout worker: plays with the newest policy it knows and publishes trajectories. Killed and started again, none is lost or twice.

    PYTHONPATH=python python3 examples/rl-rollouts/rollout.py URI ID BATCHES POLICY_FILE
"""
from __future__ import annotations

import array
import random
import sys
import time
from pathlib import Path

from batchweave import encode_safetensors, open_namespace
from batchweave.format.tensors import Tensor

TOKENS = 16


def play(seed: int, version: int) -> bytes:
    """Stands for a game or a generation: tokens, which of them count, how good they were, and under which policy they were made."""
    chance = random.Random(seed)
    ids = array.array("i", (chance.randrange(1_000) for _ in range(TOKENS)))
    values = array.array("f", (chance.gauss(0, 1) for _ in range(TOKENS)))
    return encode_safetensors(
        {
            "input_ids": Tensor("I32", (TOKENS,), ids.tobytes()),
            "loss_mask": Tensor("BOOL", (TOKENS,), bytes(i > 3 for i in range(TOKENS))),
            "advantages": Tensor("F32", (TOKENS,), values.tobytes()),
            "inference_logprobs": Tensor("F32", (TOKENS,), values.tobytes()),
            # In the data, where ranks see it; the metadata below is for people and `batchweave inspect`.
            "policy_version": Tensor("I64", (1,), version.to_bytes(8, "little")),
            "trajectory": Tensor("I64", (1,), seed.to_bytes(8, "little")),
        }
    )


def main() -> None:
    uri, id, batches, policy = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    namespace = open_namespace(uri)
    number = int(id.split("-")[-1])
    with namespace.producer(id, lag_poll_delay=0.1) as producer:
        # Where this id was, whichever process held it before: trajectories in flight are either in the log or played again.
        done = producer.resume_point or 0
        for batch in range(done, batches):
            version = int(policy.read_text())
            seeds = [number * 1_000_000 + batch * namespace.rows + row for row in range(namespace.rows)]
            producer.append(
                [play(seed, version) for seed in seeds],
                resume_point=batch + 1,
                content_type="application/vnd.safetensors",
                user={"policy_version": version},
            )
            time.sleep(0.01)


if __name__ == "__main__":
    main()
