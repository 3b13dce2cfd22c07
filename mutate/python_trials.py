"""Tries mutants of Python: a process that has imported what is not ours forks a child for each, which loads the changed text instead of the file.

`python3 mutate/python_trials.py`, in the root of a tree with PYTHONPATH=python:python/tests, reads a trial from each line of stdin,
`{"mutant": {file, start, end, replacement}, "tests": [{path, ms}]}`, and answers with a line, `{"caught": null | {proof, isTimeout}}`.
Only what a test does in the child itself meets the mutant: other processes that it starts load the files.
"""
from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple, Sequence

FOLDERS = (Path("python").resolve(), Path("python/tests").resolve())
#: A test that takes so many times what it takes without a mutant hangs, and at least so many seconds. It must hang twice, the second time for longer.
SLOWER_MAX, HANGS_S = 6, float(os.environ.get("MUTATE_HANGS_S", "5"))
#: What goes by a clock, or by other processes, fails on a busy machine too: it must fail twice.
BY_CLOCK = re.compile(r"subprocess|time\.sleep|\.wait\(|\.join\(|threading")
#: Not ours, slow to import, and not changed by any mutant.
FOREIGN = ("concurrent.futures", "http.server", "multiprocessing", "numpy", "obstore", "pyarrow", "torch.utils.data", "unittest.mock", "urllib.request")


class Outcome(NamedTuple):
    """How a child ended: the test that failed or hung, and what it said; no test: all passed."""

    test: str | None
    proof: str = ""
    is_timeout: bool = False


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports our modules from compiled text: that of the files, or of one mutant."""

    def __init__(self) -> None:
        self.paths: dict[str, Path] = {}
        for folder in FOLDERS:
            for path in [*folder.glob("*.py"), *folder.glob("batchweave/**/*.py")]:
                parts = path.relative_to(folder).with_suffix("").parts
                self.paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self.texts = {name: path.read_text(encoding="utf-8") for name, path in self.paths.items()}
        self.codes: dict[str, CodeType] = {name: compile(text, str(self.paths[name]), "exec") for name, text in self.texts.items()}

    def change(self, mutant: dict[str, Any]) -> None:
        name = next(name for name, path in self.paths.items() if path == Path(mutant["file"]).resolve())
        text = self.texts[name][: mutant["start"]] + mutant["replacement"] + self.texts[name][mutant["end"] :]
        self.codes[name] = compile(text, str(self.paths[name]), "exec")

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.paths:
            return None
        file = self.paths[fullname]
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=str(file), is_package=file.name == "__init__.py")
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(str(file.parent))
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(self.codes[module.__name__], module.__dict__)


def run_tests(tests: Sequence[str], say: Any) -> None:
    """In a child: runs the tests until one fails, and says what it begins and what became of it."""
    for test in tests:
        say({"begun": test})
        result = unittest.TestResult()
        # A suite, and not the test by itself: that sets up what its class needs.
        unittest.TestSuite([unittest.defaultTestLoader.loadTestsFromName(test)]).run(result)
        if not result.wasSuccessful():
            said = [text for _, text in [*result.errors, *result.failures]]
            return say({"failed": test, "proof": said[0].strip().splitlines()[-1] if said else "passed against expectation"})
    say({"passed": True})


class Trials:
    def __init__(self) -> None:
        self._sources = Sources()
        #: Tests that have passed without a mutant.
        self._clean: set[str] = set()

    def try_mutant(self, mutant: dict[str, Any], tests: dict[str, int]) -> dict[str, Any] | None:
        outcome = self._look(mutant, tests)
        if outcome.test is None:
            return None
        alone = {outcome.test: tests[outcome.test]}
        module = outcome.test.split(".")[0]
        if not outcome.is_timeout and BY_CLOCK.search(self._sources.texts[module]) and self._look(mutant, alone).test is None:
            # By chance, it seems: what the other tests say counts.
            return self.try_mutant(mutant, {test: ms for test, ms in tests.items() if test != outcome.test})
        if outcome.test not in self._clean:
            # A test that fails without a mutant proves nothing.
            clean = self._look(None, alone)
            if clean.test is not None:
                raise RuntimeError(f"Without any mutant, {clean.test} fails already ({clean.proof}): nothing can be measured.")
            self._clean.add(outcome.test)
        return {"proof": f"{outcome.test}: {outcome.proof}"[:300], "isTimeout": outcome.is_timeout}

    def _look(self, mutant: dict[str, Any] | None, tests: dict[str, int]) -> Outcome:
        outcome = self._fork(mutant, tests, 1)
        if not outcome.is_timeout or outcome.test is None:
            return outcome
        order = list(tests)
        rest = {test: tests[test] for test in order[order.index(outcome.test) :]}
        return self._fork(mutant, rest, 3)

    def _fork(self, mutant: dict[str, Any] | None, tests: dict[str, int], patience: int) -> Outcome:
        folder = tempfile.mkdtemp(prefix="trial-")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._child(mutant, list(tests), writer, folder)
        os.close(writer)
        try:
            return self._listen(reader, tests, patience)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            shutil.rmtree(folder, ignore_errors=True)

    def _child(self, mutant: dict[str, Any] | None, tests: list[str], writer: int, folder: str) -> None:
        def say(what: dict[str, Any]) -> None:
            os.write(writer, json.dumps(what).encode() + b"\n")

        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            sys.meta_path.insert(0, self._sources)
            if mutant is not None:
                self._sources.change(mutant)
            run_tests(tests, say)
        except BaseException:
            say({"failed": None, "proof": traceback.format_exc().strip().splitlines()[-1]})
        finally:
            os._exit(0)

    def _listen(self, reader: int, tests: dict[str, int], patience: int) -> Outcome:
        """What the child says, until it ends or one of its tests takes too long."""
        begun, text = next(iter(tests)), b""
        while True:
            until = time.monotonic() + patience * max(HANGS_S, SLOWER_MAX * tests[begun] / 1000)
            while b"\n" not in text:
                if not select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
                    return Outcome(begun, "it hangs", True)
                data = os.read(reader, 65_536)
                if not data:
                    return Outcome(begun, "the process ended")
                text += data
            line, _, text = text.partition(b"\n")
            said = json.loads(line)
            if "passed" in said:
                return Outcome(None)
            if "failed" in said:
                return Outcome(said["failed"] or begun, said["proof"])
            begun = said["begun"]


def main() -> None:
    for name in FOREIGN:
        with contextlib.suppress(ImportError):
            __import__(name)
    # Only the hook of a child imports ours.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() not in FOLDERS]
    trials = Trials()
    # Whoever ends this process ends the child too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for line in sys.stdin:
        trial = json.loads(line)
        caught = trials.try_mutant(trial["mutant"], {test["path"]: test["ms"] for test in trial["tests"]}) if trial["tests"] else None
        print(json.dumps({"caught": caught}), flush=True)


if __name__ == "__main__":
    main()
