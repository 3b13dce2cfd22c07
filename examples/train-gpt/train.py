"""One rank of the training job: reads its rows of every batch, trains, checkpoints, and writes down what it saw.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 PYTHONPATH=python \
        python3 examples/train-gpt/train.py URI FOLDER --group run --iterations 40

Started again after a crash it goes on from the newest checkpoint in FOLDER, on any number of ranks.
"""
from __future__ import annotations

import argparse
import glob
import json
import os

import torch
import torch.distributed as dist
from batchweave import StreamingDataset
from model import Gpt, load, save


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("folder")
    parser.add_argument("--group", default="default")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--every", type=int, default=5, help="iterations between checkpoints")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # The whole of BatchWeave: three lines here, one where the model is saved.
    dataset = StreamingDataset(args.uri, decode="torch", policy="global-batch", group=args.group, wait_timeout=120)
    saved = sorted(glob.glob(f"{args.folder}/iter-*.safetensors"))
    if saved:
        dataset.load_state_dict(load(saved[-1], model, optimizer))

    record = open(f"{args.folder}/rank-{rank}-of-{world}.jsonl", "a", buffering=1, encoding="utf-8")
    for share in dataset:
        loss = model(share["input_ids"].long(), share["labels"].long())
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        first = share.cursor["row"] + share.rows * dataset.place.d
        line = {
            "iteration": share.iteration,
            "loss": (mean / world).item().hex(),
            "rows": {first + i: [n for n in ids if n >= 0] for i, ids in enumerate(share["sample_ids"].tolist())},
        }
        record.write(json.dumps(line) + "\n")
        if (share.iteration + 1) % args.every == 0:
            name = f"iter-{share.iteration + 1:06d}"
            if rank == 0:
                save(f"{args.folder}/{name}.safetensors", model, optimizer, dataset.state_dict())
            dist.barrier()
            # Every rank may say it; it is registered once, and keeps the data from here on alive.
            dataset.checkpoint(name, keep_last=2)
        if share.iteration + 1 == args.iterations:
            break
    dataset.close()
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        open(f"{args.folder}/done", "w").close()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    main()
