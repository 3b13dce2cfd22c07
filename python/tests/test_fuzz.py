"""Property: Python's decoders answer every stored fuzz case as TypeScript's do: the same value or the same code, and nothing but a BatchWeaveError.

Method: test/fuzz/corpus.jsonl, which `npm run fuzz -- --store N` writes, through the runner of the conformance suite.
"""
from __future__ import annotations

import json
import unittest
from pathlib import Path

from test_conformance import run_case

CORPUS = Path(__file__).resolve().parent.parent.parent / "test" / "fuzz" / "corpus.jsonl"


class Fuzz(unittest.TestCase):
    def test_stored_cases_are_answered_as_in_typescript(self) -> None:
        lines = CORPUS.read_text("utf-8").splitlines()
        self.assertGreater(len(lines), 300)
        for line in lines:
            case = json.loads(line)
            with self.subTest(case["name"]):
                self.assertEqual(run_case(case), case["expect"])


if __name__ == "__main__":
    unittest.main()
