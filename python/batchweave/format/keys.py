"""Names of stored objects (FORMAT.md 2 and 19). Keys are derived from state, never stored in it."""
from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, Sequence

from ..errors import invalid
from .checksum import crc32
from .descriptor import Descriptor, Extent, is_stride
from .index_node import Reference
from .stored_json import SAFE_INTEGER_MAX, crc_text, is_name

NAMESPACE_KEY = "namespace.json"
#: Below it, one folder for each life of a place: a namespace that is deleted and made again shares no key with its former self.
LIVES_PREFIX = "life/"
MANIFEST_PREFIX = "manifest/"
BOUNDARY_PREFIX = "boundary/"
INDEX_PREFIX = "index/"
BATCH_PREFIX = "batch/"
INTENT_PREFIX = "intent/"

_MANIFEST = re.compile(r"manifest/([0-9]{20})\.json")
_INTENT = re.compile(r"intent/[0-9a-f]/(.+)-([0-9a-f]{8})")
_BATCHES_INTENT = re.compile(
    r"(.+)-([0-9]+)-([0-9]+)-([0-9a-v]{12})([0-9]+)-([0-9]+)"
    r"-([0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(?:s[0-9]+)?(?:[-_][0-9]*\.[0-9]*\.[0-9]*\.[0-9]*(?:s[0-9]*)?)*)"
)
_OPENING_INTENT = re.compile(r"(.+)-([0-9]+)-open-([0-9a-v]{12})")
_LEAVING_INTENT = re.compile(r"(.+)-([0-9]+)-left-([0-9a-v]{12})")
_INTENT_NAME_BYTES_MAX = 240


def assert_name(value: Any, what: str) -> None:
    """Producer ids, checkpoint ids and groups become parts of keys and JSON."""
    if is_name(value):
        return
    raise invalid(
        f"{what} {json.dumps(str(value))} is not allowed: use 1 to 64 letters, digits, dots, underscores or hyphens, "
        "starting with a letter, a digit or an underscore.",
        what=what,
        value=str(value),
    )


def life_folder(version: int, uuid: str) -> str:
    """Where everything of a namespace but namespace.json is; in version 1 of the format right beside it."""
    return "" if version == 1 else f"{LIVES_PREFIX}{uuid}/"


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


def index_key(ref: Reference) -> str:
    """Key of the index object that a reference names."""
    return f"{INDEX_PREFIX}{ref.base:020d}-{ref.commit_id}-{ref.k}.json"


def batch_stem(d: Descriptor) -> str:
    """One upload of one batch, from its descriptor."""
    return f"{d.producer}-{d.epoch}-{d.seq}-{d.incarnation}{d.attempt}"


def batch_key(d: Descriptor, extent: int) -> str:
    """Key of one extent of a batch, from its descriptor."""
    stem = batch_stem(d)
    return f"{BATCH_PREFIX}{crc32(stem.encode()) & 0xFF:02x}/{d.base:020d}/{stem}.{extent}.tgb"


class OpeningIntent(NamedTuple):
    """A producer that wants to be opened by the next committer, if its epoch is still `before`."""

    producer: str
    before: int
    incarnation: str


class LeavingIntent(NamedTuple):
    """A producer whose holder closed it."""

    producer: str
    epoch: int
    incarnation: str


def _seal_intent(namespace: str, producer: str, name: str) -> str:
    shard = f"{crc32(producer.encode()) % 16:x}"
    return f"{INTENT_PREFIX}{shard}/{name}-{crc_text(crc32(f'{namespace}/{name}'.encode()))}"


def batch_intents(namespace: str, batches: Sequence[Descriptor]) -> tuple[list[str], bool]:
    """Keys of the intents of a producer's batches, given in the order of seq, each of as many as its name holds.

    False: a batch has more extents than a name can hold, and its owner must commit it.
    """
    keys: list[str] = []
    name, all_named = "", True
    last: Descriptor | None = None
    for d in batches:
        longer = f"{name}_{_extents_text(d, last)}" if last and _follows(last, d) else ""
        if longer and _fits(longer):
            name, last = longer, d
            continue
        if last:
            keys.append(_seal_intent(namespace, last.producer, name))
        name = f"{batch_stem(d)}-{d.base}-{_extents_text(d)}"
        last = d if _fits(name) else None
        all_named = all_named and last is not None
    if last:
        keys.append(_seal_intent(namespace, last.producer, name))
    return keys, all_named


