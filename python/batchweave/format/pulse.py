"""Pulses (FORMAT.md 24): the name says who and when, the body how it fares. Nothing is concluded from them."""
from __future__ import annotations

import re
from typing import Any, NamedTuple

from .stored_json import SAFE_INTEGER_MAX, is_name, seal_json

PULSE_PREFIX = "pulse/"
#: Bytes of a pulse at most, its ending included.
PULSE_BYTES_MAX = 4_096
_KEY = re.compile(r"pulse/([a-z]{1,16})/(.+)-(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})-([0-9a-v]{12})", re.ASCII)


class PulseName(NamedTuple):
    """What the name of a pulse says. Times are in ms, by its writer's clock."""

    role: str
    name: str
    at: int
    every: int
    incarnation: str

    @property
    def key(self) -> str:
        return f"{PULSE_PREFIX}{self.role}/{self.name}-{self.at}-{self.every}-{self.incarnation}"

    def is_late(self, now: int) -> bool:
        """Two beats are missing: its process is gone, or cannot reach the store."""
        return now - self.at > 2 * self.every + 10_000


def parse_pulse_key(key: str) -> PulseName | None:
    """What a key says, or None for a foreign name."""
    match = _KEY.fullmatch(key)
    if match is None or not is_name(match[2]):
        return None
    at, every = int(match[3]), int(match[4])
    return PulseName(match[1], match[2], at, every, match[5]) if max(at, every) <= SAFE_INTEGER_MAX else None


def encode_pulse(
    namespace: str, name: PulseName, host: str, pid: int, started: int, facts: dict[str, Any], machine: str | None = None
) -> bytes:
    """The object of a pulse. Facts that do not fit are left out, the last ones first."""
    kept = list(facts.items())
    while True:
        fields: dict[str, Any] = {
            "role": name.role, "name": name.name, "at": name.at, "every": name.every,
            "host": host[:255], "pid": pid, **({} if machine is None else {"machine": machine}), "started": started, "facts": dict(kept),
        }
        if len(kept) < len(facts):
            fields["cut"] = True
        data = seal_json("pulse", namespace, fields)
        if len(data) <= PULSE_BYTES_MAX or not kept:
            return data
        kept.pop()
