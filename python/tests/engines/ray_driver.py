"""A driver that writes 12 units of 20 rows through the sink: `ray_driver.py ADDRESS FOLDER`. One task kills its own worker, once."""
from __future__ import annotations

import os
import sys
import time
from typing import Any

import ray

from batchweave.ray import sink

UNITS, ROWS = 12, 20


def main(address: str, folder: str) -> None:
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False

    def tokenize(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] % ROWS == 0:
            time.sleep(0.5)
        mark = os.path.join(folder, "killed-worker")
        if row["id"] == 5 * ROWS + 7 and not os.path.exists(mark):
            with open(mark, "w", encoding="ascii") as file:
                file.write("x")
            os._exit(1)
        return {"tokens": [row["id"]] * 3, "id": str(row["id"])}

    dataset = ray.data.range(UNITS * ROWS, override_num_blocks=UNITS).map(tokenize)
    dataset.write_datasink(sink(f"file://{folder}/run.sources", "web", lanes=2, block_samples=8))


if __name__ == "__main__":
    main(*sys.argv[1:])
