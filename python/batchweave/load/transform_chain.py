"""Transforms one after another, and the text of what goes wrong in them."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Sequence


def run_chain(transforms: Sequence[Callable[..., Any]], value: Any) -> list[Any]:
    """What the transforms make of a value, one after another. A generator may make several of one, or none."""
    values = [value]
    for transform in transforms:
        made: list[Any] = []
        for one in values:
            result = transform(one)
            if inspect.isgenerator(result):
                made.extend(result)
            else:
                made.append(result)
        values = made
    return values


def reason_of(error: BaseException) -> str:
    """The text of a fault: the same whenever the same sample fails for the same reason."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
