"""Property: what is released for Python is one version, carries its license, and works from pip alone: the pure package without any other, the command on a PATH
without Node.js. Method: the parts' own words are compared; with BATCHWEAVE_TEST_WHEELS, which takes minutes and the network, the wheels are built, installed
into a fresh environment and used: the quickstart, every command that the guide names, the tests of the sdist.
"""
from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import urllib.request
from pathlib import Path

from test_guide import CHECKS, FOLDER, GUIDE, python_blocks

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "python/tools/build_wheels.py"
WHEELS = os.environ.get("BATCHWEAVE_TEST_WHEELS", "")
PIPELINE = """import { definePipeline, jsonl, tokenize } from "batchweave/plan";
export default definePipeline({
  namespace: { uri: "file://FOLDER/packed", grid: { rows: 2, chunks: 1 } },
  sources: { docs: jsonl({ shards: "FOLDER/docs.jsonl", epochs: 1, transforms: [tokenize({ tokenizer: { kind: "bytes" } })] }) },
  strategy: (graph) => graph.distribute("dp").balance("greedy"),
  construct: { seqLength: 64 },
});
"""


class Package(unittest.TestCase):
    def test_all_parts_have_one_version(self) -> None:
        done = subprocess.run([sys.executable, str(BUILD), "--check"], capture_output=True, text=True, timeout=900)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_license_is_the_repositorys(self) -> None:
        self.assertEqual((ROOT / "python/LICENSE").read_text(), (ROOT / "LICENSE").read_text())

    def test_the_readme_has_no_links_that_break_where_packages_are_listed(self) -> None:
        links = re.findall(r"\]\(([^)]+)\)", (ROOT / "python/README.md").read_text())
        self.assertEqual([link for link in links if not link.startswith("https://")], [])

    def test_the_pure_package_needs_nothing(self) -> None:
        self.assertIn("\ndependencies = []\n", (ROOT / "python/pyproject.toml").read_text())



@unittest.skipUnless(WHEELS, "BATCHWEAVE_TEST_WHEELS is not set (1, or a folder of built packages): building and installing takes minutes and the network")
class Wheels(unittest.TestCase):
    """In an environment that has nothing but the wheels, on a PATH without Node.js."""

    folder: str

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = folder = temporary.name
        cls.alone = {"PATH": f"{folder}/venv/bin", "HOME": folder}
        shutil.copytree(WHEELS, f"{folder}/dist") if os.path.isdir(WHEELS) else cls.must(sys.executable, str(BUILD), "--out", f"{folder}/dist")
        cls.must(sys.executable, "-m", "venv", f"{folder}/venv")
        cls.must(f"{folder}/venv/bin/pip", "install", "-q", *map(str, Path(folder, "dist").glob("*.whl")))

    @classmethod
    def must(cls, *command: str, env: dict[str, str] | None = None, cwd: str | None = None) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1_800, cwd=cwd or cls.folder, env=env)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}"
        return done.stdout

    def batchweave(self, *arguments: str) -> str:
        return self.must(f"{self.folder}/venv/bin/batchweave", *arguments, env=self.alone)

    def test_the_quickstart_works_line_by_line_and_again(self) -> None:
        blocks = [block.replace("/tmp/batchweave-demo", f"{self.folder}/quick") for block in python_blocks(ROOT / "python/README.md") if "batchweave-demo" in block]
        self.assertEqual(len(blocks), 3)
        for _ in range(2):
            # The last block goes on with the names of the one before it.
            found = self.must(f"{self.folder}/venv/bin/python", "-c", "\n".join(blocks), env=self.alone)
            self.assertEqual(found.splitlines()[0], "0 [b'row 0', b'row 1']")
            self.assertEqual(len(found.splitlines()), 3 + 10)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_the_guide_works_line_by_line_with_the_wheel(self) -> None:
        # torch alone is larger than the patience of whoever waits for a download: that of this interpreter is lent.
        lent = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
        folder = f"{self.folder}/guide"
        os.mkdir(folder)
        where = "import batchweave\nassert batchweave.__file__.startswith('VENV'), batchweave.__file__".replace("VENV", f"{self.folder}/venv")
        script = "\n".join([where, *python_blocks(GUIDE), CHECKS]).replace(FOLDER, folder)
        path = f"{self.folder}/venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        found = self.must(f"{self.folder}/venv/bin/python", "-c", script, env={**self.alone, "PYTHONPATH": f"{path}{os.pathsep}{lent}", "OMP_NUM_THREADS": "1"})
        self.assertEqual(found, "all is as the guide says\n")

    def test_the_whole_command_works_without_node(self) -> None:
        self.assertIsNone(shutil.which("node", path=self.alone["PATH"]), "Node.js is on the path: this shows nothing")
        uri = f"file://{self.folder}/log"
        write = "\n".join([
            "from batchweave import create_namespace", f"namespace = create_namespace({uri!r}, rows=4)", 'with namespace.writer("w") as writer:',
            '    writer.write_all({"input_ids": [15496, 995, i]} for i in range(40))', "namespace.end_log()",
        ])
        self.must(f"{self.folder}/venv/bin/python", "-c", write, env=self.alone)
        self.assertIn("is clean: every byte was read and checked", self.batchweave("verify", uri))
        self.assertIn("application/vnd.safetensors", self.batchweave("inspect", uri, "--step", "2"))
        self.assertIn('3 tokens: "Hello world', self.batchweave("preview", uri, "--step", "2", "--tokenizer", "gpt2"))
        self.assertIn("shares 5 batches", self.batchweave("fork", uri, f"file://{self.folder}/fork", "--at", "5"))
        self.assertIn("would delete nothing", self.batchweave("reclaim", uri, "--dry-run"))
        Path(self.folder, "docs.jsonl").write_text("".join(f'{{"text": "document {i}"}}\n' for i in range(50)))
        # A file anywhere may import the package's own name.
        Path(self.folder, "pipeline.mjs").write_text(PIPELINE.replace("FOLDER", self.folder))
        self.batchweave("run", f"{self.folder}/pipeline.mjs")
        self.assertIn("closed", self.batchweave("info", f"file://{self.folder}/packed"))

    def test_the_dashboard_has_its_page(self) -> None:
        create = "from batchweave import create_namespace\ncreate_namespace('file://FOLDER/empty', rows=1)".replace("FOLDER", self.folder)
        self.must(f"{self.folder}/venv/bin/python", "-c", create, env=self.alone)
        command = [f"{self.folder}/venv/bin/batchweave", "dashboard", f"file://{self.folder}/empty"]
        with subprocess.Popen(command, env=self.alone, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as served:
            try:
                assert served.stdout is not None
                address = served.stdout.readline().strip()
                with urllib.request.urlopen(address, timeout=900) as answer:
                    self.assertIn(b"page.js", answer.read())
            finally:
                served.terminate()

    def test_the_tests_of_the_sdist_run(self) -> None:
        [sdist] = Path(self.folder, "dist").glob("batchweave-*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(self.folder, filter="data")
        source = str(Path(self.folder, sdist.name.removesuffix(".tar.gz")))
        self.must(f"{self.folder}/venv/bin/python", "-m", "unittest", "discover", "-s", "tests", cwd=source, env=self.alone)


if __name__ == "__main__":
    unittest.main()
