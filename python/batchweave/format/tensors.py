"""Tensors in a slice: the safetensors layout (FORMAT.md 13), to numpy and torch without copying, and back.

Nothing here needs numpy or torch until the caller asks for their arrays.
"""
from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import Any, Mapping, NamedTuple

from ..errors import BatchWeaveError, invalid
from .join_rule import JOINS, encode_joins
from .stored_json import SAFE_INTEGER_MAX, dump_json, load_json

DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}
_NUMPY = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4",
    "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8", "C64": "<c8",
}
_TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "BF16": "bfloat16",
    "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}
_HEADER_BYTES_MAX = 100_000_000
_REMEMBERED_BYTES_MAX = 16_384
_METADATA = "__metadata__"


#: Name, dtype, shape, first byte and the one behind the last, of a tensor in a header.
Entry = tuple[str, str, tuple[int, ...], int, int]


class Tensor(NamedTuple):
    """One tensor: row-major, little-endian; `data` is a view of the slice."""

    dtype: str
    shape: tuple[int, ...]
    data: Any


def _not_tensors(where: str, what: str) -> BatchWeaveError:
    return BatchWeaveError(
        "CORRUPT",
        f"{where} does not hold tensors in the safetensors layout: {what}. Read it as plain bytes, or check the "
        "contentType its producer gave.",
        {"key": where, "what": what},
    )


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for n in shape:
        product *= n
    return product


