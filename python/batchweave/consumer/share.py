"""What a rank gets in one iteration."""
from __future__ import annotations

from typing import Any, Callable, Collection, Mapping, Sequence, Union

from ..errors import BatchWeaveError, invalid
from ..format.cursor import make_cursor
from ..format.join import join_field, join_rows
from ..format.join_rule import Joins, decode_joins
from ..format.tensors import decode_safetensors, require_package, to_numpy, to_torch
from .reader import Slice
from .stacking import stack_rows

#: "bytes": as they are; "numpy", "torch": tensors of the safetensors layout by name, without copying; or your own function.
Decode = Union[str, Callable[[Any], Any]]


class Share:
    """One rank's part of one iteration. `share["input_ids"]` is a tensor of all its rows, where slices hold tensors.

    iteration: the same number on every rank, whatever the mesh.
    slices:    rows ascending, chunks within a row in the order of the sequence.
    """

    __slots__ = (
        "iteration", "slices", "rows", "value", "_namespace", "_row", "_next_row", "_data", "_joins", "_batch", "_decode", "_where",
        "_nbytes",
    )

    def __init__(
        self,
        iteration: int,
        slices: Sequence[Slice],
        rows: int,
        namespace: str,
        row: int,
        next_row: int,
        data: list[Any] | None = None,
    ) -> None:
        self.iteration = iteration
        self.slices = slices
        self.rows = rows
        self._namespace = namespace
        self._row = row
        self._next_row = next_row
        self._data = data
        self._joins: list[Joins] = []
        self._decode: Decode = "bytes"
        self._where = "this slice"
        #: What the dataset's `transform` made of this share.
        self.value: Any = None
        #: Fields that are joined already.
        self._batch: dict[str, Any] = {}
        self._nbytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # From a worker process of a DataLoader to the trainer: views of larger buffers become bytes of their own; what was
        # decoded to tensors travels as tensors, and the bytes they were made of stay behind, and so does what was joined of them.
        data = self.data
        is_raw = not data or all(d is s.bytes for d, s in zip(data, self.slices))
        keep = [s._replace(bytes=bytes(s.bytes) if is_raw else None) for s in self.slices]
        if data:
            data = [s.bytes for s in keep] if is_raw else [bytes(d) if isinstance(d, memoryview) else d for d in data]
        fields = (self.iteration, keep, self.rows, self._namespace, self._row, self._next_row, data)
        # What is not decoded yet can be on the other side; somebody's own function has run already, and need not travel.
        decode = self._decode if isinstance(self._decode, str) else "bytes"
        joins = [dict(rules) for rules in self._joins]
        return (_restore, (fields, joins, self.value, decode, self._where, self.nbytes))

    def __repr__(self) -> str:
        return f"Share(iteration={self.iteration}, rows={self.rows}, slices={len(self.slices)})"

    @property
    def cursor(self) -> dict[str, Any]:
        """Where this iteration began."""
        return make_cursor(self._namespace, self._row, self.iteration)

    @property
    def next(self) -> dict[str, Any]:
        """Where the following iteration begins: to be saved with the model."""
        return make_cursor(self._namespace, self._next_row, self.iteration + 1)

    @property
    def nbytes(self) -> int:
        """Bytes of all slices."""
        return self._nbytes or sum(len(s.bytes) for s in self.slices if s.bytes is not None)

    @property
    def data(self) -> list[Any] | None:
        """The decoded slices, in the order of `slices`; None before `decode`."""
        if self._data is None and self._decode != "bytes":
            self.decode(self._decode, self._where)
        return self._data

    def decode(self, decode: Decode, where: str = "this slice") -> "Share":
        """Fills `data`."""
        decoded = [decode_slice(s.bytes, decode, f"slice {s.step}/{s.row}/{s.chunk} of {where}") for s in self.slices]
        self._decode, self._where = decode, where
        self._data, self._joins = [value for value, _ in decoded], [joins for _, joins in decoded]
        return self

    def finish(self, decode: Decode, where: str, pin_memory: bool = False, fields: Collection[str] | None = None) -> "Share":
        """All that can be done before the loop asks: decodes, and joins named tensors (all, or `fields`), into page-locked memory where it
        is asked for. Runs on the threads that read ahead. `data`, which few need beside the joined rows, is decoded when asked for.
        """
        self._decode, self._where = decode, where
        if callable(decode) or decode == "bytes":
            return self.decode(decode, where)  # what somebody's own function makes is joined only when asked for
        joined = getattr(self.slices, "joined", None)
        gap = getattr(self.slices, "gap", 0)
        stacked = stack_rows(joined, gap, len(self.slices), self.rows, decode, where, fields) if joined is not None else {}
        self._batch = {name: tensor for name, tensor in stacked.items() if tensor is not None}
        for name in stacked or (self.keys() if fields is None else fields):
            try:
                self._find(name)
            except BatchWeaveError:
                pass  # what cannot be joined is the trainer's to join; it is told when it asks for it
        self._data = None  # decoded anew if asked for, rather than kept beside what was joined
        if pin_memory:
            self._batch = {name: _pin(tensor) for name, tensor in self._batch.items()}
        return self

    def batch(self, fields: Collection[str] | None = None) -> dict[str, Any]:
        """Tensors by name, all or `fields`: chunks of a row joined, then rows, along the axes that the slices name. Fields that no slice
        holds are left out.

        Where slices name none, a tensor of shape [T] or [1, T] in each becomes [rows, T of all chunks]; others are joined over rows, along
        their first axis, and not over chunks. One slice alone is not copied.
        """
        found = {name: self._find(name) for name in (self.keys() if fields is None else fields)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def per_row(self, name: str) -> list[Any]:
        """One tensor a row, its chunks joined and rows kept apart; None where a row holds none. For rows of unequal shapes."""
        return join_rows(name, self._tensors(name), self._rules(), self.rows)

    def _find(self, name: str) -> Any:
        if name not in self._batch:
            slices = self._tensors()
            if not any(name in held for held in slices):
                return None
            self._batch[name] = join_field(name, slices, self._rules(), self.rows)
        return self._batch[name]

    def _tensors(self, name: str | None = None) -> Sequence[Mapping[str, Any]]:
        data = self.data
        if not data or not all(isinstance(d, Mapping) for d in data):
            raise invalid('This share holds no tensors by name; read with decode="numpy" or "torch", or use share.data.')
        if name is not None and not any(name in held for held in data):
            raise KeyError(name)
        return data

    def _rules(self) -> Sequence[Joins]:
        return self._joins or [{}] * len(self.slices)

    def __getitem__(self, name: str) -> Any:
        found = self._find(name)
        if found is None:
            raise KeyError(f"{name}: no slice of this share holds it; it has {', '.join(self.keys())}")
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """`share[name]`, or `default` where no slice of this share holds it."""
        found = self._find(name)
        return default if found is None else found

    def __contains__(self, name: object) -> bool:
        if name in self._batch:
            return True
        return any(isinstance(held, Mapping) and name in held for held in self.data or ())

    def keys(self) -> list[str]:
        """Names of the tensors that any slice holds."""
        return list(dict.fromkeys(name for held in self._tensors() for name in held))


def _pin(tensor: Any) -> Any:
    import torch

    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def _restore(fields: tuple[Any, ...], joins: list[Joins], *more: Any) -> Share:
    share = Share(*fields)
    share._joins = joins
    share.value, share._decode, share._where, share._nbytes = more
    return share


def decode_slice(data: Any, decode: Decode, where: str) -> tuple[Any, Joins]:
    """One slice decoded, and how its tensors are joined with those of others."""
    if callable(decode):
        return decode(data), {}
    if decode == "bytes":
        return data, {}
    tensors, metadata = decode_safetensors(data, where)
    convert = to_torch if decode == "torch" else to_numpy
    return {name: convert(tensor) for name, tensor in tensors.items()}, decode_joins(metadata, where)


def check_decode(decode: Decode) -> None:
    """Refuses what cannot decode."""
    if callable(decode) or decode == "bytes":
        return
    if decode in ("numpy", "torch"):
        require_package(decode)
        return
    raise BatchWeaveError(
        "INVALID_ARGUMENT", f'decode must be "bytes", "numpy", "torch" or a function, not {decode!r}.', {}
    )
