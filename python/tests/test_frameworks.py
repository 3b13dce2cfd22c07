"""Property: with Lightning and with transformers, a run that stops and goes on from its checkpoint trains on every share once and in order, and the log
keeps what the checkpoints need. Method: tiny models on files, the real frameworks where they are installed, else skipped with the reason.
"""
from __future__ import annotations

import csv
import importlib.util
import logging
import os
import struct
import tempfile
import unittest
import warnings
from pathlib import Path
from typing import Any

from batchweave import StreamingDataLoader, StreamingDataset, create_namespace, encode_safetensors
from batchweave.format.tensors import Tensor
from batchweave.torch.callbacks import STATE_FILE, lightning_callback, load_state, transformers_callback

HAS_TORCH = importlib.util.find_spec("torch") is not None


def has(name: str) -> bool:
    return HAS_TORCH and importlib.util.find_spec(name) is not None


class Run(unittest.TestCase):
    steps = 12

    def setUp(self) -> None:
        warnings.simplefilter("ignore")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.uri = Path(folder.name, "ns").as_uri()
        namespace = create_namespace(self.uri, rows=4, durability="process-crash")
        with namespace.producer("p") as p:
            for step in range(self.steps):
                p.append([self.row(step * 4 + r) for r in range(4)])
        namespace.end_log()

    def row(self, n: int) -> bytes:
        return encode_safetensors({"x": Tensor("F32", (2,), struct.pack("<ff", n, 1.0))})

    def loader(self, workers: int = 0) -> StreamingDataLoader:
        dataset = StreamingDataset(self.uri, mesh={"dp": 1}, rank=0, decode="torch", policy="global-batch", pulse=False)
        return StreamingDataLoader(dataset, num_workers=workers, collate_fn=as_batch)

    def expected(self, first: int, end: int) -> list[int]:
        return list(range(first * 4, end * 4))


def as_batch(share: Any) -> dict[str, Any]:
    return {"x": share["x"]}


@unittest.skipUnless(has("lightning") or has("pytorch_lightning"), "lightning is not installed")
class Lightning(Run):
    def fit(self, loader: StreamingDataLoader, steps: int, resume: str | None, seen: list[int]) -> str:
        import torch

        if has("lightning"):
            import lightning.pytorch as pl
            from lightning.pytorch.callbacks import ModelCheckpoint
            from lightning.pytorch.loggers import CSVLogger
        else:
            import pytorch_lightning as pl
            from pytorch_lightning.callbacks import ModelCheckpoint
            from pytorch_lightning.loggers import CSVLogger
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

        class Model(pl.LightningModule):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)

            def training_step(self, batch: Any, index: int) -> Any:
                seen.extend(int(n) for n in batch["x"][:, 0])
                return self.layer(batch["x"] / 100).pow(2).mean()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.01)

        saver = ModelCheckpoint(dirpath=f"{self.folder}/ckpt", every_n_train_steps=2, save_top_k=-1, filename="{step}")
        trainer = pl.Trainer(
            max_steps=steps, callbacks=[saver, lightning_callback(loader, keep_last=2)], accelerator="cpu", log_every_n_steps=1,
            logger=CSVLogger(self.folder, name="told", version=0), enable_progress_bar=False, enable_model_summary=False, default_root_dir=self.folder,
        )
        trainer.fit(Model(), loader, ckpt_path=resume)
        return saver.best_model_path or saver.last_model_path or str(sorted(Path(self.folder, "ckpt").glob("*.ckpt"))[-1])

    def test_a_run_goes_on_from_its_checkpoint(self) -> None:
        for workers in (0, 2):
            with self.subTest(workers=workers):
                seen: list[int] = []
                first = self.loader(workers)
                self.fit(first, 5, None, seen)
                self.assertEqual(seen, self.expected(0, 5))
                told = list(csv.DictReader(Path(self.folder, "told/version_0/metrics.csv").read_text().splitlines()))
                self.assertEqual((len(told), float(told[-1]["data/requests"]) > 0), (5, True), told)
                held = first.dataset.list_checkpoints()
                self.assertEqual([(c.id, c.row) for c in held], [("step-4", 16), ("step-2", 8)])
                path = str(Path(self.folder, "ckpt", "step=4.ckpt"))
                again: list[int] = []
                second = self.loader(workers)
                self.fit(second, self.steps, path, again)
                self.assertEqual(again, self.expected(4, self.steps), "step 4 was trained on and not saved: it comes again, the rest once")
                self.assertEqual([c.id for c in second.dataset.list_checkpoints()], ["step-12", "step-10"])
                for checkpoint in second.dataset.list_checkpoints():
                    second.dataset.release(checkpoint.id)
                self.tearDown()
                self.setUp()


@unittest.skipUnless(has("transformers") and has("accelerate"), "transformers or accelerate is not installed")
class Transformers(Run):
    def train(self, loader: StreamingDataLoader, steps: int, resume: str | None, seen: list[int]) -> None:
        import torch
        from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

        class Model(PreTrainedModel):  # type: ignore[misc]
            config_class = PretrainedConfig

            def __init__(self, config: Any) -> None:
                super().__init__(config)
                self.layer = torch.nn.Linear(2, 1)
                self.post_init()

            def forward(self, x: Any) -> dict[str, Any]:
                seen.extend(int(n) for n in x[:, 0])
                return {"loss": self.layer(x / 100).pow(2).mean()}

        class OnTheLog(Trainer):  # type: ignore[misc]
            def get_train_dataloader(self) -> Any:
                return loader

        arguments = TrainingArguments(
            output_dir=f"{self.folder}/out", max_steps=steps, save_steps=2, report_to=[], ignore_data_skip=True, use_cpu=True,
            disable_tqdm=True, logging_strategy="no", save_only_model=False,
        )
        OnTheLog(model=Model(PretrainedConfig()), args=arguments, callbacks=[transformers_callback(loader, keep_last=2)]).train(
            resume_from_checkpoint=resume
        )

    def test_a_run_goes_on_from_its_checkpoint(self) -> None:
        seen: list[int] = []
        first = self.loader()
        self.train(first, 5, None, seen)
        self.assertEqual(seen, self.expected(0, 5))
        folder = f"{self.folder}/out/checkpoint-4"
        self.assertTrue(os.path.exists(f"{folder}/{STATE_FILE}"))
        second = self.loader()
        second.load_state_dict(load_state(folder))
        again: list[int] = []
        self.train(second, self.steps, folder, again)
        self.assertEqual(again, self.expected(4, self.steps))
        self.assertEqual([c.id for c in second.dataset.list_checkpoints()], ["checkpoint-12", "checkpoint-10"])


if __name__ == "__main__":
    unittest.main()
