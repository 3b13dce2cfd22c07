"""What a trainer tells its producers: numbers in a small log beside the training log (FORMAT.md 25)."""
from __future__ import annotations

import json
import logging
import math
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Mapping

from ..errors import BatchWeaveError, invalid

if TYPE_CHECKING:
    from ..producer.producer import Producer

#: Between two reports of a trainer at least; what comes sooner goes with the next.
EVERY_S = 5.0
_VALUES_MAX = 4_096
_LOGGER = logging.getLogger("batchweave")


def report_log_uri(uri: str) -> str:
    """Where the reports of a log lie."""
    match = re.fullmatch(r"([^?#]*?)/*([?#].*)?", uri, re.DOTALL)
    assert match, "the pattern takes any text"
    return f"{match[1]}.reports{match[2] or ''}"


class Reports:
    """Writes the reports of one training run. Nothing depends on them: what the store refuses is forgotten, and the next one tries again."""

    def __init__(self, uri: str, group: str, store_settings: dict[str, Any]) -> None:
        self._uri = report_log_uri(uri)
        self._group = group
        self._store_settings = store_settings
        self._values: dict[str, float] = {}
        self._sent = -math.inf
        self._producer: Producer | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """Sends numbers, with those of earlier calls that were not sent yet. Returns at once: they are in the log about a second later."""
        numbers = {name: float(value) for name, value in values.items()}
        bad = [name for name, value in numbers.items() if not math.isfinite(value) or not isinstance(name, str) or len(name) > 256]
        if bad:
            raise invalid(f"A report holds finite numbers by name, not {numbers[bad[0]]} for {bad[0]!r}.")
        if len(numbers) > _VALUES_MAX:
            raise BatchWeaveError("LIMIT", f"A report holds at most {_VALUES_MAX} numbers, not {len(numbers)}. Report fewer.", {})
        with self._lock:
            self._values.update(numbers)
            if time.monotonic() - self._sent < EVERY_S:
                return
            self._sent = time.monotonic()
            body = json.dumps({"v": 1, "step": step, "values": self._values}).encode()
            self._values = {}
            try:
                self._open().append([body], content_type="application/json")
            except (BatchWeaveError, OSError) as error:
                self._producer = None
                _LOGGER.warning("A report to the producers was not sent: %s", error)

    def _open(self) -> Producer:
        if self._producer is None or self._pid != os.getpid():
            from ..namespace import create_namespace

            self._producer = create_namespace(self._uri, 1, 1, **self._store_settings).producer(f"trainer-{self._group}")
            self._pid = os.getpid()
        return self._producer

    def close(self) -> None:
        """What was sent is in the log then."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None and self._pid == os.getpid():
            producer.close()


_OPEN: dict[tuple[int, str, str], Reports] = {}


def reports_of(uri: str, group: str, store_settings: dict[str, Any]) -> Reports:
    """The reports of a training run in this process: datasets travel to other processes, connections do not."""
    return _OPEN.setdefault((os.getpid(), uri, group), Reports(uri, group, store_settings))
