"""A bar on a terminal, a line now and then in a log; nothing unless it is asked for."""
from __future__ import annotations

import sys
import time
from typing import Any, Callable, Union

#: False: nothing. True: a bar or lines on stderr. A function of (samples done, samples in all or None).
Progress = Union[bool, Callable[[int, Union[int, None]], Any]]

_BAR_S = 0.2
_LINE_S = 30.0
_WIDTH = 30


class ProgressBar:
    """Tells how far a source has been read."""

    def __init__(self, progress: Progress, name: str, total: int | None) -> None:
        self._call = progress if callable(progress) else None
        self._is_on = bool(progress)
        self._name = name
        self._total = total
        self._is_terminal = sys.stderr.isatty()
        self._begun = self._told = time.monotonic()
        self._first: int | None = None

    def tell(self, done: int) -> None:
        """`done` samples of all."""
        if not self._is_on:
            return
        if self._first is None:
            self._first = done - 1
        now = time.monotonic()
        if now - self._told >= (_BAR_S if self._call or self._is_terminal else _LINE_S):
            self._told = now
            self._show(done, now)

    def end(self, done: int) -> None:
        """The last word."""
        if self._is_on:
            self._show(done, time.monotonic())
            if self._call is None and self._is_terminal:
                sys.stderr.write("\n")

    def _show(self, done: int, now: float) -> None:
        if self._call is not None:
            self._call(done, self._total)
            return
        rate = (done - (self._first or 0)) / max(1e-9, now - self._begun)
        text = f"{self._name}: {done:,}{f' of {self._total:,}' if self._total else ''} samples, {rate:,.0f}/s"
        if self._is_terminal:
            bar = ""
            if self._total:
                full = min(_WIDTH, _WIDTH * done // self._total)
                bar = f"[{'#' * full}{'.' * (_WIDTH - full)}] "
            sys.stderr.write(f"\r{bar}{text} ")
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()
