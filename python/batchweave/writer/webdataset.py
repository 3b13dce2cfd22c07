"""Tar shards as samples, as WebDataset lays them out: files that follow each other and share a base name are one sample."""
from __future__ import annotations

import os
import tarfile
from typing import Any, BinaryIO, Iterator

from .source import Files


class TarSamples(Files):
    """A place is the byte of the shard where the next sample's first file begins; in a compressed shard, the number of its samples."""

    _what = "tar shards"

    def _read_file(self, path: str, after: Any) -> Iterator[tuple[Any, Any]]:
        if not path.endswith(".tar"):
            with tarfile.open(path, "r:*") as archive:
                for i, (sample, _) in enumerate(_samples(archive), 1):
                    if i > (after or 0):
                        yield sample, i
            return
        with open(path, "rb") as file:
            yield from _samples(_archive_at(file, after or 0))


def _archive_at(file: BinaryIO, begin: int) -> tarfile.TarFile:
    file.seek(begin)
    return tarfile.open(fileobj=file, mode="r:")


def _samples(archive: tarfile.TarFile) -> Iterator[tuple[dict[str, Any], int]]:
    """Each sample and where the next one begins."""
    sample: dict[str, Any] = {}
    for member in archive:
        archive.members = []  # type: ignore[attr-defined]  # it keeps all it has seen
        if not member.isfile() or os.path.basename(member.name).startswith("."):
            continue
        folder, name = os.path.split(member.name)
        base, _, extension = name.partition(".")
        key = os.path.join(folder, base)
        if sample and sample["__key__"] != key:
            yield sample, member.offset
            sample = {}
        sample["__key__"] = key
        content = archive.extractfile(member)
        assert content is not None
        sample[extension.lower()] = _decoded(extension.lower(), content.read())
    if sample:
        yield sample, archive.offset


def _decoded(extension: str, data: bytes) -> Any:
    if extension in ("cls", "cls2", "index", "inx", "id"):
        return int(data)
    return data.decode() if extension in ("txt", "text", "transcript") else data
