"""Hugging Face Trainer: `python hf_trainer.py URI OUT`. Under torchrun each process reads its own rows."""
from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

from batchweave import StreamingDataLoader, StreamingDataset
from batchweave.torch.callbacks import transformers_callback
from model import Seen, TinyModel, as_batch

uri, out = sys.argv[1:]
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
loader = StreamingDataLoader(StreamingDataset(uri, mesh={"dp": world}, rank=rank, decode="torch", policy="global-batch"), collate_fn=as_batch)
seen = Seen()


class Model(PreTrainedModel):  # type: ignore[misc]
    config_class = PretrainedConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.inner = TinyModel()
        self.post_init()

    def forward(self, tokens: Any, labels: Any) -> dict[str, Any]:
        seen.add(tokens)
        return {"loss": self.inner(tokens, labels)}


class OnTheLog(Trainer):  # type: ignore[misc]
    def get_train_dataloader(self) -> Any:
        return loader  # as it is: it gives this rank its own rows, and none twice


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, max_steps=10_000, num_train_epochs=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", logging_strategy="no", ignore_data_skip=True)
    arguments.max_steps = int(os.environ["STEPS"])
    OnTheLog(model=Model(PretrainedConfig()), args=arguments, callbacks=[transformers_callback(loader)]).train()
seen.write(f"{out}.{rank}")
