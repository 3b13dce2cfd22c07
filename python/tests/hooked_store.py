"""A store where a test can step in between: before a call takes effect, after it did, or with another answer."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from batchweave.store.object_store import LIST_PAGE_MAX, Store


class HookedStore:
    """`store`, with hooks that a test may set. What a hook raises, the call raises."""

    def __init__(self, store: Store) -> None:
        self.uri = store.uri
        self.inner = store
        #: Around a conditional create: key, body, and the call itself.
        self.around_create: Callable[[str, Any, Callable[[], str]], str] | None = None
        self.before_read: Callable[[str], None] | None = None
        self.after_get: Callable[[str], None] | None = None
        self.after_list: Callable[[str], None] | None = None
        self.after_put: Callable[[str], None] | None = None
        self.creates: list[tuple[str, bytes, str]] = []
        self.deleted: list[str] = []

    def create(self, key: str, body: Any) -> str:
        def call() -> str:
            outcome = self.inner.create(key, body)
            self.creates.append((key, bytes(body), outcome))
            return outcome

        return self.around_create(key, body, call) if self.around_create else call()

    def put(self, key: str, body: Any) -> None:
        self.inner.put(key, body)
        if self.after_put:
            self.after_put(key)

    def get(self, key: str) -> bytes | None:
        if self.before_read:
            self.before_read(key)
        data = self.inner.get(key)
        if self.after_get:
            self.after_get(key)
        return data

    def get_range(self, key: str, start: int, length: int) -> Any:
        if self.before_read:
            self.before_read(key)
        return self.inner.get_range(key, start, length)

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]:
        if self.before_read:
            self.before_read(prefix)
        page = self.inner.list(prefix, start_after, limit)
        if self.after_list:
            self.after_list(prefix)
        return page

    def delete(self, keys: Sequence[str]) -> None:
        self.deleted += keys
        self.inner.delete(keys)
