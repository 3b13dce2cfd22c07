"""The examples for trainers train on every sample of a pipeline's log once, on another mesh than it was planned for.

Method: a log that the command plans for four ranks; each example in processes of its own, with one rank or two; the real frameworks where they are
installed, else skipped with the reason.
"""
from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAIN = os.path.join(ROOT, "dist", "src", "cli", "main.js")
COUNT = 200

_PIPELINE = f"""import {{ definePipeline, iterable }} from {json.dumps(os.path.join(ROOT, "dist", "src", "plan", "index.js"))};
async function* numbers() {{
  for (let n = 0; n < {COUNT}; n++) yield {{ value: {{ tokens: [1000 + n, ...Array(3 + (n % 9)).fill(7)] }} }};
}}
export default definePipeline({{
  namespace: {{ uri: process.env.TRAINER_URI, grid: {{ rows: 4, chunks: 1 }}, lanes: 2 }},
  sources: {{ numbers: iterable({{ open: () => numbers(), epochs: 1 }}) }},
  strategy: (graph) => graph.distribute("dp").balance("greedy"),
  construct: {{ seqLength: 64 }},
  workers: {{ threads: 0 }},
}});
"""


def _missing(*packages: str) -> str | None:
    absent = [name for name in ("torch", *packages) if importlib.util.find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    return None if shutil.which("node") and os.path.exists(MAIN) else "the command is not built (make build)"


def _needs(*packages: str) -> Any:
    why = _missing(*packages)
    return unittest.skipIf(why is not None, why or "")


class TrainerTest(unittest.TestCase):
    folder: str
    uri: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.mkdtemp(prefix="batchweave-trainers-")
        cls.uri = f"file://{cls.folder}/log"
        if _missing():
            return
        path = os.path.join(cls.folder, "pipeline.mjs")
        with open(path, "w", encoding="ascii") as file:
            file.write(_PIPELINE)
        run = subprocess.run(["node", MAIN, "run", path], env={**os.environ, "TRAINER_URI": cls.uri}, capture_output=True, text=True, check=False, timeout=900)
        assert run.returncode == 0, run.stderr

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.folder, ignore_errors=True)

    def check(self, example: str, ranks: int) -> None:
        """Every sample's own token was trained on once, over all ranks."""
        from batchweave import open_namespace

        steps = open_namespace(self.uri).info()["steps"]["end"]
        out = os.path.join(self.folder, example)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        processes = []
        for rank in range(ranks):
            environment = {
                **os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(ROOT, "python"), *sys.path]), "RANK": str(rank), "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "STEPS": str(steps),
                "ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
            }
            if ranks == 1:
                for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                    environment.pop(name)
            command = [sys.executable, os.path.join(ROOT, "examples", "trainers", example), self.uri, out]
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        answers = [process.communicate(timeout=900)[0].decode()[-2000:] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * ranks, answers)
        seen: list[int] = []
        for rank in range(ranks):
            with open(f"{out}.{rank}", encoding="ascii") as file:
                seen += json.load(file)
        self.assertEqual(sorted(seen), list(range(1000, 1000 + COUNT)))

    @_needs("transformers", "accelerate")
    def test_hugging_face_trainer(self) -> None:
        self.check("hf_trainer.py", 1)

    @_needs("accelerate")
    def test_accelerate_with_two_ranks(self) -> None:
        self.check("accelerate_loop.py", 2)

    @_needs("lightning")
    def test_lightning(self) -> None:
        self.check("lightning_fit.py", 1)

    @_needs()
    def test_plain_fsdp_with_two_ranks(self) -> None:
        self.check("fsdp.py", 2)

    @_needs("torchtitan", "tyro", "torchdata")
    def test_the_data_loader_of_torchtitan_goes_on_from_its_state(self) -> None:
        self.check("torchtitan_loader.py", 2)

    @_needs("megatron")
    def test_the_batch_provider_of_megatron_core(self) -> None:
        self.check("megatron_provider.py", 2)


if __name__ == "__main__":
    unittest.main()
