"""What goes wrong with single samples, and what is done about it. Nothing is left out without a record. Twin of src/plan/load/fault.ts."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import BatchWeaveError, invalid

#: A share is judged from so many samples on, and counts are halved at the other: a source that goes bad late is noticed as soon.
_SAMPLES_MIN = 100
_SAMPLES_MAX = 2_000
#: Faults one after another at most, whatever share is allowed.
_IN_ROW_MAX = 10_000
_CODES = {"shard": "CORRUPT", "sample": "CORRUPT", "transform": "INVALID_ARGUMENT", "empty": "INVALID_ARGUMENT", "length": "LIMIT"}


@dataclass(frozen=True)
class FaultPolicy:
    """`stop`: the load fails. `skip`: leave the sample out, record it. `retry`: try again, then do as `after_retries` says."""

    on_fault: str = "stop"
    retries_max: int = 3
    retry_delay: float = 0.1
    after_retries: str = "stop"
    #: The share of the last one to two thousand samples that may be faulty, judged from a hundred on. 1 allows all.
    fault_share_max: float = 0.1

    def __post_init__(self) -> None:
        if self.on_fault not in ("stop", "skip", "retry") or self.after_retries not in ("stop", "skip"):
            raise invalid(f'on_fault is "stop", "skip" or "retry", after_retries "stop" or "skip", not {self.on_fault!r} and {self.after_retries!r}.')

    @property
    def attempts(self) -> int:
        return 1 + self.retries_max if self.on_fault == "retry" else 1

    @property
    def is_skipped(self) -> bool:
        return self.on_fault == "skip" or (self.on_fault == "retry" and self.after_retries == "skip")


def make_fault(source: str, id: str, stage: str, reason: str, attempts: int = 1, tokens: int | None = None) -> dict[str, Any]:
    """What was left out, as it is recorded with the block. `stage`: shard, sample, transform, empty or length."""
    fault: dict[str, Any] = {"source": source, "id": id, "stage": stage, "reason": reason, "attempts": attempts}
    if tokens is not None:
        fault["tokens"] = tokens
    return fault


def stop_for(fault: dict[str, Any]) -> BatchWeaveError:
    """The failure of a load whose policy does not leave things out."""
    attempts = f" ({fault['attempts']} attempts)" if fault["attempts"] > 1 else ""
    return BatchWeaveError(
        _CODES[fault["stage"]],
        f"Source {fault['source']} failed at {fault['stage']} {fault['id']}{attempts}: {fault['reason']}. Repair it, or say what "
        'to do with on_fault="skip" or "retry" in the source.',
        {name: fault[name] for name in ("source", "id", "stage", "attempts")},
    )


class FaultTally:
    """Counts the faults of one source in one process, and says when they are too many for chance."""

    def __init__(self, source: str, policy: FaultPolicy) -> None:
        self._source = source
        self._policy = policy
        self.count = 0
        self._recent = [0.0, 0.0]
        self._in_row = 0

    def good(self) -> None:
        self._in_row = 0
        self._see(0)

    def add(self, fault: dict[str, Any]) -> None:
        """One that is left out. Raises when the policy leaves none out, or when these are too many."""
        self.count += 1
        self._in_row += 1
        is_bad = fault["stage"] not in ("empty", "length")
        if is_bad:
            self._see(1)
            share = self._policy.fault_share_max
            bad, seen = self._recent
            if share < 1 and seen >= _SAMPLES_MIN and bad > share * seen:
                raise self._refusal(fault, f"{bad:.0f} of {seen:.0f} samples are faulty, and fault_share_max allows {100 * share:g} %")
        if self._in_row >= _IN_ROW_MAX:
            raise self._refusal(fault, f"{_IN_ROW_MAX} of its samples one after another cannot be used")

    def _see(self, bad: int) -> None:
        scale = 0.5 if self._recent[1] >= _SAMPLES_MAX else 1
        self._recent = [scale * self._recent[0] + bad, scale * self._recent[1] + 1]

    def _refusal(self, fault: dict[str, Any], what: str) -> BatchWeaveError:
        return BatchWeaveError(
            "LIMIT",
            f"Source {self._source}: {what}. The last is {fault['stage']} {fault['id']}: {fault['reason']}. Mend the source or its "
            "transforms, or raise fault_share_max in it.",
            {"source": self._source, "faults": self.count},
        )
