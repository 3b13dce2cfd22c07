"""Property: StreamingDataset hands out every share once and in order with any number of workers, resumes from what the loop got, and its
tensors are the stored bytes. Method: files; numpy and torch where they are installed, else those tests are skipped with the reason.
"""
from __future__ import annotations

import copy
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path
from typing import Any

from batchweave import BatchWeaveError, StreamingDataset, create_namespace, encode_safetensors
from batchweave.format.tensors import Tensor

ROOT = Path(__file__).parents[2]
HAS_NUMPY = importlib.util.find_spec("numpy") is not None
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_numpy = unittest.skipUnless(HAS_NUMPY, "numpy is not installed")
needs_torch = unittest.skipUnless(HAS_TORCH, "torch is not installed")


def token_slice(step: int, row: int, chunk: int, tokens: int = 4) -> bytes:
    values = [step * 1_000 + row * 100 + chunk * 10 + i for i in range(tokens)]
    data = b"".join(v.to_bytes(4, "little") for v in values)
    return encode_safetensors({"input_ids": Tensor("I32", (tokens,), data), "flag": Tensor("BOOL", (1,), b"\1")})


class Files(unittest.TestCase):
    batches = 30

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.uri = Path(folder.name, "ns").as_uri()
        namespace = create_namespace(self.uri, rows=4, chunks=2, durability="process-crash")
        with namespace.producer("p") as p:
            for step in range(self.batches):
                p.append([token_slice(step, row, chunk) for row in range(4) for chunk in range(2)])
        namespace.end_log()

    def dataset(self, **settings: Any) -> StreamingDataset:
        # No pulses: whoever writes them might do so while the folder is removed.
        return StreamingDataset(self.uri, **{"mesh": {"dp": 2}, "rank": 1, "rows_per_rank": 1, "pulse": False, **settings})

    def code(self, call: Any) -> str:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        return caught.exception.code


