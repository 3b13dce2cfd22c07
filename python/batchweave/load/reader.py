"""Readers: the samples of one lane of a source, in the same order every time, from any position."""
from __future__ import annotations

import hashlib
import inspect
import random
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Protocol, Sequence

from ..errors import invalid


class Item(NamedTuple):
    """What a reader comes upon: a value, or the reason why there is none. `after`: the position past it, JSON."""

    id: str
    value: Any
    after: Any
    error: str | None = None
    stage: str = "sample"


class LanePart(NamedTuple):
    """Which part of a source a reader gives, and in what order."""

    lane: int
    lanes: int
    seed: str
    #: Passes over the data; None: endless.
    epochs: int | None = 1
    shuffle: bool = False


class Reader(Protocol):
    """What a source reads from."""

    def fingerprint(self) -> str:
        """Of all that decides which samples there are, and their order: a position is good only for the same."""

    def read(self, part: LanePart, after: Any) -> Iterator[Item]:
        """The samples of a lane behind a position; None: from the beginning."""


class Unit(NamedTuple):
    """A part of a source that is read from its beginning: a file, a row group, a range of rows."""

    name: str
    #: Whatever tells one state of it from another: a size, a number of rows.
    mark: str
    #: For the reader.
    place: Any


class UnitReader:
    """A source of units. Each lane has whole units; where there are fewer than lanes, several lanes deal out the samples of one.

    A position is `[epoch, which of the lane's units, samples of it passed]`.
    """

    def units(self) -> Sequence[Unit]:
        raise NotImplementedError

    def samples(self, unit: Unit, passed: int) -> Iterator[tuple[str, Any]]:
        """(name, value) of a unit's samples behind the first `passed`, in order."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for unit in self.units():
            digest.update(f"{unit.name}\0{unit.mark}\0".encode())
        return digest.hexdigest()[:16]

    def read(self, part: LanePart, after: Any) -> Iterator[Item]:
        units = self.units()
        if not units:
            raise invalid("This source has no data: nothing matches what it names. Check its paths.")
        epoch, turn, passed = after or (0, 0, 0)
        while part.epochs is None or epoch < part.epochs:
            order = list(range(len(units)))
            if part.shuffle:
                random.Random(f"{part.seed}:{epoch}").shuffle(order)
            own = _own_units(order, part, epoch)
            while turn < len(own):
                number, share, of = own[turn]
                yield from self._read_unit(units[number], (epoch, turn, passed), share, of)
                turn, passed = turn + 1, 0
            epoch, turn = epoch + 1, 0

    def _read_unit(self, unit: Unit, start: tuple[int, int, int], share: int, of: int) -> Iterator[Item]:
        epoch, turn, passed = start
        prefix = f"{epoch}/" if epoch else ""
        count = passed
        try:
            for name, value in self.samples(unit, passed):
                count += 1
                if (count - 1) % of == share:
                    yield Item(f"{prefix}{name}", value, [epoch, turn, count])
        except _READ_ERRORS as error:
            # The rest of a unit that is damaged cannot be read; those behind it can.
            yield Item(f"{prefix}{unit.name} at {count}", None, [epoch, turn + 1, 0], f"{type(error).__name__}: {error}", "shard")


#: What damaged files raise; tarfile's, pyarrow's and zlib's errors are among them.
_READ_ERRORS = (OSError, ValueError, EOFError)


def _own_units(order: list[int], part: LanePart, epoch: int) -> list[tuple[int, int, int]]:
    """(unit, share of its samples, of how many shares) of a lane. Lanes move on by one each epoch."""
    lane, count = (part.lane + epoch) % part.lanes, len(order)
    if count >= part.lanes:
        return [(unit, 0, 1) for i, unit in enumerate(order) if i % part.lanes == lane]
    sharing = len(range(lane % count, part.lanes, count))
    return [(order[lane % count], lane // count, sharing)]


class Stream:
    """A function that gives an iterable, in the same order every time it is called: `stream(lambda: lines())`.

    Called with `lane` and `lanes` if it takes them, and then gives that lane's part; otherwise samples are dealt out one by one. On resuming it
    is called again, and what was passed is read and thrown away; a reader of your own can do better.
    """

    def __init__(self, open: Callable[..., Iterable[Any]], name: str = "") -> None:
        self._open = open
        self._name = name or getattr(open, "__qualname__", type(open).__name__)
        self._takes_lanes = "lanes" in inspect.signature(open).parameters

    def fingerprint(self) -> str:
        return f"stream:{self._name}"

    def read(self, part: LanePart, after: Any) -> Iterator[Item]:
        epoch, passed = after or (0, 0)
        while part.epochs is None or epoch < part.epochs:
            values = self._open(lane=part.lane, lanes=part.lanes) if self._takes_lanes else self._open()
            prefix = f"{epoch}/" if epoch else ""
            count = 0
            for count, value in enumerate(values, 1):
                if count <= passed or not (self._takes_lanes or (count - 1) % part.lanes == part.lane):
                    continue
                name = f"{part.lane}:{count - 1}" if self._takes_lanes else str(count - 1)
                yield Item(f"{prefix}{name}", value, [epoch, count])
            if count == 0 and part.epochs is None:
                raise invalid(f"The stream {self._name} gave nothing: an endless source of it would never have a sample.")
            epoch, passed = epoch + 1, 0


def stream(open: Callable[..., Iterable[Any]], name: str = "") -> Stream:
    """Anything that yields values in the same order every time."""
    return Stream(open, name)
