"""Property: the examples do what their opening lines say. Method: each is run as written there, on a small namespace; skipped with the reason where a package
is missing. The longest, examples/train-gpt/run.py, takes minutes and is run by hand.
"""
from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from batchweave import create_namespace, encode_safetensors
from batchweave.tensors import Tensor

ROOT = Path(__file__).parents[2]


def needs(name: str) -> object:
    return unittest.skipUnless(importlib.util.find_spec(name) is not None, f"{name} is not installed")


class Examples(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.uri = Path(folder.name, "ns").as_uri()

    def fill(self) -> None:
        namespace = create_namespace(self.uri, rows=4, durability="process-crash")
        with namespace.producer("p") as p:
            for step in range(6):
                p.append([encode_safetensors({"ids": Tensor("I32", (2,), bytes([step, 0, 0, 0, r, 0, 0, 0]))}) for r in range(4)])
        namespace.close()

    def run_example(self, name: str, *args: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, str(ROOT / "examples" / name), *args]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=180)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-3_000:])
        return done.stdout

    def test_the_readme_can_be_tried_as_it_is_written(self) -> None:
        snippets = re.findall(r"```python\n(.*?)```", (ROOT / "python/README.md").read_text(), re.DOTALL)
        script = "\n".join(s for s in snippets if "file:///tmp/batchweave-demo" in s).replace("file:///tmp/batchweave-demo", self.uri)
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60)
        expected = [(i, 2 * i) for i in range(3)] + [(3 + i, 6 + 3 * i) for i in range(11)]
        lines = "".join(f"{i} {f'batch {row // 4}, row {row % 4}'.encode()}\n" for i, row in expected)
        self.assertEqual((done.stdout, done.stderr), (lines, ""))

    def test_rollouts_lose_and_repeat_nothing(self) -> None:
        self.assertIn("0 lost, 0 repeated", self.run_example("rl-rollouts/learn.py"))

    @needs("jax")  # type: ignore[misc]
    def test_jax_reads_the_same_namespace(self) -> None:
        self.fill()
        self.assertIn("ids", self.run_example("jax-reader/read.py", self.uri, "3"))
        self.assertEqual(len(self.run_example("jax-reader/read.py").splitlines()), 5)

    @needs("torch")  # type: ignore[misc]
    def test_torch_distributed_checkpoint_carries_the_state(self) -> None:
        self.fill()
        first = self.run_example("train-gpt/save_with_dcp.py", self.uri, f"{self.folder}/ckpt", "4")
        second = self.run_example("train-gpt/save_with_dcp.py", self.uri, f"{self.folder}/ckpt", "4")
        self.assertIn("iterations 0 to 3;", first)
        self.assertIn("iterations 4 to 7;", second)


if __name__ == "__main__":
    unittest.main()
