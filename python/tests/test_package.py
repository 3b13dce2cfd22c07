"""Property: what is released for Python is one version, carries its license, and works from pip alone: the pure package without any other, the command on a PATH
without Node.js. Method: the parts' own words are compared; with BATCHWEAVE_TEST_WHEELS=1, which takes minutes and the network, the wheels are built, installed
into a fresh environment and used.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from test_guide import python_blocks

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "python/tools/build_wheels.py"


class Package(unittest.TestCase):
    def test_all_parts_have_one_version(self) -> None:
        done = subprocess.run([sys.executable, str(BUILD), "--check"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_license_is_the_repositorys(self) -> None:
        self.assertEqual((ROOT / "python/LICENSE").read_text(), (ROOT / "LICENSE").read_text())

    def test_the_readme_has_no_links_that_break_where_packages_are_listed(self) -> None:
        links = re.findall(r"\]\(([^)]+)\)", (ROOT / "python/README.md").read_text())
        self.assertEqual([link for link in links if not link.startswith("https://")], [])

    def test_the_pure_package_needs_nothing(self) -> None:
        self.assertIn("\ndependencies = []\n", (ROOT / "python/pyproject.toml").read_text())

    @unittest.skipUnless(os.environ.get("BATCHWEAVE_TEST_WHEELS"), "BATCHWEAVE_TEST_WHEELS is not set: building and installing takes minutes and the network")
    def test_the_quickstart_and_the_command_work_from_wheels_alone(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = lambda *command, **settings: subprocess.run(command, capture_output=True, text=True, timeout=1_800, cwd=folder, **settings)  # noqa: E731
            built = run(sys.executable, str(BUILD), "--out", f"{folder}/out")
            self.assertEqual(built.returncode, 0, built.stderr[-2_000:])
            run(sys.executable, "-m", "venv", f"{folder}/venv")
            found = run(f"{folder}/venv/bin/pip", "install", "-q", "--find-links", f"{folder}/out", "batchweave[cli]")
            self.assertEqual(found.returncode, 0, found.stderr[-2_000:])
            alone = {"PATH": f"{folder}/venv/bin", "HOME": folder}
            for block in [block for block in python_blocks(ROOT / "python/README.md") if "batchweave-demo" in block][:1]:
                wrote = run(f"{folder}/venv/bin/python", "-c", block.replace("/tmp/batchweave-demo", f"{folder}/ns"), env=alone)
                self.assertEqual((wrote.returncode, wrote.stderr), (0, ""))
            verified = run(f"{folder}/venv/bin/batchweave", "verify", f"file://{folder}/ns", env=alone)
            self.assertEqual(verified.returncode, 0, verified.stderr)
            self.assertIn("is clean: every byte was read and checked", verified.stdout)
            self.assertEqual(run("node", env=alone, shell=True).returncode, 127, "Node.js is on the path: this shows nothing")


if __name__ == "__main__":
    unittest.main()
