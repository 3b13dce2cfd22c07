"""The same namespace from JAX: each process reads its rows as numpy and makes one global array of them.

    PYTHONPATH=python python3 examples/jax-reader/read.py [URI [ITERATIONS]]

Needs jax. Without a URI it makes a small namespace, reads it and removes it.
"""
from __future__ import annotations

import array
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))

from batchweave import StreamingDataset, create_namespace, encode_safetensors  # noqa: E402
from batchweave.format.tensors import Tensor  # noqa: E402


def batches(uri: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(iteration, global arrays by name), sharded over the processes of the job along the rows."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("dp",))
    sharding = NamedSharding(mesh, PartitionSpec("dp"))
    # One data-parallel rank per process; a process with several devices takes a row for each.
    dataset = StreamingDataset(
        uri,
        mesh={"dp": jax.process_count()},
        rank=jax.process_index(),
        rows_per_rank=jax.local_device_count(),
        decode="numpy",
    )
    for share in dataset:
        arrays = {name: jax.make_array_from_process_local_data(sharding, share[name]) for name in share.keys()}
        yield share.iteration, arrays


def fill(uri: str) -> None:
    """Six batches of four rows of eight tokens, each row numbered."""
    namespace = create_namespace(uri, rows=4, durability="process-crash")
    with namespace.producer("example") as producer:
        for step in range(6):
            rows = (array.array("i", [4 * step + row] * 8) for row in range(4))
            producer.append([encode_safetensors({"input_ids": Tensor("I32", (8,), ids.tobytes())}) for ids in rows])
    namespace.end_log()


def read(uri: str, limit: int) -> None:
    for iteration, arrays in batches(uri):
        print(iteration, {name: (value.shape, str(value.dtype)) for name, value in arrays.items()}, flush=True)
        if iteration + 1 == limit:
            break


def main() -> None:
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    if len(sys.argv) > 1:
        read(sys.argv[1], limit)
        return
    with tempfile.TemporaryDirectory() as folder:
        uri = Path(folder, "ns").as_uri()
        fill(uri)
        read(uri, limit)


if __name__ == "__main__":
    main()
