"""Property: a writer puts every sample of its stream into the log once, in order, however often it is run, killed or run again; what does not fill a batch is
padded or left out, and that is said. Each source goes on where the log ends. Method: files; a process that is killed at every batch; the formats made by
their own packages where these are installed, else by hand or skipped with the reason.
"""
from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from typing import Any

from batchweave import BatchWeaveError, Namespace, RowWriter, create_namespace, decode_safetensors
from batchweave.format.batch import decode_metadata, decode_trailer
from batchweave.format.padding import is_padding
from batchweave.writer.packing import Packer, tokens_of

ROOT = Path(__file__).parents[2]
HAS_NUMPY = importlib.util.find_spec("numpy") is not None


def needs(name: str) -> Any:
    return unittest.skipUnless(importlib.util.find_spec(name) is not None, f"{name} is not installed")


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def namespace(self, name: str = "ns", rows: int = 4, chunks: int = 1) -> Namespace:
        return create_namespace(Path(self.path(name)).as_uri(), rows=rows, chunks=chunks, durability="process-crash")

    def slices(self, namespace: Namespace) -> list[bytes]:
        """All slices of the log, in order; it is closed for that."""
        namespace.end_log()
        with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
            return [bytes(s.bytes) for share in consumer for s in share.slices]

    def rows(self, namespace: Namespace) -> list[dict[str, Any]]:
        """Tensors as lists, of rows that are not padding."""
        found = []
        for data in self.slices(namespace):
            tensors, texts = decode_safetensors(data)
            if not is_padding(data, texts):
                found.append({name: list(memoryview(t.data).cast({"I64": "q", "F32": "f", "U8": "B", "BOOL": "B"}[t.dtype])) for name, t in tensors.items()})
        return found

    def refused(self, call: Any, code: str = "INVALID_ARGUMENT") -> str:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        return caught.exception.message


