"""What a rank gets in one iteration."""
from __future__ import annotations

import difflib
from typing import Any, Callable, Collection, Generic, Literal, Mapping, Sequence, TypeVar, Union, overload

from ..errors import BatchWeaveError, invalid
from ..format.cursor import make_cursor
from ..format.join import join_field, join_rows
from ..format.join_rule import Joins, decode_joins
from ..format.padding import slice_is_padding
from ..format.tensors import decode_safetensors, require_package, to_numpy, to_torch
from .epochs import EpochOrder
from .projection import IterationPlan
from .reader import Slice
from .stacking import stack_rows

#: "bytes": as they are; "numpy", "torch": tensors of the safetensors layout by name, without copying; or your own function.
Decode = Union[Literal["bytes", "numpy", "torch"], Callable[[Any], Any]]
#: A field: a tensor or an array; or what a function made of a slice.
T = TypeVar("T")
D = TypeVar("D")


class Share(Generic[T]):
    """One rank's part of one iteration. `share["input_ids"]` is a tensor of all its rows, where slices hold tensors.

    iteration: the same number on every rank, whatever the mesh.
    slices:    rows ascending, chunks within a row in the order of the sequence.
    """

    __slots__ = (
        "iteration", "slices", "rows", "value", "_namespace", "_row", "_next_row", "_data", "_joins", "_batch", "_decode", "_where",
        "_nbytes", "_order", "_padding", "_model", "_valid", "told",
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
        order: EpochOrder | None = None,
        padding: int = 0,
        model: Sequence[Slice] = (),
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
        self._order = order
        self._padding = padding
        #: Of a share without rows: a row that says what its fields are like.
        self._model = model
        self._valid: list[bool] | None = None
        #: In a worker of a DataLoader: which one, and what it has read so far.
        self.told: tuple[int, dict[str, Any]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # From a worker process of a DataLoader to the trainer: views of larger buffers become bytes of their own; what was
        # decoded to tensors travels as tensors, and the bytes they were made of stay behind, and so does what was joined of them.
        data = self.data
        is_raw = not data or all(d is s.bytes for d, s in zip(data, self.slices))
        keep = [s._replace(bytes=bytes(s.bytes) if is_raw else None) for s in self.slices]
        if data:
            data = [s.bytes for s in keep] if is_raw else [bytes(d) if isinstance(d, memoryview) else d for d in data]
        fields = (self.iteration, keep, self.rows, self._namespace, self._row, self._next_row, data, self._order, self._padding, self._model)
        # What is not decoded yet can be on the other side; the user's own function has run already, and need not travel.
        decode = self._decode if isinstance(self._decode, str) else "bytes"
        joins = [dict(rules) for rules in self._joins]
        return (_restore, (fields, joins, self.valid, self.value, decode, self._where, self.nbytes))

    def __repr__(self) -> str:
        return f"Share(iteration={self.iteration}, rows={self.rows}, slices={len(self.slices)})"

    @property
    def cursor(self) -> dict[str, Any]:
        """Where this iteration began."""
        return self._state(self._row, self.iteration)

    @property
    def next(self) -> dict[str, Any]:
        """Where the following iteration begins: to be saved with the model."""
        return self._state(self._next_row, self.iteration + 1)

    def _state(self, row: int, iteration: int) -> dict[str, Any]:
        return make_cursor(self._namespace, row, iteration) if self._order is None else self._order.state(row, iteration)

    @property
    def valid(self) -> list[bool]:
        """For each row, whether it is a sample: false for what a writer's `tail="pad"` or a reader's `last="pad"` added."""
        if self._valid is None:
            chunks = len(self.slices) // self.rows if self.rows else 1
            firsts = self.slices[::chunks]
            self._valid = [i < self.rows - self._padding and not slice_is_padding(s.bytes) for i, s in enumerate(firsts)]
        return self._valid

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

    def decode(self, decode: Decode, where: str = "this slice") -> "Share[T]":
        """Fills `data`."""
        decoded = [decode_slice(s.bytes, decode, f"slice {s.step}/{s.row}/{s.chunk} of {where}") for s in self.slices]
        self._decode, self._where = decode, where
        self._data, self._joins = [value for value, _ in decoded], [joins for _, joins in decoded]
        return self

    def finish(self, decode: Decode, where: str, pin_memory: bool = False, fields: Collection[str] | None = None) -> "Share[T]":
        """All that can be done before the loop asks: decodes, and joins named tensors (all, or `fields`), into page-locked memory where it
        is asked for. Runs on the threads that read ahead. `data`, which few need beside the joined rows, is decoded when asked for.
        """
        self._decode, self._where = decode, where
        if callable(decode) or decode == "bytes" or self.rows == 0:
            return self.decode(decode, where)  # what the user's own function makes is joined only when asked for
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

    def batch(self, fields: Collection[str] | None = None) -> dict[str, T]:
        """Tensors by name, all or `fields`: chunks of a row joined, then rows, along the axes that the slices name. Fields that no slice
        holds are left out.

        Where slices name none, a tensor of shape [T] or [1, T] in each becomes [rows, T of all chunks]; others are joined over rows, along
        their first axis, and not over chunks. One slice alone is not copied.
        """
        found = {name: self._find(name) for name in (self.keys() if fields is None else fields)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def per_row(self, name: str) -> list[Any]:
        """One tensor a row, its chunks joined and rows kept apart; None where a row holds none. For rows of unequal shapes."""
        slices = self._tensors(name)
        return join_rows(name, slices, self._rules(), self.rows) if self.rows else []

    def _find(self, name: str) -> Any:
        if name not in self._batch:
            slices = self._tensors()
            if not any(name in held for held in slices):
                return None
            self._batch[name] = join_field(name, slices, self._rules(), self.rows) if self.rows else self._without_rows(name)
        return self._batch[name]

    def _without_rows(self, name: str) -> Any:
        decoded = [decode_slice(s.bytes, self._decode, self._where) for s in self._model]
        return join_field(name, [value for value, _ in decoded], [joins for _, joins in decoded], 1)[:0]

    def _tensors(self, name: str | None = None) -> Sequence[Mapping[str, Any]]:
        data = self._held()
        if not data or not all(isinstance(d, Mapping) for d in data):
            raise invalid('This share holds no tensors by name; read with decode="numpy" or "torch", or use share.data.')
        if name is not None and not any(name in held for held in data):
            raise _no_field(name, data)
        return data

    def _held(self) -> Sequence[Any]:
        """The decoded slices; of a share without rows, those of the row that says what its fields are like."""
        return (self.data or ()) if self.rows else [decode_slice(s.bytes, self._decode, self._where)[0] for s in self._model]

    def _rules(self) -> Sequence[Joins]:
        return self._joins or [{}] * len(self.slices)

    def __getitem__(self, name: str) -> T:
        found: T | None = self._find(name)
        if found is None:
            raise _no_field(name, self._tensors())
        return found

    @overload
    def get(self, name: str) -> T | None: ...
    @overload
    def get(self, name: str, default: D) -> T | D: ...
    def get(self, name: str, default: Any = None) -> Any:
        """`share[name]`, or `default` where no slice of this share holds it."""
        found = self._find(name)
        return default if found is None else found

    def __contains__(self, name: object) -> bool:
        if name in self._batch:
            return True
        return any(isinstance(held, Mapping) and name in held for held in self._held())

    def keys(self) -> list[str]:
        """Names of the tensors that any slice holds."""
        return list(dict.fromkeys(name for held in self._tensors() for name in held))


def _pin(tensor: Any) -> Any:
    import torch

    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def share_of(plan: IterationPlan, slices: Sequence[Slice], namespace: str, order: EpochOrder | None = None, is_ragged: bool = False) -> Share[Any]:
    """The share of an iteration. Ragged: without the rows that are no samples; a rank may be left with none."""
    rows, padding, model = plan.rows, plan.padding, ()
    if is_ragged:
        chunks = len(slices) // rows
        kept = [r for r in range(rows - padding) if not slice_is_padding(slices[r * chunks].bytes)]
        if len(kept) < rows:
            model = tuple(s._replace(bytes=bytes(s.bytes)) for s in slices[:chunks])  # type: ignore[assignment]
            slices = [s for r in kept for s in slices[r * chunks : (r + 1) * chunks]]
            rows, padding = len(kept), 0
    return Share(plan.iteration, slices, rows, namespace, plan.row, plan.next_row, None, order, padding, model)


def _no_field(name: str, data: Sequence[Mapping[str, Any]]) -> KeyError:
    names = list(dict.fromkeys(key for held in data for key in held))
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}" if near else ""
    return KeyError(f"{name!r} is in no slice of this share{hint}. It has: {', '.join(map(repr, names)) or 'no tensors'}.")


def _restore(fields: tuple[Any, ...], joins: list[Joins], valid: list[bool], *more: Any) -> Share[Any]:
    share: Share[Any] = Share(*fields)
    share._joins, share._valid = joins, valid
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
