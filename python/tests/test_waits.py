"""Property: a rank that waits says for what after ten seconds; a rank that is started first waits for its namespace; a command ends within two seconds
of a signal, whatever its store does.

Method: waits made short; the command in processes of its own, with a store that hangs inside a library, where no handler of Python's can run.
"""
from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError, create_namespace, open_namespace
from batchweave.consumer import consumer as consumer_module
from memory_store import MemoryStore

_PYTHON = Path(__file__).parents[1]
_HANGS = """
import ctypes, signal, sys
from batchweave.cli import main as cli
def hang(*_, **__):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})  # another thread gets them, as when a library waits with others of its own
    print("hangs", flush=True)
    ctypes.CDLL(None).sleep(60)
cli.open_namespace = hang
sys.exit(cli.main(sys.argv[1:]))
"""


class Waits(unittest.TestCase):
    def test_a_rank_tells_what_it_waits_for_and_again_until_it_gives_up(self) -> None:
        namespace = create_namespace("memory:test", rows=1, store=MemoryStore())
        with mock.patch.object(consumer_module, "LONG_WAIT_S", 0.2), self.assertLogs("batchweave.wait") as told:
            with namespace.consumer({"dp": 1}, 0, environment={}, wait_timeout=1.0) as consumer:
                with self.assertRaises(BatchWeaveError) as caught:
                    next(consumer)
        self.assertEqual(caught.exception.code, "WAIT_TIMEOUT")
        self.assertEqual(len(told.output), 3, told.output)
        self.assertRegex(told.output[0], r"Still waiting\. Waited 0\.\d s for step 0 .*No producer has ever opened this namespace")

    def test_a_rank_that_starts_before_its_namespace_exists_says_so_and_waits(self) -> None:
        store = MemoryStore()
        timer = threading.Timer(0.5, lambda: create_namespace("memory:test", rows=1, store=store))
        timer.start()
        with self.assertLogs("batchweave.wait") as told:
            namespace = open_namespace("memory:test", store=store, wait=30)
        self.assertEqual(namespace.rows, 1)
        self.assertEqual(len(told.output), 1)
        self.assertIn("Waiting for a namespace at memory:test, at most 30 s: it is not created yet.", told.output[0])

    def test_it_gives_up_at_the_limit_and_without_one_at_once(self) -> None:
        for wait, text in ((0.3, "within 0 s"), (0.0, "There is no namespace at memory:test. ")):
            begun = time.monotonic()
            with self.assertRaises(BatchWeaveError) as caught:
                open_namespace("memory:test", store=MemoryStore(), wait=wait)
            self.assertEqual(caught.exception.code, "NO_NAMESPACE")
            self.assertIn(text, caught.exception.message)
            self.assertGreaterEqual(time.monotonic() - begun, wait)

    def test_a_dataset_waits_for_its_namespace(self) -> None:
        from batchweave import StreamingDataset

        with tempfile.TemporaryDirectory() as folder:
            uri = (Path(folder) / "ns").as_uri()

            def make() -> None:
                with create_namespace(uri, rows=1).producer("p") as producer:
                    producer.append([b"x"])

            timer = threading.Timer(0.3, make)
            timer.start()
            dataset = StreamingDataset(uri, mesh={"dp": 1}, rank=0, pulse=False)
            self.assertEqual(bytes(next(iter(dataset)).slices[0].bytes), b"x")
            dataset.close()
            timer.join()


class Commands(unittest.TestCase):
    def start(self, *command: str, **env: str) -> Any:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": str(_PYTHON), **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.addCleanup(process.stdout.close)  # type: ignore[union-attr]
        self.addCleanup(process.stderr.close)  # type: ignore[union-attr]
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def assertEnds(self, process: Any, number: int) -> None:
        # What hangs, hangs for ever; a busy machine takes its time.
        process.send_signal(number)
        process.wait(60)
        self.assertEqual(process.returncode, 128 + number)

    def test_the_first_signal_ends_a_command_whose_store_hangs_inside_a_library(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            for command in (["info", "file:///x"], ["consume", "file:///x", "--dp", "1", "--rank", "0"]):
                process = self.start("-c", _HANGS, *command)
                self.assertEqual(process.stdout.readline(), "hangs\n")
                self.assertEnds(process, number)

    @unittest.skipIf(importlib.util.find_spec("obstore") is None, "obstore is not installed")
    def test_and_one_whose_server_accepts_and_never_answers(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
            process = self.start(
                "-m", "batchweave", "info", "s3://bucket/ns", AWS_ENDPOINT_URL=endpoint, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b"
            )
            connection, _ = server.accept()
            self.addCleanup(connection.close)
            time.sleep(0.1)
            self.assertEnds(process, signal.SIGTERM)

    def test_a_rank_that_is_started_first_reads_what_is_created_later(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            uri = (Path(folder) / "ns").as_uri()
            process = self.start("-m", "batchweave", "consume", uri, "--dp", "1", "--rank", "0", "--iterations", "1")
            self.assertRegex(process.stderr.readline(), "^Waiting for a namespace at .*: it is not created yet")
            with create_namespace(uri, rows=1).producer("p") as producer:
                producer.append([b"x"])
            process.wait(20)
            self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    unittest.main()
