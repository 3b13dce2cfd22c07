"""A producer process for the kill tests: writes batches whose bytes follow from (id, counter), goes on where the log says it was.

    PYTHONPATH=python python3 python/tests/produce_worker.py URI ID BATCHES BYTES [RATE]
"""
from __future__ import annotations

import hashlib
import json
import sys
import time

from batchweave import open_namespace


def slice_of(producer: str, counter: int, row: int, chunk: int, size: int) -> bytes:
    line = json.dumps({"producer": producer, "batch": counter, "row": row, "chunk": chunk}, separators=(",", ":"))
    seed = hashlib.sha256(f"{producer}/{counter}/{row}/{chunk}".encode()).digest()
    head = f"{line}\n".encode()
    return head + (seed * (size // 32 + 1))[: max(0, size - len(head))]


def main() -> None:
    uri, producer, batches, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rate = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    namespace = open_namespace(uri)
    with namespace.producer(producer) as p:
        done = (p.resume_point or {}).get("batches", 0)
        # Two accounts of the same thing: the resume point, and the seq that the log gave.
        if done != p.next_seq:
            sys.exit(f"{producer}: the resume point says {done}, producer state says {p.next_seq}")
        for counter in range(done, batches):
            slices = [
                slice_of(producer, counter, row, chunk, size)
                for row in range(namespace.rows)
                for chunk in range(namespace.chunks)
            ]
            p.append(slices, resume_point={"batches": counter + 1})
            if rate:
                time.sleep(1 / rate)
    print(json.dumps({"producer": producer, "epoch": p.epoch, "batches": batches}))


if __name__ == "__main__":
    main()
