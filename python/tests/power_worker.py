"""A producer for `npm run chaos -- --power`: writes what the producers in TypeScript write, and notes what was acknowledged.

    PYTHONPATH=python python3 python/tests/power_worker.py URI FOLDER ID DURABILITY

It ends when its standard input does.
"""
from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections import deque
from pathlib import Path

from batchweave import open_namespace
from batchweave.producer.producer import Ticket

ROWS, CHUNKS = 4, 2


def slice_of(producer: str, counter: int, row: int, chunk: int) -> bytes:
    """As `chaosSlice` in scripts/chaos-content.ts."""
    seed = hashlib.sha256(f"{producer}/{counter}/{row}/{chunk}".encode()).digest()
    length = 64 + int.from_bytes(seed[:2], "little") % 448
    return b"".join(hashlib.sha256(seed + str(i).encode()).digest() for i in range(-(-length // 32)))[:length]


def main() -> None:
    uri, folder, name, durability = sys.argv[1:]
    finish = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        finish.set()

    threading.Thread(target=listen, daemon=True).start()
    namespace = open_namespace(uri, durability=durability)
    with namespace.producer(name) as producer, open(Path(folder) / f"{name}.acknowledged", "a", buffering=1) as acknowledged:
        pending: deque[tuple[int, Ticket]] = deque()
        counter = (producer.resume_point or {}).get("next", 0)
        while not finish.is_set() or pending:
            if not finish.is_set():
                slices = [slice_of(name, counter, row, chunk) for row in range(ROWS) for chunk in range(CHUNKS)]
                pending.append((counter, producer.append(slices, resume_point={"next": counter + 1})))
                counter += 1
            while pending and (finish.is_set() or len(pending) > 2):
                made, ticket = pending.popleft()
                ticket.wait(60)
                acknowledged.write(f"{made}\n")
            time.sleep(0.02 + 0.06 * (os.urandom(1)[0] / 256))


if __name__ == "__main__":
    main()
