"""What a store is asked and how it answers: numbers, their price, and whether it can be reached at all. Twin of src/namespace/store-metrics.ts."""
from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Sequence, TypeVar

from ..errors import BatchWeaveError
from .instruments import Watched, count, is_heard, record

if TYPE_CHECKING:
    from ..store.object_store import Body, Store

T = TypeVar("T")

#: Dollars a thousand requests, writes and reads: see docs/operate/cost.md. Deleting is free.
_PRICES = {"s3": (0.005, 0.0004), "gs": (0.005, 0.0004), "az": (0.0055, 0.00044)}
#: A call that takes longer than this while no other succeeds: the store does not answer.
_SILENT_S = 4.0
_stores = Watched()


class MeteredStore:
    """`store`, with every request counted. Not retried yet: each try is one."""

    def __init__(self, store: "Store") -> None:
        self.inner = store
        self.uri = store.uri
        self.is_near = getattr(store, "is_near", False)
        self.labels = {"namespace": store.uri}
        scheme = re.match(r"[a-z0-9]+", store.uri)
        self._write, self._read = _PRICES.get(scheme[0] if scheme else "", (0.0, 0.0))
        self._lock = threading.Lock()
        self._begun: dict[int, float] = {}
        self._calls = 0
        self._answered = time.monotonic()
        self._failing: float | None = None
        if hasattr(store, "sync"):
            self.sync = store.sync
        _stores.gauge("batchweave.store.in.flight.requests", "{requests}", "Requests that have not ended.", lambda one: len(one._begun))
        _stores.gauge("batchweave.store.unreachable", "s", "For how long the store has not answered; 0 while it does.", lambda one: one.unreachable)
        _stores.add(self)

    @property
    def unreachable(self) -> float:
        """For how long it has not answered; 0 while it does, and while nothing is asked."""
        now = time.monotonic()
        with self._lock:
            if self._failing is not None:
                return now - self._failing
            silent = now - max(min(self._begun.values(), default=now), self._answered)
        return silent if silent >= _SILENT_S else 0.0

    def note_retry(self) -> None:
        """A call is made once more."""
        count("batchweave.store.retries", "{retries}", "Requests that were sent again.", 1, self.labels)

    def create(self, key: str, body: "Body") -> str:
        return self._counted("create", lambda: self.inner.create(key, body), _size(body))

    def put(self, key: str, body: "Body") -> None:
        self._counted("put", lambda: self.inner.put(key, body), _size(body))

    def get(self, key: str) -> bytes | None:
        return self._counted("get", lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> Any:
        return self._counted("getRange", lambda: self.inner.get_range(key, start, length))

    def list(self, prefix: str, start_after: str = "", limit: int = 1_000) -> tuple[list[str], bool]:
        return self._counted("list", lambda: self.inner.list(prefix, start_after, limit))

    def delete(self, keys: Sequence[str]) -> None:
        self._counted("delete", lambda: self.inner.delete(keys))

    def _counted(self, op: str, call: Callable[[], T], sent: int = 0) -> T:
        begun = time.monotonic()
        with self._lock:
            self._calls += 1
            number = self._calls
            self._begun[number] = begun
        outcome, received = "ok", 0
        try:
            result = call()
            if result is None and op in ("get", "getRange"):
                outcome = "absent"
            elif op == "create":
                outcome = str(result)
            elif op in ("get", "getRange"):
                received = len(result)  # type: ignore[arg-type]
            return result
        except BatchWeaveError as error:
            outcome = error.code
            raise
        except BaseException:
            outcome = "aborted"
            raise
        finally:
            self._end(number, op, outcome, time.monotonic(), sent, received)

    def _end(self, number: int, op: str, outcome: str, now: float, sent: int, received: int) -> None:
        with self._lock:
            begun = self._begun.pop(number)
            if outcome in ("STORE_UNAVAILABLE", "unknown"):
                self._failing = begun if self._failing is None else self._failing
            elif outcome != "aborted":
                self._failing, self._answered = None, now
        count("batchweave.store.requests", "{requests}", "Requests to the object store.", 1, {**self.labels, "op": op, "outcome": outcome})
        if sent:
            count("batchweave.store.sent", "By", "Bytes sent to the object store.", sent, self.labels)
        if received:
            count("batchweave.store.received", "By", "Bytes received from the object store.", received, self.labels)
        record("batchweave.store.request", "Time per request.", now - begun, {**self.labels, "op": op})
        price = 0.0 if op == "delete" else self._read if op in ("get", "getRange") else self._write
        if price:
            count("batchweave.store.cost.dollars", "{dollars}", "List price of the requests.", price / 1_000, {**self.labels, "op": op})


def _size(body: "Body") -> int:
    return sum(len(piece) for piece in body) if isinstance(body, (list, tuple)) else len(body)


def metered(store: "Store") -> "Store":
    """`store` itself where no provider would listen."""
    return MeteredStore(store) if is_heard() else store
