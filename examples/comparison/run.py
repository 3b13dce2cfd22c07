"""Runs the task with each library that is installed, and prints what was lost and repeated, with the lines of code of each program.

    PYTHONPATH=python python examples/comparison/run.py [batchweave] [mosaicml] [litdata]
"""
import ast
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from task import CHECKPOINT_AT, KILLED_AT, ROWS

HERE = Path(__file__).parent
PACKAGES = {"batchweave": "batchweave", "mosaicml": "streaming", "litdata": "litdata"}
#: A life that takes longer is stuck.
LIFE_S = 240


def live(script: Path, folder: str, life: int, ranks: int) -> str:
    """One life of a job; gives what its ranks complained about."""
    env = {**os.environ, "LIFE": str(life), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29_500 + os.getpid() % 500 + life)}
    jobs = []
    for rank in range(ranks):
        own = {**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        jobs.append(subprocess.Popen([sys.executable, str(script), "read", folder], env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    until = time.monotonic() + LIFE_S
    said = ""
    for job in jobs:
        try:
            _, error = job.communicate(timeout=max(1.0, until - time.monotonic()))
            if job.returncode not in (0, -9):
                said = said or error.strip().splitlines()[-1][:200]
        except subprocess.TimeoutExpired:
            job.kill()
            said = said or f"stuck for {LIFE_S} s"
    return said


def rows_of(folder: str, life: int, before: int | None) -> list[int]:
    found = []
    for path in Path(folder).glob(f"seen-{life}-*"):
        for line in path.read_text().splitlines():
            step, rows = line.split(" ", 1)
            if before is None or int(step) < before:
                found += ast.literal_eval(rows)
    return found


def lines_of(script: Path) -> int:
    return sum(1 for line in script.read_text().splitlines() if line.strip() and not re.match(r'\s*(#|"""|import |from )', line))


def main() -> None:
    print(f"{'library':<12} {'lines':>5} {'lost':>6} {'repeated':>9}  what it said")
    for name in sys.argv[1:] or PACKAGES:
        script = HERE / f"with_{name}.py"
        if importlib.util.find_spec(PACKAGES[name]) is None:
            print(f"{name:<12} {lines_of(script):>5}  not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, str(script), "write", folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIFE_S)
            said = live(script, folder, 0, 2)
            said = live(script, folder, 1, 3) or said
            trained = rows_of(folder, 0, CHECKPOINT_AT) + rows_of(folder, 1, None)
        lost, repeated = ROWS - len(set(trained)), len(trained) - len(set(trained))
        print(f"{name:<12} {lines_of(script):>5} {lost:>6} {repeated:>9}  {said}", flush=True)


if __name__ == "__main__":
    assert KILLED_AT > CHECKPOINT_AT
    main()
