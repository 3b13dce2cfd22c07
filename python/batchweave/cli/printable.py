"""Text for a terminal: what others wrote, into manifests, ids and sample names, must not move its cursor or change its title."""
from __future__ import annotations

import re

#: Control characters but for line breaks and tabs, and what turns the direction of writing. The same as in src/cli/printable.ts.
_HIDDEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ufeff]")


def printable(text: str) -> str:
    """The text with such characters written as \\u001b. Lines stay lines, and JSON stays JSON."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
