"""The task with LitData. Run by run.py."""
import json
import os
import sys

from litdata import StreamingDataLoader, StreamingDataset, optimize

from task import CHECKPOINT_AT, GLOBAL_BATCH, ROWS, train


def sample(i: int) -> dict[str, int]:
    return {"n": i}


def write(folder: str) -> None:
    optimize(sample, list(range(ROWS)), f"{folder}/lit", chunk_size=100, num_workers=1)


def read(folder: str) -> None:
    size = GLOBAL_BATCH // int(os.environ["WORLD_SIZE"])
    dataset = StreamingDataset(f"{folder}/lit", shuffle=False, drop_last=False)
    loader = StreamingDataLoader(dataset, batch_size=size, num_workers=0)
    if os.path.exists(f"{folder}/state.json"):
        loader.load_state_dict(json.load(open(f"{folder}/state.json")))
    for step, batch in enumerate(loader):
        train(folder, step, batch["n"].tolist())
        if step + 1 == CHECKPOINT_AT and not os.path.exists(f"{folder}/state.json"):
            state = loader.state_dict()
            if int(os.environ["RANK"]) == 0:
                json.dump(state, open(f"{folder}/state.json", "w"))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
