"""The training log beside the source logs, as a loader sees it: whether it still needs samples, and where loaders leave their pulse."""
from __future__ import annotations

import os
import re
import socket
import time
from typing import Any, Callable

from ..errors import BatchWeaveError
from ..namespace import Namespace, open_namespace
from ..pulse.pulse import Pulse

#: Source logs lie beside the training log, under this ending of its name.
_SOURCES_ENDING = ".sources"
#: How often it is looked at.
_LOOK_S = 10.0


class TrainingWatch:
    """Looks for the training log of a folder of source logs, now and then. It may not be there yet, or be somewhere else: only its closing says anything."""

    def __init__(self, folder: str, settings: dict[str, Any], facts: Callable[[], dict[str, Any]] | None) -> None:
        base = folder.rstrip("/")
        self.uri = base[: -len(_SOURCES_ENDING)] if base.endswith(_SOURCES_ENDING) else None
        self._settings = settings
        self._facts = facts
        self._namespace: Namespace | None = None
        self._pulse: Pulse | None = None
        self._looked_at = -_LOOK_S

    def is_over(self) -> bool:
        """A training log that is closed needs no samples."""
        now = time.monotonic()
        if self.uri is None or now - self._looked_at < _LOOK_S:
            return False
        self._looked_at = now
        try:
            if self._namespace is None:
                self._namespace = open_namespace(self.uri, **self._settings)
            if self._pulse is None and self._facts is not None:
                log = self._namespace.log
                self._pulse = Pulse(log.store, log.spec.uuid, "loader", _process_name(), self._facts)
            return self._namespace.log.head.newest().closed
        except BatchWeaveError:
            self._namespace = None
            return False

    def hurry(self, why: str) -> None:
        """Something worth knowing has happened: the next pulse need not wait for its turn."""
        if self._pulse is not None:
            self._pulse.hurry(why)

    def stop(self) -> None:
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse.join(time.monotonic() + _LOOK_S)


def _process_name() -> str:
    """Where it runs, and its number there."""
    host = re.sub(r"[^A-Za-z0-9._-]", "", socket.gethostname())[:40].lstrip(".-") or "host"
    return f"{host}.{os.getpid()}"
