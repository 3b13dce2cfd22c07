"""Property: what users write is checked by their type checker: the guide's programs pass mypy --strict and pyright, mistakes in names, options and arguments fail, and
tensors are tensors. Method: the programs are written down and the real checkers run on them, with small stubs of torch and numpy, so that the answer is
the same whatever is installed. A checker that is missing is skipped with the reason.
"""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from test_guide import GUIDE, OTHERS, python_blocks

ROOT = Path(__file__).parents[2]
STUBS = {
    "torch/__init__.pyi": """
from typing import Any
class Tensor:
    shape: tuple[int, ...]
    def __getitem__(self, index: Any) -> Tensor: ...
    def __sub__(self, other: Tensor) -> Tensor: ...
    def float(self) -> Tensor: ...
    def mean(self) -> Tensor: ...
    def numel(self) -> int: ...
""",
    "torch/utils/__init__.pyi": "",
    "torch/utils/data/__init__.pyi": """
from typing import Generic, Iterator, TypeVar
T = TypeVar("T", covariant=True)
class IterableDataset(Generic[T]):
    def __init__(self) -> None: ...
    def __iter__(self) -> Iterator[T]: ...
""",
    "numpy/__init__.pyi": """
from typing import Any, Generic, TypeVar
S = TypeVar("S")
D = TypeVar("D")
class ndarray(Generic[S, D]):
    ndim: int
""",
}
GOOD = """
import numpy
import torch
from batchweave import Share, StreamingDataLoader, StreamingDataset, create_namespace

def tensors(dataset: StreamingDataset[Share[torch.Tensor]]) -> torch.Tensor | None:
    found: torch.Tensor | None = None
    for share in dataset:
        found = share["input_ids"]
        maybe: torch.Tensor | None = share.get("labels")
        every: list[bool] = share.valid
        number: int = share.iteration
    return found

tensors(StreamingDataset("file:///a", decode="torch", shuffle=True, last="pad", prefetch_bytes_max=1_000))
for arrays in StreamingDataset("file:///a", {"dp": 2}, 1, decode="numpy"):
    axes: int = arrays["x"].ndim
sizes: list[int] = list(StreamingDataset("file:///a", decode="torch", transform=lambda share: share.rows))
loader = StreamingDataLoader(StreamingDataset("file:///a", decode="torch"), num_workers=2, collate_fn=lambda share: share["x"])
for x in loader:
    count: int = x.numel()
with create_namespace("file:///a", rows=2).writer("w", tail="drop") as writer:
    writer.write({"x": [1, 2]})
"""
HEAD = 'from batchweave import StreamingDataset, create_namespace\ndataset = StreamingDataset("file:///a", decode="torch")\n'
BAD = {
    "a name that there is not": "for share in dataset:\n    share.itertion\n",
    "a decoder that there is not": 'StreamingDataset("file:///a", decode="nump")\n',
    "text as a slice": 'create_namespace("file:///a", rows=1).producer("p").append(["string"])\n',
    "a policy that there is not": 'StreamingDataset("file:///a", policy="per-rnk")\n',
    "a setting that there is not": 'StreamingDataset("file:///a", bach_size=4)\n',
    "a tail that there is not": 'create_namespace("file:///a", rows=1).writer("w", tail="keep")\n',
    "a tensor that is no number": "for share in dataset:\n    number: int = share['x']\n",
    "a last that there is not": 'StreamingDataset("file:///a", last="keep")\n',
}


class Types(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, text in STUBS.items():
            path = self.folder / "stubs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.folder / "good.py").write_text(GOOD)
        (self.folder / "guide.py").write_text("\n".join(python_blocks(GUIDE)))
        (self.folder / "others.py").write_text("\n".join(python_blocks(OTHERS)))
        self.names = [f"bad_{i}.py" for i in range(len(BAD))]
        for name, text in zip(self.names, BAD.values()):
            (self.folder / name).write_text(HEAD + text)

    def compare(self, failed: set[str], output: str) -> None:
        self.assertNotIn("good.py", failed, output)
        self.assertNotIn("guide.py", failed, output)
        self.assertNotIn("others.py", failed, output)
        passed = [what for name, what in zip(self.names, BAD) if name not in failed]
        self.assertEqual(passed, [], f"passed, and should not: {passed}")

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_mypy(self) -> None:
        env = {**os.environ, "MYPYPATH": f"{self.folder / 'stubs'}{os.pathsep}{ROOT / 'python'}"}
        settings = ["--strict", "--follow-imports=silent", "--cache-dir", str(self.folder / "cache"), "--no-error-summary", "--config-file", os.devnull]
        files = ["good.py", "guide.py", "others.py", *self.names]
        done = subprocess.run([sys.executable, "-m", "mypy", *settings, *files], cwd=self.folder, env=env, capture_output=True, text=True, timeout=900)
        self.compare({line.partition(":")[0] for line in done.stdout.splitlines() if ": error:" in line}, done.stdout + done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("pyright"), "pyright is not installed")
    def test_pyright(self) -> None:
        config = {"include": ["*.py"], "stubPath": "stubs", "extraPaths": [str(ROOT / "python")], "typeCheckingMode": "standard", "reportUnusedExpression": False}
        (self.folder / "pyrightconfig.json").write_text(json.dumps(config))
        done = subprocess.run([sys.executable, "-m", "pyright", "--outputjson"], cwd=self.folder, capture_output=True, text=True, timeout=900)
        if not done.stdout.startswith("{"):
            self.skipTest(f"pyright cannot run here: {(done.stdout + done.stderr)[-200:]}")
        found = [d for d in json.loads(done.stdout)["generalDiagnostics"] if d["severity"] == "error"]
        self.compare({Path(d["file"]).name for d in found}, "\n".join(f"{Path(d['file']).name}: {d['message']}" for d in found))


if __name__ == "__main__":
    unittest.main()
