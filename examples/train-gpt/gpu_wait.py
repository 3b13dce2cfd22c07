"""How much of its step the GPU waits for data: with BatchWeave, its producers in processes beside the trainer, and with a torch DataLoader that does the
same preprocessing inside the trainer. One command, one machine, no network, no Node:

    PYTHONPATH=python python3 examples/train-gpt/gpu_wait.py            # about five minutes on one GPU
    PYTHONPATH=python python3 examples/train-gpt/gpu_wait.py --tiny     # seconds, on a CPU, to see that it runs
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

import torch  # noqa: E402
from batchweave import StreamingDataset, create_namespace  # noqa: E402
from model import Gpt  # noqa: E402
from preprocess import VOCABULARY, rows  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, get_worker_info  # noqa: E402


class InTrainer(IterableDataset):
    """The same preprocessing in the workers of a DataLoader."""

    def __init__(self, batch_rows: int, tokens: int) -> None:
        self.batch_rows, self.tokens = batch_rows, tokens

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        info = get_worker_info()
        source = rows(info.id if info else 0, info.num_workers if info else 1, self.tokens)
        while True:
            batch = torch.stack([torch.frombuffer(next(source), dtype=torch.int32).clone() for _ in range(self.batch_rows)])
            yield {"input_ids": batch[:, :-1], "labels": batch[:, 1:]}


def train(
    batches: Iterator[Any], args: argparse.Namespace, device: str, after: Callable[[Any], None] = lambda _: None
) -> dict[str, Any]:
    """Trains, and times how long each step waited for its batch; the first steps do not count. `after` is part of the step."""
    torch.manual_seed(0)
    model = Gpt(VOCABULARY, args.tokens, args.width, args.layers, args.heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device == "cuda")
    waits, steps = [], []
    begun = time.perf_counter()
    loss = torch.zeros(())
    for step in range(args.steps + args.warmup):
        before = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - before
        ids = batch["input_ids"].to(device, non_blocking=True).long()
        labels = batch["labels"].to(device, non_blocking=True).long()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(ids, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()  # the batch after this one is fetched beside the GPU only by prefetching
        after(batch)
        if step >= args.warmup:
            waits.append(waited)
            steps.append(time.perf_counter() - before)
    return {
        "wait_share": round(sum(waits) / sum(steps), 4),
        "wait_ms_p50": round(1e3 * statistics.median(waits), 2),
        "wait_ms_max": round(1e3 * max(waits), 1),
        "step_ms": round(1e3 * statistics.mean(steps), 1),
        "compute_ms": round(1e3 * (sum(steps) - sum(waits)) / len(steps), 1),
        "loss": round(loss.item(), 3),
        "total_s": round(time.perf_counter() - begun, 1),
    }


def with_batchweave(args: argparse.Namespace, device: str) -> dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="batchweave-gpu-")
    uri = Path(folder, "ns").as_uri()
    # Producers stop so many steps ahead of the newest checkpoint: they neither fill the disk nor take cores for what no rank reads yet.
    create_namespace(uri, rows=args.rows).set_max_lag(8 * args.every)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2])}
    command = [sys.executable, str(HERE / "produce_tokens.py"), uri]
    processes = [
        subprocess.Popen([*command, *map(str, (n, args.processes, args.rows, args.tokens))], env=env)
        for n in range(args.processes)
    ]
    try:
        dataset = StreamingDataset(
            uri, mesh={"dp": 1}, rank=0, decode="torch", policy="global-batch", wait_timeout=120, pin_memory=device == "cuda"
        )

        def checkpoint(share: Any) -> None:
            """Now and then, as a trainer does when it has saved its model."""
            if share.iteration % args.every == 0:
                dataset.checkpoint(f"iter-{share.iteration}", keep_last=1)

        result = train(iter(dataset), args, device, checkpoint)
        result["read_MB"] = round(dataset.stats()["read_bytes"] / 1e6)
        dataset.close()
        return result
    finally:
        for process in processes:
            process.kill()  # in the middle of anything: that is allowed
        for process in processes:
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def with_dataloader(args: argparse.Namespace, device: str, workers: int) -> dict[str, Any]:
    loader = DataLoader(InTrainer(args.rows, args.tokens), batch_size=None, num_workers=workers, pin_memory=device == "cuda")
    return train(iter(loader), args, device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--warmup", type=int, default=30)
    parser.add_argument("--every", type=int, default=25, help="steps between checkpoints")
    parser.add_argument("--processes", type=int, default=max(1, min(12, (os.cpu_count() or 2) - 3)))
    args = parser.parse_args()
    if args.tiny:
        args.rows, args.tokens, args.width, args.layers, args.heads, args.steps, args.warmup = 4, 64, 64, 2, 4, 10, 2
        args.processes = 2
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, {os.cpu_count()} cores, torch {torch.__version__}; {args.rows} x {args.tokens} tokens a step, {args.layers} layers of {args.width}", flush=True)
    source = rows(0, 1, args.tokens)
    begun = time.perf_counter()
    for _ in range(args.rows):
        next(source)
    print(f"one process needs {1e3 * (time.perf_counter() - begun):.0f} ms to preprocess one step", flush=True)
    results = {f"BatchWeave, {args.processes} producer processes beside": with_batchweave(args, device)}
    slow = argparse.Namespace(**{**vars(args), "steps": max(5, args.steps // 5), "warmup": min(5, args.warmup)})
    results["DataLoader in the trainer, no workers"] = with_dataloader(slow, device, 0)
    for workers in sorted({max(1, args.processes // 3), args.processes}):
        results[f"DataLoader in the trainer, {workers} workers"] = with_dataloader(args, device, workers)
    print()
    print("| data from | GPU waits, share of step | wait p50 | wait max | step |")
    print("|---|---|---|---|---|")
    for title, r in results.items():
        print(f"| {title} | {100 * r['wait_share']:.1f} % | {r['wait_ms_p50']} ms | {r['wait_ms_max']} ms | {r['step_ms']} ms |")
    print(json.dumps({"device": name, "results": results}))


if __name__ == "__main__":
    main()
