"""Rows of Parquet files as samples."""
from __future__ import annotations

from typing import Any, Iterator

from ..errors import BatchWeaveError
from .source import Files, Paths

_BATCH_ROWS = 1_024


class ParquetRows(Files):
    """A place is a number of rows of the file. Row groups before it are not read."""

    _what = "Parquet rows"

    def __init__(self, paths: Paths, columns: list[str] | None) -> None:
        try:
            from pyarrow import parquet
        except ImportError:
            raise BatchWeaveError("MISSING_PACKAGE", "Reading Parquet needs the package pyarrow: run pip install pyarrow.", {"package": "pyarrow"}) from None
        self._parquet: Any = parquet
        self._columns = columns
        super().__init__(paths)

    def total(self) -> int | None:
        return sum(int(self._parquet.read_metadata(path).num_rows) for path in self._paths)

    def _read_file(self, path: str, after: Any) -> Iterator[tuple[Any, Any]]:
        with self._parquet.ParquetFile(path) as file:
            at, first, groups = after or 0, 0, []
            for number in range(file.num_row_groups):
                rows = file.metadata.row_group(number).num_rows
                if first + rows > at:
                    groups.append(number)
                elif not groups:
                    first += rows
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=self._columns) if groups else ():
                skip = min(batch.num_rows, max(0, at - first))
                first += batch.num_rows
                if skip == batch.num_rows:
                    continue
                names = batch.schema.names
                for values in zip(*(_values(batch.column(i).slice(skip)) for i in range(len(names)))):
                    at += 1
                    yield dict(zip(names, values)), at


def _values(column: Any) -> Iterator[Any]:
    """The values of a column; lists of numbers as arrays, which cost no object a number."""
    import pyarrow

    kind = column.type
    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    if is_list and column.null_count == 0 and (pyarrow.types.is_integer(kind.value_type) or pyarrow.types.is_floating(kind.value_type)):
        try:
            flat = column.values.to_numpy()  # not if it holds nulls
        except (pyarrow.ArrowInvalid, ImportError):
            return iter(column.to_pylist())
        ends = column.offsets.to_pylist()
        return (flat[begin:end] for begin, end in zip(ends, ends[1:]))
    return iter(column.to_pylist())