class Streams(Folder):
    def write(self, count: int, namespace: Namespace | None = None, **settings: Any) -> RowWriter:
        with (namespace or self.namespace()).writer("tok", **settings) as writer:
            for i in range(count):
                writer.write({"x": [i, i + 1], "y": i / 2, "ok": True})
        return writer

    def test_running_it_again_writes_nothing_and_says_so(self) -> None:
        self.assertEqual(self.write(10).written[:5], (10, 10, 3, 0, 2))
        with self.assertLogs("batchweave.write", "WARNING") as logs:
            self.assertEqual(self.write(10).written[:5], (0, 0, 0, 10, 0))
        self.assertIn("all 10 samples are in", logs.output[0])
        self.namespace().end_log()
        with self.assertLogs("batchweave.write", "WARNING"):
            self.assertEqual(self.write(10).written.samples, 0)
        self.assertIn("is closed, and sample 11", self.refused(lambda: self.write(11), "CLOSED"))
        self.assertEqual([row["x"] for row in self.rows(self.namespace())], [[i, i + 1] for i in range(10)])

    def test_a_longer_stream_goes_on_and_another_stream_is_refused(self) -> None:
        self.write(6)
        self.write(9)
        self.assertEqual([row["y"] for row in self.rows(self.namespace())], [[i / 2] for i in range(9)])
        other = self.namespace("other")
        self.write(6, other)

        def differs() -> None:
            with other.writer("tok") as writer:
                for i in range(9):
                    writer.write({"x": [i, i], "y": 0.0, "ok": True})

        self.assertIn("are not those that it wrote", self.refused(differs))
        with self.assertNoLogs("batchweave.write", "WARNING"):
            self.assertIn("was given 3 samples, and wrote 6", self.refused(lambda: self.write(3, other)))

    def test_after_a_refusal_nothing_is_called_done_and_nothing_follows_other_samples(self) -> None:
        self.write(6)
        with self.assertNoLogs("batchweave.write", "WARNING"):
            with self.namespace().writer("tok") as writer:
                for i in range(6):
                    row = {"x": [i, i], "y": 0.0, "ok": True}
                    if i < 5:
                        writer.write(row)
                    else:
                        self.assertIn("are not those", self.refused(lambda row=row: writer.write(row)))
                self.assertIn("are not those", self.refused(lambda: writer.write({"x": [7, 7], "y": 0.0, "ok": True})))
            self.namespace().end_log()
            with self.namespace().writer("tok") as writer:
                for i in range(6):
                    writer.write({"x": [i, i + 1], "y": i / 2, "ok": True})
                self.refused(lambda: writer.write({"x": [6, 7], "y": 3.0, "ok": True}), "CLOSED")
        self.assertEqual(len(self.rows(self.namespace())), 6)

    def test_a_source_that_is_shorter_than_what_was_taken_is_refused(self) -> None:
        with self.namespace().writer("tok") as writer:
            writer.write_all([{"x": [i]} for i in range(5)])
            writer.write_all([{"x": [i]} for i in range(5, 8)])
        self.assertIn("there are 2 samples, and this writer has taken 3", self.refused(lambda: self.sources([5], [2])))
        self.assertIn("was given 1 of its sources, and wrote from 2", self.refused(lambda: self.sources([5])))
        self.sources([5], [3])
        self.assertEqual(len(self.rows(self.namespace())), 8)

    def test_of_packed_documents_a_part_in_the_log_must_be_followed_by_the_rest(self) -> None:
        documents = [[1, 2, 3], [4, 5, 6, 7, 8, 9], [10]]

        def write(documents: list[list[int]], way: str) -> None:
            with self.namespace(rows=1).writer(way, pack=4, tail="drop") as writer:
                if way == "sources":
                    writer.write_all(documents)
                else:
                    for document in documents:
                        writer.write(document)

        for way in ("sources", "singly"):
            write(documents[:2], way)
            self.assertIn("wrote these and a part of the next", self.refused(lambda: write(documents[:1], way)))
            self.assertIn("A document of 1 tokens comes where one stood of which 5", self.refused(lambda: write([documents[0], [4]], way)))
            write(documents, way)

    def sources(self, *counts: list[int]) -> None:
        with self.namespace().writer("tok") as writer:
            for (count,) in counts:
                writer.write_all({"x": [i]} for i in range(count))

    def test_the_tail_is_padded_or_dropped_and_both_are_said(self) -> None:
        with self.assertLogs("batchweave.write", "WARNING") as logs:
            writer = self.write(6, tail="drop")
        self.assertIn("left out the last 2 rows", logs.output[0])
        self.assertEqual((writer.written.rows, writer.written.dropped_rows), (4, 2))
        with self.assertLogs("batchweave.write", "WARNING"):
            self.write(6, tail="drop")
        self.assertEqual(len(self.slices(self.namespace())), 4)
        padded = self.namespace("padded")
        with padded.writer("tok", fill={"y": 7}) as writer:
            for i in range(5):
                writer.write({"labels": [i], "y": 1.0})
        slices = [decode_safetensors(data) for data in self.slices(padded)]
        self.assertEqual([is_padding(b"x", texts) for _, texts in slices], [False] * 5 + [True] * 3)
        self.assertEqual([list(memoryview(t["labels"].data).cast("q")) for t, _ in slices[4:6]], [[4], [-100]])
        self.assertEqual(list(memoryview(slices[5][0]["y"].data).cast("f")), [7.0])

    def test_batches_have_the_type_that_preview_understands(self) -> None:
        namespace = self.namespace(rows=1)
        with namespace.writer("tensors") as writer:
            writer.write({"x": [1]})
        with namespace.writer("bytes") as writer:
            writer.write(b"plain")
        kinds = []
        for path in sorted(Path(self.folder).rglob("*")):
            if path.is_file() and "batch" in path.relative_to(self.folder).parts and path.stat().st_size > 80:
                data = path.read_bytes()
                trailer = decode_trailer(data[-80:], "it", namespace.uuid)
                block = data[trailer.metadata_offset : trailer.metadata_offset + trailer.metadata_length]
                kinds.append(decode_metadata(block, "it", trailer)["contentType"])
        self.assertEqual(sorted(kinds), ["application/octet-stream", "application/vnd.safetensors"])

    def test_an_exception_writes_no_tail_and_positions_go_on_by_hand(self) -> None:
        namespace = self.namespace()

        def run(fail_at: int) -> None:
            with namespace.writer("tok") as writer:
                for i in range(0 if writer.position is None else writer.position["next"], 10):
                    if i == fail_at:
                        raise KeyboardInterrupt
                    writer.write({"x": [i]}, position={"next": i + 1})
                    if i % 4 == 3:
                        writer.flush()

        for fail_at in (6, 9):
            with self.assertRaises(KeyboardInterrupt):
                run(fail_at)
        self.assertIn("in one way", self.refused(lambda: namespace.writer("tok").write({"x": [0]})))
        run(99)
        self.assertEqual([row["x"] for row in self.rows(namespace)], [[i] for i in range(10)])

    def test_chunks_divide_rows_and_numbers_are_in_each(self) -> None:
        namespace = self.namespace(rows=2, chunks=2)
        with namespace.writer("tok") as writer:
            writer.write({"x": [1, 2, 3, 4], "id": 7})
            writer.write([{"x": [5]}, {"x": [6]}])
            message = self.refused(lambda: writer.write({"x": [1, 2, 3]}))
        self.assertIn("cannot be divided into 2 chunks", message)
        self.assertEqual([row["x"] for row in self.rows(namespace)], [[1, 2], [3, 4], [5], [6]])

    def test_what_cannot_be_stored_says_what_can(self) -> None:
        with self.namespace().writer("tok") as writer:
            for row, word in (
                ([1, 2], "Give its values names"), ({"a": object()}, "Field a is object"), ({"a": [[1], [2, 3]]}, "unequal lengths"), ({"a": ["b"]}, "holds str"),
            ):
                self.assertIn(word, self.refused(lambda row=row: writer.write(row)))
        self.assertIn('"pad"', self.refused(lambda: self.namespace().writer("tok", tail="keep")))

    def test_the_id_of_a_plain_producer_is_refused(self) -> None:
        with self.namespace().producer("p") as producer:
            producer.append([b"a", b"b", b"c", b"d"], resume_point=1)
        self.assertIn("not by writer()", self.refused(lambda: self.namespace().writer("p")))

    def test_killed_at_any_moment_it_loses_and_repeats_nothing(self) -> None:
        script = """
import os, signal, sys
from batchweave import create_namespace
namespace = create_namespace(sys.argv[1], rows=4, durability="process-crash")
die_at = int(sys.argv[2])
with namespace.writer("tok", pack=5, eos=0) as writer:
    for i in range(30):
        if i == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if writer.write([i + 1] * (i % 7)) and i % 5 == 4:
            writer.flush()
"""
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        uri = self.namespace().uri
        for die_at in (6, 13, 14, 22, 99):
            done = subprocess.run([sys.executable, "-c", script, uri, str(die_at)], env=env, capture_output=True, text=True, timeout=240)
            self.assertEqual(done.returncode, -signal.SIGKILL if die_at < 99 else 0, done.stderr)
        stream = [t for i in range(30) for t in [i + 1] * (i % 7) + [0]]
        found = [t for row in self.rows(self.namespace()) for t in row["input_ids"]]
        self.assertEqual(found, stream + [0] * (-len(stream) % 5))


