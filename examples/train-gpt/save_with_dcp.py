"""The dataset's state in torch.distributed.checkpoint, beside the model's: it is a Stateful like any other.

    PYTHONPATH=python python3 examples/train-gpt/save_with_dcp.py URI FOLDER ITERATIONS

Run it twice: the second run goes on where the first stopped, and prints the iterations it saw.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from batchweave import StreamingDataset  # noqa: E402


def main() -> None:
    uri, folder, iterations = sys.argv[1], sys.argv[2], int(sys.argv[3])
    model = torch.nn.Linear(4, 4)
    dataset = StreamingDataset(uri, mesh={"dp": 1}, rank=0, rows_per_rank=1)
    job = {"model": model, "data": dataset}  # a Stateful: DCP calls its state_dict and load_state_dict
    if os.path.exists(f"{folder}/.metadata"):
        dcp.load(job, checkpoint_id=folder)
    seen = []
    for share in dataset:
        seen.append(share.iteration)
        if len(seen) == iterations:
            break
    dcp.save(job, checkpoint_id=folder)
    dataset.checkpoint(f"iter-{seen[-1] + 1}", keep_last=2)  # after the save is durable
    print(f"iterations {seen[0]} to {seen[-1]}; live: {[c.id for c in dataset.list_checkpoints()]}")


if __name__ == "__main__":
    main()
