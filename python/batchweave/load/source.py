"""A source whose loader is Python: where its samples come from, what is done to them, and where they go."""
from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

from ..errors import invalid
from .block_rule import BLOCK_BYTES, BLOCK_SAMPLES, BlockRule
from .fault import FaultPolicy
from .prepared_sample import checked_source_name
from .reader import LanePart, Reader


@dataclass(frozen=True)
class Source:
    """Names a source for `python -m batchweave load FILE:NAME`, or for `load()`.

    name, lanes: as in the pipeline file of the constructors, `books: external({ lanes: 4 })`.
    uri: the folder of source logs, by default the training log's place and ".sources". May be given to the command instead.
    transforms: functions of one value, or generators that make several of one, or none; the last gives samples: dicts with `tokens`.
    """

    name: str
    reader: Reader
    uri: str | None = None
    transforms: Sequence[Callable[..., Any]] = ()
    lanes: int = 4
    epochs: int | None = 1
    seed: int | str = 0
    shuffle: bool = False
    #: What does not fit into a sequence: "stop", "skip", "truncate" or "split".
    tokens_max: int | None = None
    too_long: str = "stop"
    on_fault: str = "stop"
    retries_max: int = 3
    retry_delay: float = 0.1
    after_retries: str = "stop"
    fault_share_max: float = 0.1
    #: Seconds that the transforms of one sample may take, and bytes.
    timeout: float = 60.0
    memory_max: int | None = None
    block_samples: int = BLOCK_SAMPLES
    block_bytes: int = BLOCK_BYTES
    policy: FaultPolicy = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checked_source_name(self.name)
        BlockRule(self.name, self.block_samples, self.block_bytes)
        if self.lanes < 1 or (self.epochs is not None and self.epochs < 1):
            raise invalid(f"Source {self.name} has {self.lanes} lanes and {self.epochs} epochs; at least 1 of each are needed.")
        if self.too_long not in ("stop", "skip", "truncate", "split"):
            raise invalid(f'too_long is "stop", "skip", "truncate" or "split", not {self.too_long!r}.')
        policy = FaultPolicy(self.on_fault, self.retries_max, self.retry_delay, self.after_retries, self.fault_share_max)
        object.__setattr__(self, "policy", policy)

    def part(self, lane: int) -> LanePart:
        return LanePart(lane, self.lanes, f"{self.seed}:{self.name}", self.epochs, self.shuffle)

    def print(self) -> str:
        """Of what decides which samples a lane has and how they lie in blocks. Transforms are the author's to keep."""
        parts = [self.lanes, self.epochs, self.seed, self.shuffle, self.tokens_max, self.too_long, self.block_samples, self.block_bytes]
        text = "\0".join(map(str, [self.name, self.reader.fingerprint(), *parts]))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def place(self, uri: str | None = None) -> str:
        """The folder of source logs."""
        found = uri or self.uri or os.environ.get("BATCHWEAVE_SOURCES")
        if found:
            return found
        raise invalid(f"Nothing says where source {self.name} is to be written: give uri in the source, --uri, or BATCHWEAVE_SOURCES.")
