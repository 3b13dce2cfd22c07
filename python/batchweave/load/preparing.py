"""The last thing that is done to a sample in a worker: it is checked, cut if it is too long, and encoded."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..format.sample_block import BlockSample
from .prepared_sample import Garbage, NoTokens, PreparedSample, as_prepared, block_sample, split_sample


class Piece(NamedTuple):
    """A sample for a block, or why there is none. `suffix`: what its id has behind the sample's."""

    suffix: str
    sample: BlockSample | None
    #: (stage, reason, tokens lost)
    fault: tuple[str, str, int | None] | None = None


@dataclass(frozen=True)
class Preparing:
    """Makes pieces of what transforms gave. Pickled: it travels to the workers."""

    tokens_max: int | None = None
    too_long: str = "stop"

    def __call__(self, values: list[Any]) -> list[Piece]:
        many = len(values) > 1
        return [piece for k, value in enumerate(values) for piece in self._pieces(value, f".{k}" if many else "")]

    def _pieces(self, value: Any, suffix: str) -> list[Piece]:
        try:
            sample = as_prepared(value)
        except NoTokens:
            return [Piece(suffix, None, ("no-tokens", "", None))]
        except Garbage as error:
            return [Piece(suffix, None, ("transform", str(error), None))]
        count = len(sample.tokens)
        if count == 0:
            return [Piece(suffix, None, ("empty", "it has no tokens", None))]
        if self.tokens_max is None or count <= self.tokens_max:
            return [_piece(suffix, sample)]
        reason = f"{count} tokens do not fit into a sequence of {self.tokens_max}"
        if self.too_long in ("stop", "skip"):
            return [Piece(suffix, None, ("length", reason, count))]
        is_cut = self.too_long == "truncate"
        pieces = split_sample(sample, self.tokens_max, 1 if is_cut else None)
        if pieces is None:
            return [Piece(suffix, None, ("length", f"{reason}, nor does one of its images", count))]
        if not is_cut:
            return [_piece(f"{suffix}#{k}/{len(pieces)}", piece) for k, piece in enumerate(pieces, 1)]
        first = PreparedSample(pieces[0].tokens, pieces[0].loss_mask, pieces[0].images, None, pieces[0].features)
        lost = ("length", f"{reason}: truncated", count - len(first.tokens))
        return [_piece(suffix, first), Piece(suffix, None, lost)]


def _piece(suffix: str, sample: PreparedSample) -> Piece:
    return Piece(suffix, block_sample("", sample))
