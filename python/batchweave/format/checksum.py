"""CRC-32 (zlib's): the one checksum of the format.

The standard library's is used unless the optional package `isal` (extra "fast") is there, which is several times faster.
"""
from __future__ import annotations

import zlib
from typing import Callable

_Crc = Callable[..., int]


def _load() -> tuple[_Crc, str]:
    try:
        from isal import isal_zlib

        if isal_zlib.crc32(b"123456789") == 0xCBF43926:
            return isal_zlib.crc32, "isal"
    except ImportError:
        pass
    return zlib.crc32, "zlib"


#: CRC-32 of bytes, continuing from an optional second argument; and which library computes it.
crc32, CRC_SOURCE = _load()
