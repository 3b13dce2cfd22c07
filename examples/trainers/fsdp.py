"""Plain FSDP: `torchrun --nproc-per-node 2 fsdp.py URI OUT`. Here on the CPU with gloo; on GPUs the mesh says "cuda"."""
from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from batchweave import StreamingDataset
from model import Seen, TinyModel, as_batch

uri, out = sys.argv[1:]
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
model = TinyModel()
for layer in (model.embedding, model.output, model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = Seen()
# Mesh and rank come from the device mesh itself.
for share in StreamingDataset(uri, mesh=mesh, decode="torch", policy="global-batch"):
    batch = as_batch(share)
    seen.add(batch["tokens"])
    model(**batch).backward()
    optimizer.step()
    optimizer.zero_grad()
seen.write(f"{out}.{dist.get_rank()}")
dist.destroy_process_group()
