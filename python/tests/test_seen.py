"""Property: what a user must know is said: requests that are tried again, fields that a share does not have and those it has, figures where the loss is. Method: a
store that fails on purpose; small objects with the methods that TensorBoard, W&B and Lightning's loggers have.
"""
from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any

from batchweave import BatchWeaveError, StreamingDataset, create_namespace
from batchweave.store.object_store import RetryingStore
from batchweave.torch.callbacks import log_stats
from memory_store import MemoryStore


class Failing(MemoryStore):
    """Fails its first reads."""

    failures = 4

    def get(self, key: str) -> bytes | None:
        if self.failures > 0:
            self.failures -= 1
            raise BatchWeaveError("STORE_UNAVAILABLE", "the store is away", {})
        return super().get(key)


class Seen(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.uri = Path(folder.name, "ns").as_uri()
        namespace = create_namespace(self.uri, rows=2, durability="process-crash")
        with namespace.writer("w") as writer:
            for i in range(4):
                writer.write(f"{i}")
        namespace.end_log()

    def dataset(self) -> StreamingDataset[Any]:
        found: StreamingDataset[Any] = StreamingDataset(self.uri, {"dp": 1}, 0, decode=lambda data: {"input_ids": bytes(data)}, pulse=False)
        self.addCleanup(found.close)
        return found

    def test_requests_that_are_tried_again_are_logged_and_the_third_is_a_warning(self) -> None:
        store = RetryingStore(Failing(), first_delay=0.001)
        store._has_served = True
        with self.assertLogs("batchweave.store", "INFO") as logs:
            self.assertIsNone(store.get("a"))
        self.assertEqual([record.levelname for record in logs.records], ["INFO", "INFO", "WARNING", "INFO"])
        self.assertIn("failure 3): the store is away", logs.output[2])

    def test_a_field_that_there_is_not_says_which_there_are(self) -> None:
        share = next(iter(self.dataset()))
        for ask in (lambda: share["input_idz"], lambda: share.per_row("input_idz")):
            with self.assertRaisesRegex(KeyError, "did you mean 'input_ids'. It has: 'input_ids'"):
                ask()

    def test_figures_go_where_the_loss_is(self) -> None:
        class Board:
            def __init__(self) -> None:
                self.said: list[Any] = []

            def add_scalar(self, *what: Any) -> None:
                self.said.append(what)

        class Run:
            def __init__(self) -> None:
                self.said: list[Any] = []

            def log(self, figures: dict[str, Any], step: int) -> None:
                self.said.append((figures, step))

        class Logger(Run):
            def log_metrics(self, figures: dict[str, Any], step: int) -> None:
                self.said.append(("metrics", figures, step))

        dataset = self.dataset()
        next(iter(dataset))
        board, run, logger = Board(), Run(), Logger()
        figures = log_stats(board, dataset, 7)
        self.assertEqual(set(figures), {f"data/{name}" for name in ("read_bytes", "requests", "hedged", "waited_s")})
        self.assertGreater(figures["data/requests"], 0)
        self.assertEqual([(name, step) for name, _, step in board.said], [(name, 7) for name in figures])
        log_stats(run, dataset, 8)
        log_stats(logger, dataset, 9)
        self.assertEqual((run.said[0][1], logger.said[0][0], logger.said[0][2]), (8, "metrics", 9))
        with self.assertRaisesRegex(BatchWeaveError, "has no add_scalar"):
            log_stats(object(), dataset, 1)


if __name__ == "__main__":
    unittest.main()
