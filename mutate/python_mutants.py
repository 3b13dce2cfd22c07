"""Mutants of Python sources, the twin of mutants.ts: `python3 mutate/python_mutants.py FILE...` prints them as one JSON list.

Offsets count characters of the text, as JavaScript's do for the ASCII and BMP text of our sources.
"""
from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any, Iterator

SWAPS: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"),
}
#: Calls whose absence no test is promised to notice: what is only told to people, and pauses, whose length is a matter of taste.
TELLING = ("log.", "logging.", "warnings.", "print(", "time.sleep(")


class Source:
    def __init__(self, path: str) -> None:
        self.path = path
        self.text = Path(path).read_text(encoding="utf-8")
        self.lines = self.text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.tree = ast.parse(self.text)
        self.places = [*places_of(self.tree.body), (1, 2**31, 2**31)]

    def offset(self, line: int, column: int) -> int:
        # Columns count bytes.
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def mutant(self, start: int, end: int, replacement: str, what: str) -> dict[str, Any]:
        line = self.text.count("\n", 0, start) + 1
        source = self.lines[line - 1].strip()
        within = min((place for place in self.places if place[0] <= line <= place[1]), key=lambda place: place[2])[:2]
        return {"file": self.path, "line": line, "what": what, "start": start, "end": end, "replacement": replacement, "source": source, "within": within}


def places_of(body: list[ast.stmt], is_called: bool = False) -> Iterator[tuple[int, int, int]]:
    """Lines of each statement without those of its body, and a rank: who sees a change there executes one of those lines.

    A signature is executed by calls, which begin in the body; what stands in a module or a class is executed by whoever imports it.
    """
    for node in body:
        first, last = node.lineno, node.end_lineno or node.lineno
        parts = [part for part in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")) if part]
        parts += [handler.body for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]]
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function:
            yield first, last, 1 + last - first
        elif is_called:
            yield first, max(first, parts[0][0].lineno - 1) if parts else last, 0
        for part in parts:
            yield from places_of(part, is_function or (is_called and not isinstance(node, ast.ClassDef)))


def between(source: Source, left: ast.expr, right: ast.expr, swap: tuple[str, str]) -> Iterator[dict[str, Any]]:
    begin, end = source.span(left)[1], source.span(right)[0]
    at = source.text.find(swap[0], begin, end)
    if at >= 0:
        yield source.mutant(at, at + len(swap[0]), swap[1], f"{swap[0]} became {swap[1]}")


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def mutants_of(source: Source) -> Iterator[dict[str, Any]]:
    skipped: set[int] = set()
    for node in ast.walk(source.tree):
        if id(node) in skipped or isinstance(node, (ast.Raise, ast.JoinedStr)):
            skipped.update(id(child) for child in ast.walk(node))
            continue
        if isinstance(node, ast.Call) and source.text[slice(*source.span(node.func))] == "time.sleep":
            skipped.update(id(child) for argument in node.args for child in ast.walk(argument))
        if isinstance(node, ast.Assign) and node.col_offset == 0 and source.text[slice(*source.span(node.targets[0]))].startswith("_"):
            # What is private to a module is tuned, not promised: limits that others rely on have public names.
            skipped.update(id(child) for child in ast.walk(node.value) if isinstance(child, ast.Constant))
        if isinstance(node, ast.AnnAssign):
            skipped.update(id(child) for child in ast.walk(node.annotation))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in [*(a.annotation for a in [*node.args.args, *node.args.kwonlyargs]), node.returns]:
                if part is not None:
                    skipped.update(id(child) for child in ast.walk(part))
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for i, op in enumerate(node.ops):
                if type(op) in SWAPS:
                    yield from between(source, operands[i], operands[i + 1], SWAPS[type(op)])
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not (is_text(node.left) or is_text(node.right)):
            yield from between(source, node.left, node.right, SWAPS[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            swap = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            yield from between(source, node.values[0], node.values[1], swap)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start, end = source.span(node)
            inner = source.span(node.operand)
            yield source.mutant(start, end, f"bool({source.text[inner[0]:inner[1]]})", "a negation is gone")
        elif isinstance(node, (ast.If, ast.IfExp)):
            start, end = source.span(node.test)
            yield source.mutant(start, end, "False", "an if never holds")
            if isinstance(node, ast.IfExp) or not node.orelse:
                yield source.mutant(start, end, "True", "an if always holds")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            start, end = source.span(node)
            if not source.text[start:end].startswith(TELLING) and "super()" not in source.text[start:end]:
                yield source.mutant(start, end, "pass", "a call is gone")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            start, end = source.span(node)
            yield source.mutant(start, end, str(not node.value), f"{node.value} became {not node.value}")
        elif isinstance(node, ast.Constant) and type(node.value) is int and node.value < 2**31:
            start, end = source.span(node)
            yield source.mutant(start, end, str(node.value + 1), f"{node.value} became {node.value + 1}")


if __name__ == "__main__":
    found = [mutant for path in sys.argv[1:] for mutant in sorted(mutants_of(Source(path)), key=lambda m: (m["start"], m["end"]))]
    json.dump(found, sys.stdout)
