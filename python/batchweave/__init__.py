"""BatchWeave for trainers: each rank reads its slice of every batch, exactly, resumably, on any mesh.

    from batchweave import StreamingDataset

    dataset = StreamingDataset("s3://train/runs/7b", decode="torch")
    for share in dataset:
        loss = step(share["input_ids"])
"""
from typing import TYPE_CHECKING

from .consumer.consumer import Consumer
from .consumer.reader import Slice
from .consumer.share import Share
from .errors import ERROR_CODES, BatchWeaveError, is_error
from .format.cursor import make_cursor, parse_cursor
from .format.tensors import decode_safetensors, encode_safetensors
from .lifecycle.checkpoints import Checkpoint
from .namespace import Namespace, create_namespace, open_namespace
from .producer.producer import Producer, Ticket
from .writer.row_writer import RowWriter, Written

if TYPE_CHECKING:
    from .torch.dataset import StreamingDataset
    from .torch.loader import StreamingDataLoader

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # The dataset is torch's IterableDataset where torch is installed; importing that takes seconds, so only who asks pays.
    if name == "StreamingDataset":
        from .torch.dataset import StreamingDataset

        return StreamingDataset
    if name == "StreamingDataLoader":
        from .torch.loader import StreamingDataLoader

        return StreamingDataLoader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ERROR_CODES",
    "BatchWeaveError",
    "Checkpoint",
    "Consumer",
    "Namespace",
    "Producer",
    "RowWriter",
    "Share",
    "Slice",
    "StreamingDataLoader",
    "StreamingDataset",
    "Ticket",
    "Written",
    "create_namespace",
    "decode_safetensors",
    "encode_safetensors",
    "is_error",
    "make_cursor",
    "open_namespace",
    "parse_cursor",
]
