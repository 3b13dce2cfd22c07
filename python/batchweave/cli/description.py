"""What `info` prints for people: the text of the `batchweave info` command, line for line."""
from __future__ import annotations

import time
from typing import Any, Sequence

_PRODUCERS_SHOWN_MAX = 20


def describe(info: dict[str, Any], about_bytes: int) -> str:
    """The text of what Namespace.info() and about_bytes() gave."""
    trim, end = info["steps"]["trim"], info["steps"]["end"]
    grid, order, last = info["grid"], info["order"], info["lastCommit"]
    count = end - trim
    steps = f"{trim} to {end - 1}" if count else f"{'none left' if end else 'none yet'}, the next is {end}"
    committed = f"committed {_age(last['timeMs'])} by {last['by']}" if info["version"] else "nothing committed yet"
    about = f", about {format_bytes(about_bytes)}" if about_bytes else ""
    lines = [
        info["uri"],
        f"  uuid      {info['uuid']}",
        f"  grid      {counted(grid['rows'], 'row')} x {counted(grid['chunks'], 'chunk')}, order {_order(order)}",
        f"  steps     {steps} ({counted(count, 'batch')}, {counted(count * grid['rows'], 'row')}{about}), {'closed' if info['closed'] else 'open'}",
        f"  version   {info['version']}, {committed}",
    ]
    if "maxLag" in info:
        lines.append(f"  max lag   {counted(info['maxLag'], 'step')} ahead of the newest checkpoint")
    if info["boundary"] > 0 or trim > 0:
        lines.append(f"  reclaim   trim {trim}, boundary {info['boundary']}")
    lines += [f"  fork of   {o['uri']} ({counted(o['steps'], 'step')})" for o in info["origins"]]
    lines += [f"  forked    {f['uri']} holds steps {f['from']} to {f['to'] - 1}" for f in info["forks"]]
    if "waiting" in info:
        w = info["waiting"]
        lines.append(f"  waiting   {counted(w['batches'], 'batch')} for step {w['missingStep']}, which is {w['lane']}'s: is its producer alive?")
    return "\n".join(lines + _producers(info) + _checkpoints(info))


def counted(count: int, one: str) -> str:
    """`1 lane`, `2 lanes`, `3 batches`."""
    many = f"{one}es" if one.endswith(("s", "x", "ch", "sh")) else f"{one}s"
    return f"{count} {one if count == 1 else many}"


def format_bytes(count: float) -> str:
    """`1.5 MB`: decimal units, as object stores bill them."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1_000 and len(units) > 1:
        count /= 1_000
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


def format_seconds(seconds: float) -> str:
    """`20 ms`, `3.2 s`, `4 min`, `2.5 h`."""
    if seconds < 1:
        return f"{round(1e3 * seconds)} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{round(seconds / 60)} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def _order(order: dict[str, Any]) -> str:
    return f"lanes ({order['lanes']})" if order["kind"] == "lanes" else "commit"


def _age(time_ms: float) -> str:
    return f"{format_seconds(max(0.0, time.time() - time_ms / 1e3))} ago"


def _producers(info: dict[str, Any]) -> list[str]:
    producers = info["producers"]
    if not producers:
        return []
    rows = []
    for p in producers[:_PRODUCERS_SHOWN_MAX]:
        last = p.get("lastCommit")
        is_carried = last is not None and last["kind"] == "carrier" and last["by"] != p["id"]
        carrier = f"carried by {last['by']}" if is_carried else ""
        rows.append([f"  {p['id']}", p["epoch"], p["seq"], p["pending"], p["version"], _age(last["timeMs"]) if last else "reclaimed", carrier])
    lines = ["", *_table(["  producer", "epoch", "batches", "pending", "version", "last commit", ""], rows)]
    if len(producers) > len(rows):
        lines.append(f"  and {len(producers) - len(rows)} more (--json lists all)")
    if info["silentTables"]:
        lines.append(f"  and those long silent, in {info['silentTables']} sealed tables")
    return lines


def _checkpoints(info: dict[str, Any]) -> list[str]:
    rows = [[f"  {c['group']}", c["id"], c["iteration"], c["step"], c["row"]] for c in info["checkpoints"]]
    return ["", *_table(["  group", "checkpoint", "iteration", "step", "row"], rows)] if rows else []


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Columns; those of numbers to the right."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    pads = [str.rjust if all(isinstance(row[i], int) for row in rows) else str.ljust for i in range(len(header))]
    return ["  ".join(pad(cell, width) for pad, cell, width in zip(pads, row, widths)).rstrip() for row in cells]
