"""Eight gloo ranks (dp 2, tp 2, pp 2) read a namespace with and without broadcast; prints bytes per replica both ways as JSON.

    PYTHONPATH=python python3 python/tests/broadcast_worker.py URI
"""
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

WORLD = 8


def rank_main(uri: str) -> None:
    import torch
    import torch.distributed as dist
    from batchweave import StreamingDataset
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    read = {}
    seen = {}
    for name, axes in (("alone", ()), ("broadcast", ("tp", "pp"))):
        dataset = StreamingDataset(uri, mesh=mesh, decode="torch", broadcast=axes)
        seen[name] = [(share.iteration, share["input_ids"].sum().item(), share.next["row"]) for share in dataset]
        total = torch.tensor([dataset.stats()["read_bytes"]], dtype=torch.int64)
        dist.all_reduce(total)
        read[name] = int(total)
        dataset.close()
    same = torch.tensor([int(seen["alone"] == seen["broadcast"] and len(seen["alone"]) > 0)])
    dist.all_reduce(same, op=dist.ReduceOp.MIN)
    place = StreamingDataset(uri, mesh=mesh).place
    by_order = StreamingDataset(uri, mesh={"dp": 2, "tp": 2, "pp": 2}, rank=dist.get_rank()).place
    assert (place.d, place.data_ranks) == (by_order.d, by_order.data_ranks), (place, by_order)
    if dist.get_rank() == 0:
        # A replica is one dp rank with its tp x pp peers; there are two.
        print(json.dumps({"same": bool(same.item()), **{k: v // 2 for k, v in read.items()}}))
    dist.destroy_process_group()


def main() -> None:
    uri = sys.argv[1]
    if "RANK" in os.environ:
        rank_main(uri)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD)}
    children = [
        subprocess.Popen([sys.executable, __file__, uri], env={**env, "RANK": str(rank)}) for rank in range(WORLD)
    ]
    codes = [child.wait() for child in children]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    main()
