"""Does a store keep the rule everything rests on: of many who create one key at once, exactly one wins."""
from __future__ import annotations

import threading

from ..env.ids import random_id
from ..errors import BatchWeaveError
from .object_store import Store

_CREATORS = 32


def assert_safe(store: Store, rounds: int = 1) -> None:
    """32 barrier-synchronised creates of one key; raises UNSAFE_STORE unless exactly one wins and its bytes are read back."""
    for _ in range(rounds):
        key = f"probe/{random_id()}"
        barrier = threading.Barrier(_CREATORS)
        outcomes: list[tuple[str, bytes]] = []
        failures: list[BaseException] = []

        def create(number: int) -> None:
            body = f"{key}:{number}".encode()
            barrier.wait()
            try:
                outcomes.append((store.create(key, body), body))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=create, args=(n,), daemon=True) for n in range(_CREATORS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [body for outcome, body in outcomes if outcome == "created"]
        found = store.get(key)
        store.delete([key])
        if failures and not outcomes:
            raise failures[0]
        unknown = any(outcome == "unknown" for outcome, _ in outcomes)
        if len(winners) > 1 or (len(winners) == 0 and not unknown) or (winners and bytes(found or b"") != winners[0]):
            raise BatchWeaveError(
                "UNSAFE_STORE",
                f"{store.uri} let {len(winners)} of {_CREATORS} writers create the same key: it ignores the condition of a "
                "create, so commits would be lost. Use a store that honours If-None-Match: *.",
                {"winners": len(winners)},
            )
