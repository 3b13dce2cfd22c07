"""Lines of JSON as samples."""
from __future__ import annotations

import codecs
import gzip
import json
from typing import Any, Iterator

from ..errors import invalid
from .source import Files


class JsonLines(Files):
    """A place is a byte of the file, or of what is in it if it is compressed, where the next line begins. Empty lines are no samples."""

    _what = "JSON lines"

    def _read_file(self, path: str, after: Any) -> Iterator[tuple[Any, Any]]:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
            at = after or 0
            file.seek(at)
            for line in file:
                begin, at = at, at + len(line)
                if begin == 0:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if not line.strip():
                    continue
                try:
                    sample = json.loads(line)
                except ValueError as error:
                    raise invalid(f"{path} has at byte {begin} a line that is not JSON: {error}. Mend or remove it.", path=path, byte=begin) from None
                yield sample, at