def decode_safetensors(data: Any, where: str = "this slice") -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors by name, and the texts that travel with them. Checks everything before it gives anything."""
    view = memoryview(data)
    entries, metadata, at = read_layout(view, where)
    body = view[at:]
    return {name: Tensor(dtype, shape, body[begin:end]) for name, dtype, shape, begin, end in entries}, dict(metadata)


def read_layout(data: Any, where: str) -> tuple[tuple[Entry, ...], Mapping[str, str], int]:
    """(name, dtype, shape, begin, end) of every tensor, checked; the texts beside them; and where their bytes begin."""
    view = memoryview(data)
    if len(view) < 8:
        raise _not_tensors(where, f"it has only {len(view)} bytes")
    (header_bytes,) = struct.unpack_from("<Q", view)
    if header_bytes > _HEADER_BYTES_MAX or 8 + header_bytes > len(view):
        raise _not_tensors(where, f"it claims a header of {header_bytes} bytes")
    at = 8 + header_bytes
    raw = bytes(view[8:at])
    try:
        # Rows of one batch have the same header nearly always: it is checked once.
        return (*(_layout_again if len(raw) <= _REMEMBERED_BYTES_MAX else _layout)(raw, len(view) - at), at)
    except _NotTensors as error:
        raise _not_tensors(where, str(error)) from None


class _NotTensors(Exception):
    """What is wrong with a header; never seen outside."""


def _layout(raw: bytes, body_bytes: int) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """(name, dtype, shape, begin, end) of every tensor of a header, and the texts in it."""
    if raw[:1] != b"{":
        raise _NotTensors("its header does not begin with a brace")
    try:
        header = load_json(raw)
    except ValueError:
        raise _NotTensors("its header is not JSON") from None
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _NotTensors(f"{_METADATA} is not strings by name")
    entries = tuple((name, *_decode_entry(name, value)) for name, value in header.items())
    offset = 0
    for name, _, _, begin, end in sorted(entries, key=lambda entry: (entry[3], entry[4], entry[0])):
        if begin != offset:
            fault = "overlaps another" if begin < offset else "leaves a hole before it"
            raise _NotTensors(f"tensor {json.dumps(name)} {fault}")
        offset = end
    if offset != body_bytes:
        raise _NotTensors(f"its tensors take {offset} bytes of {body_bytes}")
    return entries, metadata


_layout_again = lru_cache(maxsize=256)(_layout)


def _decode_entry(name: str, value: Any) -> tuple[str, tuple[int, ...], int, int]:
    what = f"tensor {json.dumps(name)}"
    entry = value if isinstance(value, dict) else {}
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise _NotTensors(f"{what} has the dtype {json.dumps(dtype)}, which is not known")
    if not _whole(shape):
        raise _NotTensors(f"the shape of {what} is not whole numbers")
    if not _whole(offsets) or len(offsets) != 2:
        raise _NotTensors(f"the offsets of {what} are not two whole numbers")
    begin, end = offsets
    expected = _elements(tuple(shape)) * DTYPE_BYTES[dtype]
    if end - begin != expected:
        raise _NotTensors(f"{what} has {end - begin} bytes, its shape and dtype make {expected}")
    return dtype, tuple(shape), begin, end


def _whole(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= SAFE_INTEGER_MAX for n in value)


def encode_safetensors(
    tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None, joins: Mapping[str, Mapping[str, Any]] | None = None
) -> bytes:
    """Encodes numpy arrays, torch tensors or Tensor tuples. The widest come first, so that each is aligned.

    joins: how readers put the parts of a field together when they take several chunks or rows, such as {"x": {"chunks": 1, "rows": 0}}.
    """
    named = sorted(
        ((name, as_tensor(name, value)) for name, value in tensors.items()),
        key=lambda item: (-DTYPE_BYTES[item[1].dtype], item[0]),
    )
    texts = dict(metadata or {})
    if joins:
        texts[JOINS] = encode_joins(joins, {n: t.shape for n, t in named}, {n: t.dtype for n, t in named})
    header: dict[str, Any] = {_METADATA: texts} if texts else {}
    offset = 0
    for name, tensor in named:
        n = _elements(tensor.shape) * DTYPE_BYTES[tensor.dtype]
        if memoryview(tensor.data).nbytes != n:
            raise invalid(
                f"These tensors cannot be stored: {name} has {memoryview(tensor.data).nbytes} bytes, its shape "
                f"{list(tensor.shape)} and {tensor.dtype} make {n}."
            )
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, offset + n]}
        offset += n
    text = dump_json(header)
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *(memoryview(t.data).cast("B") for _, t in named if t.data)])


def as_tensor(name: str, value: Any) -> Tensor:
    """A numpy array or torch tensor as it is stored."""
    if name == _METADATA:
        raise invalid(f"These tensors cannot be stored: {_METADATA} is not a name for a tensor.")
    if isinstance(value, Tensor):
        if value.dtype not in DTYPE_BYTES:
            raise invalid(f"These tensors cannot be stored: {name} has the dtype {value.dtype!r}, which is not known.")
        return value
    if hasattr(value, "detach"):  # torch
        import torch

        plain = value.detach().cpu().contiguous()
        kind = str(plain.dtype).removeprefix("torch.")
        dtype = next((k for k, v in _TORCH.items() if v == kind), None)
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        shape = tuple(value.shape)
    elif hasattr(value, "__array_interface__"):  # numpy
        import numpy

        array = numpy.ascontiguousarray(value)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        dtype = next((k for k, v in _NUMPY.items() if numpy.dtype(v) == array.dtype), None)
        data = array.tobytes()
        shape = tuple(value.shape)
    else:
        raise invalid(f"These tensors cannot be stored: {name} is neither a numpy array nor a torch tensor.")
    if dtype is None:
        raise invalid(f"These tensors cannot be stored: {name} has a dtype that the layout does not know.")
    return Tensor(dtype, shape, data)


def numpy_type(dtype: str) -> str:
    """numpy's name of a dtype. Those that it lacks (bfloat16, 8-bit floats) come as uint16 and uint8."""
    return _NUMPY.get(dtype, "<u2" if dtype == "BF16" else "u1")


def torch_type(dtype: str) -> Any:
    """torch's dtype."""
    found = getattr(_module("torch"), _TORCH[dtype], None)
    if found is None:
        raise BatchWeaveError("UNSUPPORTED_ENCODING", f"This torch has no dtype for {dtype}. Install a newer torch.", {})
    return found


def to_numpy(tensor: Tensor) -> Any:
    """A numpy array over the same bytes."""
    return _module("numpy").frombuffer(tensor.data, dtype=numpy_type(tensor.dtype)).reshape(tensor.shape)


def to_torch(tensor: Tensor) -> Any:
    """A torch tensor over the same bytes."""
    torch, dtype = _module("torch"), torch_type(tensor.dtype)
    if len(tensor.data) == 0:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape)


def require_package(name: str) -> None:
    """MISSING_PACKAGE if it is not installed; does not import it, which takes seconds."""
    import importlib.util

    if importlib.util.find_spec(name) is None:
        raise _missing(name)


@lru_cache(maxsize=None)
def _module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise _missing(name) from None


def _missing(name: str) -> BatchWeaveError:
    return BatchWeaveError(
        "MISSING_PACKAGE", f'This needs the package {name}: run pip install {name}, or read with decode="bytes".', {"package": name}
    )
