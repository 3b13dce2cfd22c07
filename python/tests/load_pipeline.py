"""Sources for the tests of loading: transforms that are slow, throw, hang, crash or eat memory, as the environment says."""
from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Iterator

from batchweave.load import Source, stream

COUNT = int(os.environ.get("LOAD_COUNT", "200"))
DELAY = float(os.environ.get("LOAD_DELAY", "0"))


def numbers() -> Iterator[int]:
    yield from range(COUNT)


def tokens(n: int) -> dict[str, Any]:
    time.sleep(DELAY)
    return {"tokens": [n, *range(n % 7)], "features": {"size": float(n)}}


def twice(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield sample
    yield {"tokens": [*sample["tokens"], 1]}


_leaked: list[bytes] = []


def dangerous(n: int) -> int:
    """Each kind of bad sample once in a while."""
    if n == 11:
        raise ValueError("sample eleven is bad")
    if n == 23:
        time.sleep(600)
    if n == 37:
        ctypes.string_at(0)  # a segmentation fault
    if n == 41:
        bytearray(3 << 30)
    if n == 53:
        os._exit(7)
    _leaked.append(b"x" * 4_000_000)  # a leak: 60 samples would be 240 MB
    return n


plain = Source("plain", stream(numbers), transforms=[tokens], lanes=3, block_samples=8)
doubled = Source("doubled", stream(numbers), transforms=[tokens, twice], lanes=2, block_samples=5)
bad = Source(
    "bad", stream(numbers), transforms=[dangerous, tokens], lanes=1, block_samples=16, on_fault="skip", timeout=1.0, memory_max=200 << 20, fault_share_max=1.0
)
