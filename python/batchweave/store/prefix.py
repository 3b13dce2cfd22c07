"""A store inside a store."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from .object_store import LIST_PAGE_MAX, Body, Store, assert_key


class PrefixStore:
    """The keys of `store` below a folder, whose name ends with a slash, as a store of their own."""

    def __init__(self, store: Store, folder: str) -> None:
        assert_key(folder[:-1])
        self._store = store
        self._folder = folder
        self.uri = f"{store.uri.rstrip('/')}/{folder[:-1]}"
        self.is_near = getattr(store, "is_near", False)
        sync: Callable[[str], None] | None = getattr(store, "sync", None)
        #: Only where an object can be seen before it survives power loss.
        self.sync: Callable[[str], None] | None = None if sync is None else lambda key: sync(self._key(key))

    def _key(self, key: str) -> str:
        # A key must be one by itself, or `..` would lead out of the folder.
        assert_key(key)
        return self._folder + key

    def create(self, key: str, body: Body) -> str:
        return self._store.create(self._key(key), body)

    def put(self, key: str, body: Body) -> None:
        self._store.put(self._key(key), body)

    def get(self, key: str) -> bytes | None:
        return self._store.get(self._key(key))

    def get_range(self, key: str, start: int, length: int) -> Any:
        return self._store.get_range(self._key(key), start, length)

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]:
        after = self._folder + start_after if start_after else ""
        keys, more = self._store.list(self._folder + prefix, after, limit)
        return [key[len(self._folder) :] for key in keys], more

    def delete(self, keys: Sequence[str]) -> None:
        self._store.delete([self._key(key) for key in keys])


def life_store(place: Store, folder: str) -> Store:
    """The objects of one life, where `place` is the store that its namespace.json is in; an empty folder is the place itself."""
    return PrefixStore(place, folder) if folder else place
