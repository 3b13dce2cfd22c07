"""The task with mosaicml-streaming. Run by run.py."""
import os
import sys

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

from task import CHECKPOINT_AT, GLOBAL_BATCH, ROWS, save_state, saved_state, train


def write(folder: str) -> None:
    with MDSWriter(out=f"{folder}/mds", columns={"n": "int"}) as out:
        for i in range(ROWS):
            out.write({"n": i})


def read(folder: str) -> None:
    size = GLOBAL_BATCH // int(os.environ["WORLD_SIZE"])
    dataset = StreamingDataset(local=f"{folder}/mds", shuffle=False, batch_size=size, num_canonical_nodes=1)
    loader = StreamingDataLoader(dataset, batch_size=size, num_workers=0, drop_last=False)
    if (state := saved_state(folder)) is not None:
        loader.load_state_dict(state)
    for step, batch in enumerate(loader):
        train(folder, step, batch["n"].tolist())
        if step + 1 == CHECKPOINT_AT:
            save_state(folder, loader.state_dict())


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
