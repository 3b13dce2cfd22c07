"""Epochs of a log that has ended: its rows read again and again, in the log's order or shuffled by a seed. The order is a function of the seed, the
epoch and the rows alone, so it is the same on every mesh, and a position in it is all that a state needs. docs/design/0017.
"""
from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Literal, Mapping, NamedTuple, Sequence

from ..errors import BatchWeaveError, invalid
from ..format.checksum import crc32
from ..format.manifest import Manifest
from ..format.padding import slice_is_padding
from ..format.stored_json import SAFE_INTEGER_MAX, crc_text
from ..log.log import Log
from .projection import Cell, IterationPlan, Projection
from .reader import SliceReader

#: What happens to rows that are too few for one more iteration: they stay unread, are repeated to fill it, or make a smaller one.
Last = Literal["drop", "pad", "ragged"]
#: `batchweave` of a state of epochs, where a cursor has its version: who knows cursors only refuses it.
KIND = "epochs-1"
_NEVER = 1 << 62
_MASK = (1 << 64) - 1
_FIELDS = ("namespace", "epoch", "row", "iteration", "first", "rows", "seed", "window", "padding")
#: Batches at the end of a log that are looked at for rows that are no samples.
_PADDED_BATCHES_MAX = 64


class EpochOrder(NamedTuple):
    """The rows of all epochs, one after another. A position counts from the first row of epoch 0."""

    namespace: str
    #: The global row that an epoch begins with, and how many it has.
    first: int
    rows: int
    #: None: in the log's order.
    seed: int | None = None
    #: Rows that are shuffled together; so are the windows.
    window: int = 0
    #: The one epoch that is read; None: all `epochs`, without a break.
    epoch: int | None = 0
    epochs: int = 1
    #: Rows at the end that are no samples: they are not shuffled, and stay there.
    padding: int = 0

    @property
    def end(self) -> int:
        """The position behind the last row."""
        return (self.epochs if self.epoch is None else self.epoch + 1) * self.rows

    def row(self, at: int) -> int:
        """The global row at a position."""
        epoch, k = divmod(at, self.rows)
        samples = self.rows - self.padding
        if self.seed is None or k >= samples:
            return self.first + k
        place, within = divmod(k, self.window)
        whole = samples // self.window
        # Rows that fill no window stay at the end: windows of two sizes could not change places.
        number = shuffled(self.seed, epoch, -1, whole)[place] if place < whole else place
        size = min(self.window, samples - number * self.window)
        return self.first + number * self.window + shuffled(self.seed, epoch, number, size)[within]

    def state(self, at: int, iteration: int) -> dict[str, Any]:
        """Where training goes on: plain JSON, the same on every rank, for any mesh."""
        epoch, row = divmod(at, self.rows) if self.epoch is None else (self.epoch, at - self.epoch * self.rows)
        values = (self.namespace, epoch, row, iteration, self.first, self.rows, self.seed, self.window, self.padding)
        return {"batchweave": KIND, **dict(zip(_FIELDS, values)), "check": _check(values)}

    def position(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Position and iteration of a state."""
        return state["epoch"] * self.rows + state["row"], state["iteration"]


def is_epoch_state(value: Any) -> bool:
    """Whether this is a state of epochs, and no cursor."""
    return isinstance(value, Mapping) and value.get("batchweave") == KIND


def parse_epoch_state(value: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a state of epochs that a trainer saved."""
    values = tuple(value.get(name) for name in _FIELDS)
    whole = [*values[1:6], *values[7:]]
    seed_is_whole = values[6] is None or type(values[6]) is int
    if not isinstance(values[0], str) or not seed_is_whole or not all(type(n) is int and 0 <= n <= SAFE_INTEGER_MAX for n in whole):
        raise invalid("This is not a state of epochs: a field is missing or is not a whole number. Pass what state_dict() gave.")
    if values[8] > values[5]:  # type: ignore[operator]
        raise invalid("This is not a state of epochs: it has more rows that are no samples than rows. Pass what state_dict() gave.")
    if "check" in value and value["check"] != _check(values):
        raise invalid('This state of epochs was changed: its "check" does not match (remove "check" if you edited it on purpose).')
    return {"batchweave": KIND, **dict(zip(_FIELDS, values)), "check": _check(values)}


def _check(values: Sequence[Any]) -> str:
    return crc_text(crc32(":".join(map(str, values)).encode("utf-8", "replace")))


@lru_cache(maxsize=16)
def shuffled(seed: int, epoch: int, window: int, size: int) -> list[int]:
    """0 to size - 1 in an order of their own: Fisher and Yates's, with splitmix64 from a hash of what is asked for. No version of Python changes it."""
    state = int.from_bytes(hashlib.sha256(f"batchweave-shuffle-1:{seed}:{epoch}:{window}".encode()).digest()[:8], "little")
    order = list(range(size))
    for i in range(size - 1, 0, -1):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        j = ((z ^ (z >> 31)) * (i + 1)) >> 64
        order[i], order[j] = order[j], order[i]
    return order


def padding_rows(log: Log, manifest: Manifest, first: int) -> int:
    """Rows at the end of a log, from row `first` on, that are no samples: its writer filled the last batch with them. Reads few rows, halving the batch."""
    rows = log.spec.rows
    reader = SliceReader(log, 1)

    def is_sample(row: int) -> bool:
        [found] = reader.fetch(reader.prepare(manifest, [Cell(*divmod(row, rows), 0)]))
        return not slice_is_padding(found.bytes)

    try:
        for step in range(manifest.end - 1, max(first // rows, manifest.end - _PADDED_BATCHES_MAX) - 1, -1):
            low, high = max(first, step * rows), (step + 1) * rows  # samples end somewhere in here
            if is_sample(high - 1):
                return manifest.end * rows - high
            high -= 1
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if is_sample(middle) else (low, middle)
            if low > max(first, step * rows):
                return manifest.end * rows - low
        return manifest.end * rows - max(first, (manifest.end - _PADDED_BATCHES_MAX) * rows)
    finally:
        reader.close()


class EpochProjection(Projection):
    """What a rank gets of epochs. Rows count as positions of the order."""

    def __init__(self, order: EpochOrder, last: Last, *settings: Any) -> None:
        super().__init__(*settings)
        self.order = order
        self.last = last

    def end_row(self, end: int) -> int:
        return self.order.end

    def plan(self, row: int, iteration: int) -> IterationPlan:
        n = self.rows_of_rank(iteration)
        left = self.order.end - row
        if left >= self.data_ranks * n:
            first = row + self.d * n
            return self._planned(row, row + self.data_ranks * n, iteration, range(first, first + n), 0)
        if left <= 0 or self.last == "drop":
            return IterationPlan(iteration, row, row, _NEVER, _NEVER, 0, [])
        begin, end = (row + d * left // self.data_ranks for d in (self.d, self.d + 1))
        own = list(range(begin, end))
        # Every rank takes part in every iteration, with one row at least: some have none of their own.
        padding = (n if self.last == "pad" else max(1, len(own))) - len(own)
        return self._planned(row, self.order.end, iteration, own + [own[-1] if own else row] * padding, padding)

    def _planned(self, row: int, next_row: int, iteration: int, positions: Sequence[int], padding: int) -> IterationPlan:
        places = [divmod(self.order.row(at), self.rows) for at in positions]
        cells = [Cell(step, r, chunk) for step, r in places for chunk in self.own_chunks]
        steps = [step for step, _ in places]
        return IterationPlan(iteration, row, next_row, min(steps), max(steps), len(places), cells, padding)


def open_log_error(uri: str, end: int) -> BatchWeaveError:
    """Epochs, shuffling and rows that are read to the last need an end."""
    return invalid(
        f"epochs, shuffle and last need a log that has ended, and {uri} is still open at step {end}. End it with namespace.end_log() or `batchweave close`, or "
        "read it without these while it grows.",
        uri=uri,
        end=end,
    )
