"""Accelerate: `torchrun --nproc-per-node 2 accelerate_loop.py URI OUT`. The model is prepared, the loader is not: it knows its rank."""
from __future__ import annotations

import sys

import torch
from accelerate import Accelerator

from batchweave import StreamingDataset
from model import Seen, TinyModel, as_batch

uri, out = sys.argv[1:]
accelerator = Accelerator(cpu=True)
model = TinyModel()
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
mesh = {"dp": accelerator.num_processes}
seen = Seen()
for share in StreamingDataset(uri, mesh=mesh, rank=accelerator.process_index, decode="torch", policy="global-batch"):
    batch = as_batch(share)
    seen.add(batch["tokens"])
    loss = model(**batch)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
seen.write(f"{out}.{accelerator.process_index}")
