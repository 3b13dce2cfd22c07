"""The task that each library does: 4,000 rows in batches of 12, two ranks; a checkpoint after 50 steps, a kill after 70; three ranks go on from the checkpoint."""
import json
import os
import signal
from typing import Any

ROWS = 4_000
GLOBAL_BATCH = 12
CHECKPOINT_AT = 50
KILLED_AT = 70


def train(folder: str, step: int, rows: list[int]) -> None:
    """Notes what this rank trained on. In the first life it is killed, and what it did after the checkpoint does not count."""
    life = os.environ["LIFE"]
    with open(f"{folder}/seen-{life}-{os.environ['RANK']}", "a") as file:
        file.write(f"{step} {rows}\n")
    if life == "0" and step + 1 == KILLED_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def save_state(folder: str, state: Any) -> None:
    """The first rank's, in the first life."""
    if os.environ["LIFE"] == "0" and os.environ["RANK"] == "0":
        with open(f"{folder}/state.json", "w") as file:
            json.dump(state, file)


def saved_state(folder: str) -> Any:
    """None in the first life: ranks do not start at one moment, and one must not find what another has saved by then."""
    if os.environ["LIFE"] == "0":
        return None
    with open(f"{folder}/state.json") as file:
        return json.load(file)
