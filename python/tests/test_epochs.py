"""Property: every epoch of a log that has ended gives every row once, in an order that only the seed and the epoch decide, on any mesh and from any saved state;
what is not read is said. Checkpoints of a run replace those of the run before it, and those only. Method: files and plain bytes; all ranks of several meshes.
"""
from __future__ import annotations

import json
import logging
import pickle
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError, StreamingDataset, create_namespace
from batchweave.consumer.epochs import EpochOrder, shuffled

BATCHES, ROWS = 5, 4
TOTAL = BATCHES * ROWS


class Log(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.uri = Path(folder.name, "ns").as_uri()
        self.namespace = create_namespace(self.uri, rows=ROWS, durability="process-crash")
        with self.namespace.writer("w") as writer:
            for i in range(TOTAL):
                writer.write(f"{i}".encode())
        self.end()

    def end(self) -> None:
        self.namespace.end_log()

    def dataset(self, dp: int = 1, rank: int = 0, **settings: Any) -> StreamingDataset[Any]:
        dataset: StreamingDataset[Any] = StreamingDataset(self.uri, {"dp": dp}, rank, pulse=False, **settings)
        self.addCleanup(dataset.close)
        return dataset

    def rows(self, share: Any) -> list[int]:
        return [int(bytes(s.bytes)) for s, valid in zip(share.slices, share.valid) if valid]

    def read(self, dp: int, state: Any = None, **settings: Any) -> list[list[int]]:
        """What all ranks got together in each iteration, rank after rank."""
        ranks = []
        for rank in range(dp):
            dataset = self.dataset(dp, rank, **settings)
            if state is not None:
                dataset.load_state_dict(state)
            ranks.append([self.rows(share) for share in dataset])
        self.assertEqual(len({len(shares) for shares in ranks}), 1, "ranks get different numbers of shares")
        return [[row for shares in ranks for row in shares[i]] for i in range(len(ranks[0]))]

    def flat(self, iterations: list[list[int]]) -> list[int]:
        return [row for iteration in iterations for row in iteration]

    def refused(self, call: Any) -> str:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        return caught.exception.message


class Epochs(Log):
    def test_iterating_gives_whole_batches_by_default(self) -> None:
        self.assertEqual(self.read(1), [list(range(4 * i, 4 * i + 4)) for i in range(5)])
        self.assertEqual(self.read(2), self.read(1))

    def test_iterating_again_is_the_next_epoch_and_never_nothing(self) -> None:
        dataset = self.dataset()
        for epoch in range(3):
            self.assertEqual(self.flat([self.rows(share) for share in dataset]), list(range(TOTAL)))
            self.assertEqual(dataset.epoch, epoch)
        self.assertEqual(dataset.state_dict()["iteration"], 15)
        resumed = self.dataset()
        resumed.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        with self.assertLogs("batchweave.read", "WARNING") as logs:
            self.assertEqual(list(resumed), [])
        self.assertIn("was read to its end before", logs.output[0])
        self.assertEqual(self.flat([self.rows(share) for share in resumed]), list(range(TOTAL)))
        self.assertEqual(resumed.epoch, 3)

    def test_several_epochs_in_one_loop_leave_no_gap_between_them(self) -> None:
        with self.assertLogs("batchweave.read", "WARNING") as logs:
            found = self.flat(self.read(3, epochs=2))
        self.assertEqual(found, (list(range(TOTAL)) * 2)[:39])
        self.assertIn("the last 1 rows were not read: an iteration takes 3", logs.output[0])
        dataset = self.dataset(epochs=2)
        self.assertEqual(len(list(dataset)), 10)
        with self.assertLogs("batchweave.read", "WARNING") as logs:
            self.assertEqual(list(dataset), [])
        self.assertIn("all 2 epochs were read", logs.output[0])

    def test_shuffled_rows_are_each_read_once_alike_on_every_mesh_and_from_every_state(self) -> None:
        settings: dict[str, Any] = {"shuffle": True, "seed": 7, "shuffle_window": 6, "epochs": 2, "rows_per_rank": 1}
        whole = self.flat(self.read(1, **settings))
        first, second = whole[:TOTAL], whole[TOTAL:]
        self.assertEqual((sorted(first), sorted(second)), (list(range(TOTAL)),) * 2)
        self.assertEqual(len({tuple(first), tuple(second), tuple(range(TOTAL))}), 3)
        self.assertNotEqual(self.flat(self.read(1, **{**settings, "seed": 8})), whole)
        for dp in (2, 4, 5):
            self.assertEqual(self.flat(self.read(dp, **settings)), whole)
        for stop_at in (1, 3, 9):
            dataset = self.dataset(2, 0, **settings)
            for share in dataset:
                if share.iteration == stop_at:
                    break
            state = json.loads(json.dumps(dataset.state_dict()))
            self.assertEqual(share.next, state)
            self.assertEqual(pickle.loads(pickle.dumps(share)).next, state)
            self.assertEqual(self.flat(self.read(4, state, last="ragged", **settings)), whole[2 * (stop_at + 1) :])

    def test_the_order_of_a_seed_never_changes(self) -> None:
        self.assertEqual(shuffled(1, 0, 0, 10), [5, 8, 1, 2, 7, 4, 9, 6, 0, 3])
        order = EpochOrder("n", 0, 10, 1, 4, None, 2)
        self.assertEqual(sorted(order.row(at) for at in range(10)), list(range(10)))

    def test_a_validation_log_is_read_in_full_by_any_number_of_ranks(self) -> None:
        for last in ("pad", "ragged"):
            for dp in (1, 3, 7, 8, 16):
                self.assertEqual(self.flat(self.read(dp, last=last, rows_per_rank=3)), list(range(TOTAL)), (last, dp))
        padded = list(self.dataset(7, 6, last="pad", rows_per_rank=2))
        self.assertEqual([share.rows for share in padded], [2, 2])
        ragged = list(self.dataset(16, 0, last="ragged", rows_per_rank=1))
        self.assertEqual([(share.rows, share.valid) for share in ragged], [(1, [True]), (0, [])])

    def test_rows_left_over_are_said_by_one_of_the_workers_of_a_plain_loader_too(self) -> None:
        said = []
        for worker in range(2):
            info = SimpleNamespace(id=worker, num_workers=2, seed=7 + worker)
            with mock.patch("batchweave.torch.dataset._worker_info", return_value=info), self.assertLogs("batchweave.read", "INFO") as logs:
                logging.getLogger("batchweave.read").info("asked")
                self.assertEqual(len(list(self.dataset(rows_per_rank=3))), 3)
            said.append([record.getMessage() for record in logs.records if "the last 2 rows were not read" in record.getMessage()])
        self.assertEqual([len(lines) for lines in said], [1, 0])

    def test_rows_that_a_writer_added_are_told_apart(self) -> None:
        other = Path(self.uri.removeprefix("file://")).with_name("padded").as_uri()
        namespace = create_namespace(other, rows=4, durability="process-crash")
        with namespace.writer("w") as writer:
            for i in range(6):
                writer.write({"x": [i]})
        namespace.end_log()
        self.assertEqual([share.valid for share in StreamingDataset(other, {"dp": 1}, 0, pulse=False)][1], [True, True, False, False])
        self.assertEqual([share.rows for share in StreamingDataset(other, {"dp": 2}, 1, pulse=False, last="ragged")], [2, 0])

    def test_rows_that_a_writer_added_stay_last_when_the_others_are_shuffled(self) -> None:
        for samples, padded in ((17, 3), (8, 0), (5, 3), (1, 3)):
            other = Path(self.uri.removeprefix("file://")).with_name(f"padded-{samples}").as_uri()
            namespace = create_namespace(other, rows=4, durability="process-crash")
            with namespace.writer("w") as writer:
                for i in range(samples):
                    writer.write({"x": [i]})
            namespace.end_log()
            for seed in range(4):
                settings: dict[str, Any] = {"shuffle": True, "seed": seed, "shuffle_window": 6, "pulse": False}
                dataset = StreamingDataset(other, {"dp": 1}, 0, **settings)
                for _ in range(2):
                    shares = [(valid, s.step * 4 + s.row) for share in dataset for valid, s in zip(share.valid, share.slices)]
                    self.assertEqual([valid for valid, _ in shares], [True] * samples + [False] * padded)
                    self.assertEqual(sorted(row for _, row in shares), list(range(samples + padded)))
                self.assertEqual(dataset.state_dict()["padding"], padded)
                resumed = StreamingDataset(other, {"dp": 2}, 1, **settings)
                resumed.load_state_dict(dataset.state_dict())
                self.assertEqual(resumed._order_of(dataset.state_dict()), dataset._order_of(dataset.state_dict()))

    def test_len_is_the_number_of_shares(self) -> None:
        for settings in (
            {}, {"rows_per_rank": 3}, {"rows_per_rank": 3, "last": "pad"}, {"rows_per_rank": 3, "epochs": 4}, {"rows_per_rank": [[0, 1], [2, 4]]}, {"policy": "global-batch"},
        ):
            dataset = self.dataset(2, 1, **settings)
            self.assertEqual(len(dataset), len(list(dataset)), settings)
            self.assertTrue(dataset)

    def test_a_log_that_ended_empty_has_no_shares(self) -> None:
        other = Path(self.uri.removeprefix("file://")).with_name("empty").as_uri()
        create_namespace(other, rows=4, durability="process-crash").end_log()
        with self.assertLogs("batchweave.read", "WARNING"):
            self.assertEqual(list(StreamingDataset(other, {"dp": 1}, 0, pulse=False)), [])
        self.assertEqual(len(StreamingDataset(other, {"dp": 1}, 0, pulse=False)), 0)

    def test_states_and_settings_that_do_not_fit_are_refused(self) -> None:
        plain, by_seed = self.dataset(), self.dataset(shuffle=True, seed=3)
        next(iter(plain)), next(iter(by_seed))
        self.assertIn("this dataset shuffles", self.refused(lambda: by_seed.load_state_dict(plain.state_dict())))
        self.assertIn("seed=3", self.refused(lambda: plain.load_state_dict(by_seed.state_dict())))
        self.assertIn("not a cursor", self.refused(lambda: self.namespace.consumer({"dp": 1}, 0, by_seed.state_dict())))
        self.assertIn("was changed", self.refused(lambda: by_seed.load_state_dict({**by_seed.state_dict(), "row": 1})))
        for settings in ({"epochs": 0}, {"last": "keep"}, {"shuffle": True, "seed": "a"}, {"shuffle_window": 0}):
            self.refused(lambda settings=settings: self.dataset(**settings))

    def test_other_libraries_settings_say_what_does_it_here(self) -> None:
        for name, word in (("batch_size", "rows_per_rank"), ("local", "no cache on the disk"), ("shuffle_seed", "seed=n"), ("rows_per_rnk", "did you mean 'rows_per_rank'")):
            self.assertIn(word, self.refused(lambda name=name: self.dataset(**{name: 1})))


class OpenLog(Log):
    def end(self) -> None:
        pass

    def test_needs_an_end(self) -> None:
        self.assertIn("is still open", self.refused(lambda: list(self.dataset(shuffle=True))))
        with self.assertRaisesRegex(TypeError, "still open"):
            len(self.dataset())


class Checkpoints(Log):
    def run_once(self, dp: int, stop_at: int, every: int = 2, **settings: Any) -> StreamingDataset[Any]:
        dataset = self.dataset(dp, 0, rows_per_rank=1, **settings)
        for share in dataset:
            if (share.iteration + 1) % every == 0:
                dataset.checkpoint(f"iter-{share.iteration + 1}", keep_last=2)
            if share.iteration + 1 == stop_at:
                break
        return dataset

    def live(self) -> list[tuple[str, int]]:
        return [(c.id, c.row) for c in self.namespace.list_checkpoints()]

    def test_a_second_run_a_rollback_and_another_mesh_go_on_with_the_same_ids(self) -> None:
        self.run_once(1, 6)
        self.assertEqual(self.live(), [("iter-6", 6), ("iter-4", 4)])
        self.run_once(2, 6)  # from scratch, on twice the ranks: other cursors
        self.assertEqual(self.live(), [("iter-6.run2", 12), ("iter-4.run2", 8)])
        rolled = self.dataset(2, 0, rows_per_rank=1, start={"checkpoint": "iter-4"})
        self.assertEqual(next(iter(rolled)).cursor["row"], 8)
        rolled.checkpoint("iter-5", keep_last=2)
        self.assertEqual(self.live(), [("iter-5", 10), ("iter-6.run2", 12)])
        rolled.release("iter-6")
        self.assertEqual(self.live(), [("iter-5", 10)])

    def test_within_one_run_a_rank_that_differs_or_comes_late_is_told(self) -> None:
        one, other = self.dataset(1, 0, rows_per_rank=1), self.dataset(1, 0, rows_per_rank=1)
        ours, theirs = iter(one), iter(other)
        next(ours), next(theirs)
        one.checkpoint("a")
        self.assertEqual(other.checkpoint("a").id, "a")
        next(theirs)
        self.assertIn("All ranks must pass the same cursor", self.refused(lambda: other.checkpoint("a")))
        for _ in range(3):
            next(ours)
            one.checkpoint(f"b-{one.state_dict()['iteration']}", keep_last=1)
        self.assertIn("was released", self.refused(lambda: other.checkpoint("b-2")))

    def test_of_epochs_all_rows_are_kept(self) -> None:
        dataset = self.dataset(shuffle=True)
        next(iter(dataset))
        self.assertEqual(dataset.checkpoint("a").row, 0)


if __name__ == "__main__":
    unittest.main()
