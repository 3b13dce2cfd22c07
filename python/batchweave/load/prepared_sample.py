"""A sample that is ready to be planned and packed, checked, and the bytes it has in a source log. Twin of src/plan/load/prepared-sample.ts."""
from __future__ import annotations

import array
import math
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..errors import corrupt, invalid
from ..format.sample_block import BlockSample
from ..format.tensors import Tensor, decode_safetensors, encode_safetensors

#: Tokens are whole numbers below this.
_TOKEN_END = 2**31
_PLACE = ("at", "tokens", "height", "width")


@dataclass(frozen=True)
class PreparedImage:
    """An image of a sample. Its place among the tokens is held by `tokens` placeholders, height x width patches."""

    #: Index of its first placeholder in the sample's tokens.
    at: int
    tokens: int
    #: In patches.
    height: int
    width: int
    #: Rows of one patch each (bytes or float32), or the encoded file.
    data: Any
    #: Values of one patch; 0 while `data` is an encoded file.
    patch_values: int = 0
    #: Of `data`, where that is plain bytes: "uint8" (default) or "float32".
    dtype: str | None = None


@dataclass(frozen=True)
class PreparedSample:
    """What transforms must have made of a sample in the end. A dict with the same names does too."""

    #: Whole numbers from 0 to 2^31 - 1: a list, a numpy array or a torch tensor.
    tokens: Any
    #: 1 where the token is to be predicted, else 0; as long as `tokens`. None: 1 everywhere.
    loss_mask: Any = None
    images: Sequence[PreparedImage] = ()
    #: The token to be predicted by the last one: set where the sample is a piece of a longer document.
    next_token: int | None = None
    #: Numbers for cost functions.
    features: Mapping[str, float] = field(default_factory=dict)


class Garbage(Exception):
    """A transform made something of a sample that is none. The text says what."""


class NoTokens(Exception):
    """The value has no tokens at all: the pipeline lacks a transform, and no policy leaves that out."""


def as_prepared(value: Any) -> PreparedSample:
    """The sample that transforms gave, its tokens and masks as bytes of their own. Raises Garbage or NoTokens."""
    if isinstance(value, Mapping):
        known = {name: value[name] for name in PreparedSample.__dataclass_fields__ if value.get(name) is not None}
        if "tokens" not in known:
            raise NoTokens
        value = PreparedSample(**known)
    if not isinstance(value, PreparedSample):
        raise NoTokens
    tokens = _whole(value.tokens, "token", _TOKEN_END)
    mask = None
    if value.loss_mask is not None:
        mask = bytes(list(_whole(value.loss_mask, "place of its loss mask", 2)))
        if len(mask) != len(tokens):
            raise Garbage(f"its loss mask has {len(mask)} places and there are {len(tokens)} tokens")
    if value.next_token is not None and not (type(value.next_token) is int and 0 <= value.next_token < _TOKEN_END):
        raise Garbage(f"its next token is {value.next_token!r}, not a whole number from 0 to {_TOKEN_END - 1}")
    for name, number in value.features.items():
        if not isinstance(number, (int, float)) or not math.isfinite(number):
            raise Garbage(f"its feature {name} is {number!r}, not a finite number")
    return PreparedSample(tokens, mask, _images(value.images, len(tokens)), value.next_token, dict(value.features))


