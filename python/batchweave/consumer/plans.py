"""The iterations of one worker, in order, planned as far ahead as somebody wants to know them."""
from __future__ import annotations

from collections import deque

from .projection import IterationPlan, Projection


class Plans:
    """Of all iterations from a position on, those whose number, counted from there, leaves `offset` when divided by `stride`."""

    def __init__(self, projection: Projection, row: int, iteration: int, stride: int, offset: int) -> None:
        self._projection = projection
        self._row = row
        self._iteration = iteration
        self._stride = stride
        self._skip = offset
        self._planned: deque[IterationPlan] = deque()

    def next(self) -> IterationPlan:
        """Takes the next one."""
        if not self._planned:
            self._plan()
        return self._planned.popleft()

    def put_back(self, plan: IterationPlan) -> None:
        """The one taken last is the next one again."""
        self._planned.appendleft(plan)

    def look(self, ahead: int, end: int) -> list[IterationPlan]:
        """Those among the next `ahead` ones that nobody has looked at; no further than step `end`."""
        found: list[IterationPlan] = []
        while len(self._planned) < ahead:
            plan = self._plan()
            if plan.last_step >= end:
                self._planned.pop()
                self._row, self._iteration, self._skip = plan.row, plan.iteration, 0
                break
            found.append(plan)
        return found

    def _plan(self) -> IterationPlan:
        while True:
            plan = self._projection.plan(self._row, self._iteration)
            self._row, self._iteration = plan.next_row, plan.iteration + 1
            if self._skip == 0:
                self._skip = self._stride - 1
                self._planned.append(plan)
                return plan
            self._skip -= 1
