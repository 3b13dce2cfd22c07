"""Trains a small GPT on text made and tokenized by TypeScript producers, kills everything on the way, and proves that nothing changed.

    make build && PYTHONPATH=python python3 examples/train-gpt/run.py

1. Two producers tokenize and pack; one is killed with SIGKILL and started again.
2. Run A: 2 ranks train without any trouble.
3. Run B: 2 ranks are killed with SIGKILL in the middle and started again: its losses must be those of A, bit for bit.
4. Run C: 4 ranks, killed and resumed on 2: every global row must hold the same samples.

Ends with the table of batches each rank saw before and after the kill; fails if one was lost or repeated.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "python"))

from batchweave import create_namespace  # noqa: E402

ROWS = 8
ENV = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}


def producer(uri: str, number: int, batches: int) -> subprocess.Popen[bytes]:
    script = ROOT / "dist/examples/train-gpt/produce.js"
    return subprocess.Popen(["node", str(script), uri, f"tokenizer-{number}", str(batches), "20"], env=ENV)


def ranks(uri: str, folder: Path, world: int, iterations: int) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**ENV, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, str(HERE / "train.py"), uri, str(folder), "--group", folder.name, "--iterations", str(iterations)]
    log = open(folder / "log.txt", "ab")
    return [subprocess.Popen(command, env={**env, "RANK": str(r)}, stdout=log, stderr=log) for r in range(world)]


def finish(children: list[subprocess.Popen[bytes]], folder: Path, limit: float = 400) -> None:
    until = time.monotonic() + limit
    while any(child.poll() is None for child in children):
        if time.monotonic() > until or any(child.poll() not in (None, 0) for child in children):
            for child in children:
                child.kill()
                child.wait()
            sys.exit(f"a rank failed or took too long; {folder}/log.txt ends with:\n{(folder / 'log.txt').read_text()[-3000:]}")
        time.sleep(0.1)


def kill_after(children: list[subprocess.Popen[bytes]], folder: Path, world: int, iteration: int) -> int:
    """SIGKILL to every rank once the first has gone through so many iterations. Gives how many of them the newest model on disk was trained on: what is
    kept is told by the model that was saved, not by where its successor begins, which is what is to be proved."""
    record = folder / f"rank-0-of-{world}.jsonl"
    until = time.monotonic() + 300
    while not record.exists() or record.read_text().count("\n") < iteration:
        if any(child.poll() is not None for child in children) or time.monotonic() > until:
            sys.exit(f"a rank ended before the kill:\n{(folder / 'log.txt').read_text()[-3000:]}")
        time.sleep(0.01)
    for child in children:
        child.send_signal(signal.SIGKILL)
    for child in children:
        child.wait()
    return max((int(path.stem.removeprefix("iter-")) for path in folder.glob("iter-*.safetensors")), default=0)


def lines(folder: Path, rank: int, world: int) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / f"rank-{rank}-of-{world}.jsonl").read_text().splitlines()]


def trained(parts: list[list[dict[str, Any]]], iterations: int) -> tuple[dict[int, str], dict[int, list[int]], int, int]:
    """What the model was trained on: (loss by iteration, samples by global row, rows lost, rows repeated)."""
    losses: dict[int, str] = {}
    samples: dict[int, list[int]] = {}
    repeated = 0
    for part in parts:
        for line in part:
            losses[line["iteration"]] = line["loss"]
            for row, ids in line["rows"].items():
                repeated += int(row) in samples
                samples[int(row)] = ids
    return losses, samples, iterations * ROWS - len(samples), repeated


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--kill-at", type=int, default=23, help="iteration after which run B dies")
    args = parser.parse_args()
    if not (ROOT / "dist/examples/train-gpt/produce.js").exists():
        sys.exit("run `make build` first: the producers are TypeScript")
    folder = Path(tempfile.mkdtemp(prefix="batchweave-train-gpt-"))
    try:
        uri = (folder / "ns").as_uri()
        namespace = create_namespace(uri, rows=ROWS)
        batches = args.iterations // 2 + 3
        first, second = producer(uri, 0, batches), producer(uri, 1, batches)
        runs = {name: folder / name for name in "abc"}
        for run in runs.values():
            run.mkdir()
        print("run A: 2 ranks, while producers work; one producer is killed and started again", flush=True)
        a = ranks(uri, runs["a"], 2, args.iterations)
        while namespace.log.head.jump().end < 6:
            time.sleep(0.05)
        second.kill()
        second.wait()
        second = producer(uri, 1, batches)
        finish(a, runs["a"])
        if first.wait() or second.wait():
            sys.exit("a producer failed")
        print(f"run B: 2 ranks, killed after {args.kill_at} iterations and started again", flush=True)
        kept_b = kill_after(ranks(uri, runs["b"], 2, args.iterations), runs["b"], 2, args.kill_at)
        before_b = [lines(runs["b"], rank, 2) for rank in range(2)]
        finish(ranks(uri, runs["b"], 2, args.iterations), runs["b"])
        print(f"run C: 4 ranks, killed after {args.kill_at} iterations and resumed on 2", flush=True)
        kept_c = kill_after(ranks(uri, runs["c"], 4, args.iterations), runs["c"], 4, args.kill_at)
        finish(ranks(uri, runs["c"], 2, args.iterations), runs["c"])
        report(runs, before_b, {"B": kept_b, "C": kept_c}, args.iterations)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(runs: dict[str, Path], before_b: list[list[dict[str, Any]]], saved: dict[str, int], iterations: int) -> None:
    """Prints the table and fails if it is not as it must be. `saved`: for each run that was killed, the iterations its newest model was trained on."""
    problems = []
    whole = [lines(runs["a"], rank, 2) for rank in range(2)]
    losses_a, samples_a, lost, repeated = trained(whole, iterations)
    table = [["run", "rank", "before the kill", "kept by a checkpoint", "after it", "trained on", "lost", "repeated"]]

    def add(run: str, rank: int, before: list[Any], after: list[Any]) -> list[Any]:
        kept = [line for line in before if line["iteration"] < saved.get(run, iterations)]
        seen = [line["iteration"] for line in kept + after]
        missing, twice = len(set(range(iterations)) - set(seen)), len(seen) - len(set(seen))
        table.append([run, rank, span(before), span(kept), span(after), f"{len(seen)} iterations", missing, twice])
        if missing or twice:
            problems.append(f"run {run}, rank {rank}: {missing} iterations lost, {twice} repeated")
        return kept + after

    for rank in range(2):
        add("A", rank, whole[rank], [])
    b = [add("B", r, before_b[r], lines(runs["b"], r, 2)[len(before_b[r]) :]) for r in range(2)]
    losses_b, samples_b, lost_b, repeated_b = trained(b, iterations)
    wide, narrow = [lines(runs["c"], r, 4) for r in range(4)], [lines(runs["c"], r, 2) for r in range(2)]
    kept = [[line for line in part if line["iteration"] < saved["C"]] for part in wide]
    for r in range(2):
        add("C", r, wide[r], narrow[r])
    for r in range(2, 4):
        table.append(["C", r, span(wide[r]), span(kept[r]), "-", "-", "-", "-"])
    _, samples_c, lost_c, repeated_c = trained(kept + narrow, iterations)
    widths = [max(len(str(row[i])) for row in table) for i in range(len(table[0]))]
    print()
    for row in table:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)))
    first, last = float.fromhex(losses_a[0]), float.fromhex(losses_a[iterations - 1])
    print(f"\nloss {first:.4f} -> {last:.4f}; rows lost {lost + lost_b + lost_c}, repeated {repeated + repeated_b + repeated_c}")
    same = sum(losses_a[i] == losses_b.get(i) for i in range(iterations))
    print(f"run B has bitwise the losses of run A in {same} of {iterations} iterations")
    print(f"samples of every global row: B as A: {samples_b == samples_a}, C (dp 4, then 2) as A: {samples_c == samples_a}")
    if same != iterations:
        problems.append("losses differ")
    if samples_b != samples_a or samples_c != samples_a or len(samples_a) != iterations * ROWS:
        problems.append("rows hold other samples")
    if lost or lost_b or lost_c or repeated or repeated_b or repeated_c:
        problems.append("rows were lost or repeated")
    if not last < first:
        problems.append("the model learned nothing")
    if problems:
        sys.exit("FAILED: " + "; ".join(problems))
    print("passed: nothing lost, nothing repeated")


def span(part: list[dict[str, Any]]) -> str:
    return f"{part[0]['iteration']} to {part[-1]['iteration']}" if part else "-"


if __name__ == "__main__":
    main()
