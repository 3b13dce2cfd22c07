"""A small pipeline for fleets: one source that Python loads, constructors in TypeScript, a log in a folder."""
from __future__ import annotations

import json
import os
import struct

from batchweave import decode_safetensors, open_namespace

COUNT = 300
_FIRST = 1000

_LOADER = f"""import time
from batchweave.load import Source, stream

def numbers():
    return range({COUNT})

def tokens(n):
    time.sleep(0.03)
    return {{"tokens": [{_FIRST} + n, 1]}}

numbers_source = Source("numbers", stream(numbers), transforms=[tokens], lanes=2, block_samples=8)
"""


def write_pipeline(folder: str, root: str) -> str:
    """Writes both files; the log will be at `folder`/log. Gives the pipeline's path."""
    with open(os.path.join(folder, "numbers.py"), "w", encoding="ascii") as file:
        file.write(_LOADER)
    plan = json.dumps(os.path.join(root, "dist", "src", "plan", "index.js"))
    text = f"""import {{ definePipeline, python }} from {plan};
export default definePipeline({{
  namespace: {{ uri: {json.dumps(f"file://{folder}/log")}, grid: {{ rows: 2, chunks: 1 }}, lanes: 2 }},
  sources: {{ numbers: python({{ file: new URL("./numbers.py:numbers", import.meta.url), lanes: 2 }}) }},
  strategy: (graph) => graph.balance(),
  construct: {{ seqLength: 64 }},
  workers: {{ threads: 0 }},
  exchange: "log",
}});
"""
    path = os.path.join(folder, "pipeline.mjs")
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def samples_of(uri: str) -> list[int]:
    """The numbers in a training log, each as often as it is there."""
    found: list[int] = []
    for share in open_namespace(uri).consumer({"dp": 1}, 0, rows_per_rank=2, wait_timeout=10):
        for piece in share.slices:
            tensor = decode_safetensors(piece.bytes)[0]["tokens"]
            values = struct.unpack(f"<{len(tensor.data) // 4}i", tensor.data)
            found += [value - _FIRST for value in values if value >= _FIRST]
    return found
