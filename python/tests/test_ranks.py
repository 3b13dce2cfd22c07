"""Property: no two ranks take themselves for the same one. A rank comes from what is given, from torch's process group, from RANK, Slurm or MPI; what contradicts
itself is refused, and so are processes that were not told their rank. Loaders of others that would lose rows are refused. Method: the rule by itself on made-up
environments; real processes with torch, and Accelerate's own wrappers, where they are installed.
"""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from batchweave import BatchWeaveError, create_namespace
from batchweave.consumer.mesh import Group, resolve_mesh

ROOT = Path(__file__).parents[2]


def needs(*names: str) -> Any:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} is not installed")


class Rule(unittest.TestCase):
    def place(self, environment: dict[str, str] | None = None, group: tuple[int, int] | None = None, spawned: bool = False, **given: Any) -> tuple[int, int]:
        found = resolve_mesh(given.get("mesh"), given.get("rank"), environment or {}, group and Group(*group), spawned)
        return found.rank, found.world_size

    def refused(self, *args: Any, **given: Any) -> str:
        with self.assertRaises(BatchWeaveError) as caught:
            self.place(*args, **given)
        self.assertEqual(caught.exception.code, "MESH_MISMATCH")
        return caught.exception.message

    def test_each_launcher_is_understood(self) -> None:
        for rank, world in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
            self.assertEqual(self.place({rank: "3", world: "8"}), (3, 8))
        self.assertEqual(self.place({}, (3, 8)), (3, 8))
        self.assertEqual(self.place({"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (5, 8)), (5, 8), "srun started torchrun")
        self.assertEqual(self.place({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (5, 8)), (5, 8))

    def test_contradictions_are_errors(self) -> None:
        self.assertIn("RANK is 0", self.refused({"RANK": "0", "WORLD_SIZE": "8"}, (3, 8)))
        self.assertIn("WORLD_SIZE is 4", self.refused({"RANK": "3", "WORLD_SIZE": "4"}, (3, 8)))
        self.assertIn("rank is 2, and torch.distributed says", self.refused({}, (3, 8), rank=2))
        self.assertIn("rank is 2, and RANK says", self.refused({"RANK": "0", "WORLD_SIZE": "8"}, rank=2))
        self.assertIn("torch.distributed's world size is 8", self.refused({}, (3, 8), mesh={"dp": 4}))
        self.assertEqual(self.place({"RANK": "0", "WORLD_SIZE": "8"}, (3, 8), mesh={"dp": 1}, rank=0), (0, 1), "both given: meant")

    def test_a_process_that_nobody_told_its_rank_is_refused(self) -> None:
        self.assertEqual(self.place(), (0, 1))
        self.assertIn("all of them would read the same rows", self.refused(spawned=True))
        self.assertEqual(self.place({}, (1, 2), spawned=True), (1, 2))
        self.assertEqual(self.place({"RANK": "1", "WORLD_SIZE": "2"}, spawned=True), (1, 2))
        self.assertEqual(self.place(spawned=True, mesh={"dp": 1}, rank=0), (0, 1))
        # srun starts one process on each node, which starts one for each GPU: all of these have its variables.
        task = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
        self.assertEqual(self.place(task), (1, 2))
        self.assertIn("all of them would read the same rows", self.refused(task, spawned=True))
        self.assertIn("nothing says which one this is", self.refused(task, spawned=True, mesh={"dp": 16}))
        self.assertEqual(self.place(task, (9, 16), spawned=True), (9, 16))


class Processes(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.uri = Path(folder.name, "ns").as_uri()
        namespace = create_namespace(self.uri, rows=4, durability="process-crash")
        with namespace.writer("w") as writer:
            for i in range(16):
                writer.write({"x": [i]})
        namespace.end_log()

    def run_script(self, text: str) -> list[str]:
        path = Path(self.folder, "script.py")
        path.write_text(text)
        env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        env |= {"PYTHONPATH": str(ROOT / "python"), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
        done = subprocess.run([sys.executable, str(path), self.uri, self.folder], env=env, capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout[-1_000:] + done.stderr[-3_000:])
        return sorted(Path(self.folder, "told").read_text().splitlines())

    SPAWN = """
import sys
import torch.distributed as dist
import torch.multiprocessing as mp
from batchweave import BatchWeaveError, StreamingDataset

def tell(text):
    with open(sys.argv[2] + "/told" if len(sys.argv) > 2 else FOLDER + "/told", "a") as file:
        file.write(text + "\\n")

def rank_main(rank, uri, folder, made):
    global FOLDER
    FOLDER = folder
    sys.argv[2:] = [folder]
    for where, make in (("made here", lambda: StreamingDataset(uri)), ("made before", lambda: made)):
        try:
            list(make())
            tell(f"{where}: read")
        except BatchWeaveError as error:
            tell(f"{where}: {error.code}")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    tell(f"rank {rank}: {[row for share in StreamingDataset(uri) for s in share.slices for row in [s.step * 4 + s.row]]}")
    try:
        list(made)
    except BatchWeaveError as error:
        tell(f"made before the group: {error.code}")

if __name__ == "__main__":
    mp.spawn(rank_main, args=(sys.argv[1], sys.argv[2], StreamingDataset(sys.argv[1])), nprocs=2)
"""

    @needs("torch")
    def test_spawned_ranks_are_told_apart_or_refused(self) -> None:
        rows = [[i for i in range(16) if i % 4 // 2 == rank] for rank in range(2)]
        expected = ["made before the group: MESH_MISMATCH", "made before: MESH_MISMATCH", "made here: MESH_MISMATCH"] * 2
        self.assertEqual(self.run_script(self.SPAWN), sorted([*expected, *(f"rank {rank}: {rows[rank]}" for rank in range(2))]))

    ACCELERATE = """
import sys
import torch.multiprocessing as mp
import os

def rank_main(rank, uri, folder):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[3]}
    from accelerate import Accelerator
    from torch.utils.data import DataLoader
    from batchweave import BatchWeaveError, StreamingDataLoader, StreamingDataset

    def tell(text):
        with open(folder + "/told", "a") as file:
            file.write(text + "\\n")

    accelerator = Accelerator(cpu=True)
    ours = accelerator.prepare(StreamingDataLoader(StreamingDataset(uri, decode="torch"), collate_fn=lambda share: {"x": share["x"]}))
    tell(f"rank {rank}: {[int(x) for batch in ours for x in batch['x'].flatten()]}")
    for workers in (0, 1):
        theirs = accelerator.prepare(DataLoader(StreamingDataset(uri, decode="torch"), batch_size=None, num_workers=workers))
        if rank == 0:
            try:
                next(iter(theirs.dataset if False else theirs))
                tell("read")
            except BaseException as error:
                tell("refused" if "use StreamingDataLoader" in str(error) or "Use StreamingDataLoader" in str(error) else repr(error))
    os._exit(0)  # the other rank waits for what this one dispatches

if __name__ == "__main__":
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        sys.argv.append(str(s.getsockname()[1]))
    context = mp.get_context("fork")
    ranks = [context.Process(target=rank_main, args=(rank, sys.argv[1], sys.argv[2])) for rank in range(2)]
    for p in ranks: p.start()
    for p in ranks: p.join()
"""

    @needs("torch", "accelerate")
    def test_under_accelerate_the_loader_is_left_alone_and_a_plain_one_refused(self) -> None:
        rows = [[i for i in range(16) if i % 4 // 2 == rank] for rank in range(2)]
        self.assertEqual(self.run_script(self.ACCELERATE), [*(f"rank {rank}: {rows[rank]}" for rank in range(2)), "refused", "refused"])

    @needs("torch")
    def test_a_loader_that_would_batch_batches_is_refused(self) -> None:
        from torch.utils.data import DataLoader

        from batchweave import StreamingDataLoader, StreamingDataset

        dataset = StreamingDataset(self.uri, {"dp": 1}, 0, decode="torch", pulse=False)
        with self.assertRaisesRegex(BatchWeaveError, "batch_size=None"):
            next(iter(DataLoader(dataset)))

        def collator(samples: Any) -> Any:
            return samples

        self.assertEqual(len(next(iter(DataLoader(dataset, batch_size=2, collate_fn=collator)))), 2, "somebody's own: meant")
        collator.__module__ = "transformers.data.data_collator"
        with self.assertRaisesRegex(BatchWeaveError, "get_train_dataloader"):
            next(iter(DataLoader(dataset, batch_size=2, collate_fn=collator)))
        with self.assertRaisesRegex(BatchWeaveError, "rows_per_rank"):
            StreamingDataLoader(dataset, batch_size=4)


if __name__ == "__main__":
    unittest.main()
