"""Property: what docs/guide/python.md shows works, line by line, as it is written. Method: its Python blocks are run in order, in one process, in a folder of their
own; what their comments promise is compared. Skipped with the reason where torch is missing.
"""
from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guide/python.md"
FOLDER = "/tmp/batchweave-guide"
CHECKS = """
assert namespace.info()["steps"] == {"trim": 0, "end": 13}, namespace.info()
assert packed.info()["closed"] and packed.info()["steps"]["end"] == 3, packed.info()
assert loss.dim() == 0 and tokens == 12, (loss, tokens)
assert json.loads(saved)["epoch"] == 1 and [c.id for c in wider.list_checkpoints()] == ["iter-15"], (saved, wider.list_checkpoints())
assert (steps, seen) == (13, 100), (steps, seen)
assert shuffled.epoch == 1 and state["epoch"] == 1, (shuffled.epoch, state)
assert set(figures) == {"read_bytes", "requests", "hedged", "waited_s"}
print("all is as the guide says")
"""


def python_blocks(page: Path) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


OTHERS = ROOT / "docs/guide/python-from-others.md"
OTHERS_CHECKS = """
assert numbers.tolist() == [8, 9], numbers
print("all is as the guide says")
"""


class Guide(unittest.TestCase):
    def test_every_block_runs_as_it_is_written(self) -> None:
        self.assertGreater(len(python_blocks(GUIDE)), 7)
        self.run_page(GUIDE, CHECKS)

    def test_those_for_people_from_other_libraries_too(self) -> None:
        self.run_page(OTHERS, OTHERS_CHECKS)

    def test_the_notebook_runs_from_its_first_cell_to_its_last(self) -> None:
        notebook = json.loads((ROOT / "examples/notebooks/quickstart.ipynb").read_text())
        cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", "\n".join(cells)], capture_output=True, text=True, env={**env, "TMPDIR": folder}, timeout=900)
        self.assertEqual(done.returncode, 0, done.stderr[-2_000:])
        self.assertEqual(done.stdout.splitlines()[0], "[['row 0', 'row 1'], ['row 2', 'row 3']]")

    def run_page(self, page: Path, checks: str) -> None:
        if importlib.util.find_spec("torch") is None:
            self.skipTest("torch is not installed")
        with tempfile.TemporaryDirectory() as folder:
            script = "\n".join([*python_blocks(page), checks]).replace(FOLDER, folder)
            env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=900, cwd=folder)
        self.assertEqual((done.returncode, done.stdout), (0, "all is as the guide says\n"), done.stderr[-3_000:])


if __name__ == "__main__":
    unittest.main()
