"""The task with LitData. Run by run.py."""
import os
import sys

from litdata import StreamingDataLoader, StreamingDataset, optimize

from task import CHECKPOINT_AT, GLOBAL_BATCH, ROWS, save_state, saved_state, train


def sample(i: int) -> dict[str, int]:
    return {"n": i}


def write(folder: str) -> None:
    optimize(sample, list(range(ROWS)), f"{folder}/lit", chunk_size=100, num_workers=1)


def read(folder: str) -> None:
    size = GLOBAL_BATCH // int(os.environ["WORLD_SIZE"])
    dataset = StreamingDataset(f"{folder}/lit", shuffle=False, drop_last=False)
    loader = StreamingDataLoader(dataset, batch_size=size, num_workers=0)
    if (state := saved_state(folder)) is not None:
        loader.load_state_dict(state)
    for step, batch in enumerate(loader):
        train(folder, step, batch["n"].tolist())
        if step + 1 == CHECKPOINT_AT:
            save_state(folder, loader.state_dict())


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
