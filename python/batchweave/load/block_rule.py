"""When a block is full, and what it says: pure functions of the samples of a lane, so every process that loads the lane makes the same blocks."""
from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import invalid
from ..format.sample_block import BLOCK_BYTES_MAX, BLOCK_SAMPLES_MAX, BlockSample, encode_sample_block

#: A block ends with whichever comes first.
BLOCK_SAMPLES = 4_096
BLOCK_BYTES = 4 * 1024 * 1024


class Block(NamedTuple):
    """A block that is ready. `at`: the reader's position past all that is in it."""

    slices: tuple[bytes, bytes]
    at: Any
    samples: int


class BlockRule:
    """Collects samples until a block is full. The last block is known only at the end, so a full one waits for what follows."""

    def __init__(self, source: str, samples_max: int = BLOCK_SAMPLES, bytes_max: int = BLOCK_BYTES) -> None:
        if not 1 <= samples_max <= BLOCK_SAMPLES_MAX or not 1 <= bytes_max <= BLOCK_BYTES_MAX // 2:
            raise invalid(f"A block has 1 to {BLOCK_SAMPLES_MAX} samples and up to {BLOCK_BYTES_MAX // 2} bytes, not {samples_max} and {bytes_max}.")
        self._source = source
        self._samples_max = samples_max
        self._bytes_max = bytes_max
        self._samples: list[BlockSample] = []
        self._faults: list[tuple[int, dict[str, Any]]] = []
        self._bytes = 0
        self._at: Any = None

    @property
    def is_empty(self) -> bool:
        return not self._samples and not self._faults

    @property
    def is_full(self) -> bool:
        # A stretch of nothing but faults must not grow without a limit either.
        return len(self._samples) + len(self._faults) >= self._samples_max or self._bytes >= self._bytes_max

    def add(self, sample: BlockSample, at: Any) -> Block | None:
        """Gives the block before, if it was full."""
        full = self.take() if self.is_full else None
        self._samples.append(sample)
        self._bytes += len(sample.data)
        self._at = at
        return full

    def leave_out(self, fault: dict[str, Any], at: Any) -> Block | None:
        """Something that is not in the log, and why."""
        full = self.take() if self.is_full else None
        self._faults.append((len(self._samples), fault))
        self._at = at
        return full

    def take(self) -> Block:
        """What was collected, full or not."""
        block = Block(encode_sample_block(self._source, self._samples, self._faults), self._at, len(self._samples))
        self._samples, self._faults, self._bytes = [], [], 0
        return block


def filler(source: str) -> tuple[bytes, bytes]:
    """The block of a lane that has ended, while others go on."""
    return encode_sample_block(source, [])
