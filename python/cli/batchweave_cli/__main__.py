"""`python -m batchweave_cli`: the command, where no script is on the path."""
from __future__ import annotations

import sys

from . import main

sys.exit(main())