def _whole(values: Any, what: str, end: int) -> "array.array[int]":
    """Whole numbers as 32-bit ones. Arrays of numpy and torch are taken as a whole; what is wrong is found one by one."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if hasattr(values, "tolist") and hasattr(values, "shape"):
        if len(values.shape) != 1:
            raise Garbage(f"its {what}s have the shape {list(values.shape)}, not one axis")
        if values.dtype.kind in "iu" and (len(values) == 0 or (values.min() >= 0 and values.max() < end)):
            return array.array("i", values.astype("<i4").tobytes())
        values = values.tolist()
    if not isinstance(values, (list, tuple, array.array, bytes, bytearray, range)):
        raise Garbage(f"its {what}s are {_shown(values)}, not a list")
    for i, value in enumerate(values):
        if type(value) is not int or not 0 <= value < end:
            raise Garbage(f"its {what} {i} of {len(values)} is {_shown(value)}, not a whole number from 0 to {end - 1}")
    return array.array("i", values)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _images(images: Any, length: int) -> tuple[PreparedImage, ...]:
    found = []
    end = 0
    for i, given in enumerate(images):
        image = PreparedImage(**given) if isinstance(given, Mapping) and {*_PLACE, "data"} <= set(given) else given
        if not isinstance(image, PreparedImage):
            raise Garbage(f"its image {i} lacks one of at, tokens, height, width and data")
        if any(type(n) is not int or n < 0 for n in (image.at, image.tokens, image.height, image.width, image.patch_values)):
            raise Garbage(f"its image {i} has a place that is not whole numbers")
        if image.at + image.tokens > length:
            raise Garbage(f"its image {i} holds tokens {image.at} to {image.at + image.tokens - 1} of {length}")
        if image.at < end:
            raise Garbage(f"its image {i} begins before the end of the one before it")
        if image.height * image.width != image.tokens:
            raise Garbage(f"its image {i} has {image.height} x {image.width} patches and {image.tokens} placeholders")
        end = image.at + image.tokens
        data = _image_tensor(image, i)
        found.append(PreparedImage(image.at, image.tokens, image.height, image.width, data, image.patch_values))
    return tuple(found)


def _image_tensor(image: PreparedImage, i: int) -> Tensor:
    data = image.data
    if isinstance(data, Tensor):
        return data
    if hasattr(data, "detach"):
        data = data.detach().cpu().numpy()
    dtype = image.dtype or str(getattr(data, "dtype", "uint8"))
    if dtype not in ("uint8", "float32"):
        raise Garbage(f"the data of its image {i} is {dtype}, not uint8 or float32")
    try:
        raw = data.tobytes() if hasattr(data, "tobytes") else bytes(data)
    except (TypeError, ValueError):
        raise Garbage(f"the data of its image {i} is {_shown(data)}, not bytes or float32") from None
    count = len(raw) // (4 if dtype == "float32" else 1)
    if image.patch_values and count != image.tokens * image.patch_values:
        raise Garbage(f"its image {i} has {count} values, not {image.tokens} patches of {image.patch_values}")
    return Tensor("F32" if dtype == "float32" else "U8", (count,), raw)


def encode_sample(sample: PreparedSample) -> bytes:
    """The bytes of a checked sample in a source log: safetensors. Equal samples give equal bytes."""
    count = len(sample.tokens)
    tensors: dict[str, Tensor] = {"tokens": Tensor("I32", (count,), sample.tokens.tobytes())}
    if sample.loss_mask is not None:
        tensors["loss_mask"] = Tensor("U8", (count,), sample.loss_mask)
    if sample.images:
        places = array.array("i")
        for i, image in enumerate(sample.images):
            places.extend((image.at, image.tokens, image.height, image.width, image.patch_values))
            tensors[f"image/{i}"] = image.data
        tensors["image_place"] = Tensor("I32", (len(sample.images), 5), places.tobytes())
    return encode_safetensors(tensors, {} if sample.next_token is None else {"next_token": str(sample.next_token)})


def block_sample(id: str, sample: PreparedSample) -> BlockSample:
    """A checked sample as a block takes it."""
    return BlockSample(id, len(sample.tokens), encode_sample(sample), [image.tokens for image in sample.images], sample.features)


def decode_sample(data: Any, where: str = "a sample") -> PreparedSample:
    """A sample from its bytes. Features are in the block's table."""
    tensors, metadata = decode_safetensors(data, where)
    tokens = tensors.get("tokens")
    if tokens is None or tokens.dtype != "I32" or len(tokens.shape) != 1:
        raise corrupt(where, "it has no tokens of I32")
    mask = tensors.get("loss_mask")
    images = []
    places = tensors.get("image_place")
    if places is not None:
        numbers = memoryview(bytes(places.data)).cast("i").tolist()
        for i in range(places.shape[0]):
            at, count, height, width, values = numbers[5 * i : 5 * i + 5]
            if f"image/{i}" not in tensors:
                raise corrupt(where, f"its image {i} is missing")
            images.append(PreparedImage(at, count, height, width, tensors[f"image/{i}"], values))
    following = metadata.get("next_token")
    return PreparedSample(
        array.array("i", bytes(tokens.data)), bytes(mask.data) if mask else None, tuple(images), None if following is None else int(following)
    )


def split_sample(sample: PreparedSample, tokens_max: int, pieces_max: int | None = None) -> list[PreparedSample] | None:
    """A checked sample in pieces of at most `tokens_max` tokens, full ones first. An image is never cut; None where one does not fit."""
    count = len(sample.tokens)
    pieces: list[PreparedSample] = []
    start = 0
    while start < count and (pieces_max is None or len(pieces) < pieces_max):
        end = min(start + tokens_max, count)
        stop = next((image.at for image in sample.images if image.at < end < image.at + image.tokens), end)
        if stop <= start:
            return None
        own = tuple(
            PreparedImage(i.at - start, i.tokens, i.height, i.width, i.data, i.patch_values) for i in sample.images if start <= i.at < stop
        )
        mask = None if sample.loss_mask is None else sample.loss_mask[start:stop]
        following = sample.tokens[stop] if stop < count and _is_target(sample, stop) else sample.next_token
        pieces.append(PreparedSample(sample.tokens[start:stop], mask, own, following, sample.features))
        start = stop
    return pieces


def _is_target(sample: PreparedSample, at: int) -> bool:
    if any(image.at <= at < image.at + image.tokens for image in sample.images):
        return False
    return sample.loss_mask is None or sample.loss_mask[at] == 1


def checked_source_name(name: str) -> str:
    """A source's name is the name of its log too."""
    if isinstance(name, str) and name and "/" not in name and name not in (".", ".."):
        return name
    raise invalid(f"A source's name is text without a slash, not {name!r}: its log lies under that name.")
