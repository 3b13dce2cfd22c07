"""Ready-made readers: Hugging Face datasets, PyArrow data sets, WebDataset archives. Each package is imported when it is first used."""
from __future__ import annotations

import glob
import json
import os
import tarfile
from typing import Any, Callable, Iterator, Sequence

from ..errors import BatchWeaveError, invalid
from .reader import Item, LanePart, Unit, UnitReader

#: Rows of one unit of a map-style data set: what is read side by side, and the grain of shuffling.
_ROWS = 256
#: A streaming data set tells its state after so many samples; those since are read again on resuming.
_STATE_EVERY = 64


def _need(package: str) -> BatchWeaveError:
    return BatchWeaveError("MISSING_PACKAGE", f"This reader needs the package {package}: run pip install {package}.", {"package": package})


def _paths(given: str | Sequence[str]) -> list[str]:
    """Files by name; `*` stands for any characters. In the order of their names, so that every machine finds the same."""
    found: list[str] = []
    for pattern in [given] if isinstance(given, str) else given:
        found += sorted(glob.glob(pattern)) if any(c in pattern for c in "*?[") else [pattern]
    return found


class _Rows(UnitReader):
    """A data set with a length and rows by number."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._mark = str(getattr(dataset, "_fingerprint", ""))

    def units(self) -> Sequence[Unit]:
        count = len(self._dataset)
        return [Unit(str(at), f"{count} {self._mark}", at) for at in range(0, count, _ROWS)]

    def samples(self, unit: Unit, passed: int) -> Iterator[tuple[str, Any]]:
        for i in range(unit.place + passed, min(unit.place + _ROWS, len(self._dataset))):
            yield str(i), self._dataset[i]


class _Streaming:
    """A Hugging Face IterableDataset: whole shards to each lane where there are enough, otherwise samples dealt out."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._initial: Any = None

    def fingerprint(self) -> str:
        return f"streaming:{self._dataset.num_shards}"

    def read(self, part: LanePart, after: Any) -> Iterator[Item]:
        epoch, state, since, count = after or (0, None, 0, 0)
        shards = self._dataset.num_shards
        is_divided = shards >= part.lanes > 1
        share, of = (0, 1) if is_divided else (part.lane, part.lanes)
        while part.epochs is None or epoch < part.epochs:
            dataset = self._dataset.shard(num_shards=part.lanes, index=part.lane) if is_divided else self._dataset
            if part.shuffle:
                dataset = dataset.shuffle(seed=int.from_bytes(f"{part.seed}:{epoch}".encode(), "big") % 2**32)
            # Also at the beginning: iterating a data set again goes on from the state that was loaded last.
            if dataset is not self._dataset:
                initial = None
            elif self._initial is None:
                initial = self._initial = json.loads(json.dumps(dataset.state_dict()))
            else:
                initial = self._initial
            if state is not None or initial is not None:
                dataset.load_state_dict(initial if state is None else state)
            passed, since_state = since, 0
            for value in dataset:
                since_state += 1
                if since_state > passed:
                    count += 1
                    if (count - 1) % of == share:
                        prefix = f"{epoch}/" if epoch else ""
                        name = f"{part.lane}:{count - 1}" if is_divided else str(count - 1)
                        yield Item(f"{prefix}{name}", value, [epoch, state, since_state, count])
                if since_state == _STATE_EVERY:
                    state, passed, since_state = json.loads(json.dumps(dataset.state_dict())), 0, 0
            epoch, state, since, count = epoch + 1, None, 0, 0


class _LazyDataset:
    """A Hugging Face data set that is loaded when it is first read: workers and other lanes need none."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._reader: Any = None

    def _open(self) -> Any:
        if self._reader is None:
            dataset = self._given() if callable(self._given) else self._given
            if hasattr(dataset, "num_shards") and hasattr(dataset, "state_dict"):
                self._reader = _Streaming(dataset)
            elif hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and not isinstance(dataset, dict):
                self._reader = _Rows(dataset)
            else:
                raise invalid(
                    f"{type(dataset).__name__} is no data set with rows or a stream of them. Name a split, as in load_dataset(..., split=\"train\")."
                )
        return self._reader

    def fingerprint(self) -> str:
        return str(self._open().fingerprint())

    def read(self, part: LanePart, after: Any) -> Iterator[Item]:
        return iter(self._open().read(part, after))


def huggingface(dataset: Any | Callable[[], Any]) -> _LazyDataset:
    """A Hugging Face data set, map-style or streaming, or a function that loads one. A sample's value is the row."""
    return _LazyDataset(dataset)


