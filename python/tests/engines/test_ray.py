"""Rows that Ray Data writes are in the log once each: a driver, a worker and a whole node are killed on the way.

Method: a real cluster of several raylets on this machine (`ray.cluster_utils.Cluster`), drivers as processes of their own, the log read back.
"""
from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, Callable

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

MISSING = None if importlib.util.find_spec("ray") and importlib.util.find_spec("pyarrow") else "Ray is not installed: pip install 'ray[data]'"

from test_load import Blocks  # noqa: E402

from batchweave import BatchWeaveError, open_namespace  # noqa: E402
from engines.fleet_pipeline import COUNT, hurry, samples_of, write_pipeline, write_plan  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def environment() -> dict[str, str]:
    path = os.pathsep.join([os.path.join(ROOT, "python"), os.path.dirname(HERE), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "BATCHWEAVE_PYTHON": sys.executable}


#: Of ray_driver.py, which needs Ray to be imported.
UNITS, ROWS = 12, 20


def patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a raylet half a minute to start, whatever else the machine does."""
    for attempt in range(10):
        try:
            return start()
        except Exception as error:  # noqa: BLE001: Ray says so itself, with a plain Exception
            if "timed out during startup" not in str(error) or attempt == 9:
                raise
    raise AssertionError


class RayCase(unittest.TestCase):
    def setUp(self) -> None:
        if MISSING:
            self.skipTest(MISSING)
        from ray.cluster_utils import Cluster

        folder = tempfile.TemporaryDirectory(prefix="batchweave-ray-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # A head that runs no task, and two nodes that do.
        small = {"object_store_memory": 80 << 20, "include_dashboard": False}
        self.cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small}))
        self.addCleanup(self.cluster.shutdown)
        self.node_args = {"num_cpus": 2, "object_store_memory": 80 << 20}
        self.nodes = [self.add_node() for _ in range(2)]

    def add_node(self) -> Any:
        return patiently(lambda: self.cluster.add_node(**self.node_args))

    def steps_of(self, uri: str) -> int:
        try:
            return int(open_namespace(uri).info()["steps"]["end"])
        except BatchWeaveError:
            return 0


class RayAddressTest(unittest.TestCase):
    @unittest.skipIf(MISSING is not None, MISSING or "")
    def test_a_cluster_that_does_not_answer_is_one_sentence(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            main = os.path.join(ROOT, "dist", "src", "cli", "main.js")
            command = ["node", main, "fleet", "up", write_pipeline(folder, ROOT), "--on", "ray", "--address", "127.0.0.1:1"]
            found = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(found.returncode, 2, found.stderr)
        self.assertIn("error[ENGINE_FAILED]: There is no Ray cluster at 127.0.0.1:1: [Errno 111] Connection refused.", found.stderr)


class RaySinkTest(RayCase):
    def drive(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, os.path.join(HERE, "ray_driver.py"), self.cluster.address, self.folder]
        return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def await_steps(self, count: int, driver: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + 180
        while self.steps() < count:
            if driver.poll() is not None or time.monotonic() > until:
                self.fail(f"{self.steps()} of {count} steps, and the driver: {driver.communicate()[1].decode()[-3000:]}")
            time.sleep(0.2)

    def steps(self) -> int:
        return self.steps_of(f"file://{self.folder}/run.sources/web")

    def test_a_killed_driver_worker_and_node_lose_and_repeat_nothing(self) -> None:
        first = self.drive()
        self.await_steps(6, first)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        begun = self.steps()
        second = self.drive()
        self.await_steps(begun + 3, second)
        self.cluster.remove_node(self.nodes[0], allow_graceful=False)
        self.add_node()
        _, errors = second.communicate(timeout=300)
        self.assertEqual(second.returncode, 0, errors.decode()[-3000:])
        blocks = Blocks(f"file://{self.folder}/run.sources/web")
        self.assertTrue(blocks.info["closed"])
        self.assertTrue(os.path.exists(os.path.join(self.folder, "killed-worker")))
        self.assertEqual(len(blocks.ids), UNITS * ROWS, "repeated")
        self.assertEqual(sorted(map(int, blocks.ids)), list(range(UNITS * ROWS)), "lost")


class RayFleetTest(RayCase):
    def test_a_fleet_is_scaled_and_goes_on_when_its_driver_and_a_node_are_killed(self) -> None:
        pipeline = write_pipeline(self.folder, ROOT)
        first = self.up(pipeline)
        self.await_blocks(4, first)
        # The plan asks for two constructors; one was started.
        assert first.stderr is not None
        for line in first.stderr:
            if b"construct: 1 -> 2" in line:
                break
        else:
            self.fail("the driver ended, and was never told to scale")
        first.send_signal(signal.SIGKILL)
        first.communicate()
        second = self.up(pipeline)
        self.await_blocks(self.blocks() + 4, second)
        self.cluster.remove_node(self.nodes[0], allow_graceful=False)
        self.add_node()
        hurry(self.folder)
        out, errors = second.communicate(timeout=400)
        self.assertEqual(second.returncode, 0, (out + errors).decode()[-3000:])
        self.assertTrue(open_namespace(f"file://{self.folder}/log").info()["closed"])
        self.assertEqual(sorted(samples_of(f"file://{self.folder}/log")), list(range(COUNT)))

    def up(self, pipeline: str) -> "subprocess.Popen[bytes]":
        main = os.path.join(ROOT, "dist", "src", "cli", "main.js")
        command = ["node", main, "fleet", "up", pipeline, "--on", "ray", "--address", self.cluster.address, "--cores", "1", "--python", sys.executable, "--autoscale", "--plan", write_plan(self.folder), "--interval", "1"]
        return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def blocks(self) -> int:
        return self.steps_of(f"file://{self.folder}/log.sources/numbers")

    def await_blocks(self, count: int, driver: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + 240
        while self.blocks() < count:
            if driver.poll() is not None or time.monotonic() > until:
                driver.kill()
                out, errors = driver.communicate()
                self.fail(f"{self.blocks()} of {count} blocks, and the driver: {(out + errors).decode()[-3000:]}")
            time.sleep(0.2)


if __name__ == "__main__":
    unittest.main()
