"""A rank's figures and spans. Twin of src/namespace/consumer-metrics.ts."""
from __future__ import annotations

import time
from typing import Any, Protocol

from .instruments import Watched, count, is_heard, record, tell_span


class Told(Protocol):
    """What is asked of a consumer at every scrape, so that it moves while the rank waits."""

    waited: float

    @property
    def waiting(self) -> float: ...

    @property
    def labels(self) -> dict[str, str]: ...

    def facts(self) -> dict[str, Any]: ...


_ranks = Watched()


def watch(rank: Told) -> bool:
    """Tells of a rank until it is forgotten; False: no provider would listen."""
    if not is_heard():
        return False
    _ranks.counter(
        "batchweave.data.wait", "s", "Exposed data wait: how long next() has blocked, the wait of this moment included.",
        lambda rank: rank.waited + rank.waiting,
    )
    _ranks.gauge("batchweave.data.waiting", "s", "How long next() has blocked by now; 0 while the trainer computes.", lambda rank: rank.waiting)
    _ranks.gauge("batchweave.lag.steps", "{steps}", "Visible steps that this rank has not taken yet.", lambda rank: rank.facts()["lagSteps"])
    _ranks.gauge("batchweave.rank.step", "{step}", "First step of this rank's next share.", lambda rank: rank.facts()["step"])
    _ranks.add(rank)
    return True


def forget(rank: Told) -> None:
    """It is closed."""
    _ranks.forget(rank)


def handed_out(rank: Told, iteration: int, nbytes: int, waited: float) -> None:
    """A share was handed to the loop after `waited` seconds."""
    labels = rank.labels
    count("batchweave.shares", "{shares}", "Shares handed to the trainer.", 1, labels)
    count("batchweave.share", "By", "Bytes handed to the trainer.", nbytes, labels)
    record("batchweave.share.wait", "How long next() blocked for a share.", waited, labels)
    now = time.time()
    attributes = {"batchweave.rank": int(labels["rank"]), "batchweave.iteration": iteration, "batchweave.bytes": nbytes}
    tell_span("batchweave.share", now - waited, now, attributes, [("batchweave.wait", now - waited, now)])