class _Arrow(UnitReader):
    def __init__(self, source: Any, format: str, columns: Sequence[str] | None) -> None:
        self._source = source
        self._format = format
        self._columns = list(columns) if columns is not None else None
        self._units: list[Unit] | None = None

    def _dataset(self) -> Any:
        try:
            from pyarrow import dataset
        except ImportError:
            raise _need("pyarrow") from None
        try:
            is_path = isinstance(self._source, (str, list, tuple))
            source = (_paths(self._source) if is_path else self._source) if self._source else self._source
            if is_path and len(source) == 1:
                source = source[0]
            return source if hasattr(source, "get_fragments") else dataset.dataset(source, format=self._format)
        except (OSError, ValueError) as error:
            raise BatchWeaveError("MISSING_OBJECT", f"The data set {self._source} cannot be opened: {error}. Check its path.", {}) from error

    def units(self) -> Sequence[Unit]:
        if self._units is None:
            found = []
            for fragment in sorted(self._dataset().get_fragments(), key=lambda f: str(f.path)):
                name = os.path.basename(fragment.path)
                if self._format == "parquet" and hasattr(fragment, "split_by_row_group"):
                    for i, group in enumerate(fragment.split_by_row_group()):
                        found.append(Unit(f"{name}#{i}", str(group.metadata.num_rows if hasattr(group.metadata, "num_rows") else ""), group))
                else:
                    found.append(Unit(name, "", fragment))
            self._units = found
        return self._units

    def samples(self, unit: Unit, passed: int) -> Iterator[tuple[str, Any]]:
        number = 0
        for batch in unit.place.to_batches(columns=self._columns, batch_size=1024, use_threads=False):
            if number + batch.num_rows <= passed:
                number += batch.num_rows
                continue
            for row in batch.slice(max(0, passed - number)).to_pylist():
                yield f"{unit.name}:{max(number, passed)}", row
                number = max(number, passed) + 1


def arrow(source: Any, format: str = "parquet", columns: Sequence[str] | None = None) -> _Arrow:
    """A PyArrow data set: paths (`*` allowed), a folder, or a `pyarrow.dataset.Dataset`. A sample's value is the row by column name."""
    return _Arrow(source, format, columns)


class _WebDataset(UnitReader):
    def __init__(self, shards: str | Sequence[str]) -> None:
        self._shards = shards

    def units(self) -> Sequence[Unit]:
        units = []
        for path in _paths(self._shards):
            try:
                units.append(Unit(os.path.basename(path), str(os.path.getsize(path)), path))
            except OSError as error:
                raise BatchWeaveError("MISSING_OBJECT", f"The shard {path} cannot be read: {error.strerror}. Put it back, or leave it out.", {}) from error
        return units

    def samples(self, unit: Unit, passed: int) -> Iterator[tuple[str, Any]]:
        number, key = 0, None
        files: dict[str, bytes] = {}
        try:
            # Members of a plain archive that were passed are not read, only their headers.
            with tarfile.open(unit.place) as archive:
                for member in archive:
                    if not member.isfile():
                        continue
                    folder, _, name = member.name.rpartition("/")
                    stem, _, field = name.partition(".")
                    found = f"{folder}/{stem}" if folder else stem
                    if found != key:
                        if key is not None:
                            number += 1
                            if number > passed:
                                yield f"{unit.name}:{key}", {"__key__": key, **files}
                        key, files = found, {}
                    if number >= passed:
                        file = archive.extractfile(member)
                        files[field] = file.read() if file else b""
            if key is not None and number >= passed:
                yield f"{unit.name}:{key}", {"__key__": key, **files}
        except tarfile.TarError as error:
            raise ValueError(str(error)) from error


def webdataset(shards: str | Sequence[str]) -> _WebDataset:
    """WebDataset tar archives, plain or compressed. A sample's value: bytes by file name ending, and `__key__`."""
    return _WebDataset(shards)
