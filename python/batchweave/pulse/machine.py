"""On which machine a process number means something. Twin of src/pulse/machine.ts."""
from __future__ import annotations

import functools
import os
import re


@functools.lru_cache(maxsize=1)
def machine_id() -> str | None:
    """This boot of this machine, and the process numbers that are seen in it: containers have their own. None where that cannot be told."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        inode = re.search(r"[0-9]+", os.readlink("/proc/self/ns/pid"))
    except (OSError, ValueError):  # not Linux, or a sandbox that does not tell
        return None
    return f"{boot}.{inode[0]}" if inode and re.fullmatch(r"[0-9a-f-]{36}", boot) else None
