"""Python loaders share the lanes of a source: who comes later is given one by a loader that holds more, and takes the rest when that one is killed.

Method: real loader processes on a folder; the hints that they leave, and the log read back.
"""
from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from test_load import Blocks  # noqa: E402

from engines.fleet_pipeline import hurry  # noqa: E402

_SOURCE = """import os, time
from batchweave.load import Source, stream

FAST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fast")

def numbers():
    return range(400)

def tokens(n):
    if not os.path.exists(FAST):
        time.sleep(0.5)
    return {"tokens": [n]}

wide = Source("wide", stream(numbers), transforms=[tokens], lanes=4, block_samples=1)
"""


class LaneTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="batchweave-lanes-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "wide.py"), "w", encoding="ascii") as file:
            file.write(_SOURCE)

    def load(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "batchweave", "load", f"{self.folder}/wide.py:wide", "--uri", f"file://{self.folder}/logs", "--workers", "1"]
        loader = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(HERE))}, stderr=subprocess.DEVNULL)
        self.addCleanup(loader.wait)
        self.addCleanup(loader.kill)
        return loader

    def held(self) -> list[int]:
        """Lanes that each loader says it holds."""
        names = glob.glob(f"{self.folder}/logs/.fleet/hint/hold-of/wide/*")
        return sorted(int(os.path.basename(name).split("-")[0]) for name in names)

    def await_that(self, is_so: Callable[[], bool], first: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + 240
        while not is_so():
            self.assertIsNone(first.poll())
            self.assertLess(time.monotonic(), until, self.held())
            time.sleep(0.2)

    def test_a_loader_gives_a_lane_to_one_that_comes_later_which_takes_the_rest_when_it_dies(self) -> None:
        first = self.load()
        self.await_that(lambda: self.held() == [4], first)
        second = self.load()
        # Until both have said what they hold now. A hint is deleted after its successor is there: for a moment there are three.
        self.await_that(lambda: self.held() in ([1, 3], [2, 2]), first)
        first.send_signal(signal.SIGKILL)
        hurry(self.folder)
        self.assertEqual(second.wait(240), 0)
        self.assertEqual(sorted(map(int, Blocks(f"file://{self.folder}/logs/wide").ids)), list(range(400)))


if __name__ == "__main__":
    unittest.main()
