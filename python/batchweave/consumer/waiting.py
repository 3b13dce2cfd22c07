"""What a reader says whose data does not come: not yet, or no longer."""
from __future__ import annotations

import logging
import time
from typing import Callable, TypeVar

from ..errors import BatchWeaveError, is_error
from ..format.manifest import Manifest
from ..log.log import Log
from .projection import IterationPlan

T = TypeVar("T")

#: Where waits are told: on stderr, unless the program says otherwise to `logging`.
WAITS = logging.getLogger("batchweave.wait")
#: A wait of so long is told, with what is waited for.
LONG_WAIT_S = 10.0


def reclaimed(row: int, manifest: Manifest, rows: int) -> BatchWeaveError:
    """RECLAIMED: the rows wanted are behind the trim."""
    oldest = manifest.trim * rows
    return BatchWeaveError(
        "RECLAIMED",
        f"Row {row} (step {row // rows}) was reclaimed; the oldest row left is {oldest} (step {manifest.trim}). Start from a "
        'checkpoint that is still held, or from "earliest".',
        {"row": row, "oldestRow": oldest, "trim": manifest.trim, "version": manifest.version},
    )


def unless_reclaimed(log: Log, plan: IterationPlan, manifest: Manifest, call: Callable[[Manifest], T]) -> T:
    """`call`, for an iteration of a manifest. An object may be missing because the reclaimer overtook this reader: the newest manifest tells."""
    try:
        return call(manifest)
    except BatchWeaveError as error:
        if not is_error(error, "MISSING_OBJECT"):
            raise
        newest = log.head.jump()
        if plan.first_step < newest.trim:
            raise reclaimed(plan.first_row(log.spec.rows), newest, log.spec.rows) from error
        if newest.version == manifest.version:
            raise
        return call(newest)


def describe_wait(log: Log, manifest: Manifest, wanted: IterationPlan, waited: float) -> BatchWeaveError:
    """WAIT_TIMEOUT: it must tell an operator whom to look at."""
    missing = max(manifest.end, wanted.first_step)
    idle = max(0.0, time.time() - manifest.commit["time"] / 1_000)
    until = f" to {wanted.last_step}" if wanted.last_step > missing else ""
    lane = None
    if log.spec.lanes is not None:
        lane = f"lane-{(manifest.end - log.spec.first_own_step) % log.spec.lanes}"
    return BatchWeaveError(
        "WAIT_TIMEOUT",
        f"Waited {_seconds(waited)} for step {missing}{until} (iteration {wanted.iteration}): the head is version "
        f"{manifest.version} with {f'steps up to {manifest.end - 1}' if manifest.end else 'no step yet'}, and nothing was committed for "
        f"{_seconds(idle)}. "
        f"{_describe_producers(manifest)} {_hint(manifest, lane)}",
        {"missing": missing, "lastStep": wanted.last_step, "iteration": wanted.iteration, "version": manifest.version},
    )


def _describe_producers(manifest: Manifest) -> str:
    if not manifest.producers:
        return "No producer has ever opened this namespace."
    latest = sorted(manifest.producers.items(), key=lambda item: -item[1].at)[:5]
    more = len(manifest.producers) - len(latest)
    named = ", ".join(f"{producer} (version {state.at})" for producer, state in latest)
    return f"Producers, by their last commit: {named}{f' and {more} more' if more else ''}."


def _hint(manifest: Manifest, lane: str | None) -> str:
    if lane is None:
        return "Check that producers run and can write, raise wait_timeout if they are slow, or close the log if it is complete."
    waiting = f"{len(manifest.waiting)} batches of other lanes wait behind it. " if manifest.waiting else ""
    seen = manifest.producers.get(lane)
    state = f"committed last at version {seen.at}" if seen else "has never committed"
    return f"{waiting}The missing step is {lane}'s, which {state}: restart its producer or let another process open {lane}."


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 10 else f"{round(value)} s"
