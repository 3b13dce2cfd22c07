"""The task with BatchWeave. Run by run.py."""
import json
import os
import sys

from batchweave import StreamingDataset, create_namespace

from task import CHECKPOINT_AT, GLOBAL_BATCH, ROWS, train


def write(folder: str) -> None:
    namespace = create_namespace(f"file://{folder}/ns", rows=GLOBAL_BATCH)
    with namespace.writer("w") as writer:
        for i in range(ROWS):
            writer.write({"n": i})
    namespace.end_log()


def read(folder: str) -> None:
    dataset = StreamingDataset(f"file://{folder}/ns", decode="numpy", last="ragged")
    if os.path.exists(f"{folder}/state.json"):
        dataset.load_state_dict(json.load(open(f"{folder}/state.json")))
    for step, share in enumerate(dataset):
        train(folder, step, share["n"].tolist())
        if step + 1 == CHECKPOINT_AT and int(os.environ["RANK"]) == 0 and not os.path.exists(f"{folder}/state.json"):
            json.dump(dataset.state_dict(), open(f"{folder}/state.json", "w"))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
