"""What a rank gets in one iteration."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence, Union

from ..errors import BatchWeaveError, invalid
from ..format.cursor import make_cursor
from ..format.tensors import decode_safetensors, require_package, to_numpy, to_torch
from .reader import Slice
from .stacking import Shapes, is_stack_of, shapes_of, stack_rows, unstack_rows

#: "bytes": as they are; "numpy", "torch": tensors of the safetensors layout by name, without copying; or your own function.
Decode = Union[str, Callable[[Any], Any]]


class Share:
    """One rank's part of one iteration. `share["input_ids"]` is a tensor of all its rows, where slices hold tensors.

    iteration: the same number on every rank, whatever the mesh.
    slices:    rows ascending, chunks within a row in the order of the sequence.
    """

    __slots__ = (
        "iteration", "slices", "rows", "value", "_namespace", "_row", "_next_row", "_data", "_batch", "_decode", "_where",
        "_shapes", "_nbytes",
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
        self._decode: Decode = "bytes"
        self._where = "this slice"
        #: What the dataset's `transform` made of this share.
        self.value: Any = None
        self._batch: dict[str, Any] | None = None
        #: Of a share that came from another process as stacked tensors: how to take them apart, and what they weighed.
        self._shapes: Shapes | None = None
        self._nbytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # From a worker process of a DataLoader to the trainer: views of larger buffers become bytes of their own; what was
        # decoded to tensors travels as tensors, and the bytes they were made of stay behind: `data` can be had from stacked ones too.
        data = self._data
        shapes = self._stacked_shapes()
        is_raw = shapes is None and (not data or all(d is s.bytes for d, s in zip(data, self.slices)))
        keep = [s._replace(bytes=bytes(s.bytes) if is_raw else None) for s in self.slices]
        if data:
            data = [s.bytes for s in keep] if is_raw else [bytes(d) if isinstance(d, memoryview) else d for d in data]
        fields = (self.iteration, keep, self.rows, self._namespace, self._row, self._next_row, data, self._batch, self.value)
        # What is not decoded yet can be on the other side; somebody's own function has run already, and need not travel.
        decode = self._decode if isinstance(self._decode, str) else "bytes"
        return (_restore, (*fields, decode, self._where, shapes, self.nbytes))

    def _stacked_shapes(self) -> Shapes | None:
        """Where the stacked tensors are all that there is to send: what each slice's look like."""
        if self._batch is None or self._data is not None:
            return None  # whoever asked for `data` may have changed it
        shapes = self._shapes
        if shapes is None:
            shapes = shapes_of([s.bytes for s in self.slices], self._where)
        return shapes if shapes is not None and is_stack_of(self._batch, shapes, len(self.slices)) else None

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
        if self._data is None and self._shapes is not None and self._batch is not None:
            self._data = list(unstack_rows(self._batch, self._shapes, len(self.slices), self.rows))
        elif self._data is None and self._batch is not None:
            self.decode(self._decode, self._where)
        return self._data

    def decode(self, decode: Decode, where: str = "this slice") -> "Share":
        """Fills `data`."""
        self._data = [decode_bytes(s.bytes, decode, f"slice {s.step}/{s.row}/{s.chunk} of {where}") for s in self.slices]
        return self

    def finish(self, decode: Decode, where: str, pin_memory: bool = False) -> "Share":
        """All that can be done before the loop asks: decodes, and stacks the rows of named tensors, into page-locked memory where it
        is asked for. Runs on the threads that read ahead. `data`, which few need beside the stacked rows, is decoded when asked for.
        """
        self._decode, self._where = decode, where
        joined = getattr(self.slices, "joined", None)
        if decode in ("torch", "numpy") and joined is not None:
            kind: Any = decode
            self._batch = stack_rows(joined, len(self.slices), self.rows, kind, where)
        if self._batch is None:
            self.decode(decode, where)
            if callable(decode) or decode == "bytes" or not self._data:
                return self  # what somebody's own function makes is stacked only when asked for
            try:
                self.batch()
                self._data = None  # or both would travel to another process
            except BatchWeaveError:
                return self  # rows that do not stack are the trainer's to join; it is told when it asks for them stacked
        if pin_memory and self._batch is not None:
            self._batch = {name: _pin(tensor) for name, tensor in self._batch.items()}
        return self

    def batch(self) -> dict[str, Any]:
        """Tensors by name for all rows: chunks of a row joined along the sequence, rows stacked in front.

        A tensor of shape [T] or [1, T] in each slice becomes [rows, T of all chunks]. One slice alone is not copied.
        """
        if self._batch is None:
            data = self._data
            if not data or not all(isinstance(d, Mapping) for d in data):
                raise invalid('This share holds no tensors by name; read with decode="numpy" or "torch", or use share.data.')
            per_row = len(data) // self.rows
            rows = [data[i : i + per_row] for i in range(0, len(data), per_row)]
            self._batch = {name: _join(name, [[chunk[name] for chunk in row] for row in rows]) for name in data[0]}
        return self._batch

    def __getitem__(self, name: str) -> Any:
        return self.batch()[name]

    def __contains__(self, name: object) -> bool:
        if self._batch is not None:
            return name in self._batch
        return bool(self._data) and isinstance(self._data[0], Mapping) and name in self._data[0]  # type: ignore[index]

    def keys(self) -> list[str]:
        """Names of the tensors."""
        return list(self.batch())


def _pin(tensor: Any) -> Any:
    import torch

    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def _restore(*fields: Any) -> Share:
    share = Share(*fields[:7])
    share._batch, share.value, share._decode, share._where, share._shapes, share._nbytes = fields[7:]
    return share


def _join(name: str, rows: list[list[Any]]) -> Any:
    try:
        if len(rows) == 1 and len(rows[0]) == 1:
            only = rows[0][0]
            return only[None] if only.ndim <= 1 else only
        if hasattr(rows[0][0], "is_floating_point"):
            import torch

            whole = [row[0] if len(row) == 1 else torch.cat(row, dim=min(1, row[0].ndim - 1)) for row in rows]
            return torch.stack(whole) if whole[0].ndim <= 1 else torch.cat(whole)
        import numpy

        whole = [row[0] if len(row) == 1 else numpy.concatenate(row, axis=min(1, row[0].ndim - 1)) for row in rows]
        return numpy.stack(whole) if whole[0].ndim <= 1 else numpy.concatenate(whole)
    except (RuntimeError, ValueError) as error:
        raise invalid(f"The rows of {name} cannot be stacked ({error}). Use share.data and join them yourself.") from error


def decode_bytes(data: Any, decode: Decode, where: str) -> Any:
    """Decodes one slice."""
    if callable(decode):
        return decode(data)
    if decode == "bytes":
        return data
    tensors, _ = decode_safetensors(data, where)
    convert = to_torch if decode == "torch" else to_numpy
    return {name: convert(tensor) for name, tensor in tensors.items()}


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
