"""Property: Python and TypeScript producers on one namespace lose and repeat nothing under kill -9, and `verify` finds nothing.

Method: a few rounds of scripts/chaos-python.mjs; `npm run chaos -- --python --rounds 100` is the long one.
"""
from __future__ import annotations

import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


class KillNine(unittest.TestCase):
    def test_four_rounds_with_both_languages(self) -> None:
        if shutil.which("node") is None or not (ROOT / "dist/src/cli/main.js").exists():
            self.skipTest("node or dist/ is not there, so there are no TypeScript producers")
        script = ROOT / "scripts" / "chaos-python.mjs"
        done = subprocess.run(["node", str(script), "--rounds", "4"], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("0 lost, repeated or wrong; verify clean", done.stdout)


if __name__ == "__main__":
    unittest.main()
