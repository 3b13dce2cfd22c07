"""A row as users have it, a dict of arrays, tensors, lists, numbers, bytes or text, becomes the slices of one row of the grid."""
from __future__ import annotations

import sys
from array import array
from typing import Any, Mapping, NamedTuple, Sequence, Union

from ..errors import BatchWeaveError, invalid
from ..format.batch import SAFETENSORS_TYPE
from ..format.padding import PADDING
from ..format.tensors import DTYPE_BYTES, Tensor, as_tensor, encode_safetensors

#: What `write` takes: named values, one slice of bytes or text, or one of these for each chunk.
Row = Union[Mapping[str, Any], bytes, bytearray, memoryview, str, Sequence[Any]]
BYTES_TYPE = "application/octet-stream"
#: What padding holds in fields that a loss must not see, unless the writer is told otherwise.
FILL = {"labels": -100}


class EncodedRow(NamedTuple):
    """A row's slices, one a chunk, and what they were made of; None for a slice of plain bytes."""

    slices: list[bytes]
    tensors: list[Union[dict[str, Tensor], None]]

    @property
    def content_type(self) -> str:
        """Of its batch, which `preview` shows as tensors or as bytes."""
        return BYTES_TYPE if None in self.tensors else SAFETENSORS_TYPE


class RowCodec:
    """Encodes rows for a grid of `chunks`.

    joins: how readers put the parts of a field together (FORMAT.md 13).   pad: values that extend rows of unequal length to the longest of a share.
    """

    def __init__(self, chunks: int, joins: Mapping[str, Mapping[str, Any]] | None, pad: Mapping[str, float] | None, fill: Mapping[str, float] | None) -> None:
        self.chunks = chunks
        self._joins = {name: dict(rule) for name, rule in (joins or {}).items()}
        for name, value in (pad or {}).items():
            self._joins.setdefault(name, {"chunks": 0, "rows": "stack"})["pad"] = value
        self._fill = {**FILL, **(fill or {})}

    def encode(self, row: Row) -> EncodedRow:
        """One row."""
        if isinstance(row, Mapping):
            parts: list[Any] = self._split({name: to_tensor(name, value) for name, value in row.items() if not name.startswith("__")})
        elif isinstance(row, (bytes, bytearray, memoryview, str)):
            parts = [row]
        elif isinstance(row, (list, tuple)) and row and all(isinstance(p, (Mapping, bytes, bytearray, memoryview, str)) for p in row):
            parts = [_named(p) if isinstance(p, Mapping) else p for p in row]
        else:
            raise invalid(
                f"A row is a dict of arrays, tensors, lists, numbers, bytes or text, or bytes, not {type(row).__name__}. Give its values names, as in "
                '{"input_ids": ids}.'
            )
        if len(parts) != self.chunks:
            raise invalid(
                f"This row has {len(parts)} {'part' if len(parts) == 1 else 'parts'}, and rows of this namespace have {self.chunks} chunks. Give a dict, whose "
                f"fields are divided, or a list of {self.chunks}."
            )
        slices = [self._slice(part, None) if isinstance(part, dict) else _raw(part) for part in parts]
        return EncodedRow(slices, [part if isinstance(part, dict) else None for part in parts])

    def padding(self, like: EncodedRow) -> EncodedRow:
        """A row of the same shape that says it is none: zeros, `labels` -100, or what `fill` says. Of plain bytes: empty."""
        slices, tensors = [], []
        for held in like.tensors:
            blank = None if held is None else {name: _filled(name, t, self._fill.get(name, 0)) for name, t in held.items()}
            slices.append(b"" if blank is None else self._slice(blank, {PADDING: "1"}))
            tensors.append(blank)
        return EncodedRow(slices, tensors)

    def _slice(self, tensors: dict[str, Tensor], texts: dict[str, str] | None) -> bytes:
        joins = {name: rule for name, rule in self._joins.items() if name in tensors}
        if self.chunks > 1:
            for name, tensor in tensors.items():
                if not tensor.shape:
                    joins.setdefault(name, {"chunks": "same", "rows": "stack"})
        return encode_safetensors(tensors, texts, joins or None)

    def _split(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        if self.chunks == 1:
            return [tensors]
        cut = {name: _cut(name, tensor, self.chunks) for name, tensor in tensors.items()}
        return [{name: pieces[i] for name, pieces in cut.items()} for i in range(self.chunks)]


def _named(part: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: to_tensor(name, value) for name, value in part.items()}


def _raw(part: Any) -> bytes:
    return part.encode() if isinstance(part, str) else bytes(part)


def _cut(name: str, tensor: Tensor, chunks: int) -> list[Tensor]:
    """Numbers go into every chunk; of lists, [T] or [1, T], each chunk gets its part."""
    if not tensor.shape:
        return [tensor] * chunks
    *others, length = tensor.shape
    if any(n != 1 for n in others) or length % chunks:
        raise invalid(
            f"{name} has the shape {list(tensor.shape)}, which cannot be divided into {chunks} chunks: [T] and [1, T] can, if T is a multiple of {chunks}. "
            "Divide it yourself: write a list with one dict for each chunk."
        )
    size = length // chunks * DTYPE_BYTES[tensor.dtype]
    view = memoryview(tensor.data)
    return [Tensor(tensor.dtype, (*others, length // chunks), view[i * size : (i + 1) * size]) for i in range(chunks)]


def _filled(name: str, tensor: Tensor, value: float) -> Tensor:
    kind = {v: k for k, v in _ARRAYS.items()}.get(tensor.dtype)
    count = len(memoryview(tensor.data)) // DTYPE_BYTES[tensor.dtype]
    if value == 0:
        return tensor._replace(data=bytes(count * DTYPE_BYTES[tensor.dtype]))
    if kind is None:
        raise invalid(f"Padding of {name} cannot be filled with {value}: its dtype is {tensor.dtype}. Use fill={{{name!r}: 0}}.")
    try:
        return tensor._replace(data=_little(array(kind, [value if kind in "fd" else int(value)]) * count))
    except OverflowError:
        return tensor._replace(data=bytes(count * DTYPE_BYTES[tensor.dtype]))


_ARRAYS = {"b": "I8", "B": "U8", "h": "I16", "H": "U16", "i": "I32", "I": "U32", "q": "I64", "Q": "U64", "f": "F32", "d": "F64"}


def _little(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def to_tensor(name: str, value: Any) -> Tensor:
    """Arrays and tensors as they are. Lists and numbers: whole ones as I64, others as F32, truth values as BOOL. Bytes and text: their bytes, as U8."""
    if isinstance(value, Tensor):
        return as_tensor(name, value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return Tensor("U8", (len(data),), data)
    if isinstance(value, array) and value.typecode in _ARRAYS:
        return Tensor(_ARRAYS[value.typecode], (len(value),), _little(value))
    if isinstance(value, (bool, int, float, list, tuple)):
        return _from_numbers(name, value)
    if hasattr(value, "dtype") and hasattr(value, "__array_interface__") or hasattr(value, "detach"):
        return as_tensor(name, value)
    raise invalid(
        f"Field {name} is {type(value).__name__}, which cannot be stored. It can be an array, a tensor, a number, text, bytes, or lists of numbers; leave it out or "
        "make one of these of it."
    )


def _from_numbers(name: str, value: Any) -> Tensor:
    shape: list[int] = []
    probe = value
    while isinstance(probe, (list, tuple)):
        shape.append(len(probe))
        if not probe:
            break
        probe = probe[0]
    flat = [value] if not shape else value
    for depth in range(1, len(shape)):
        if any(not isinstance(part, (list, tuple)) or len(part) != shape[depth] for part in flat):
            raise invalid(f"Field {name} is lists of unequal lengths. Pad them, or write them as one list with another one of their lengths.")
        flat = [item for part in flat for item in part]
    kinds = set(map(type, flat))
    try:
        if kinds <= {bool} and kinds:
            return Tensor("BOOL", tuple(shape), bytes(flat))
        if kinds <= {int, bool}:
            return Tensor("I64", tuple(shape), _little(array("q", flat)))
        if kinds <= {int, bool, float}:
            return Tensor("F32", tuple(shape), _little(array("f", flat)))
        # Whatever else can be a number: numpy's own scalars.
        return Tensor(*_from_numbers(name, [item.item() for item in flat])._replace(shape=tuple(shape)))
    except AttributeError:
        kind = next(k for k in kinds if k not in (int, float, bool))
        raise invalid(f"Field {name} holds {kind.__name__} in a list; a list can hold numbers.") from None
    except OverflowError:
        raise BatchWeaveError("LIMIT", f"Field {name} holds a whole number beyond 64 bits.", {"field": name}) from None
