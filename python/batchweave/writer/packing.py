"""Documents of tokens, one after another, in sequences of one length: no token is lost, none is padding but at the very end."""
from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Generic, Iterator, Mapping, NamedTuple, TypeVar

from ..errors import invalid

M = TypeVar("M")
#: No label: the last token of a document has none, and padding has none.
NO_LABEL = -100


class _Document(NamedTuple, Generic[M]):
    tokens: "array[int]"
    #: What stands for the place before this document.
    before: M


class Packer(Generic[M]):
    """Cuts documents into rows of `length` tokens: input_ids, labels (the next token of the same document), position_ids (counted within it).

    A document that does not fit goes on in the next row. Each row comes with the place to go on from: before a document, and how many of its tokens are out.
    """

    def __init__(self, length: int, eos: int | None, skip: int = 0) -> None:
        if type(length) is not int or length < 1:
            raise invalid(f"pack is the length of a sequence, a whole number of at least 1, not {length!r}.")
        self.length = length
        self._eos = eos
        self._waiting: deque[_Document[M]] = deque()
        self._count = -skip
        #: Tokens of the first waiting document that are in rows already.
        self._out = skip

    def add(self, tokens: "array[int]", before: M, after: M) -> Iterator[tuple[dict[str, Any], tuple[M, int]]]:
        """The rows that one more document completes, each with its place to go on from."""
        if self._eos is not None:
            tokens = tokens + array("q", [self._eos])
        if not self._waiting and 0 < self._out >= len(tokens):
            raise invalid(
                f"A document of {len(tokens)} tokens comes where one stood of which {self._out} are in rows already: it is another. Give the same documents, or use a "
                "writer with another id.",
                tokens=len(tokens),
                out=self._out,
            )
        if len(tokens) > 0:
            self._waiting.append(_Document(tokens, before))
            self._count += len(tokens)
        while self._count >= self.length:
            yield self._cut(self.length), (self._waiting[0].before, self._out) if self._waiting else (after, 0)

    def rest(self, pad_token: int) -> dict[str, Any] | None:
        """What is left, extended to a whole row; None if nothing is."""
        left = self._count
        if left <= 0:
            return None
        row = self._cut(left)
        missing = self.length - left
        for name, value in (("input_ids", pad_token), ("labels", NO_LABEL), ("position_ids", 0)):
            row[name] += array("q", [value]) * missing
        return row

    @property
    def waiting_tokens(self) -> int:
        """Tokens that are in no row yet."""
        return max(0, self._count)

    def _cut(self, length: int) -> dict[str, Any]:
        row = {name: array("q") for name in ("input_ids", "labels", "position_ids")}
        while length > 0:
            tokens = self._waiting[0].tokens
            begin, end = self._out, min(len(tokens), self._out + length)
            row["input_ids"] += tokens[begin:end]
            row["labels"] += tokens[begin + 1 : end + 1]
            if end == len(tokens):
                row["labels"].append(NO_LABEL)
            row["position_ids"] += array("q", range(begin, end))
            length -= end - begin
            self._count -= end - begin
            self._out = end
            if end == len(tokens):
                self._waiting.popleft()
                self._out = 0
        return row


def tokens_of(sample: Any) -> "array[int]":
    """The tokens of a document: a list or array of whole numbers, or a dict with one under input_ids or tokens."""
    found = sample
    if isinstance(sample, Mapping):
        found = next((sample[name] for name in ("input_ids", "tokens") if name in sample), None)
        if found is None:
            names = ", ".join(map(str, sample)) or "no fields"
            raise invalid(f"Packing needs the tokens of a document under input_ids; this sample has {names}. Tokenise it first, with map=.")
    if hasattr(found, "tolist"):
        found = found.tolist()
    try:
        return array("q", found)
    except (TypeError, OverflowError):
        raise invalid(f"Packing needs a list of whole numbers, not {type(found).__name__}. Tokenise the text first, with map=.") from None
