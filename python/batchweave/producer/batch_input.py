"""What a producer accepts: slices that fit the grid, and JSON that is read back as it was given."""
from __future__ import annotations

import json
from typing import Any, Sequence

from ..errors import BatchWeaveError, invalid
from ..format.batch import SLICE_BYTES_MAX
from ..format.stored_json import dump_json

RESUME_POINT_BYTES_MAX = 1_048_576


def flatten_slices(slices: Sequence[Any], rows: int, chunks: int) -> list[memoryview]:
    """The slices in row-major order, as views of bytes; refuses what is no batch of the grid."""
    flat: list[Any] = []
    for item in slices:
        flat += item if isinstance(item, (list, tuple)) else [item]
    views = []
    for i, piece in enumerate(flat):
        try:
            view = memoryview(piece).cast("B")
        except (TypeError, ValueError):
            raise invalid(f"Slice {i} is not bytes. Encode tensors first, for example with encode_safetensors().") from None
        if len(view) > SLICE_BYTES_MAX:
            raise BatchWeaveError("LIMIT", f"A slice has {len(view)} bytes; at most {SLICE_BYTES_MAX} are possible.", {})
        views.append(view)
    if len(views) != rows * chunks:
        raise invalid(
            f"A batch of this namespace has {rows * chunks} slices ({rows} rows x {chunks} chunks), not {len(views)}. Pass them "
            "in row-major order.",
            expected=rows * chunks,
            found=len(views),
        )
    return views


def unchanging(view: memoryview) -> memoryview:
    """The same bytes, which no caller can change: of all that has a buffer only `bytes` are so by themselves."""
    return view if type(view.obj) is bytes else memoryview(bytes(view))


def checked_json(value: Any, what: str) -> Any:
    """As it will be read back: JSON, and nothing that JSON would drop or change."""
    try:
        text = dump_json(value)
        back = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid(f"{what} is not JSON ({error}): use dicts with string keys, lists, strings, finite numbers, booleans and None.") from None
    if back != value:
        raise invalid(f"{what} would not read back as it is: use lists instead of tuples, and string keys.")
    if len(text) > RESUME_POINT_BYTES_MAX:
        raise BatchWeaveError(
            "LIMIT",
            f"{what} has {len(text)} bytes; at most {RESUME_POINT_BYTES_MAX} are allowed. Keep positions in it, not data.",
            {"bytes": len(text), "bytesMax": RESUME_POINT_BYTES_MAX},
        )
    return value
