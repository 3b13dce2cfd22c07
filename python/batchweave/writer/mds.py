"""Shards of mosaicml-streaming (MDS, version 2) as samples, read by ourselves: its index names the shards and how each column is encoded."""
from __future__ import annotations

import json
import os
import struct
from typing import Any, Iterator

from ..errors import BatchWeaveError, invalid
from ..format.tensors import Tensor
from .source import assert_reaches

_DTYPES = {
    "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "float16": "F16", "uint32": "U32", "int32": "I32", "float32": "F32", "uint64": "U64",
    "int64": "I64", "float64": "F64", "bool": "BOOL",
}
_NUMBERED = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}
_SHAPES = "BHIQ"


class MdsSamples:
    """A place is a number of samples over all shards."""

    def __init__(self, folder: str) -> None:
        self.name = os.path.basename(os.path.normpath(folder))
        self._folder = folder
        path = os.path.join(folder, "index.json")
        try:
            with open(path, encoding="utf-8") as file:
                index = json.load(file)
            self._shards: list[dict[str, Any]] = index["shards"]
        except (OSError, ValueError, KeyError) as error:
            raise invalid(f"{path} is no index of an MDS folder: {error}. Give the folder that MDSWriter wrote, one split at a time.", path=path) from None
        for shard in self._shards:
            if index.get("version") != 2 or shard.get("format") != "mds":
                raise BatchWeaveError("UNSUPPORTED_FORMAT", f"{path} lists a shard that is not MDS of version 2. Write it anew with a current MDSWriter.", {"path": path})

    def total(self) -> int:
        return sum(int(shard["samples"]) for shard in self._shards)

    def read(self, after: Any) -> Iterator[tuple[Any, Any]]:
        done = 0
        assert_reaches(self.name, self.total(), after or 0)
        for shard in self._shards:
            first = max(0, (after or 0) - done)
            if first < shard["samples"]:
                data = self._load(shard)
                for i in range(first, shard["samples"]):
                    begin, end = struct.unpack_from("<II", data, 4 + 4 * i)
                    yield _sample(shard, data[begin:end]), done + i + 1
            done += shard["samples"]

    def _load(self, shard: dict[str, Any]) -> memoryview:
        raw = os.path.join(self._folder, shard["raw_data"]["basename"])
        if os.path.exists(raw):
            with open(raw, "rb") as file:
                return memoryview(file.read())
        kind = (shard.get("compression") or "none").partition(":")[0]
        path = os.path.join(self._folder, (shard["zip_data"] or shard["raw_data"])["basename"])
        with open(path, "rb") as file:
            packed = file.read()
        return memoryview(_decompressed(kind, packed, path))


def _decompressed(kind: str, data: bytes, path: str) -> bytes:
    if kind == "gz":
        import gzip

        return gzip.decompress(data)
    if kind == "bz2":
        import bz2

        return bz2.decompress(data)
    if kind == "zstd":
        try:
            import zstandard
        except ImportError:
            raise BatchWeaveError("MISSING_PACKAGE", f"{path} is compressed with zstd: run pip install zstandard.", {"package": "zstandard"}) from None
        unpacked: bytes = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        return unpacked
    raise BatchWeaveError("UNSUPPORTED_ENCODING", f"{path} is compressed with {kind}; gz, bz2 and zstd are read. Decompress it first.", {"path": path})


def _sample(shard: dict[str, Any], data: memoryview) -> dict[str, Any]:
    sizes, at = [], 0
    for size in shard["column_sizes"]:
        if not size:
            (size,) = struct.unpack_from("<I", data, at)
            at += 4
        sizes.append(size)
    sample = {}
    for name, encoding, size in zip(shard["column_names"], shard["column_encodings"], sizes):
        sample[name] = _decoded(name, encoding, bytes(data[at : at + size]))
        at += size
    return sample


def _decoded(name: str, encoding: str, data: bytes) -> Any:
    kind, _, rest = encoding.partition(":")
    if kind in ("bytes", "jpeg", "jpegarray", "png", "jpeg_array"):
        return data
    if kind == "str":
        return data.decode()
    if kind == "int":
        return int.from_bytes(data, "little", signed=True)
    if kind in _DTYPES:
        return Tensor(_DTYPES[kind], (), data)
    if kind in ("str_int", "str_float"):
        return (int if kind == "str_int" else float)(data.decode())
    if kind == "json":
        return json.loads(data)
    if kind == "ndarray":
        return _array(rest, data)
    why = "a pickle runs code when it is read" if kind == "pkl" else "it is not known here"
    raise BatchWeaveError(
        "UNSUPPORTED_ENCODING",
        f"Column {name} is encoded as {encoding}, and {why}. Read the folder with mosaicml-streaming and give its samples to write_all().",
        {"column": name, "encoding": encoding},
    )


def _array(how: str, data: bytes) -> Tensor:
    """Dtype and shape are in the encoding's name, or in front of the values."""
    dtype, _, shape_text = how.partition(":")
    at = 0
    if not dtype:
        dtype, at = _NUMBERED[data[0]], 1
    if shape_text:
        shape = tuple(int(n) for n in shape_text.split(","))
    else:
        axes, width = data[at] >> 2, data[at] & 3
        shape = struct.unpack_from(f"<{axes}{_SHAPES[width]}", data, at + 1)
        at += 1 + axes * 2**width
    return Tensor(_DTYPES[dtype], shape, data[at:])
