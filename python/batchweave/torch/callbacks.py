"""Callbacks that keep a framework's checkpoints and the log's in step: register after a save, release what the framework deleted.

Nothing here imports a framework unless its callback is used. For a plain loop and torch.distributed.checkpoint no callback is needed; see
docs/guide/python.md.
"""
from __future__ import annotations

import json
import os
from typing import Any

from ..errors import invalid
from .dataset import StreamingDataset
from .loader import StreamingDataLoader

STATE_FILE = "batchweave.json"


def _dataset_of(source: StreamingDataset[Any] | StreamingDataLoader[Any]) -> StreamingDataset[Any]:
    return source.dataset if isinstance(source, StreamingDataLoader) else source


def save_state(folder: str, state: dict[str, Any]) -> None:
    """Writes a state into a checkpoint's folder, whole or not at all."""
    path = os.path.join(folder, STATE_FILE)
    with open(f"{path}.next", "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.next", path)


def load_state(folder: str) -> dict[str, Any]:
    """Reads what `save_state` wrote."""
    with open(os.path.join(folder, STATE_FILE), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
        return found


def transformers_callback(source: StreamingDataset[Any] | StreamingDataLoader[Any], keep_last: int | None = None) -> Any:
    """A transformers.TrainerCallback: saves the state in every checkpoint-N folder and registers it as `checkpoint-N`.

    Resume with `source.load_state_dict(load_state(folder))` and `TrainingArguments(ignore_data_skip=True)`.
    """
    from transformers import TrainerCallback

    class BatchWeaveCallback(TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _dataset_of(source).acknowledge()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _dataset_of(source).acknowledge()

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            name = f"checkpoint-{state.global_step}"
            current = source.state_dict()
            folder = os.path.join(args.output_dir, name)
            if state.is_world_process_zero and os.path.isdir(folder):
                save_state(folder, current)
            _dataset_of(source).checkpoint(name, current, keep_last=keep_last)

    # The trainer takes the batches of a whole step, or one more, before it trains on them.
    _dataset_of(source).acknowledge_by_hand()
    return BatchWeaveCallback()


def lightning_callback(source: StreamingDataset[Any] | StreamingDataLoader[Any], keep_last: int | None = None) -> Any:
    """A lightning Callback: the state travels in Lightning's own checkpoint, and is registered when the next batch shows that it was written. `stats()` goes to
    the trainer's loggers, as often as it logs.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback  # type: ignore[import-not-found,no-redef,assignment,unused-ignore]

    class BatchWeaveCallback(Callback):  # type: ignore[misc,valid-type,unused-ignore]
        _written: tuple[str, dict[str, Any]] | None = None

        def state_dict(self) -> dict[str, Any]:
            return source.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            source.load_state_dict(state_dict)

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
            self._written = (f"step-{trainer.global_step}", source.state_dict())

        def on_train_batch_start(self, *_: Any) -> None:
            self._register()

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            # Before ModelCheckpoint's, which Lightning always calls last.
            _dataset_of(source).acknowledge()
            if trainer.global_step % trainer.log_every_n_steps == 0:
                for logger in trainer.loggers:
                    log_stats(logger, source, trainer.global_step)

        def on_train_end(self, *_: Any) -> None:
            self._register()

        def _register(self) -> None:
            if self._written is not None:
                name, state = self._written
                self._written = None
                _dataset_of(source).checkpoint(name, state, keep_last=keep_last)

    # Lightning takes a batch before it has trained on the one before.
    _dataset_of(source).acknowledge_by_hand()
    return BatchWeaveCallback()


def log_stats(target: Any, source: StreamingDataset[Any] | StreamingDataLoader[Any], step: int, prefix: str = "data") -> dict[str, Any]:
    """Puts `stats()` beside the loss: into a TensorBoard SummaryWriter, a W&B run (or the module), or a Lightning logger. Gives what it put."""
    figures = {f"{prefix}/{name}": value for name, value in source.stats().items()}
    if hasattr(target, "add_scalar"):
        for name, value in figures.items():
            target.add_scalar(name, value, step)
    elif hasattr(target, "log_metrics"):
        target.log_metrics(figures, step=step)
    elif hasattr(target, "log"):
        target.log(figures, step=step)
    else:
        raise invalid(f"{type(target).__name__} has no add_scalar, log_metrics or log; give it the dict of stats() yourself.")
    return figures
