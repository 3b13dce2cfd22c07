"""Property: every library that may compute the CRC-32 gives the same numbers. Method: zlib's beside the one in use, over sizes around the
widths that fast ones work in, at odd addresses, continued piece by piece; and a process in which the optional one is not there."""
from __future__ import annotations

import os
import subprocess
import sys
import unittest
import zlib
from pathlib import Path

from batchweave.format.checksum import CRC_SOURCE, crc32

SIZES = [*range(0, 70), 127, 128, 255, 256, 257, 1_023, 1_024, 4_096, 5_120, 5_121, 65_537, 1 << 20]


class Checksum(unittest.TestCase):
    def test_the_same_numbers_as_zlib(self) -> None:
        if CRC_SOURCE == "zlib":
            self.skipTest('isal is not installed (the extra "fast")')
        data = memoryview(bytearray(os.urandom((1 << 20) + 64)))
        for size in SIZES:
            for begin in (0, 1, 7, 63):
                piece = data[begin : begin + size]
                self.assertEqual(crc32(piece), zlib.crc32(piece), (size, begin))
                self.assertEqual(crc32(piece[size // 3 :], crc32(piece[: size // 3])), zlib.crc32(piece), (size, begin))

    def test_zlib_where_nothing_else_is_there(self) -> None:
        script = (
            "import sys; sys.modules['isal'] = None\n"
            "from batchweave.format.checksum import CRC_SOURCE, crc32\n"
            "print(CRC_SOURCE, crc32(b'123456789'))"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
        self.assertEqual(done.stdout.split(), ["zlib", str(0xCBF43926)])


if __name__ == "__main__":
    unittest.main()
