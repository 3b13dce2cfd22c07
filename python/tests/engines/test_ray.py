"""Rows that Ray Data writes are in the log once each: a driver, a worker and a whole node are killed on the way.

Method: a real cluster of several raylets on this machine (`ray.cluster_utils.Cluster`), drivers as processes of their own, the log read back.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError as error:
    raise unittest.SkipTest(f"Ray is not installed ({error}): pip install 'ray[data]'") from error

from test_load import Blocks  # noqa: E402

from batchweave import BatchWeaveError, open_namespace  # noqa: E402
from engines.ray_driver import ROWS, UNITS  # noqa: E402


class RaySinkTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="batchweave-ray-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # A head that runs no task, and two nodes that do.
        small = {"object_store_memory": 80 << 20, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
        self.addCleanup(self.cluster.shutdown)
        self.node_args = {"num_cpus": 1, "object_store_memory": 80 << 20}
        self.nodes = [self.cluster.add_node(**self.node_args) for _ in range(2)]

    def drive(self) -> "subprocess.Popen[bytes]":
        path = os.pathsep.join([os.path.dirname(os.path.dirname(HERE)), os.path.dirname(HERE), *sys.path])
        command = [sys.executable, os.path.join(HERE, "ray_driver.py"), self.cluster.address, self.folder]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def await_steps(self, count: int, driver: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + 180
        while self.steps() < count:
            if driver.poll() is not None or time.monotonic() > until:
                self.fail(f"{self.steps()} of {count} steps, and the driver: {driver.communicate()[1].decode()[-3000:]}")
            time.sleep(0.2)

    def steps(self) -> int:
        try:
            return int(open_namespace(f"file://{self.folder}/run.sources/web").info()["steps"]["end"])
        except BatchWeaveError:
            return 0

    def test_a_killed_driver_worker_and_node_lose_and_repeat_nothing(self) -> None:
        first = self.drive()
        self.await_steps(6, first)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        begun = self.steps()
        second = self.drive()
        self.await_steps(begun + 3, second)
        self.cluster.remove_node(self.nodes[0], allow_graceful=False)
        self.cluster.add_node(**self.node_args)
        _, errors = second.communicate(timeout=300)
        self.assertEqual(second.returncode, 0, errors.decode()[-3000:])
        blocks = Blocks(f"file://{self.folder}/run.sources/web")
        self.assertTrue(blocks.info["closed"])
        self.assertTrue(os.path.exists(os.path.join(self.folder, "killed-worker")))
        self.assertEqual(len(blocks.ids), UNITS * ROWS, "repeated")
        self.assertEqual(sorted(map(int, blocks.ids)), list(range(UNITS * ROWS)), "lost")


if __name__ == "__main__":
    unittest.main()
