"""Property: the examples do what their opening lines say. Method: each is run as written there, on a small namespace; skipped with the reason where a package
is missing. The longest, examples/train-gpt/run.py, takes minutes and is run by hand.
"""
from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from batchweave import create_namespace, encode_safetensors
from batchweave.format.tensors import Tensor

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
        namespace.end_log()

    def run_example(self, name: str, *args: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, str(ROOT / "examples" / name), *args]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-3_000:])
        return done.stdout

    def test_the_readme_can_be_tried_as_it_is_written(self) -> None:
        snippets = re.findall(r"```python\n(.*?)```", (ROOT / "python/README.md").read_text(), re.DOTALL)
        script = "\n".join(s for s in snippets if "file:///tmp/batchweave-demo" in s).replace("file:///tmp/batchweave-demo", self.uri)
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=900)
        expected = [(i, [4 * i, 4 * i + 1]) for i in range(3)] + [(3 + i, [12 + 3 * i]) for i in range(9)] + [(12, [])]
        lines = "".join(f"{i} {[f'row {row}'.encode() for row in rows]}\n" for i, rows in expected)
        self.assertEqual((done.stdout, done.stderr), (lines, ""))

    def test_rollouts_lose_and_repeat_nothing(self) -> None:
        self.assertIn("0 lost, 0 repeated", self.run_example("rl-rollouts/learn.py"))

    @needs("jax")  # type: ignore[misc]
    def test_jax_reads_the_same_namespace(self) -> None:
        self.fill()
        self.assertIn("ids", self.run_example("jax-reader/read.py", self.uri, "3"))
        self.assertEqual(len(self.run_example("jax-reader/read.py").splitlines()), 5)

    def test_the_training_example_fails_if_an_iteration_is_lost_or_repeated(self) -> None:
        spec = importlib.util.spec_from_file_location("train_gpt_run", ROOT / "examples/train-gpt/run.py")
        assert spec is not None and spec.loader is not None
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        iterations, saved, killed = 12, 5, 7

        def seen(first: int, end: int, rank: int, world: int) -> list[dict[str, object]]:
            rows = 8 // world
            return [
                {"iteration": i, "loss": float(100 - i).hex(), "rows": {str(8 * i + rows * rank + r): [8 * i + rows * rank + r] for r in range(rows)}}
                for i in range(first, end)
            ]

        def report(goes_on_b: int, goes_on_c: int) -> str:
            runs = {name: Path(tempfile.mkdtemp(dir=self.folder)) for name in "abc"}
            for run, parts in (
                ("a", [(2, 0, iterations)]),
                ("b", [(2, 0, killed), (2, goes_on_b, iterations)]),
                ("c", [(4, 0, killed), (2, goes_on_c, iterations)]),
            ):
                for world, first, end in parts:
                    for rank in range(world):
                        with open(runs[run] / f"rank-{rank}-of-{world}.jsonl", "a", encoding="utf-8") as file:
                            file.writelines(json.dumps(line) + "\n" for line in seen(first, end, rank, world))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                try:
                    example.report(runs, [seen(0, killed, rank, 2) for rank in range(2)], {"B": saved, "C": saved}, iterations)
                except SystemExit as failure:
                    return str(failure.code)
            return printed.getvalue().splitlines()[-1]

        self.assertEqual(report(saved, saved), "passed: nothing lost, nothing repeated")
        for places, run in (((saved + 1, saved), "B"), ((saved, saved + 1), "C")):
            self.assertIn(f"FAILED: run {run}, rank 0: 1 iterations lost, 0 repeated", report(*places))
        for places, run in (((saved - 1, saved), "B"), ((saved, saved - 1), "C")):
            self.assertIn(f"FAILED: run {run}, rank 0: 0 iterations lost, 1 repeated", report(*places))

    @needs("torch")  # type: ignore[misc]
    def test_torch_distributed_checkpoint_carries_the_state(self) -> None:
        self.fill()
        first = self.run_example("train-gpt/save_with_dcp.py", self.uri, f"{self.folder}/ckpt", "4")
        second = self.run_example("train-gpt/save_with_dcp.py", self.uri, f"{self.folder}/ckpt", "4")
        self.assertIn("iterations 0 to 3;", first)
        self.assertIn("iterations 4 to 7;", second)


if __name__ == "__main__":
    unittest.main()
