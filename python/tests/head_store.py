"""A store that follows a script, as test/conformance/head-store.ts: what appears, vanishes or fails at which call. It writes down every call."""
from __future__ import annotations

import base64
import re
from collections import Counter
from typing import Any, Callable, Mapping, Sequence

from batchweave.errors import BatchWeaveError
from batchweave.store.object_store import LIST_PAGE_MAX
from memory_store import MemoryStore


def _short(key: str) -> str:
    return re.sub(r"^([mb])[a-z]+/0*(\d+)\.json$", r"\1\2", key)


def _long(key: str) -> str:
    return f"{'manifest' if key.startswith('m') else 'boundary'}/{int(key[1:]):020d}.json"


class HeadStore:
    def __init__(self, bodies: Mapping[str, str], present: Mapping[str, str], rules: Sequence[dict[str, Any]]) -> None:
        self.uri = "memory:case"
        self.calls: list[str] = []
        self._store = MemoryStore()
        self._bodies = bodies
        self._rules = rules
        self._times: Counter[str] = Counter()
        self._place(present)

    def get(self, key: str) -> bytes | None:
        return self._call(f"get {_short(key)}", lambda: self._store.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return self._call(f"range {_short(key)}", lambda: self._store.get_range(key, start, length))

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]:
        text = f"list after {_short(start_after)}"
        keys, more = self._call(text, lambda: self._store.list(prefix, start_after, limit))
        rule = self._rule(text) or {}
        shown = [key for key in keys if _short(key) not in rule.get("hide", [])]
        return (shown[: rule["page"]], True) if "page" in rule else (shown, more)

    def create(self, key: str, body: Any) -> str:
        text = f"create {_short(key)}"
        outcome = self._call(text, lambda: self._store.create(key, body))
        return str((self._rule(text) or {}).get("answer", outcome))

    def put(self, key: str, body: Any) -> None:
        self._call(f"put {_short(key)}", lambda: self._store.put(key, body))

    def delete(self, keys: Sequence[str]) -> None:
        self._call(f"delete {' '.join(map(_short, keys))}", lambda: self._store.delete(keys))

    def sync(self, key: str) -> None:
        self._call(f"sync {_short(key)}", lambda: None)

    def _place(self, objects: Mapping[str, str]) -> None:
        for key, body in objects.items():
            self._store.put(_long(key), base64.b64decode(self._bodies[body]))

    def _rule(self, text: str) -> dict[str, Any] | None:
        """The rule of the call that was begun last under this text."""
        return next((r for r in self._rules if r["on"] == text and r.get("nth", 1) == self._times[text]), None)

    def _call(self, text: str, effect: Callable[[], Any]) -> Any:
        self.calls.append(text)
        self._times[text] += 1
        rule = self._rule(text) or {}
        if rule.get("when") == "before":
            self._happen(rule)
        # An answer other than the call's own, before: it is never applied.
        is_applied = not (rule.get("when") == "before" and "answer" in rule)
        result = effect() if is_applied else None
        if rule.get("when") == "after":
            self._happen(rule)
        if rule.get("answer") == "unavailable":
            raise BatchWeaveError("STORE_UNAVAILABLE", f"The script says so, of {text}. Try again.", {})
        return result

    def _happen(self, rule: dict[str, Any]) -> None:
        self._place(rule.get("put", {}))
        self._store.delete([_long(key) for key in rule.get("remove", [])])
