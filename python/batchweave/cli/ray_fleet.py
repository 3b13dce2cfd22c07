"""`python -m batchweave.cli.ray_fleet SPEC`: what `fleet up --on ray` starts. Says in one sentence what is missing."""
from __future__ import annotations

import sys

from ..errors import BatchWeaveError

#: Starting it again would only say the same.
_HOPELESS = 2


def main(arguments: list[str]) -> int:
    try:
        from ..ray.fleet import main as run

        return run(arguments)
    except BatchWeaveError as error:
        sys.stderr.write(f"error[{error.code}]: {error.message}\n")
        return _HOPELESS if error.code == "ENGINE_FAILED" else error.exit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