class Plain(Files):
    def test_a_copy_goes_its_own_way_and_a_forked_process_reads_for_itself_or_is_told(self) -> None:
        import pickle

        dataset = self.dataset()
        shares = iter(dataset)
        seen = [next(shares).iteration for _ in range(5)]
        for other in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
            self.assertEqual([share.iteration for share in other], list(range(5, 60)))
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:  # the threads that read ahead are in the parent only
            try:
                signal.alarm(300)
                told = self.code(lambda: next(shares))
                again = [share.iteration for share in dataset]
                os.write(writer, json.dumps([told, again]).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            found = pipe.read()
        os.waitpid(pid, 0)
        self.assertEqual(json.loads(found or "null"), ["INVALID_ARGUMENT", list(range(5, 60))])
        self.assertEqual(seen + [share.iteration for share in shares], list(range(60)))

    def test_iterates_stops_and_resumes_from_json_on_another_mesh(self) -> None:
        dataset = self.dataset()
        seen = []
        for share in dataset:
            seen.append((share.iteration, share.slices[0].step, share.slices[0].row))
            if share.iteration == 9:
                break
        state = json.loads(json.dumps(dataset.state_dict()))
        self.assertEqual((state["row"], state["iteration"]), (20, 10))
        rest = [share.iteration for share in dataset]
        self.assertEqual(rest, list(range(10, 60)), "another loop goes on")
        self.assertEqual([share.iteration for share in dataset], list(range(60, 120)))  # the next epoch
        wider = self.dataset(mesh={"dp": 4}, rank=0)
        wider.load_state_dict(state)
        first = next(iter(wider))
        self.assertEqual((first.iteration, first.cursor["row"], first.slices[0].step), (10, 20, 5))

    def test_checkpoints_keep_the_last_and_every_rank_may_register(self) -> None:
        dataset = self.dataset()
        for share in dataset:
            if share.iteration in (3, 5, 7):
                dataset.checkpoint(f"iter-{share.iteration}", keep_last=2)
                dataset.checkpoint(f"iter-{share.iteration}", keep_last=2)
        self.assertEqual([c.id for c in dataset.list_checkpoints()], ["iter-7", "iter-5"])
        dataset.release("iter-5")
        self.assertEqual([(c.id, c.row, c.iteration) for c in dataset.list_checkpoints()], [("iter-7", 16, 8)])

    def test_states_of_other_versions_and_namespaces_are_refused(self) -> None:
        dataset = self.dataset()
        state = dataset.state_dict()
        self.assertEqual(self.code(lambda: dataset.load_state_dict({**state, "batchweave": 2})), "UNSUPPORTED_FORMAT")
        self.assertEqual(self.code(lambda: dataset.load_state_dict({"epoch": 3})), "INVALID_ARGUMENT")
        self.assertEqual(self.code(lambda: dataset.load_state_dict(None)), "INVALID_ARGUMENT")  # type: ignore[arg-type]
        dataset.load_state_dict({"batchweave": 1, "namespace": "another", "row": 0, "iteration": 0})
        self.assertEqual(self.code(lambda: next(iter(dataset))), "WRONG_NAMESPACE")
        self.assertEqual(self.code(lambda: self.dataset(decode="pickle")), "INVALID_ARGUMENT")
        self.assertEqual(self.code(lambda: self.dataset(broadcast=("dp",))), "INVALID_ARGUMENT")
        with self.assertRaisesRegex(BatchWeaveError, "did you mean 'prefetch_bytes_max'"):
            self.dataset(prefetch_bytes=5)
        if not HAS_TORCH:
            self.assertEqual(self.code(lambda: self.dataset(decode="torch")), "MISSING_PACKAGE")

    def test_a_decode_hook_gets_the_bytes(self) -> None:
        share = next(iter(self.dataset(decode=lambda data: len(data))))
        self.assertEqual(share.data, [len(token_slice(0, 1, c)) for c in range(2)])
        share = next(iter(self.dataset(decode=lambda data: {"anything": object()})))
        self.assertEqual([list(d) for d in share.data or []], [["anything"]] * 2, "not stacked unless asked")

    def test_nothing_uses_pickle(self) -> None:
        for path in (ROOT / "python" / "batchweave").glob("*.py"):
            text = path.read_text()
            self.assertNotIn("import pickle", text, path)
            self.assertNotIn("all_gather_object", text, path)

    @needs_numpy
    def test_numpy_tensors_are_views_of_the_slice(self) -> None:
        import numpy

        share = next(iter(self.dataset(decode="numpy", rows_per_rank=2)))
        self.assertEqual(share["input_ids"].tolist(), [[200, 201, 202, 203, 210, 211, 212, 213], [300, 301, 302, 303, 310, 311, 312, 313]])
        self.assertEqual(share["flag"].dtype, numpy.dtype("bool"))
        whole = numpy.frombuffer(share.slices[0].bytes, dtype="u1")
        self.assertTrue(numpy.shares_memory(share.data[0]["input_ids"], whole), "without copying")
        back = encode_safetensors({"x": numpy.arange(3, dtype="i8"), "y": numpy.ones((2, 2), "f4")})
        self.assertEqual(back, encode_safetensors({"x": Tensor("I64", (3,), numpy.arange(3).astype("<i8").tobytes()), "y": Tensor("F32", (2, 2), numpy.ones(4, "<f4").tobytes())}))


    def test_a_transform_runs_ahead_and_the_state_is_that_of_what_the_loop_got(self) -> None:
        threads = set()

        def transform(share: Any) -> tuple[int, int]:
            threads.add(threading.current_thread().name)
            return share.iteration, len(share.slices)

        dataset = self.dataset(transform=transform)
        seen = []
        for value in dataset:
            seen.append(value)
            time.sleep(0.002)
            self.assertEqual(dataset.state_dict()["iteration"], len(seen))
        self.assertEqual(seen, [(i, 2) for i in range(60)])
        self.assertNotEqual(threads, {threading.current_thread().name}, "it runs on the threads that read ahead")

    def test_what_cannot_be_decoded_fails_in_its_turn_and_can_be_tried_again(self) -> None:
        fail = [True]

        def decode(data: Any) -> bytes:
            if fail[0] and b"input_ids" in bytes(data) and data[-17:-13] == (5_200).to_bytes(4, "little"):
                raise ValueError("broken row")
            return bytes(data)

        dataset = self.dataset(decode=decode, policy="global-batch")
        seen = []
        with self.assertRaisesRegex(ValueError, "broken row"):
            for share in dataset:
                seen.append(share.iteration)
        fail[0] = False
        seen += [share.iteration for share in dataset]
        self.assertEqual(seen, list(range(30)))

    @needs_numpy
    def test_stacked_in_one_go_as_row_by_row(self) -> None:
        from batchweave.consumer.reader import Slice, Slices
        from batchweave.consumer.share import Share

        kinds = ["numpy", "torch"] if HAS_TORCH else ["numpy"]
        shapes: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
            ((6,), 1, {}), ((6,), 2, {}), ((1, 6), 2, {}), ((), 1, {}), ((0, 4), 1, {}), ((3, 2, 4), 1, {}),
            ((2, 3), 2, {"chunks": 1, "rows": 0}), ((3, 2, 4), 2, {"chunks": 2, "rows": "stack"}), ((3, 2, 4), 2, {"chunks": 0, "rows": 1}),
            ((3, 2, 4), 2, {"chunks": 1, "rows": 0, "fold": True}), ((6,), 1, {"chunks": 0, "rows": 0, "optional": True}),
        ]
        for kind in kinds:
            for shape, chunks, join in shapes:
                elements = 1
                for n in shape:
                    elements *= n
                rows = [
                    encode_safetensors(
                        {"x": Tensor("I32", shape, os.urandom(4 * elements)), "m": Tensor("U8", (3,), b"abc")}, joins={"x": join} if join else None
                    )
                    for _ in range(4 * chunks)
                ]
                slices = Slices(Slice(0, i // chunks, i % chunks, row) for i, row in enumerate(rows))
                single = Share(0, slices, 4, "", 0, 4).finish(kind, "a test")
                joined = Slices(slices)
                joined.joined = memoryview(bytearray(b"".join(rows)))
                at_once = Share(0, joined, 4, "", 0, 4).finish(kind, "a test")
                restored = copy.deepcopy(at_once)  # as from a worker process
                self.assertEqual([d["x"].tolist() for d in restored.data or ()], [d["x"].tolist() for d in single.data or ()])
                for name in ("x", "m"):
                    self.assertEqual(at_once[name].shape, single[name].shape, (kind, shape, chunks))
                    self.assertEqual(at_once[name].tolist(), single[name].tolist(), (kind, shape, chunks))
                self.assertEqual(len(at_once.data or []), 4 * chunks, "still to be had row by row")

    @needs_numpy
    def test_a_stacked_share_travels_once(self) -> None:
        from batchweave.consumer.reader import Slice, Slices
        from batchweave.consumer.share import Share

        for shape, chunks in (((10_000,), 1), ((10_000,), 2), ((2, 5_000), 2), ((1, 10_000), 1)):
            joins = {"x": {"chunks": len(shape) - 1, "rows": 0}}
            rows = [encode_safetensors({"x": Tensor("I32", shape, os.urandom(40_000))}, joins=joins) for _ in range(4 * chunks)]
            slices = Slices(Slice(0, i // chunks, i % chunks, memoryview(row)) for i, row in enumerate(rows))
            joined = Slices(slices)
            joined.joined = memoryview(b"".join(rows))
            for kind, made_of in (("row by row", slices), ("in one go", joined)):
                with self.subTest(kind, shape=shape, chunks=chunks):
                    share = Share(0, made_of, 4, "", 0, 4).finish("numpy", "a test")
                    pickled = pickle.dumps(share)
                    self.assertLess(len(pickled), 1.02 * share.nbytes, "its tensors, and not what they were made of")
                    again = pickle.loads(pickle.dumps(pickle.loads(pickled)))
                    for restored in (pickle.loads(pickled), again):
                        self.assertEqual(restored["x"].tolist(), share["x"].tolist())
                        self.assertEqual([d["x"].tolist() for d in restored.data], [d["x"].tolist() for d in share.data or ()])
                        self.assertEqual([d["x"].shape for d in restored.data], [shape] * len(rows))
                        self.assertEqual(restored.nbytes, share.nbytes)
                    (share.data or [])[0]["x"] = "changed"
                    self.assertEqual(pickle.loads(pickle.dumps(share)).data[0]["x"], "changed")

    @needs_numpy
    def test_rows_of_different_shapes_that_stack_travel_too(self) -> None:
        from batchweave.consumer.reader import Slice, Slices
        from batchweave.consumer.share import Share

        joins = {"x": {"chunks": 1, "rows": 0}}
        rows = [encode_safetensors({"x": Tensor("U8", (2, n), bytes(2 * n))}, joins=joins) for n in (3, 5)]
        share = Share(0, Slices(Slice(0, 0, i, row) for i, row in enumerate(rows)), 1, "", 0, 1).finish("numpy", "a test")
        restored = pickle.loads(pickle.dumps(share))
        self.assertEqual((restored["x"].shape, [d["x"].shape for d in restored.data]), ((2, 8), [(2, 3), (2, 5)]))


@needs_torch
class Torch(Files):
    def ids(self, loader: Any, stop: int | None = None) -> list[tuple[int, int]]:
        out = []
        for share in loader:
            out.append((share.iteration, int(share["input_ids"][0, 0])))
            if stop is not None and share.iteration == stop:
                break
        return out

    def setUp(self) -> None:
        super().setUp()
        warnings.simplefilter("ignore")

    def test_any_number_of_workers_repeats_and_loses_nothing(self) -> None:
        from torch.utils.data import DataLoader

        plain = self.ids(self.dataset(decode="torch"))
        self.assertEqual(len(plain), 60)
        for workers in (0, 1, 3):
            dataset = self.dataset(decode="torch")
            self.assertEqual(self.ids(DataLoader(dataset, batch_size=None, num_workers=workers)), plain, workers)
            if workers:
                self.assertEqual(self.code(dataset.state_dict), "INVALID_ARGUMENT", "never a wrong state")

    def test_the_loader_saves_what_the_loop_got_not_what_workers_read(self) -> None:
        from batchweave import StreamingDataLoader

        plain = self.ids(self.dataset(decode="torch"))
        for workers in (0, 2):
            loader = StreamingDataLoader(self.dataset(decode="torch"), num_workers=workers)
            seen = self.ids(loader, stop=6)
            self.assertEqual(loader.state_dict()["iteration"], 7)
            first = loader.stats()
            seen += self.ids(loader, stop=11)
            self.assertTrue(0 < first["read_bytes"] < loader.stats()["read_bytes"] and loader.stats()["waited_s"] > 0, "what was read, over all passes")
            other = StreamingDataLoader(self.dataset(decode="torch"), num_workers=3 - workers)
            other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            self.assertEqual(seen + self.ids(other), plain)

    def test_bytes_travel_from_workers_forked_or_spawned(self) -> None:
        from batchweave import StreamingDataLoader
        from torch.utils.data import DataLoader

        def contents(shares: Any) -> list[Any]:
            return [(s.iteration, [bytes(d) for d in s.data], [bytes(piece.bytes) for piece in s.slices]) for s in shares]

        plain = contents(self.dataset())
        for context in ("fork", "spawn"):
            settings: Any = {"num_workers": 2, "multiprocessing_context": context}
            self.assertEqual(contents(StreamingDataLoader(self.dataset(), **settings)), plain, context)
            self.assertEqual(contents(DataLoader(self.dataset(), batch_size=None, **settings)), plain, context)
        cut = next(iter(StreamingDataLoader(self.dataset(decode=lambda data: data[:3]), num_workers=1)))
        self.assertEqual((type(cut.data[0]), len(cut.data[0])), (bytes, 3))

    def test_errors_of_workers_keep_their_code(self) -> None:
        from batchweave import StreamingDataLoader

        loader = StreamingDataLoader(self.dataset(decode="torch", layout="zigzag", mesh={"dp": 1, "cp": 2}), num_workers=1)
        self.assertEqual(self.code(lambda: list(loader)), "MESH_MISMATCH")
        self.assertEqual(self.code(lambda: StreamingDataLoader(self.dataset(), batch_size=4)), "INVALID_ARGUMENT")

    def test_torch_tensors_are_views_and_bfloat16_survives(self) -> None:
        import torch

        share = next(iter(self.dataset(decode="torch")))
        self.assertEqual(share["input_ids"].tolist(), [[100, 101, 102, 103, 110, 111, 112, 113]])
        from batchweave import decode_safetensors
        from batchweave.format.tensors import to_torch

        given = {"w": torch.randn(3, 2).bfloat16(), "e": torch.empty(0, 4)}
        tensors, _ = decode_safetensors(encode_safetensors(given))
        self.assertTrue(torch.equal(to_torch(tensors["w"]), given["w"]))
        self.assertEqual(tuple(to_torch(tensors["e"]).shape), (0, 4))

    def test_a_device_mesh_says_where_a_rank_sits_and_one_rank_reads_for_its_peers(self) -> None:
        script = ROOT / "python" / "tests" / "broadcast_worker.py"
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "MASTER_ADDR": "127.0.0.1"}
        for variable in ("RANK", "WORLD_SIZE"):
            env.pop(variable, None)
        # Slices so large that it does not matter how often a rank's threads read one slice table.
        namespace = create_namespace(f"{self.uri}-large", rows=2, durability="process-crash")
        with namespace.producer("p") as p:
            for i in range(30):
                p.append([encode_safetensors({"input_ids": Tensor("I32", (1, 4096), bytes([i]) * 4 * 4096)})] * 2)
        namespace.end_log()
        done = subprocess.run([sys.executable, str(script), namespace.uri], capture_output=True, text=True, env=env, timeout=900)
        self.assertEqual(done.returncode, 0, done.stderr[-2_000:])
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(result["same"], True)
        self.assertAlmostEqual(result["alone"] / result["broadcast"], 4, delta=0.05, msg=str(result))


if __name__ == "__main__":
    unittest.main()
