"""A fleet on Slurm: arrays are submitted, a task and a process are killed on the way, and the log is complete.

Method: Debian's slurm-wlm and munge on this machine, in a folder of their own, on the loopback address. Needs root, as slurmd does.
"""
from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from batchweave import BatchWeaveError, open_namespace  # noqa: E402
from engines.fleet_pipeline import COUNT, hurry, samples_of, write_pipeline, write_plan  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
_NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")


def _missing() -> str | None:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    absent = [name for name in _NEEDED if shutil.which(name, path=path) is None]
    if absent:
        return f"{', '.join(absent)} not installed: apt install slurmctld slurmd slurm-client munge"
    return None if os.geteuid() == 0 else "slurmd runs as root only"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@unittest.skipIf(_missing() is not None, _missing() or "")
class SlurmTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="batchweave-slurm-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.chmod(self.folder, 0o755)
        os.environ["PATH"] += os.pathsep + "/usr/sbin"
        self.daemons: list[Any] = []
        self.addCleanup(self.stop)
        self.start_munge()
        self.start_slurm()

    def daemon(self, *command: str) -> None:
        with open(f"{self.folder}/{os.path.basename(command[0])}.out", "wb") as log:
            self.daemons.append(subprocess.Popen(command, env=self.environment(), stdout=log, stderr=log))

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([os.path.join(ROOT, "python"), os.environ.get("PYTHONPATH", "")])
        return {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf", "PYTHONPATH": path, "BATCHWEAVE_PYTHON": sys.executable}

    def start_munge(self) -> None:
        key = f"{self.folder}/munge.key"
        with open(key, "wb") as file:
            file.write(os.urandom(128))
        os.chmod(key, 0o400)
        # A folder under /tmp is nobody's idea of a safe place, but for a test.
        self.daemon(
            "munged", "-F", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
            f"--pid-file={self.folder}/munge.pid", f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/munge.log",
        )
        self.await_that(lambda: os.path.exists(f"{self.folder}/munge.socket"), "munged")

    def start_slurm(self) -> None:
        host = socket.gethostname().split(".")[0]
        lines = [
            "ClusterName=test", f"SlurmctldHost={host}(127.0.0.1)", "SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge", f"AuthInfo=socket={self.folder}/munge.socket",
            f"SlurmctldPort={_free_port()}", f"SlurmdPort={_free_port()}", f"StateSaveLocation={self.folder}/state", f"SlurmdSpoolDir={self.folder}/spool",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid", f"SlurmdPidFile={self.folder}/slurmd.pid", f"SlurmctldLogFile={self.folder}/slurmctld.log", f"SlurmdLogFile={self.folder}/slurmd.log",
            "ProctrackType=proctrack/pgid", "TaskPlugin=task/none", "SchedulerType=sched/backfill", "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "ReturnToService=2",
            "SlurmdParameters=config_overrides", "JobAcctGatherType=jobacct_gather/none", "MpiDefault=none", "SwitchType=switch/none",
            f"NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=8000 State=UNKNOWN", "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        ]
        for name in ("state", "spool"):
            os.mkdir(f"{self.folder}/{name}")
        with open(f"{self.folder}/slurm.conf", "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D", "-N", host)
        self.await_that(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), "slurm")

    def ask(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False, timeout=60).stdout

    def await_that(self, is_so: Any, what: str, seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > until:
                logs = [open(f"{self.folder}/{name}", errors="replace").read()[-800:] for name in sorted(os.listdir(self.folder)) if name.endswith((".log", ".out"))]
                self.fail(f"{what} did not come: {logs}")
            time.sleep(0.3)

    def stop(self) -> None:
        self.ask("scancel", "-u", "root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def test_arrays_carry_a_pipeline_to_its_end_through_kills(self) -> None:
        pipeline = write_pipeline(self.folder, ROOT)
        main = os.path.join(ROOT, "dist", "src", "cli", "main.js")
        command = ["node", main, "fleet", "up", pipeline, "--on", "slurm", "--cores", "1", "--memory", "0.5", "--python", sys.executable, "--autoscale", "--plan", write_plan(self.folder), "--interval", "1"]
        found = subprocess.run(command, env=self.environment(), cwd=self.folder, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("construct: job", found.stdout)
        self.await_that(lambda: self.steps() >= 3, "the first blocks")
        # The plan asks for two constructors; one was started, and the scaler, a task of its own, submits another.
        self.await_that(lambda: self.tasks("construct") == 2, "the second constructor", 240)
        again = subprocess.run([*command, "--load", "1"], env=self.environment(), cwd=self.folder, capture_output=True, text=True, check=False, timeout=120)
        self.assertIn("construct: 2 -> 1 tasks", again.stdout, "what is there is counted, and what is too much cancelled")
        self.await_that(lambda: self.tasks("construct") == 2, "the second constructor again", 240)
        # A process of one task dies, and its script starts it again; one task of the other array is put back into the line.
        loader = self.ask("pgrep", "-f", f"{self.folder}/numbers.py").split()
        os.kill(int(loader[0]), signal.SIGKILL)
        tasks = [line.split() for line in self.ask("squeue", "-h", "-r", "-o", "%i %j").splitlines()]
        construct = next(id for id, name in tasks if name.endswith("-construct"))
        self.ask("scontrol", "requeue", construct)
        hurry(self.folder)
        self.await_that(lambda: self.is_closed(), "the end of the log", 240)
        self.assertEqual(sorted(samples_of(self.uri)), list(range(COUNT)))
        self.await_that(lambda: self.ask("squeue", "-h").strip() == "", "the end of all tasks", 180)

    def tasks(self, role: str) -> int:
        return len(self.ask("squeue", "-h", "-r", "-t", "PD,R", "-n", f"batchweave-pipeline-{role}", "-o", "%i").split())

    @property
    def uri(self) -> str:
        return f"file://{self.folder}/log"

    def steps(self) -> int:
        try:
            return int(open_namespace(f"{self.uri}.sources/numbers").info()["steps"]["end"])
        except BatchWeaveError:
            return 0

    def is_closed(self) -> bool:
        try:
            return bool(open_namespace(self.uri).info()["closed"])
        except BatchWeaveError:
            return False


if __name__ == "__main__":
    unittest.main()
