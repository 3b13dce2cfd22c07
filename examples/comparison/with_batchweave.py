"""The task with BatchWeave. Run by run.py."""
import sys

from batchweave import StreamingDataset, create_namespace

from task import CHECKPOINT_AT, GLOBAL_BATCH, ROWS, save_state, saved_state, train


def write(folder: str) -> None:
    namespace = create_namespace(f"file://{folder}/ns", rows=GLOBAL_BATCH)
    with namespace.writer("w") as writer:
        for i in range(ROWS):
            writer.write({"n": i})
    namespace.end_log()


def read(folder: str) -> None:
    dataset = StreamingDataset(f"file://{folder}/ns", decode="numpy", last="ragged")
    if (state := saved_state(folder)) is not None:
        dataset.load_state_dict(state)
    for step, share in enumerate(dataset):
        train(folder, step, share["n"].tolist())
        if step + 1 == CHECKPOINT_AT:
            save_state(folder, dataset.state_dict())


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
