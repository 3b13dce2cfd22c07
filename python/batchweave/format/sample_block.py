"""Sample blocks (FORMAT.md 13): what a source log holds. Chunk 0 is a table of samples, chunk 1 the samples, one after another."""
from __future__ import annotations

import json
import math
import struct
from typing import Any, Mapping, NamedTuple, Sequence

from ..errors import BatchWeaveError, corrupt, invalid
from .checksum import crc32
from .tensors import Tensor, decode_safetensors, encode_safetensors

#: `contentType` of the batches of a source log.
SAMPLE_BLOCK_TYPE = "application/vnd.batchweave.samples"
#: Samples of a block at most, and bytes of all of them: what a table can say.
BLOCK_SAMPLES_MAX = 1_048_576
BLOCK_BYTES_MAX = 0xFFFF_FFFF
_FEATURE = "feature/"


class BlockSample(NamedTuple):
    """A sample on its way into a block."""

    id: str
    tokens: int
    data: Any
    #: Patches of each of its images.
    images: Sequence[int] = ()
    #: Numbers for cost functions.
    features: Mapping[str, float] = {}


class SampleEntry(NamedTuple):
    """A row of a table: where a sample's bytes lie in chunk 1, and their checksum."""

    id: str
    tokens: int
    offset: int
    length: int
    crc: int
    images: tuple[int, ...] = ()
    features: Mapping[str, float] = {}


class SampleTable(NamedTuple):
    source: str
    samples: list[SampleEntry]
    #: What its writer left out before a sample, or behind the last (index = number of samples).
    faults: Sequence[tuple[int, Any]] = ()


def encode_sample_block(
    source: str, samples: Sequence[BlockSample], faults: Sequence[tuple[int, Any]] = ()
) -> tuple[bytes, bytes]:
    """Chunk 0 and chunk 1 of a block: the same bytes as the TypeScript side makes."""
    payload = b"".join(sample.data for sample in samples)
    if len(samples) > BLOCK_SAMPLES_MAX or len(payload) > BLOCK_BYTES_MAX:
        raise BatchWeaveError(
            "LIMIT",
            f"A block holds at most {BLOCK_SAMPLES_MAX} samples and {BLOCK_BYTES_MAX} bytes, not {len(samples)} with "
            f"{len(payload)}. Write smaller blocks.",
            {"samples": len(samples), "bytes": len(payload)},
        )
    for sample in samples:
        _check(sample)
    ids = [sample.id.encode() for sample in samples]
    tensors = {
        "length": _u32([memoryview(sample.data).nbytes for sample in samples]),
        "crc": _u32([crc32(sample.data) for sample in samples]),
        "tokens": _u32([sample.tokens for sample in samples]),
        "id_length": _u32([len(id) for id in ids]),
        "ids": Tensor("U8", (sum(map(len, ids)),), b"".join(ids)),
    }
    if any(sample.images for sample in samples):
        tensors["image_count"] = _u32([len(sample.images) for sample in samples])
        tensors["images"] = _u32([n for sample in samples for n in sample.images])
    for name in dict.fromkeys(name for sample in samples for name in sample.features):
        # A sample without the feature has no number.
        values = [float(sample.features.get(name, math.nan)) for sample in samples]
        tensors[_FEATURE + name] = Tensor("F64", (len(values),), struct.pack(f"<{len(values)}d", *values))
    metadata = {"source": source}
    if faults:
        metadata["faults"] = json.dumps(faults, ensure_ascii=False, separators=(",", ":"))
    return encode_safetensors(tensors, metadata), payload


def _u32(values: list[int]) -> Tensor:
    return Tensor("U32", (len(values),), struct.pack(f"<{len(values)}I", *values))


def _check(sample: BlockSample) -> None:
    whole = [sample.tokens, *sample.images]
    if (
        isinstance(sample.id, str)
        and all(isinstance(n, int) and 0 <= n <= 0xFFFF_FFFF for n in whole)
        and all(isinstance(n, (int, float)) and math.isfinite(n) for n in sample.features.values())
    ):
        return
    raise invalid(
        "A sample of a block needs an id (text), tokens and patches of images (whole numbers below 2^32) and features (finite numbers).",
        id=sample.id,
    )


def decode_sample_table(data: Any, payload_bytes: int, where: str) -> SampleTable:
    """The table of a block whose chunk 1 has `payload_bytes`."""
    tensors, metadata = decode_safetensors(data, where)
    source = metadata.get("source")
    if source is None:
        raise corrupt(where, "its table names no source")

    def values(name: str, dtype: str) -> Any:
        tensor = tensors.get(name)
        if tensor is None or tensor.dtype != dtype or len(tensor.shape) != 1:
            raise corrupt(where, f"its table has no column {name} of {dtype}")
        if dtype == "U8":
            return bytes(tensor.data)
        return struct.unpack(f"<{tensor.shape[0]}{'I' if dtype == 'U32' else 'd'}", tensor.data)

    lengths = values("length", "U32")

    def column(name: str, dtype: str = "U32") -> Any:
        found = values(name, dtype)
        if len(found) != len(lengths):
            raise corrupt(where, f"column {name} has not {len(lengths)} entries")
        return found

    def cut(counts: Any, flat: Any, name: str) -> list[Any]:
        if sum(counts) != len(flat):
            raise corrupt(where, f"column {name} has {len(flat)} entries, not {sum(counts)}")
        pieces, at = [], 0
        for n in counts:
            pieces.append(flat[at : at + n])
            at += n
        return pieces

    crcs, tokens = column("crc"), column("tokens")
    try:
        ids = [id.decode() for id in cut(column("id_length"), values("ids", "U8"), "ids")]
    except UnicodeDecodeError:
        raise corrupt(where, "an id in its table is not UTF-8") from None
    images = cut(column("image_count"), values("images", "U32"), "images") if "image_count" in tensors else [()] * len(lengths)
    features = [(name[len(_FEATURE) :], column(name, "F64")) for name in tensors if name.startswith(_FEATURE)]
    if sum(lengths) != payload_bytes:
        raise corrupt(where, f"its samples take {sum(lengths)} bytes and its payload has {payload_bytes}")
    samples, offset = [], 0
    for i, length in enumerate(lengths):
        own = {name: column[i] for name, column in features if not math.isnan(column[i])}
        samples.append(SampleEntry(ids[i], tokens[i], offset, length, crcs[i], tuple(images[i]), own))
        offset += length
    return SampleTable(source, samples, _faults(metadata.get("faults"), len(samples), where))


def _faults(text: str | None, count: int, where: str) -> list[tuple[int, Any]]:
    if text is None:
        return []
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int and 0 <= pair[0] <= count for pair in found
    ):
        raise corrupt(where, "the faults in its table are not a list of [sample, fault]")
    return [(at, fault) for at, fault in found]


def check_sample(data: Any, entry: SampleEntry, where: str) -> Any:
    """The bytes of a sample, checked against its row of the table."""
    if len(data) != entry.length:
        raise corrupt(where, f"sample {entry.id!r} has {len(data)} bytes, not {entry.length}")
    if crc32(data) != entry.crc:
        raise corrupt(where, f"sample {entry.id!r} does not match its checksum")
    return data
