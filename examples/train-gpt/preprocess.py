"""Preprocessing in plain Python, the same for a BatchWeave producer and for a torch DataLoader: make text, tokenize with byte pairs, pack."""
from __future__ import annotations

import array
import random
from typing import Iterator

_WORDS = (
    "the of and a to in is you that it he was for on are as with his they at be this have from or one had by word but not what all were we "
    "when your can said there use an each which she do how their if will up other about out many then them these so some her would make like"
).split()
#: Pairs of bytes that become one token, most common first: a small table, found once on text of this kind.
MERGES = [" t", "he", " th", "in", "er", " a", "re", "on", "at", "nd", " s", "en", " w", "or", "it", " the", "ou", "ng", " b", "is", "es", "ll"]
END_OF_TEXT = 256 + len(MERGES)
VOCABULARY = END_OF_TEXT + 1


def make_text(seed: int) -> str:
    """A document of a few hundred words, the same for the same seed."""
    chance = random.Random(seed)
    return " ".join(chance.choices(_WORDS, k=300 + chance.randrange(400)))


def tokenize(text: str) -> list[int]:
    """Bytes, then merges in order, as byte-pair encoders do; slow in Python, as real preprocessing is."""
    tokens = list(text.encode())
    pairs = {}
    for rank, merge in enumerate(MERGES):
        left, right = (merge[:-1], merge[-1]) if len(merge) > 1 else (merge, "")
        first = MERGES.index(left) + 256 if len(left) > 1 else ord(left)
        pairs[rank] = (first, ord(right))
    for rank in range(len(MERGES)):
        first, second = pairs[rank]
        merged, i, n = [], 0, len(tokens)
        while i < n:
            if tokens[i] == first and i + 1 < n and tokens[i + 1] == second:
                merged.append(256 + rank)
                i += 2
            else:
                merged.append(tokens[i])
                i += 1
        tokens = merged
    return tokens


def rows(first: int, stride: int, tokens_per_row: int) -> Iterator["array.array[int]"]:
    """Endless packed rows of tokens_per_row + 1 tokens from documents first, first + stride, ..."""
    buffer: list[int] = []
    document = first
    while True:
        while len(buffer) <= tokens_per_row:
            buffer += tokenize(make_text(document))
            buffer.append(END_OF_TEXT)
            document += stride
        yield array.array("i", buffer[: tokens_per_row + 1])
        del buffer[:tokens_per_row]
