"""Property: a trainer that leaves its loop in the middle exits with status 0, whatever the threads that read ahead are doing, with `close()` and without.

Method: one process makes a log and loads the package; from it as many are forked as there are exits to try, each of which reads some shares, goes
and ends as any script does. A thread that the interpreter kills inside torch would abort it. And exactly: when the interpreter ends, no thread
of ours is left, not even one that was in the middle of decoding.
"""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

_HERE = Path(__file__).parent

_EXITS = r"""
import importlib, os, sys
decode, exits, uri = sys.argv[1], int(sys.argv[2]), sys.argv[3]
module = importlib.import_module(decode)
from batchweave import StreamingDataset, create_namespace, encode_safetensors
namespace = create_namespace(uri, rows=2)
import numpy
with namespace.producer("p") as producer:
    for i in range(120):
        producer.append([encode_safetensors({"x": numpy.full(20_000, i, dtype="int32"), "y": numpy.zeros(500)})] * 2)
os.environ["OMP_NUM_THREADS"] = "1"
statuses = []
for n in range(exits):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        break
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
else:
    print([status for status in statuses if status != 0])
    sys.exit(0)
dataset = StreamingDataset(uri, mesh={"dp": 1}, rank=0, decode=decode)
for share in dataset:
    share["x"]
    if share.iteration == n % 7 + 1:
        break
if n % 3 == 0:
    dataset.close()
"""

_LEFT = r"""
import atexit, sys, threading, time
def left():  # registered first, so called last
    names = [t.name for t in threading.enumerate() if t.name.startswith("batchweave")]
    sys.stdout.write(repr(names))
atexit.register(left)
from batchweave import StreamingDataset, create_namespace
namespace = create_namespace(sys.argv[1], rows=1)
producer = namespace.producer("p")
for i in range(20):
    producer.append([b"x" * 1_000])
producer.flush()
def transform(share):
    time.sleep(0.05)
    return share
dataset = StreamingDataset(sys.argv[1], mesh={"dp": 1}, rank=0, transform=transform)
next(iter(dataset))
"""


class Exits(unittest.TestCase):
    def run_script(self, script: str, *arguments: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            uri = (Path(folder) / "ns").as_uri()
            result = subprocess.run(
                [sys.executable, "-c", script, *arguments, uri],
                env={**os.environ, "PYTHONPATH": str(_HERE.parent)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900,
            )
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def test_no_thread_of_ours_is_left_when_the_interpreter_ends(self) -> None:
        self.assertEqual(self.run_script(_LEFT), "[]")

    @unittest.skipIf(importlib.util.find_spec("numpy") is None, "numpy is not installed")
    def test_thirty_exits_with_numpy(self) -> None:
        self.assertEqual(self.run_script(_EXITS, "numpy", "30"), "[]")

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_a_hundred_exits_with_torch(self) -> None:
        self.assertEqual(self.run_script(_EXITS, "torch", "100"), "[]")


if __name__ == "__main__":
    unittest.main()