def _fits(name: str) -> bool:
    return len(name) + 9 <= _INTENT_NAME_BYTES_MAX


def _follows(before: Descriptor, d: Descriptor) -> bool:
    return before[:3] == d[:3] and before.seq + 1 == d.seq and (before.base, before.attempt) == (d.base, d.attempt)


def _extents_text(d: Descriptor, before: Descriptor | None = None) -> str:
    """What is as in the same extent of the batch before is left out."""
    texts = []
    for i, extent in enumerate(d.extents):
        known = before.extents[i] if before and i < len(before.extents) else (None,) * 4
        texts.append(".".join("" if n == was else str(n) for n, was in zip(extent, known)))
    ending = "" if d.stride is None else f"s{'' if before and before.stride == d.stride else d.stride}"
    return "-".join(texts) + ending


def opening_intent_key(namespace: str, opening: OpeningIntent) -> str:
    """Key of an opening's intent."""
    return _seal_intent(namespace, opening.producer, f"{opening.producer}-{opening.before}-open-{opening.incarnation}")


def _is_exact(text: str) -> bool:
    """A number as it is written here: decimal, without leading zeros, at most 2^53 - 1."""
    return len(text) <= 16 and str(int(text)) == text and int(text) <= SAFE_INTEGER_MAX


def leaving_intent_key(namespace: str, leaving: LeavingIntent) -> str:
    """Key of the intent of a producer that closed."""
    return _seal_intent(namespace, leaving.producer, f"{leaving.producer}-{leaving.epoch}-left-{leaving.incarnation}")


def parse_intent_key(namespace: str, key: str) -> OpeningIntent | LeavingIntent | list[Descriptor] | None:
    """An opening, a leaving, descriptors of consecutive batches, or None for anything that is not exactly an intent of this namespace."""
    match = _INTENT.fullmatch(key)
    if not match or crc_text(crc32(f"{namespace}/{match[1]}".encode())) != match[2]:
        return None
    opening = _OPENING_INTENT.fullmatch(match[1])
    if opening:
        if not is_name(opening[1]) or not _is_exact(opening[2]):
            return None
        return OpeningIntent(opening[1], int(opening[2]), opening[3])
    leaving = _LEAVING_INTENT.fullmatch(match[1])
    if leaving:
        if not is_name(leaving[1]) or not _is_exact(leaving[2]):
            return None
        return LeavingIntent(leaving[1], int(leaving[2]), leaving[3])
    found = _BATCHES_INTENT.fullmatch(match[1])
    if not found or not is_name(found[1]) or not all(_is_exact(found[i]) for i in (2, 3, 5, 6)):
        return None
    batches: list[Descriptor] = []
    before: list[Extent] = []
    stride: int | None = None
    for text in found[7].split("_"):
        listed, mark, stride_text = text.partition("s")
        if mark and stride_text:
            if not stride_text.isdigit() or not _is_exact(stride_text):
                return None
            stride = int(stride_text)
        stride = stride if mark else None
        if mark and not is_stride(stride):
            return None
        extents: list[Extent] = []
        for i, extent in enumerate(listed.split("-")):
            fields = extent.split(".")
            if i >= len(before) and "" in fields:
                return None  # as in a batch before that has no such extent
            if not all(n == "" or _is_exact(n) for n in fields):
                return None
            extents.append(Extent._make(int(n) if n else before[i][k] for k, n in enumerate(fields)))
        seq = int(found[3]) + len(batches)
        if seq > SAFE_INTEGER_MAX:
            return None
        batches.append(Descriptor(found[1], int(found[2]), found[4], seq, int(found[6]), int(found[5]), tuple(extents), None, stride))
        before = extents
    return batches
