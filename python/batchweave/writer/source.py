"""Where samples come from. A source says after each sample where it stands, as JSON, and goes on after such a place."""
from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from itertools import islice
from typing import Any, Iterable, Iterator, Protocol, Sequence, Union

from ..errors import BatchWeaveError, invalid

#: A path, a pattern such as "data/*.jsonl" or "shard-{000..127}.tar", or several of these.
Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


class Source(Protocol):
    """Samples in one order, each with the place after it."""

    #: What it reads, for people.
    name: str

    def read(self, after: Any) -> Iterator[tuple[Any, Any]]:
        """(sample, place after it) of all that come after `after`; None: from the beginning."""

    def total(self) -> int | None:
        """How many samples there are in all, if that is known without reading them."""


def assert_reaches(name: str, count: int, done: int) -> None:
    """A source that ends before the place where the writer stands is not the one that it was given before."""
    if count < done:
        raise invalid(
            f"{name}: there are {count} samples, and this writer has taken {done} before. It is shorter now, or another one. Give the same samples (more may follow "
            "them), or use a writer with another id.",
            samples=count,
            taken=done,
        )


class Counted:
    """Any iterable: its place is a number of samples, and as many are passed over."""

    def __init__(self, samples: Iterable[Any], name: str = "samples") -> None:
        self._samples = samples
        self.name = name

    def read(self, after: Any) -> Iterator[tuple[Any, Any]]:
        done = after or 0
        rest = iter(self._samples)
        assert_reaches(self.name, sum(1 for _ in islice(rest, done)), done)
        for i, sample in enumerate(rest, done + 1):
            yield sample, i

    def total(self) -> int | None:
        try:
            return len(self._samples)  # type: ignore[arg-type]
        except TypeError:
            return None


class Stateful:
    """An iterable with state_dict() and load_state_dict(): its state is its place, and nothing is read twice to get there."""

    def __init__(self, samples: Any, name: str = "samples") -> None:
        self._samples = samples
        self.name = name

    def read(self, after: Any) -> Iterator[tuple[Any, Any]]:
        if after is not None:
            self._samples.load_state_dict(after)
        for sample in self._samples:
            yield sample, json.loads(json.dumps(self._samples.state_dict()))

    def total(self) -> int | None:
        return None


def source_of(samples: Iterable[Any]) -> Source:
    """The source that goes on quickest."""
    if hasattr(samples, "state_dict") and hasattr(samples, "load_state_dict"):
        return Stateful(samples)
    return Counted(samples)


def find_files(paths: Paths, what: str) -> list[str]:
    """The files that `paths` names, in order. Patterns are sorted by name."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: list[str] = []
    for path in [os.fspath(one) for one in given]:
        if re.match(r"[a-z0-9]+://", path):
            raise invalid(f"{path} is not a local file. Copy it here first, or run a pipeline (`batchweave run`), which reads object stores.")
        for expanded in _expand(path):
            matches = sorted(glob.glob(expanded, recursive=True)) if re.search(r"[*?[]", expanded) else [expanded]
            found += [match for match in matches if os.path.isfile(match)]
            if not any(os.path.isfile(match) for match in matches):
                raise BatchWeaveError("INVALID_ARGUMENT", f"There is no file {expanded} to read {what} from.", {"path": expanded})
    return found


def _expand(path: str) -> list[str]:
    """Braces as shells and WebDataset write them: {000..127} and {train,test}."""
    match = re.search(r"\{([^{}]*)\}", path)
    if match is None:
        return [path]
    span = re.fullmatch(r"(\d+)\.\.(\d+)", match[1])
    if span:
        width = len(span[1])
        inner = [str(n).zfill(width) for n in range(int(span[1]), int(span[2]) + 1)]
    else:
        inner = match[1].split(",")
    return [whole for text in inner for whole in _expand(path[: match.start()] + text + path[match.end() :])]


class Files:
    """Samples of files in order. A place is a file's number and a place in it; files may be added at the end, those before it must stay as they are."""

    name = "files"
    _what = "samples"

    def __init__(self, paths: Paths) -> None:
        self._paths = find_files(paths, self._what)
        self.name = f"{len(self._paths)} files" if len(self._paths) > 1 else os.path.basename(self._paths[0])

    def read(self, after: Any) -> Iterator[tuple[Any, Any]]:
        first, within = 0, None
        if after is not None:
            first, within = after["file"], after["at"]
            if first >= len(self._paths) or after["files"] != self._fingerprint(first):
                raise invalid(
                    f"The files changed: this writer stands in number {first + 1} of those it was given, and up to there they are others now, or have other "
                    "sizes. Give the same files in the same order (more may follow them), or use a writer with another id."
                )
        for number in range(first, len(self._paths)):
            files = self._fingerprint(number)
            for sample, at in self._read_file(self._paths[number], within):
                yield sample, {"file": number, "at": at, "files": files}
            within = None

    def _fingerprint(self, number: int) -> str:
        known = [[os.path.basename(path), os.path.getsize(path)] for path in self._paths[: number + 1]]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]

    def _read_file(self, path: str, after: Any) -> Iterator[tuple[Any, Any]]:
        raise NotImplementedError

    def total(self) -> int | None:
        return None
