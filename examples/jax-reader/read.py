"""The same namespace from JAX: each process reads its rows as numpy and makes one global array of them.

    PYTHONPATH=python python3 examples/jax-reader/read.py URI [ITERATIONS]

Without JAX the same loop gives numpy arrays, and without numpy plain bytes.
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Iterator

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))

from batchweave import StreamingDataset  # noqa: E402


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


def main() -> None:
    uri = sys.argv[1]
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    for iteration, arrays in batches(uri):
        shapes = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
        print(iteration, shapes, flush=True)
        if iteration + 1 == limit:
            break


if __name__ == "__main__":
    main()
