"""The six calls everything is built on, what opens them from a URI, and the decorator that retries.

A store maps keys to immutable byte strings. Reads give None where there is no object. A conditional create gives
"created", "exists" or "unknown" and is never retried by a backend or a decorator. Failures are BatchWeaveErrors (STORE_*).

A store whose objects can be seen before they survive power loss, as on files, also has `sync(key)`: it returns when an object that was read
survives it.
"""
from __future__ import annotations

import logging
import math
import random
import re
import threading
import time
from typing import Any, Callable, Protocol, Sequence, TypeVar
from urllib.parse import unquote_to_bytes

from ..errors import BatchWeaveError, invalid, is_error

T = TypeVar("T")

KEY_BYTES_MAX = 900
LIST_PAGE_MAX = 1_000
#: No segment is "." or "..".
_KEY = re.compile(r"(?!\.\.?(?:/|\Z))[A-Za-z0-9._=-]+(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._=-]+)*", re.ASCII)

#: One buffer, or several that are stored one after another.
Body = Any


class Store(Protocol):
    """See the head of this file."""

    uri: str

    def create(self, key: str, body: Body) -> str: ...

    def put(self, key: str, body: Body) -> None: ...

    def get(self, key: str) -> bytes | None: ...

    def get_range(self, key: str, start: int, length: int) -> Any: ...

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]: ...

    def delete(self, keys: Sequence[str]) -> None: ...


def assert_key(text: str) -> None:
    """Refuses what is not a key, so that no backend can be talked out of its root."""
    if len(text) <= KEY_BYTES_MAX and _KEY.fullmatch(text):
        return
    raise invalid(
        f'"{text[:120]}" is not a key; use segments of A-Z a-z 0-9 . _ = - joined by "/", none of them empty, '
        f'"." or "..", at most {KEY_BYTES_MAX} bytes',
        key=text,
    )


def join_body(body: Body) -> bytes:
    """One byte string of a body."""
    return b"".join(body) if isinstance(body, (list, tuple)) else bytes(body)


#: What is read whole is JSON of the format: nothing of it comes near this.
WHOLE_BYTES_MAX = 64 * 1024 * 1024


def too_large(what: str, found: int) -> BatchWeaveError:
    """LIMIT: an object that is read whole and cannot be one of the format."""
    return BatchWeaveError(
        "LIMIT",
        f"{what} has {found} bytes or more, and nothing that is read whole has more than {WHOLE_BYTES_MAX}. It is not what its name says: "
        "restore it from a copy.",
        {"found": found, "limit": WHOLE_BYTES_MAX},
    )


def without_secrets(uri: str) -> str:
    """A URI for a message: a user may have put a key into it. A key may hold slashes, and buckets and prefixes hold neither "@" nor ":"."""
    bare = re.sub(r"[?#].*$", "", uri, flags=re.DOTALL)
    if bare[:5].lower() == "file:":
        return re.sub(r"^(file:)//[^/]*@", r"\1//…@", bare, flags=re.IGNORECASE)
    return re.sub(r"//[^/]*:[^/]*", "//…", re.sub(r"//.*@", "//…@", bare, flags=re.DOTALL))


