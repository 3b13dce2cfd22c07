"""Lightning: `python lightning_fit.py URI OUT`. The callback keeps the place in the log with Lightning's own checkpoints."""
from __future__ import annotations

import sys
from typing import Any

import lightning as pl
import torch

from batchweave import StreamingDataLoader, StreamingDataset
from batchweave.torch.callbacks import lightning_callback
from model import Seen, TinyModel, as_batch

uri, out = sys.argv[1:]
loader = StreamingDataLoader(StreamingDataset(uri, mesh={"dp": 1}, rank=0, decode="torch", policy="global-batch"), collate_fn=as_batch)
seen = Seen()


class Module(pl.LightningModule):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.model = TinyModel()

    def training_step(self, batch: dict[str, Any], _: int) -> Any:
        seen.add(batch["tokens"])
        return self.model(**batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = pl.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[lightning_callback(loader)]
)
trainer.fit(Module(), loader)
seen.write(f"{out}.0")
