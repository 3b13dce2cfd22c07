"""Random names: commit ids, incarnations, uuids."""
from __future__ import annotations

import os
import uuid

_ALPHABET = "0123456789abcdefghijklmnopqrstuv"


def random_id() -> str:
    """60 random bits as 12 characters of 0-9a-v."""
    return "".join(_ALPHABET[byte & 31] for byte in os.urandom(12))


def random_uuid() -> str:
    """A random version 4 uuid, lower-case."""
    return str(uuid.uuid4())
