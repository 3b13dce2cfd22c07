"""The projection: which cells of the log one rank gets in one iteration (FORMAT.md 14). One formula for every mesh."""
from __future__ import annotations

import json
from typing import Any, Callable, Literal, NamedTuple, Sequence, Union

from ..errors import BatchWeaveError, invalid
from .mesh import divisors, mismatch, or_list

ROWS_PER_RANK_MAX = 65_536

Policy = Literal["per-rank", "global-batch"]
Layout = Literal["contiguous", "zigzag"]
#: A number; [from iteration, rows] pairs in ascending order, the first from 0; or a function of the iteration.
RowsPerRank = Union[int, Sequence[Sequence[int]], Callable[[int], int]]


class Cell(NamedTuple):
    """One slice of the log. `row` counts within its batch."""

    step: int
    row: int
    chunk: int


class IterationPlan(NamedTuple):
    """What one iteration takes from the log (global rows [row, next_row) of all ranks), and this rank's cells."""

    iteration: int
    row: int
    next_row: int
    first_step: int
    last_step: int
    rows: int
    cells: list[Cell]
    #: How many rows at the end are no rows of this rank: they fill its last iteration.
    padding: int = 0

    def first_row(self, rows: int) -> int:
        """The first global row that is read, of batches of `rows`: of shuffled rows, the beginning of the first batch."""
        return self.row if self.row // rows == self.first_step else self.first_step * rows


class Projection:
    """Everything the formula needs besides a position."""

    def __init__(
        self,
        rows: int,
        chunks: int,
        data_ranks: int = 1,
        d: int = 0,
        chunk_ranks: int = 1,
        c: int = 0,
        policy: str = "per-rank",
        layout: str = "contiguous",
        rows_per_rank: RowsPerRank = 1,
    ) -> None:
        self.rows = rows
        self.chunks = chunks
        self.data_ranks = data_ranks
        self.d = d
        self.policy = policy
        self._rows_per_rank = rows_per_rank
        _one_of("policy", policy, ("per-rank", "global-batch"))
        _one_of("layout", layout, ("contiguous", "zigzag"))
        zigzag = layout == "zigzag" and chunk_ranks > 1
        pieces = 2 * chunk_ranks if zigzag else chunk_ranks
        if chunks % pieces != 0:
            fits = [n for n in divisors(chunks) if n == 1 or layout == "contiguous" or chunks % (2 * n) == 0]
            how = " in zigzag (2 x cp groups)" if layout == "zigzag" else ""
            raise mismatch(
                f"cp {chunk_ranks} cannot divide the {chunks} chunks of this namespace{how}; cp can be {or_list(fits)}.",
                cp=chunk_ranks,
                chunks=chunks,
                fits=fits,
            )
        size = chunks // pieces
        groups = [c, 2 * chunk_ranks - 1 - c] if zigzag else [c]
        #: Chunks of this rank, in the order of the sequence.
        self.own_chunks = [group * size + i for group in groups for i in range(size)]
        if policy == "global-batch":
            self._check_global_batch(rows_per_rank)
        elif not callable(rows_per_rank):
            _check_schedule(rows_per_rank)

    def _check_global_batch(self, rows_per_rank: RowsPerRank) -> None:
        if self.rows % self.data_ranks != 0:
            raise mismatch(
                f'dp {self.data_ranks} cannot divide the {self.rows} rows of a batch with policy "global-batch"; dp can be '
                f'{or_list(divisors(self.rows))}, or use policy "per-rank", which takes any.',
                dp=self.data_ranks,
                rows=self.rows,
                fits=divisors(self.rows),
            )
        if rows_per_rank != 1:
            raise invalid(
                f'rows_per_rank does not go with policy "global-batch": every iteration is one batch of {self.rows} rows. '
                'Leave it out, or use policy "per-rank".'
            )

    @property
    def is_steady(self) -> bool:
        """Whether a rank gets as many rows in every iteration."""
        return self.policy == "global-batch" or isinstance(self._rows_per_rank, int)

    def rows_of_rank(self, iteration: int) -> int:
        """Rows of one rank in `iteration`."""
        if self.policy == "global-batch":
            return self.rows // self.data_ranks
        given: Any = self._rows_per_rank
        if callable(given):
            rows = given(iteration)
            _check_rows(rows, f"rows_per_rank({iteration})")
            found: int = rows
            return found
        if isinstance(given, int):
            return given
        other: int = [rows for start, rows in given if start <= iteration][-1]
        return other

    def end_row(self, end: int) -> int:
        """The row behind the last one of a log that ends at step `end`."""
        return end * self.rows

    def plan(self, row: int, iteration: int) -> IterationPlan:
        """What the iteration that begins at global row `row` takes."""
        if self.policy == "global-batch" and row % self.rows != 0:
            raise _off_boundary(row, self.rows)
        n = self.rows_of_rank(iteration)
        next_row = row + self.data_ranks * n
        first = row + self.d * n
        cells = []
        for global_row in range(first, first + n):
            step, r = divmod(global_row, self.rows)
            cells += [Cell(step, r, chunk) for chunk in self.own_chunks]
        return IterationPlan(iteration, row, next_row, row // self.rows, (next_row - 1) // self.rows, n, cells)


def _one_of(what: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        names = " or ".join(f'"{a}"' for a in allowed)
        raise invalid(f"{what} must be {names}, not {json.dumps(str(value))}.", **{what: str(value)})


def _check_rows(rows: Any, what: str) -> None:
    if type(rows) is not int or not 1 <= rows <= ROWS_PER_RANK_MAX:
        raise invalid(f"{what} is {rows}; a rank takes 1 to {ROWS_PER_RANK_MAX} whole rows in an iteration.")


def _check_schedule(schedule: Any) -> None:
    if isinstance(schedule, (int, float)):
        _check_rows(schedule, "rows_per_rank")
        return
    if not isinstance(schedule, (list, tuple)) or not schedule:
        raise invalid("rows_per_rank is an empty schedule; say [[0, rows]] at least.")
    for i, item in enumerate(schedule):
        if not isinstance(item, (list, tuple)) or len(item) != 2:
            raise invalid(f"rows_per_rank[{i}] is not [from iteration, rows], as in [[0, 1], [1000, 2]].")
        start, rows = item
        _check_rows(rows, f"rows_per_rank[{i}]")
        if type(start) is not int or (start <= schedule[i - 1][0] if i else start != 0):
            raise invalid(
                f"rows_per_rank[{i}] starts at iteration {start}: a schedule starts at iteration 0 and ascends, as in "
                "[[0, 1], [1000, 2]]."
            )


def _off_boundary(row: int, rows: int) -> BatchWeaveError:
    before = row - row % rows
    return invalid(
        f'Row {row} is inside batch {before // rows}, and policy "global-batch" starts at a whole batch of {rows} rows. Start '
        f"from row {before} (repeats {row - before}) or row {before + rows} (skips {before + rows - row}), or go on with "
        'policy "per-rank".',
        row=row,
        before=before,
        after=before + rows,
    )