def open_store(uri: str, **settings: Any) -> Store:
    """Opens the store a URI names: file:// with the standard library, s3://, gs:// and az:// with an extra package."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", uri)
    scheme = match[1].lower() if match else None
    if scheme == "file":
        from .file_store import FileStore

        for name in settings:
            if name != "durability":
                raise invalid(f"A namespace on files has no setting {name!r}; it has: durability.", uri=uri)
        return FileStore(path_of_file_uri(uri), **settings)
    if scheme in ("s3", "gs", "az"):
        from .cloud_store import open_cloud_store

        return open_cloud_store(uri, **settings)
    works = "file:, s3:, gs:, az:"
    if scheme is None:
        raise BatchWeaveError(
            "UNKNOWN_SCHEME",
            f'"{without_secrets(uri)}" is not a URI; for a folder write file:// and its absolute path, such as file:///data/run '
            f"(schemes: {works})",
            {"uri": without_secrets(uri)},
        )
    shown = without_secrets(uri)
    raise BatchWeaveError("UNKNOWN_SCHEME", f'no store for "{scheme}:" in "{shown}"; use one of {works}', {"scheme": scheme})


def path_of_file_uri(uri: str) -> str:
    """The absolute path of a file: URI, percent-decoded."""

    def refuse(why: str) -> BatchWeaveError:
        return invalid(f'"{without_secrets(uri)}": {why}', uri=without_secrets(uri))

    rest = uri[uri.index(":") + 1 :]
    match = re.match(r"//([^/]*)", rest)
    authority = match[1] if match else ""
    raw = rest[2 + len(authority) :] if match else rest
    if authority.lower() not in ("", "localhost"):
        raise refuse(
            f'"{authority.rpartition("@")[2]}" stands where a host would, and the path must be absolute; write file:///absolute/path, '
            "with three slashes"
        )
    if not raw.startswith("/"):
        raise refuse("the path must be absolute; write file:///absolute/path, with three slashes")
    if re.search(r"[?#]", raw):
        raise refuse('"?" and "#" must be written %3F and %23 in a path')
    if re.search(r"%2f|%00", raw, re.IGNORECASE):
        raise refuse("a path cannot hold an encoded slash (%2F) or NUL (%00)")
    try:
        if re.search(r"%(?![0-9A-Fa-f]{2})", raw):
            raise ValueError
        path = unquote_to_bytes(raw).decode("utf-8")
    except ValueError:
        raise refuse('"%" must be followed by two hex digits of a UTF-8 byte; write a literal percent sign as %25') from None
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            segments[-1:] = []
        elif segment not in ("", "."):
            segments.append(segment)
    if not segments:
        raise refuse("this is the root of the whole file system; name a folder in it")
    return "/" + "/".join(segments)


_ATTEMPTS_MAX = 12
_FIRST_ATTEMPTS_MAX = 6
_RETRIES_AT_ONCE = 200.0
_RETRIES_PER_S = 20.0


#: Where retries are told: each at INFO, the third and then fewer and fewer as warnings, for one now and then is a store's daily life.
RETRIES = logging.getLogger("batchweave.store")
_TOLD = (3, 6, 12, 24, 48)


class RetryingStore:
    """`store`, with STORE_UNAVAILABLE retried on every call but `create`.

    A create that was applied and whose answer was lost would come back as "exists", and its own writer would take it for a
    loss. A range that comes back short is continued where it broke, until it is whole or the object ends. A store that served something before is
    waited for, `patience` seconds after the first failure; one that never did most likely has a wrong address.
    """

    def __init__(self, store: Store, first_delay: float = 0.1, delay_max: float = 10.0, patience: float = 30.0) -> None:
        self.inner = store
        self.uri = store.uri
        self.is_near = getattr(store, "is_near", False)
        self._first_delay = first_delay
        self._delay_max = delay_max
        self._patience = patience
        self._has_served = False
        self._budget = _RETRIES_AT_ONCE
        self._budget_at = time.monotonic()
        self._lock = threading.Lock()
        self.create = store.create
        self._note_retry: Callable[[], None] | None = getattr(store, "note_retry", None)
        if hasattr(store, "sync"):
            self.sync = self._sync

    def put(self, key: str, body: Body) -> None:
        self._attempt(lambda: self.inner.put(key, body))

    def get(self, key: str) -> bytes | None:
        return self._attempt(lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> Any:
        try:
            first = self.inner.get_range(key, start, length)
            self._has_served = True
        except BatchWeaveError as error:
            first = self._attempt(lambda: self.inner.get_range(key, start, length), error)
        if first is None or len(first) >= length or len(first) == 0:
            return first
        whole = bytearray(first)
        while len(whole) < length:
            at, left = start + len(whole), length - len(whole)
            part = self._attempt(lambda: self.inner.get_range(key, at, left))
            if part is None:
                return None
            if len(part) == 0:
                break
            whole += part
        return whole

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]:
        return self._attempt(lambda: self.inner.list(prefix, start_after, limit))

    def delete(self, keys: Sequence[str]) -> None:
        self._attempt(lambda: self.inner.delete(keys))

    def _sync(self, key: str) -> None:
        self._attempt(lambda: self.inner.sync(key))  # type: ignore[attr-defined]

    def _attempt(self, call: Callable[[], T], failed: BatchWeaveError | None = None) -> T:
        """`failed`: how the first attempt, made by the caller, ended."""
        failures = 0
        give_up_at = math.inf
        while True:
            try:
                if failed is not None:
                    first, failed = failed, None
                    raise first
                result = call()
            except BatchWeaveError as error:
                failures += 1
                if not is_error(error, "STORE_UNAVAILABLE") or failures >= (_ATTEMPTS_MAX if self._has_served else _FIRST_ATTEMPTS_MAX):
                    raise
                if failures == 1:
                    # From the first failure on: one answer that never came, which takes half a minute to be given up, is asked for again.
                    give_up_at = time.monotonic() + self._patience
                delay = self._reserve(random.random() * min(self._delay_max, self._first_delay * 2 ** (failures - 1)), give_up_at)
                if delay is None:
                    raise
                RETRIES.log(logging.WARNING if failures in _TOLD else logging.INFO, "Trying again in %.1f s (failure %d): %s", delay, failures, error.message)
                if self._note_retry is not None:
                    self._note_retry()
                time.sleep(delay)
                continue
            self._has_served = True
            return result

    def _reserve(self, delay: float, give_up_at: float) -> float | None:
        """How long to wait for the next try: `delay`, or longer where all calls together have had their share of retries; None: too long. A
        failing store is not buried, and no call fails for others' retries: with a mere number of them, many reads in flight would use it up at once."""
        with self._lock:
            now = time.monotonic()
            self._budget = min(_RETRIES_AT_ONCE, self._budget + (now - self._budget_at) * _RETRIES_PER_S)
            self._budget_at = now
            delay = max(delay, (1 - self._budget) / _RETRIES_PER_S)
            if now + delay > give_up_at:
                return None
            self._budget -= 1
            return delay


def keys_under(store: Store, prefix: str) -> list[str]:
    """All keys of a prefix, page by page."""
    keys: list[str] = []
    more = True
    while more:
        page, more = store.list(prefix, keys[-1] if keys else "")
        keys += page
        more = more and bool(page)
    return keys
