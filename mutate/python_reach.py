"""Which lines of the package does each test execute, and what does the test take? `python3 mutate/python_reach.py FILE MODULE...` writes a JSON list to FILE.

Only what runs in this process is seen. A test that fails here is left out: it proves nothing about a mutant.
"""
from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import unittest
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from python_trials import FOREIGN

ROOT = str(Path("python/batchweave").resolve()) + "/"
seen: dict[str, set[int]] = {}
#: Lines of each code that this test has not executed yet: when none is left, its calls are not looked at any more.
left: dict[CodeType, set[int]] = {}


def trace(frame: FrameType, event: str, arg: Any) -> Any:
    code = frame.f_code
    if not code.co_filename.startswith(ROOT):
        return None
    lines = left.get(code)
    if lines is None:
        lines = left[code] = {line for _, _, line in code.co_lines() if line}
    if not lines:
        return None
    here = seen.setdefault(code.co_filename, set())

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            here.add(frame.f_lineno)
            lines.discard(frame.f_lineno)
        return line

    lines.discard(code.co_firstlineno)
    return line


def tests_of(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    return [test for part in suite for test in (tests_of(part) if isinstance(part, unittest.TestSuite) else [part])]


def main(into: str, modules: list[str]) -> None:
    for name in FOREIGN:
        # No test is charged for what the first of them would import.
        with contextlib.suppress(ImportError):
            __import__(name)
    found = []
    groups: dict[type, list[unittest.TestCase]] = {}
    for module in modules:
        for test in tests_of(unittest.defaultTestLoader.loadTestsFromName(module)):
            groups.setdefault(type(test), []).append(test)
    for tests in groups.values():
        for test in tests:
            seen.clear()
            left.clear()
            result = unittest.TestResult()
            # A suite, and not the test by itself: that sets up what its class needs.
            suite = unittest.TestSuite([test])
            begun = time.perf_counter()
            threading.settrace(trace)
            sys.settrace(trace)
            try:
                suite.run(result)
            finally:
                sys.settrace(None)
                threading.settrace(None)  # type: ignore[arg-type]
            if result.wasSuccessful() and not result.skipped:
                lines = {f"python/batchweave/{path[len(ROOT):]}": sorted(numbers) for path, numbers in list(seen.items())}
                found.append({"path": test.id(), "ms": round(1000 * (time.perf_counter() - begun)), "lines": lines})
    Path(into).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
