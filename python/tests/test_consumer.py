"""Property: a rank sees its projection of the log, once and in order, within its memory, however slow or late the store is; and says
clearly why it cannot go on. Method: stores in memory that are slow, damaged or growing; commands against files.
"""
from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from batchweave import BatchWeaveError, create_namespace, encode_safetensors, open_namespace
from batchweave.format.tensors import Tensor
from batchweave.namespace import Namespace
from batchweave.store.hedging import Hedger
from memory_store import MemoryStore, at

ROOT = Path(__file__).parents[2]


def filled(store: MemoryStore, batches: int = 10, size: int = 10, rows: int = 2, close: bool = True, grows: int = 0) -> Namespace:
    namespace = create_namespace("memory:test", rows=rows, store=store)
    with namespace.producer("p") as p:
        for i in range(batches):
            p.append([f"{i}.{r} ".encode() * (size + grows * r) for r in range(rows)])
    if close:
        namespace.end_log()
    return namespace


def small_log_on_files(folder: str, batches: int) -> Namespace:
    namespace = create_namespace(Path(folder, "ns").as_uri(), rows=1, durability="process-crash")
    with namespace.producer("p") as p:
        for _ in range(batches):
            p.append([b"x" * 1_000])
    namespace.end_log()
    return namespace


class Reading(unittest.TestCase):
    def code(self, call: Any) -> str:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        return caught.exception.code

    def test_a_share_is_the_trainers_to_change_also_from_a_store_whose_bytes_are_read_only(self) -> None:
        namespace = create_namespace("memory:test", rows=2, store=MemoryStore())
        with namespace.producer("p") as p:
            p.append([encode_safetensors({"ids": Tensor("I32", (1, 4), bytes(16))})] * 2)
            p.append([encode_safetensors({"ids": Tensor("I32", (1, n), bytes(4 * n))}) for n in (1, 2)])
        namespace.end_log()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns of memory that is not writable
            for kind in (name for name in ("numpy", "torch") if find_spec(name)):
                with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
                    for share in (share.finish(kind, "here") for share in consumer):
                        self.assertFalse(any(memoryview(piece.bytes).readonly for piece in share.slices))
                        for row in share.per_row("ids"):
                            row += 1
                            self.assertEqual(row.min(), 1)
                    self.assertEqual(share.per_row("ids")[0].max(), 1, "a view of the share")

    def test_ranks_together_see_every_row_once_on_any_mesh_and_after_any_change_of_it(self) -> None:
        namespace = filled(MemoryStore(), 12)
        cursor: Any = "earliest"
        seen: list[tuple[int, int]] = []
        for dp, iterations in ((2, 3), (3, 2), (5, 1), (1, 4)):
            following = set()
            for rank in range(dp):
                with namespace.consumer({"dp": dp}, rank, cursor, environment={}) as consumer:
                    for _ in range(iterations):
                        share = next(consumer)
                        seen += [(s.step, s.row) for s in share.slices]
                    following.add(json.dumps(share.next))
            self.assertEqual(len(following), 1, "the cursor is the same on every rank")
            cursor = json.loads(following.pop())
        self.assertEqual(sorted(seen), [(step, row) for step in range(11) for row in range(2)][: len(seen)])

    def test_prefetch_stays_within_its_bytes_and_one_share_is_always_allowed(self) -> None:
        store = MemoryStore()
        namespace = filled(store, 40, size=1_000)
        most = 0
        for limit in (1, 20_000):
            with namespace.consumer({"dp": 1}, 0, prefetch_bytes_max=limit, environment={}) as consumer:
                next(consumer)
                prefetch = consumer._prefetch
                assert prefetch
                for _ in range(30):
                    time.sleep(0.002)
                    most = max(most, prefetch._held_bytes)
                    self.assertLessEqual(prefetch._held_bytes, max(limit, 9_000))
                self.assertEqual(sum(1 for _ in consumer), 79)
        self.assertGreater(most, 9_000, "it does read ahead")

    def test_waits_for_a_batch_that_comes_and_fails_for_one_that_does_not(self) -> None:
        store = MemoryStore()
        namespace = filled(store, 1, close=False)
        with namespace.consumer({"dp": 2}, 0, wait_timeout=0.3, environment={}) as consumer:
            next(consumer)
            with self.assertRaises(BatchWeaveError) as caught:
                next(consumer)
            self.assertEqual(caught.exception.code, "WAIT_TIMEOUT")
            self.assertIn("step 1", caught.exception.message)
            self.assertIn("p (version", caught.exception.message)

            def write() -> None:
                time.sleep(0.1)
                with open_namespace("memory:test", store=store).producer("q") as q:
                    q.append([b"late", b"later"])

            thread = threading.Thread(target=write)
            thread.start()
            consumer._wait_timeout = 20
            self.assertEqual(bytes(next(consumer).slices[0].bytes), b"late", "a failed next can be called again")
            thread.join()

    def test_a_damaged_slice_fails_and_those_before_it_are_handed_out(self) -> None:
        store = MemoryStore()
        namespace = filled(store, 6)
        d = namespace.log.head.jump().tail.batches[4]
        from batchweave.format.keys import batch_key

        key = batch_key(d, 0)
        stored = at(namespace, key)
        store.objects[stored] = b"X" + store.objects[stored][1:]
        with namespace.consumer({"dp": 2}, 0, environment={}) as consumer:
            for _ in range(4):
                next(consumer)
            with self.assertRaises(BatchWeaveError) as caught:
                next(consumer)
        self.assertEqual(caught.exception.code, "CORRUPT")
        self.assertTrue(key.endswith(caught.exception.details["key"]), caught.exception.details)
        self.assertEqual(caught.exception.details["offset"], 0)

    def test_bytes_damaged_on_the_way_are_read_again(self) -> None:
        store = MemoryStore()
        namespace = filled(store, 3)
        original = store.get_range
        broken = []

        def get_range(key: str, start: int, length: int) -> bytes | None:
            data = original(key, start, length)
            if data and "/batch/" in key and start == 0 and len(broken) < 1:
                broken.append(key)
                return b"?" + data[1:]
            return data

        store.get_range = get_range  # type: ignore[method-assign]
        with namespace.consumer({"dp": 2}, 0, environment={}) as consumer:
            self.assertEqual(len(list(consumer)), 3)
        self.assertEqual(len(broken), 1)

    def test_missing_objects_are_told_from_reclaimed_ones(self) -> None:
        store = MemoryStore()
        namespace = filled(store, 3)
        for key in [key for key in store.objects if "/batch/" in key]:
            del store.objects[key]
        with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
            self.assertEqual(self.code(lambda: next(consumer)), "MISSING_OBJECT")
        head = namespace.log.head.jump()
        from batchweave.format.keys import manifest_key
        from batchweave.format.stored_json import seal_json

        fields = {**head.fields, "version": head.version + 1, "steps": {"trim": 3, "end": 3}}
        with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
            store.objects[at(namespace, manifest_key(head.version + 1))] = seal_json("manifest", namespace.uuid, fields)
            self.assertEqual(self.code(lambda: next(consumer)), "RECLAIMED")

    def test_a_start_past_the_end_of_a_closed_log_is_refused(self) -> None:
        namespace = filled(MemoryStore(), 3)
        open_at = lambda start: namespace.consumer({"dp": 1}, 0, environment={}, start=start)  # noqa: E731
        end = namespace.log.head.jump().end * namespace.log.spec.rows
        for start in ({"step": 4}, {"row": end + 1}):
            with self.assertRaises(BatchWeaveError) as caught:
                open_at(start)
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
            self.assertIn("will never exist", str(caught.exception))
        with open_at({"row": end}) as consumer:
            self.assertEqual(list(consumer), [])

    def test_a_checkpoint_that_is_live_is_a_place_to_start_from_by_its_id(self) -> None:
        namespace = filled(MemoryStore(), 6)
        first = next(namespace.consumer(mesh={"dp": 2}, rank=0))
        namespace.checkpoint("iter-1", first.next)
        namespace.checkpoint("other", first.next, group="b")
        self.assertEqual(namespace.consumer(mesh={"dp": 2}, rank=1, start={"checkpoint": "iter-1"}).cursor, first.next)
        self.assertEqual(namespace.consumer(mesh={"dp": 1}, rank=0, start={"checkpoint": "other"}, group="b").cursor, first.next)
        with self.assertRaises(BatchWeaveError) as caught:
            namespace.consumer(mesh={"dp": 2}, rank=0, start={"checkpoint": "other"})
        self.assertEqual(caught.exception.code, "NO_CHECKPOINT")
        self.assertIn('"other" in group "default". It has iter-1', caught.exception.message)

    def test_bad_meshes_cursors_and_states(self) -> None:
        namespace = filled(MemoryStore(), 2)
        open_it = lambda mesh=None, rank=0, **settings: namespace.consumer(mesh or {"dp": 1}, rank, environment={}, **settings)  # noqa: E731
        self.assertEqual(self.code(lambda: open_it({"dp": 1, "cp": 3})), "MESH_MISMATCH")
        self.assertEqual(self.code(lambda: open_it({"dp": 3}, policy="global-batch")), "MESH_MISMATCH")
        self.assertEqual(self.code(lambda: open_it({"dp": 2}, 5)), "MESH_MISMATCH")
        self.assertEqual(self.code(lambda: open_it({"zz": 2})), "MESH_MISMATCH")
        self.assertEqual(self.code(lambda: open_it(start={"batchweave": 2, "namespace": "x"})), "UNSUPPORTED_FORMAT")
        self.assertEqual(self.code(lambda: open_it(start='{"batchweave":1}')), "INVALID_ARGUMENT")
        other = {"batchweave": 1, "namespace": "x", "row": 0, "iteration": 0}
        self.assertEqual(self.code(lambda: open_it(start=other)), "WRONG_NAMESPACE")
        self.assertEqual(self.code(lambda: open_it(start={**other, "namespace": "\ud800"})), "WRONG_NAMESPACE")
        self.assertEqual(self.code(lambda: open_it(prefetch_bytes_max=0)), "INVALID_ARGUMENT")

    def test_a_store_that_is_quick_now_and_slow_then_never_gets_stuck(self) -> None:
        chance = random.Random(7)
        for turn in range(6):
            store = MemoryStore()
            store.is_near = turn % 2 == 0  # type: ignore[attr-defined]
            namespace = filled(store, 150, size=300)
            original, reads = store.get_range, [0]

            def get_range(key: str, start: int, length: int, original: Any = original, reads: list[int] = reads) -> bytes | None:
                reads[0] += 1
                if reads[0] // 60 % 2:  # the median of the last reads crosses the line again and again
                    time.sleep(0.002)
                return original(key, start, length)

            store.get_range = get_range  # type: ignore[method-assign]
            seen: list[int] = []

            def read(namespace: Namespace = namespace, seen: list[int] = seen) -> None:
                limits = {"prefetch_bytes_max": chance.choice((1, 5_000, 10**8)), "prefetch_iterations_max": chance.choice((1, 5, 32))}
                with namespace.consumer({"dp": 2}, 0, environment={}, **limits) as consumer:
                    for share in consumer:
                        seen.append(share.iteration)
                        if chance.random() < 0.05:
                            time.sleep(0.005)

            thread = threading.Thread(target=read, daemon=True)
            thread.start()
            thread.join(30)
            self.assertEqual((thread.is_alive(), seen), (False, list(range(150))))

    def test_a_read_that_hangs_is_sent_again_within_the_budget_and_its_share_is_made_once(self) -> None:
        for hang_at in (0, 1):  # a slice, then a slice table
            store = MemoryStore()
            namespace = filled(store, 100, size=300_000, grows=hang_at)  # slices of one length need no table
            original, hung, released = store.get_range, [], threading.Event()

            def get_range(key: str, start: int, length: int) -> bytes | None:
                time.sleep(0.002)
                if "/batch/" in key and ("-70-" in key) and not hung and (start > 0) == bool(hang_at):
                    hung.append(key)
                    released.wait(200)
                return original(key, start, length)

            store.get_range = get_range  # type: ignore[method-assign]
            made: list[int] = []
            begun = time.monotonic()
            with namespace.consumer({"dp": 2}, 0, environment={}, finish=lambda share: made.append(share.iteration)) as consumer:
                seen = [share.iteration for share in consumer]
                sent = consumer.reader.hedged_reads
                spent = time.monotonic() - begun
                released.set()
                time.sleep(0.05)
            self.assertEqual((len(hung), seen, sorted(made)), (1, list(range(100)), list(range(100))))
            self.assertLess(spent, 190, "the second read answered")
            self.assertTrue(1 <= sent <= 12, sent)

    def test_while_a_trainer_computes_files_are_read_ahead_again_and_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            namespace = small_log_on_files(folder, 200)
            with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
                for share in consumer:
                    if share.iteration < 150:
                        time.sleep(0.004)
                    if share.iteration in (60, 100, 149):
                        assert consumer._prefetch is not None
                        self.assertGreater(len(consumer._prefetch._slots), 0, "shares are in line when they are asked for")

    def test_a_trainer_that_comes_and_goes_never_gets_stuck_on_files(self) -> None:
        chance = random.Random(11)

        def finish(_: Any) -> None:
            if chance.random() < 0.1:
                time.sleep(0.0015)

        with tempfile.TemporaryDirectory() as folder:
            namespace = small_log_on_files(folder, 100)
            for _ in range(10):
                limits = {"prefetch_bytes_max": chance.choice((1, 5_000, 10**8)), "prefetch_iterations_max": chance.choice((1, 5, 32))}
                with namespace.consumer({"dp": 1}, 0, environment={}, wait_timeout=60, finish=finish, **limits) as consumer:
                    for share in consumer:
                        if chance.random() < 0.1:
                            time.sleep(chance.choice((0.0008, 0.001, 0.0012, 0.003)))
                self.assertEqual(share.iteration, 99)

    def test_second_reads_keep_to_their_budget(self) -> None:
        hedger = Hedger(floor=0.005)
        self.assertEqual(hedger.late_after(1_000), math.inf)
        for _ in range(42):
            hedger.note(1_000, 0.002)
        self.assertEqual(hedger.late_after(1_000), 0.005)
        self.assertEqual([hedger.spend() for _ in range(5)], [True, True, True, False, False])

    def test_files_are_read_as_any_other_store_is_and_damage_is_told(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            namespace = create_namespace(Path(folder, "ns").as_uri(), rows=4, chunks=4)
            with namespace.producer("p") as p:
                for step in range(70):
                    p.append([f"{step}/{cell}".encode() * (1 + (step * cell) % 7) for cell in range(16)])
            namespace.end_log()
            for mesh, layout in (({"dp": 1}, "contiguous"), ({"dp": 3}, "contiguous"), ({"dp": 4, "cp": 2}, "zigzag")):
                for rank in range(mesh["dp"] * mesh.get("cp", 1)):
                    fresh = open_namespace(namespace.uri)
                    with fresh.consumer(mesh, rank, environment={}, layout=layout) as near:
                        found = [[bytes(s.bytes) for s in share.slices] for share in near]
                    far_namespace = open_namespace(namespace.uri)
                    far_namespace.log.store.is_near = False  # type: ignore[attr-defined]
                    with far_namespace.consumer(mesh, rank, environment={}, layout=layout) as far:
                        self.assertEqual(found, [[bytes(s.bytes) for s in share.slices] for share in far])
            victim = sorted(Path(folder, "ns").rglob("*.tgb"))[20]
            data = bytearray(victim.read_bytes())
            data[0] ^= 1
            victim.write_bytes(data)
            with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
                self.assertEqual(self.code(lambda: list(consumer)), "CORRUPT")
                failed = consumer.cursor["row"]
                data[0] ^= 1
                victim.write_bytes(data)
                self.assertEqual(next(consumer).cursor["row"], failed, "restored, it goes on where it failed")
                victim.unlink()
                consumer.close()
            with namespace.consumer({"dp": 1}, 0, environment={}, start={"row": failed}) as consumer:
                self.assertEqual(self.code(lambda: next(consumer)), "MISSING_OBJECT")


class Commands(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.uri = Path(folder.name, "ns").as_uri()
        self.folder = folder.name
        namespace = create_namespace(self.uri, rows=4, chunks=2, durability="process-crash")
        with namespace.producer("p") as p:
            for i in range(70):
                p.append([f"{i}.{c}".encode() for c in range(8)])
        namespace.checkpoint("c", namespace.consumer({"dp": 1}, 0, environment={}).cursor)
        namespace.end_log()

    def python(self, *args: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        return subprocess.run([sys.executable, "-m", "batchweave", *args], capture_output=True, text=True, env=env)

    def test_prints_the_same_lines_as_the_typescript_command(self) -> None:
        command = ROOT / "dist/src/cli/main.js"
        if not command.exists():
            self.skipTest("dist/ is not built, so there is nothing to compare with")
        meshes = [
            ["--dp", "4", "--rank", "3"],
            ["--dp", "3", "--cp", "2", "--rank", "5"],
            ["--dp", "2", "--rank", "1", "--policy", "global-batch", "--from", "step:60"],
        ]
        for args in [["info"], *(["consume", *mesh, "--slices"] for mesh in meshes)]:
            call = [args[0], self.uri, *args[1:], "--json"]
            ours = self.python(*call)
            theirs = subprocess.run(["node", str(command), *call], capture_output=True, text=True)
            self.assertEqual((ours.returncode, theirs.returncode), (0, 0), theirs.stderr + ours.stderr)
            self.assertEqual((ours.stdout, ours.stderr), (theirs.stdout, theirs.stderr), args)
            self.assertGreater(len(ours.stdout), 10)
        ours = self.python("info", self.uri).stdout
        theirs = subprocess.run(["node", str(command), "info", self.uri], capture_output=True, text=True).stdout
        self.assertEqual(re.sub(r"[0-9.]+ (ms|s|min|h) ago *", "", ours), re.sub(r"[0-9.]+ (ms|s|min|h) ago *", "", theirs))
        for place in ("step:x", "nowhere", "checkpoint:none"):
            call = ["consume", self.uri, "--dp", "1", "--rank", "0", "--from", place, "--json"]
            failure = subprocess.run(["node", str(command), *call], capture_output=True, text=True).stderr.splitlines()[-1]
            self.assertEqual(json.loads(self.python(*call).stderr), json.loads(failure))
        for option in (["--dp", "0"], ["--dp", "1", "--rows-per-rank", "0"], ["--dp", "1", "--wait-timeout", "soon"]):
            call = ["consume", self.uri, "--rank", "0", *option, "--json"]
            failure = subprocess.run(["node", str(command), *call], capture_output=True, text=True).stderr
            codes = [json.loads(line)["error"]["code"] for line in (self.python(*call).stderr, failure)]
            self.assertEqual(codes, ["INVALID_ARGUMENT"] * 2, option)

    def test_checkpoints_are_registered_and_started_from(self) -> None:
        call = ["consume", self.uri, "--dp", "4", "--rank", "0", "--json"]
        whole = self.python(*call, "--checkpoint-every", "20", "--keep-last", "2").stdout.splitlines()
        self.assertEqual([c.id for c in open_namespace(self.uri).list_checkpoints()], ["iter-60", "iter-40"])
        for place, iteration in (("checkpoint", 60), ("checkpoint:iter-40", 40)):
            self.assertEqual(self.python(*call, "--from", place).stdout.splitlines(), whole[iteration:])

    def test_a_cursor_file_goes_on_where_it_stopped(self) -> None:
        file = f"{self.folder}/cursor.json"
        call = ["consume", self.uri, "--dp", "1", "--rank", "0", "--json", "--cursor-file", file]
        first = self.python(*call, "--iterations", "100").stdout
        second = self.python(*call).stdout
        whole = self.python(*call[:-2]).stdout
        self.assertEqual(first + second, whole)
        self.assertEqual(len(whole.splitlines()), 280)

    def test_a_signal_ends_it_cleanly_between_checkpoints(self) -> None:
        namespace = create_namespace(f"{self.uri}-open", rows=4, durability="process-crash")
        with namespace.producer("p") as p:
            for _ in range(3):
                p.append([b"x"] * 4)
        for number in (signal.SIGTERM, signal.SIGINT):
            file = f"{self.folder}/cursor-{int(number)}.json"
            options = ["--dp", "1", "--rank", "0", "--json", "--cursor-file", file, "--checkpoint-every", "1000"]
            env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
            # A busy disk may take longer than a command has to end.
            patient = "import runpy, batchweave.cli.stopping as stopping; stopping._GRACE_S = 240; runpy.run_module('batchweave', run_name='__main__')"
            command = [sys.executable, "-c", patient, "consume", namespace.uri, *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
            assert process.stdout is not None
            for _ in range(12):
                process.stdout.readline()
            process.send_signal(number)
            _, remarks = process.communicate(timeout=240)
            self.assertEqual((process.returncode, remarks), (128 + number, ""))
            self.assertEqual(json.loads(Path(file).read_text())["row"], 12)

    def test_failures_are_one_sentence_with_a_code_and_an_exit_status(self) -> None:
        wrong = self.python("info", "file:///nowhere/at/all")
        self.assertEqual((wrong.returncode, wrong.stderr.startswith("error[NO_NAMESPACE]: ")), (2, True), wrong.stderr)
        self.assertEqual(wrong.stderr.count("\n"), 1)
        wrong = self.python("consume", self.uri, "--dp", "2", "--json")
        self.assertEqual(wrong.returncode, 2)
        self.assertEqual(json.loads(wrong.stderr)["error"]["code"], "MESH_MISMATCH")
        self.assertEqual(self.python("consume", self.uri, "--dp", "x").returncode, 2)


if __name__ == "__main__":
    unittest.main()
