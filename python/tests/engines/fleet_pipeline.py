"""A small pipeline for fleets: one source that Python loads, constructors in TypeScript, a log in a folder."""
from __future__ import annotations

import json
import os
import struct

from batchweave import decode_safetensors, open_namespace

COUNT = 300
#: Beside the pipeline: until it is there, samples take long, so that no process ends before it is killed, however busy the machine is.
FAST = "fast"
_FIRST = 1000

_LOADER = f"""import os
import time
from batchweave.load import Source, stream

def numbers():
    return range({COUNT})

def tokens(n):
    if not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{FAST}")):
        time.sleep(0.5)
    return {{"tokens": [{_FIRST} + n, 1]}}

numbers_source = Source("numbers", stream(numbers), transforms=[tokens], lanes=2, block_samples=2)
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


def write_plan(folder: str) -> str:
    """A plan by which two constructors are needed, and one is started."""
    common = {"processes": 1, "threads": 1, "memoryBytes": 200_000_000, "cores": 1}
    plan = {
        "v": 1, "kind": "batchweave-fleet-plan", "stepSeconds": 1, "feeds": True, "isGuess": False,
        "sources": {"numbers": {"lanes": 2, "threadSeconds": 0, "mainSeconds": 0, "blocks": 1, "own": {"processes": 1, "threads": 1, "memoryBytes": 200_000_000}}},
        "loaders": common, "constructors": {**common, "lanes": 2, "mainSeconds": 1.4}, "phases": [{"name": "all", "from": 0, "shares": [1]}],
    }
    path = os.path.join(folder, "plan.json")
    with open(path, "w", encoding="ascii") as file:
        json.dump(plan, file)
    return path


def hurry(folder: str) -> None:
    """From now on, samples take no time."""
    with open(os.path.join(folder, FAST), "w", encoding="ascii"):
        pass


def samples_of(uri: str) -> list[int]:
    """The numbers in a training log, each as often as it is there."""
    found: list[int] = []
    for share in open_namespace(uri).consumer({"dp": 1}, 0, rows_per_rank=2, wait_timeout=10):
        for piece in share.slices:
            tensor = decode_safetensors(piece.bytes)[0]["tokens"]
            values = struct.unpack(f"<{len(tensor.data) // 4}i", tensor.data)
            found += [value - _FIRST for value in values if value >= _FIRST]
    return found
