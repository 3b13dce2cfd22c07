"""Property: what a dataset reports is a batch of the log of reports in the shape of FORMAT.md, from rank 0 alone, seldom, and never an end of the training.
Method: files; the log is read back.
"""
from __future__ import annotations

import json
import pickle
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError, StreamingDataset, create_namespace, open_namespace
from batchweave.consumer import reports
from batchweave.consumer.reports import report_log_uri, reports_of


class Reports(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.uri = Path(folder.name, "ns").as_uri()
        namespace = create_namespace(self.uri, rows=1)
        with namespace.producer("p") as p:
            for step in range(3):
                p.append([bytes([step])])
        namespace.end_log()

    def dataset(self, rank: int = 0) -> StreamingDataset:
        dataset = StreamingDataset(self.uri, mesh={"dp": 1 if rank == 0 else 2}, rank=rank, pulse=False)
        self.addCleanup(dataset.close)
        return dataset

    def written(self) -> list[dict[str, Any]]:
        reports_of(self.uri, "default", {}).close()
        namespace = open_namespace(report_log_uri(self.uri))
        consumer = namespace.consumer(mesh={"dp": 1}, rank=0, environment={})
        self.addCleanup(consumer.close)
        return [json.loads(bytes(next(consumer).slices[0].bytes)) for _ in range(namespace.info()["steps"]["end"])]

    def test_a_report_is_in_the_log_with_the_step_of_the_dataset(self) -> None:
        dataset = self.dataset()
        next(iter(dataset))
        dataset.report({"loss/web": 2.5, "loss/code": 1})
        self.assertEqual(self.written(), [{"v": 1, "step": 1, "values": {"loss/web": 2.5, "loss/code": 1.0}}])

    def test_only_rank_0_reports_and_seldom_with_what_came_meanwhile(self) -> None:
        self.dataset(rank=1).report({"loss": 9})
        dataset = self.dataset()
        dataset.report({"loss": 1}, step=10)
        dataset.report({"loss": 2, "more": 3}, step=11)
        with mock.patch.object(reports, "EVERY_S", 0.0):
            pickle.loads(pickle.dumps(dataset)).report({"loss": 4}, step=12)
        values = [(report["step"], report["values"]) for report in self.written()]
        self.assertEqual(values, [(10, {"loss": 1}), (12, {"loss": 4, "more": 3})])

    def test_what_is_no_number_is_refused_and_a_store_that_fails_costs_the_report_alone(self) -> None:
        with self.assertRaises(BatchWeaveError):
            self.dataset().report({"loss": float("nan")})
        with self.assertLogs("batchweave", "WARNING"), mock.patch.object(reports.Reports, "_open", side_effect=OSError("full")):
            self.dataset().report({"loss": 1.0})

    def test_where_reports_lie(self) -> None:
        self.assertEqual(report_log_uri("s3://b/run/?endpoint=http://x"), "s3://b/run.reports?endpoint=http://x")
        self.assertEqual(report_log_uri("file:///a/b"), "file:///a/b.reports")
