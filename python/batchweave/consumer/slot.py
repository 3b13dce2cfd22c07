"""An iteration on its way from the plan to the trainer."""
from __future__ import annotations

from typing import Any

from ..format.manifest import Manifest
from ..store.hedging import Reading
from .projection import IterationPlan
from .reader import Prepared


class Slot:
    """An iteration that is being read or waits to be taken."""

    __slots__ = ("plan", "manifest", "prepared", "is_prepared", "held_bytes", "value", "error", "is_done", "reading", "attempts", "is_claimed")

    def __init__(self, plan: IterationPlan, manifest: Manifest) -> None:
        self.plan = plan
        self.manifest = manifest
        self.prepared: Prepared | None = None
        self.is_prepared = False
        self.held_bytes = 0
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        #: The first attempt at what is being read now, and how many of them are under way.
        self.reading: Reading | None = None
        self.attempts = 0
        self.is_claimed = False