class Packing(unittest.TestCase):
    def test_every_token_is_in_one_row_with_its_label_and_any_place_goes_on_alike(self) -> None:
        documents = [[10 * i + j for j in range(i % 6)] for i in range(1, 20)]

        def pack(skip_documents: int, out: int) -> list[tuple[dict[str, Any], tuple[int, int]]]:
            packer: Packer[int] = Packer(4, None, out)
            return [row for i in range(skip_documents, len(documents)) for row in packer.add(tokens_of(documents[i]), i, i + 1)]

        whole = pack(0, 0)
        tokens = [t for document in documents for t in document]
        self.assertEqual([t for row, _ in whole for t in row["input_ids"]], tokens[: len(whole) * 4])
        labels = [t for document in documents for t in [*document[1:], -100] if document]
        self.assertEqual([t for row, _ in whole for t in row["labels"]], labels[: len(whole) * 4])
        for at, (_, (document, out)) in enumerate(whole):
            self.assertEqual(pack(document, out), whole[at + 1 :])


class Sources(Folder):
    def interrupted(self, write: Any, expected: list[Any], field: str = "x") -> None:
        """Runs a source three times; the first two break off after some samples."""
        namespace = self.namespace()
        for stop_at in (5, 11, 99):
            seen = 0

            def stop(sample: Any) -> Any:
                nonlocal seen
                seen += 1
                if seen == stop_at:
                    raise KeyboardInterrupt
                return sample

            try:
                with namespace.writer("tok") as writer:
                    write(writer, stop)
            except KeyboardInterrupt:
                pass
        with self.assertLogs("batchweave.write", "WARNING") as logs, namespace.writer("tok") as writer:
            self.assertEqual(write(writer, lambda sample: sample), 0)
        self.assertIn("already", logs.output[0])
        self.assertEqual([row[field] for row in self.rows(namespace)], expected)

    def test_json_lines_of_several_files_and_of_gzip(self) -> None:
        for name, first, count in (("a.jsonl", 0, 7), ("b.jsonl", 7, 9)):
            Path(self.path(name)).write_text("".join(f'{{"x": [{i}]}}\n\n' for i in range(first, first + count)))
        with gzip.open(self.path("c.jsonl.gz"), "wt") as file:
            file.write("".join(f'{{"x": [{i}]}}\n' for i in range(16, 22)))
        paths = [self.path("?.jsonl"), self.path("c.jsonl.gz")]
        self.interrupted(lambda writer, stop: writer.from_jsonl(paths, map=stop), [[i] for i in range(22)])

    def test_a_byte_order_mark_before_the_first_line_is_passed_over(self) -> None:
        text = "\ufeff\n" + '{"x": [0]}\n{"x": [1]}\n'
        Path(self.path("a.jsonl")).write_text(text)
        Path(self.path("b.jsonl")).write_text("\ufeff" + '{"x": [2]}\n{"x": [3]}\n')
        with gzip.open(self.path("c.jsonl.gz"), "wt") as file:
            file.write(text)
        paths = [self.path("?.jsonl"), self.path("c.jsonl.gz")]
        self.interrupted(lambda writer, stop: writer.from_jsonl(paths, map=stop), [[0], [1], [2], [3], [0], [1]])

    def test_changed_files_and_lines_that_are_no_json_are_refused(self) -> None:
        path = Path(self.path("a.jsonl"))
        path.write_text('{"x": [1]}\n' * 4)
        with self.namespace().writer("tok") as writer:
            writer.from_jsonl(str(path))
        path.write_text('{"x": [1]}\n' * 5)
        self.assertIn("The files changed", self.refused(lambda: self.namespace().writer("tok").from_jsonl(path)))
        path.write_text('{"x": [1]}\nnone\n')
        self.assertIn("at byte 11 a line that is not JSON", self.refused(lambda: self.namespace("two").writer("tok").from_jsonl(path)))
        self.assertIn("There is no file", self.refused(lambda: self.namespace("two").writer("tok").from_jsonl(self.path("none*"))))

    def test_several_sources_one_after_another_and_another_kind_is_refused(self) -> None:
        for _ in range(2):
            with self.namespace().writer("tok") as writer:
                writer.write_all([{"x": [i]} for i in range(6)])
                writer.write_all(({"x": [i]} for i in range(6, 13)))
        self.assertIn("read Counted before", self.refused(lambda: self.other_kind()))
        self.assertEqual([row["x"] for row in self.rows(self.namespace())], [[i] for i in range(13)])

    def other_kind(self) -> None:
        Path(self.path("a.jsonl")).write_text("{}\n")
        writer = self.namespace().writer("tok")
        writer.write_all([])
        writer.from_jsonl(self.path("a.jsonl"))

    def test_an_iterable_with_a_state_goes_on_from_it(self) -> None:
        class Numbers:
            def __init__(self) -> None:
                self.at = 0
                self.read: list[int] = []

            def __iter__(self) -> Any:
                while self.at < 22:
                    self.at += 1
                    self.read.append(self.at)
                    yield {"x": [self.at]}

            def state_dict(self) -> dict[str, int]:
                return {"at": self.at}

            def load_state_dict(self, state: dict[str, int]) -> None:
                self.at = state["at"]

        self.interrupted(lambda writer, stop: writer.write_all(Numbers(), map=stop), [[i] for i in range(1, 23)])
        with self.namespace("other").writer("tok") as writer:
            writer.write_all({"x": [i]} for i in range(3))

    def test_tar_shards_as_webdataset_lays_them_out(self) -> None:
        for shard in range(2):
            with tarfile.open(self.path(f"shard-{shard:03}.tar"), "w") as archive:
                for i in range(11 * shard, 11 * shard + 11):
                    for extension, data in (("cls", f"{i}".encode()), ("jpg", b"\xff" * (600 + i))):
                        member = tarfile.TarInfo(f"train/{i:05}.{extension}")
                        member.size = len(data)
                        archive.addfile(member, io.BytesIO(data))
        pattern = self.path("shard-{000..001}.tar")
        self.interrupted(lambda writer, stop: writer.from_webdataset(pattern, map=stop), [[i] for i in range(22)], "cls")

    @needs("pyarrow")
    def test_parquet_rows_in_groups(self) -> None:
        import pyarrow
        from pyarrow import parquet

        for name, first, count in (("a.parquet", 0, 10), ("b.parquet", 10, 12)):
            table = pyarrow.table({"x": [[i, i] for i in range(first, first + count)], "name": [f"row {i}" for i in range(first, first + count)]})
            parquet.write_table(table, self.path(name), row_group_size=4)
        self.interrupted(lambda writer, stop: writer.from_parquet(self.path("*.parquet"), columns=["x"], map=stop), [[i, i] for i in range(22)])

    @needs("datasets")
    def test_hugging_face_map_style_and_iterable(self) -> None:
        import datasets

        whole = datasets.Dataset.from_dict({"x": [[i] for i in range(22)]})
        self.interrupted(lambda writer, stop: writer.from_hf(whole, map=stop), [[i] for i in range(22)])
        with self.namespace("streamed").writer("tok") as writer:
            writer.from_hf(whole.to_iterable_dataset())
        self.assertEqual(len(self.rows(self.namespace("streamed"))), 22)

    def mds(self, folder: str, compression: str | None) -> None:
        """Shards as MDSWriter lays them out; test_mds_as_its_own_writer_makes_it compares."""
        os.makedirs(folder)
        shards = []
        for number in range(2):
            samples = []
            for i in range(11 * number, 11 * number + 11):
                text = f"row {i}".encode()
                array = bytes([65, (1 << 2) | 0, 2]) + i.to_bytes(8, "little") * 2  # int64, one axis of 2
                samples.append(len(array).to_bytes(4, "little") + len(text).to_bytes(4, "little") + array + i.to_bytes(8, "little") + text)
            head = 4 + 4 * (len(samples) + 1)
            ends = [head]
            for sample in samples:
                ends.append(ends[-1] + len(sample))
            data = len(samples).to_bytes(4, "little") + b"".join(end.to_bytes(4, "little") for end in ends) + b"".join(samples)
            name = f"shard.{number:05}.mds"
            Path(folder, name + (".gz" if compression else "")).write_bytes(gzip.compress(data) if compression else data)
            shards.append({
                "column_encodings": ["ndarray", "int", "str"], "column_names": ["x", "n", "text"], "column_sizes": [None, 8, None], "compression": compression,
                "format": "mds", "samples": len(samples), "version": 2, "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "zip_data": {"basename": name + ".gz", "bytes": 1, "hashes": {}} if compression else None,
            })
        Path(folder, "index.json").write_text(json.dumps({"shards": shards, "version": 2}))

    def test_mds_shards_plain_and_compressed(self) -> None:
        self.mds(self.path("mds"), None)
        self.interrupted(lambda writer, stop: writer.from_mds(self.path("mds"), map=stop), [[i, i] for i in range(22)])
        self.mds(self.path("packed"), "gz")
        with self.namespace("packed-ns").writer("tok") as writer:
            writer.from_mds(self.path("packed"))
        self.assertEqual(bytes(self.rows(self.namespace("packed-ns"))[21]["text"]), b"row 21")

    @needs("streaming")
    def test_mds_as_its_own_writer_makes_it(self) -> None:
        import numpy
        from streaming import MDSWriter

        columns = {"x": "ndarray", "fixed": "ndarray:int32:2", "n": "int", "text": "str", "f": "float32", "j": "json"}
        with MDSWriter(out=self.path("mds"), columns=columns, compression="zstd", size_limit=2_000) as out:
            for i in range(22):
                out.write({
                    "x": numpy.array([i, i], numpy.int64), "fixed": numpy.array([i, 0], numpy.int32), "n": i, "text": f"row {i}", "f": numpy.float32(i), "j": [i],
                })
        with self.namespace().writer("tok") as writer:
            writer.from_mds(self.path("mds"), map=lambda sample: {name: sample[name] for name in ("x", "n", "text", "f", "j")})
        rows = self.rows(self.namespace())
        self.assertEqual([(row["x"], row["n"], bytes(row["text"]), row["f"], row["j"]) for row in rows], [([i, i], [i], f"row {i}".encode(), [i], [i]) for i in range(22)])

    @needs("litdata")
    def test_litdata_as_its_own_writer_makes_it(self) -> None:
        script = """
import sys, torch
from litdata import optimize
def make(i):
    return {"x": torch.tensor([[i, i]]), "n": i}
if __name__ == "__main__":
    optimize(make, list(range(22)), sys.argv[1], chunk_bytes=2_000, num_workers=1)
"""
        Path(self.path("make.py")).write_text(script)
        done = subprocess.run([sys.executable, self.path("make.py"), self.path("lit")], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr[-2_000:])
        self.interrupted(lambda writer, stop: writer.from_litdata(self.path("lit"), map=stop), [[i, i] for i in range(22)])

    def test_progress_is_told_to_whoever_asks(self) -> None:
        told: list[tuple[int, int | None]] = []
        with self.namespace().writer("tok") as writer:
            writer.write_all([{"x": [i]} for i in range(9)], progress=lambda done, total: told.append((done, total)))
        self.assertEqual(told[-1], (9, 9))


if __name__ == "__main__":
    unittest.main()
