"""Names of stored objects (FORMAT.md 2 and 19). Keys are derived from state, never stored in it."""
from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, Sequence

from .checksum import crc32
from .errors import invalid
from .stored_json import SAFE_INTEGER_MAX, crc_text

NAMESPACE_KEY = "namespace.json"
MANIFEST_PREFIX = "manifest/"
BOUNDARY_PREFIX = "boundary/"
INDEX_PREFIX = "index/"
BATCH_PREFIX = "batch/"
INTENT_PREFIX = "intent/"

#: Positions in a descriptor: [producer, epoch, incarnation, seq, base, attempt, extents, origin?, ...]
PRODUCER, EPOCH, INCARNATION, SEQ, BASE, ATTEMPT, EXTENTS, ORIGIN = range(8)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
_MANIFEST = re.compile(r"manifest/([0-9]{20})\.json")
_INTENT = re.compile(r"intent/[0-9a-f]/(.+)-([0-9a-f]{8})")
_BATCH_INTENT = re.compile(r"(.+)-([0-9]+)-([0-9]+)-([0-9a-v]{12})([0-9]+)-([0-9]+)((?:-[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+)+)")
_OPENING_INTENT = re.compile(r"(.+)-([0-9]+)-open-([0-9a-v]{12})")
_INTENT_NAME_BYTES_MAX = 240


def assert_name(value: Any, what: str) -> None:
    """Producer ids, checkpoint ids and groups become parts of keys and JSON."""
    if isinstance(value, str) and _NAME.fullmatch(value) and value != "__proto__":
        return
    raise invalid(
        f"{what} {json.dumps(str(value))} is not allowed: use 1 to 64 letters, digits, dots, underscores or hyphens, "
        "starting with a letter, a digit or an underscore.",
        what=what,
        value=str(value),
    )


def manifest_key(version: int) -> str:
    """Key of a manifest version."""
    return f"{MANIFEST_PREFIX}{version:020d}.json"


def parse_manifest_key(key: str) -> int | None:
    """The version in a manifest's key; None for a foreign name."""
    match = _MANIFEST.fullmatch(key)
    if not match or int(match[1]) > SAFE_INTEGER_MAX:
        return None
    return int(match[1])


def boundary_key(n: int) -> str:
    """Key of the n-th boundary marker."""
    return f"{BOUNDARY_PREFIX}{n:020d}.json"


def index_key(ref: Sequence[Any]) -> str:
    """Key of the index object a reference [base, commitId, k, check] names."""
    return f"{INDEX_PREFIX}{ref[0]:020d}-{ref[1]}-{ref[2]}.json"


def batch_stem(d: Sequence[Any]) -> str:
    """One upload of one batch, from its descriptor."""
    return f"{d[PRODUCER]}-{d[EPOCH]}-{d[SEQ]}-{d[INCARNATION]}{d[ATTEMPT]}"


def batch_key(d: Sequence[Any], extent: int) -> str:
    """Key of one extent of a batch, from its descriptor."""
    stem = batch_stem(d)
    return f"{BATCH_PREFIX}{crc32(stem.encode()) & 0xFF:02x}/{d[BASE]:020d}/{stem}.{extent}.tgb"


class OpeningIntent(NamedTuple):
    """A producer that wants to be opened by whoever commits next, if its epoch is still `before`."""

    producer: str
    before: int
    incarnation: str


def _seal_intent(namespace: str, producer: str, name: str) -> str:
    shard = f"{crc32(producer.encode()) % 16:x}"
    return f"{INTENT_PREFIX}{shard}/{name}-{crc_text(crc32(f'{namespace}/{name}'.encode()))}"


def batch_intent_key(namespace: str, d: Sequence[Any]) -> str | None:
    """Key of a batch's intent; None when its extents do not fit into a name."""
    extents = "-".join(".".join(str(n) for n in extent) for extent in d[EXTENTS])
    name = f"{d[PRODUCER]}-{d[EPOCH]}-{d[SEQ]}-{d[INCARNATION]}{d[ATTEMPT]}-{d[BASE]}-{extents}"
    return None if len(name) + 9 > _INTENT_NAME_BYTES_MAX else _seal_intent(namespace, d[PRODUCER], name)


def opening_intent_key(namespace: str, opening: OpeningIntent) -> str:
    """Key of an opening's intent."""
    return _seal_intent(namespace, opening.producer, f"{opening.producer}-{opening.before}-open-{opening.incarnation}")


def parse_intent_key(namespace: str, key: str) -> OpeningIntent | list[Any] | None:
    """An opening, a batch's descriptor, or None for anything that is not exactly an intent of this namespace."""
    match = _INTENT.fullmatch(key)
    if not match or crc_text(crc32(f"{namespace}/{match[1]}".encode())) != match[2]:
        return None
    opening = _OPENING_INTENT.fullmatch(match[1])
    if opening:
        return OpeningIntent(opening[1], int(opening[2]), opening[3])
    batch = _BATCH_INTENT.fullmatch(match[1])
    if not batch:
        return None
    extents = [[int(n) for n in extent.split(".")] for extent in batch[7][1:].split("-")]
    return [batch[1], int(batch[2]), batch[4], int(batch[3]), int(batch[6]), int(batch[5]), extents]
