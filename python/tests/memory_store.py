"""A store in memory, for tests; made from {key: base64} or empty. `faults` lets a test answer calls as a bad network would."""
from __future__ import annotations

import base64
import threading
from typing import Any, Callable, Mapping, Sequence

from batchweave.store.object_store import LIST_PAGE_MAX, assert_key, join_body


def at(namespace: Any, key: str) -> str:
    """The key of an object of a namespace in the store of its place."""
    return f"life/{namespace.uuid}/{key}"


class MemoryStore:
    def __init__(self, objects: Mapping[str, str] | None = None, uri: str = "memory:test") -> None:
        self.uri = uri
        self.objects = {key: base64.b64decode(text) for key, text in (objects or {}).items()}
        self.lock = threading.Lock()
        #: Called before a create is applied; may give "unknown" (applied or not as it likes) or None to go on.
        self.on_create: Callable[[str, bytes], str | None] | None = None
        self.requests: list[tuple[str, str]] = []

    def create(self, key: str, body: Any) -> str:
        assert_key(key)
        self.requests.append(("create", key))
        data = join_body(body)
        if self.on_create:
            answer = self.on_create(key, data)
            if answer is not None:
                return answer
        with self.lock:
            if key in self.objects:
                return "exists"
            self.objects[key] = data
            return "created"

    def put(self, key: str, body: Any) -> None:
        assert_key(key)
        self.requests.append(("put", key))
        with self.lock:
            self.objects[key] = join_body(body)

    def get(self, key: str) -> bytes | None:
        self.requests.append(("get", key))
        return self.objects.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        self.requests.append(("get_range", key))
        data = self.objects.get(key)
        return None if data is None else data[start : start + length]

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]:
        self.requests.append(("list", prefix))
        with self.lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix) and key > start_after)
        return keys[:limit], len(keys) > limit

    def delete(self, keys: Sequence[str]) -> None:
        with self.lock:
            for key in keys:
                self.objects.pop(key, None)
