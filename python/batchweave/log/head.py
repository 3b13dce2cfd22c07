"""Finding, following and verifying manifests (FORMAT.md 9 and 10). No other module reads them.

*Verified* means: a look at the boundary, begun after the manifest was read, showed it above. A process never goes back
behind the newest manifest it verified.
"""
from __future__ import annotations

import math
import threading
import time
from typing import Callable

from ..errors import BatchWeaveError, corrupt, deleted
from ..format.keys import MANIFEST_PREFIX, boundary_key, manifest_key, parse_manifest_key
from ..format.manifest import Manifest, decode_boundary, decode_manifest, genesis
from ..format.namespace_spec import NamespaceSpec
from ..format.stored_json import SAFE_INTEGER_MAX
from ..store.object_store import LIST_PAGE_MAX, Store
from .round_trip import RoundTrip

_LOAD_ATTEMPTS_MAX = 100
_RECENT_S = 1.0
#: Listings in a row, two seconds of them, that show no manifest where there must be one.
_ABSENCES_MAX = 20


class BoundaryChain:
    """Follows the boundary markers; what this process has seen never goes back."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._lock = threading.Lock()
        #: Number of the newest marker seen (0: none), and the highest version whose name may be gone.
        self.n = 0
        self.up_to = 0
        self._kept = 0
        #: True once the last marker of a deleted namespace was seen.
        self._is_last = False

    @property
    def kept(self) -> int:
        """Number of the newest marker that is known to survive power loss, which a manifest may name: one that its writer has not synced yet may
        vanish, and a durable manifest that names it would stop every reader and writer."""
        return self.n if getattr(self._store, "sync", None) is None else self._kept

    def look(self) -> int:
        """Reads on until the next number is absent. Only a look begun after a manifest was read vouches for it.

        Raises DELETED at the last marker of a deleted namespace.
        """
        if self._is_last:
            raise deleted(self._store.uri, self._namespace)
        n, up_to = self.n, self.up_to
        while True:
            following = self._read(n + 1)
            if following is None:
                return max(up_to, self.up_to)
            if following <= up_to:
                raise BatchWeaveError(
                    "CORRUPT",
                    f"{boundary_key(n + 1)} does not raise the boundary above {up_to}: the chain is broken. "
                    "Stop all reclaimers and report this.",
                    {"n": n + 1, "upTo": following},
                )
            n, up_to = n + 1, following
            self._adopt(n, up_to)

    def jump(self, hint: int) -> None:
        """Jumps to a marker that a manifest says exists; the chain is still read on from there."""
        with self._lock:
            self._kept = max(self._kept, hint)
        if hint <= self.n:
            return
        up_to = self._read(hint)
        if up_to is None:
            raise _missing_marker(hint)
        self._adopt(hint, up_to)

    def assert_intact(self) -> None:
        """A marker that was once seen and is gone stops everything."""
        if self.n > 0 and self._read(self.n) is None:
            raise _missing_marker(self.n)

    def _adopt(self, n: int, up_to: int) -> None:
        with self._lock:
            if n > self.n:
                self.n, self.up_to = n, up_to

    def _read(self, n: int) -> int | None:
        key = boundary_key(n)
        data = self._store.get(key)
        if data is None:
            return None
        up_to, is_last = decode_boundary(data, key, self._namespace, n)
        if is_last:
            self._is_last = True
            raise deleted(self._store.uri, self._namespace)
        return up_to


def _missing_marker(n: int) -> BatchWeaveError:
    return BatchWeaveError(
        "MISSING_OBJECT",
        f"{boundary_key(n)} was there and is gone; boundary markers are never deleted. Stop every process on this "
        "namespace and restore it.",
        {"key": boundary_key(n)},
    )


class Head:
    """The one way to a manifest."""

    def __init__(self, store: Store, spec: NamespaceSpec) -> None:
        self._store = store
        self._spec = spec
        self.boundary = BoundaryChain(store, spec.uuid)
        self.round_trip = RoundTrip()
        #: The newest manifest this process verified, if it has loaded one.
        self.known: Manifest | None = None
        self._looked_at = -math.inf
        #: Versions up to this one survive power loss.
        self._kept = 0
        self._lock = threading.Lock()

    def newest(self) -> Manifest:
        """The newest manifest this process verified; loads the head the first time."""
        return self.known or self.load()

    def recent(self) -> Manifest:
        """The newest manifest, as it was within the last second: for a consumer, which goes on from there itself."""
        known = self.known or self.load(is_probing=False)
        return known if time.monotonic() - self._looked_at < _RECENT_S else self.jump()

    def load(self, is_probing: bool = True) -> Manifest:
        """Finds the head without earlier knowledge: LIST finds a candidate, a look vouches, probing makes it the head."""
        self.boundary.assert_intact()
        absences = 0
        for attempt in range(_LOAD_ATTEMPTS_MAX):
            begun = time.monotonic()
            candidate, is_listed = self._candidate()
            manifest = genesis(self._spec) if candidate == 0 else self.read(candidate)
            if manifest is not None:
                self.boundary.jump(manifest.boundary_hint)
                up_to = self.boundary.look()
                if up_to == 0 if candidate == 0 else up_to < candidate:
                    self._looked_at = begun
                    known = self._adopt(manifest)
                    return self._probe_forward() if is_probing else known
            else:
                # What is gone may have gone with everything else: only a look tells that the namespace was deleted.
                self.boundary.look()
            # Nothing at all above the boundary, where the head must be: a listing may be late, but not for long.
            absences += not is_listed
            if absences >= _ABSENCES_MAX:
                break
            # Listed and then deleted, or a zombie below the boundary: list again.
            time.sleep(0.01 * attempt)
        raise BatchWeaveError(
            "MISSING_OBJECT",
            f"No manifest above the boundary {self.boundary.up_to} can be found in {self._store.uri}; the head is never "
            f"deleted. Restore {MANIFEST_PREFIX}.",
            {"boundary": {"n": self.boundary.n, "upTo": self.boundary.up_to}},
        )

    def advance(self) -> Manifest:
        """One step forward if there is a next version; else the same manifest, checked against the boundary."""
        base = self.newest()
        return self._step(base, base.version + 1)

    def walk(self, is_enough: Callable[[Manifest], bool], versions_max: int) -> Manifest:
        """Walks on until a version is enough, there is no next, or so many were read; one look vouches for the last.

        Cheaper than a jump for a reader that is a version or two behind, above all where listing shows every manifest there is.
        """
        base = self.newest()
        begun = time.monotonic()
        last: Manifest | None = None
        for _ in range(versions_max):
            following = self.read((last or base).version + 1)
            if following is None:
                break
            last = following
            if is_enough(last):
                break
        return self._verify(base, last, begun)

    def jump(self) -> Manifest:
        """To the newest version: after a lost commit, walking through every version would lose again."""
        base = self.known
        if base is None:
            return self.load()
        keys, more = self._store.list(MANIFEST_PREFIX, manifest_key(base.version), LIST_PAGE_MAX)
        if more:
            return self.load()
        return self._step(base, _last_version(keys))

    def vouch(self, created: Manifest) -> bool:
        """Takes over a manifest that this process created, after a look begun after the verdict. False: unknown."""
        if self.boundary.look() >= created.version:
            return False
        self._adopt(created)
        # A create has returned once its name was durable, and with it all names before.
        self._kept = max(self._kept, created.version)
        return True

    def keep(self, manifest: Manifest) -> None:
        """Returns when a verified manifest survives power loss. Its creator may not have synced its name yet, or may have died
        before: nothing is acknowledged on one that can still vanish."""
        if manifest.version <= self._kept:
            return
        sync = getattr(self._store, "sync", None)
        if sync is not None:
            sync(manifest_key(manifest.version))
        self._kept = max(self._kept, manifest.version)

    def read(self, version: int) -> Manifest | None:
        """Reads a version without verifying it; conclude nothing from it but whose it is."""
        key = manifest_key(version)
        data = self._store.get(key)
        if data is None:
            return None
        manifest = decode_manifest(data, key, self._spec.uuid, version)
        if manifest.end * self._spec.rows > SAFE_INTEGER_MAX:
            raise corrupt(key, f"it ends at step {manifest.end}, beyond the last row that can be counted")
        return manifest

    def _step(self, base: Manifest, to: int | None) -> Manifest:
        begun = time.monotonic()
        return self._verify(base, None if to is None else self.read(to), begun)

    def _verify(self, base: Manifest, following: Manifest | None, begun: float) -> Manifest:
        """What a look, begun after `following` was read or found absent, says of it."""
        looked_at = time.monotonic()
        up_to = self.boundary.look()
        self.round_trip.guess(time.monotonic() - looked_at)
        if following is not None and up_to < following.version:
            return self._adopt(following)
        # An absent name proves nothing once the boundary has come this far: it may have been deleted.
        if following is not None or (up_to > 0 and up_to >= base.version):
            return self.load()
        self._looked_at = begun
        return self.known or base

    def _adopt(self, manifest: Manifest) -> Manifest:
        if manifest.deleted:
            raise deleted(self._store.uri, self._spec.uuid)
        with self._lock:
            if self.known is None or manifest.version > self.known.version:
                self.known = manifest
            return self.known

    def _probe_forward(self) -> Manifest:
        while True:
            before = self.newest()
            after = self.advance()
            if after.version == before.version:
                return after

    def _candidate(self) -> tuple[int, bool]:
        known = self.known.version if self.known else 0
        floor = max(self.boundary.up_to, known)
        keys, more = self._store.list(MANIFEST_PREFIX, manifest_key(floor), LIST_PAGE_MAX)
        listed = _last_version(keys)
        last = listed or known
        return self._gallop(last) if more else last, listed is not None

    def _gallop(self, low: int) -> int:
        """Above the boundary versions are contiguous, so "exists" is monotone: growing strides, then halving."""
        stride = 8 * LIST_PAGE_MAX
        while low + stride <= SAFE_INTEGER_MAX and self._exists(low + stride):
            low += stride
            stride *= 8
        high = low + stride
        while high - low > LIST_PAGE_MAX:
            middle = (low + high) // 2
            if self._exists(middle):
                low = middle
            else:
                high = middle
        keys, _ = self._store.list(MANIFEST_PREFIX, manifest_key(low), LIST_PAGE_MAX)
        return _last_version(keys) or low

    def _exists(self, version: int) -> bool:
        return self._store.get_range(manifest_key(version), 0, 1) is not None


def _last_version(keys: list[str]) -> int | None:
    versions = [version for key in keys if (version := parse_manifest_key(key)) is not None]
    return max(versions, default=None)
