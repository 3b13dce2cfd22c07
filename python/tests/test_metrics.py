"""Property: with OpenTelemetry's API and a provider, a rank's exposed data wait grows while it waits, with labels, and each share is one tree of spans; a producer tells of its batches, a
store of its requests, a loader of its source, and a command serves them to Prometheus under the names that TypeScript has; without the API, nothing is imported or spent.
Method: OpenTelemetry's own SDK with a reader in memory (skipped where it is not installed; test/observe/python-metrics.test.ts installs it); stores in memory and on files; the command itself."""
from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from pathlib import Path
from typing import Any

from batchweave import create_namespace
from batchweave.consumer.consumer import Consumer
from batchweave.consumer.mesh import resolve_mesh
from batchweave.load import Source, load, stream
from small_world import World, Writer

try:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    HAS_SDK = True
except ImportError:
    HAS_SDK = False


def every_point(reader: Any) -> list[tuple[str, Any]]:
    data = reader.get_metrics_data()
    scopes = [scope for resource in (data.resource_metrics if data else []) for scope in resource.scope_metrics]
    return [(metric.name, point) for scope in scopes for metric in scope.metrics for point in metric.data.data_points]


def points(reader: Any, namespace: str | None = None) -> dict[str, Any]:
    """The first point of each metric, of one namespace if that is said."""
    found: dict[str, Any] = {}
    for name, point in every_point(reader):
        if namespace is None or point.attributes.get("namespace") == namespace:
            found.setdefault(name, point)
    return found


@unittest.skipUnless(HAS_SDK, "opentelemetry-sdk is not installed")
class Told(unittest.TestCase):
    reader: Any
    spans: Any

    @classmethod
    def setUpClass(cls) -> None:
        cls.reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([cls.reader]))
        cls.spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(cls.spans))
        trace.set_tracer_provider(tracers)

    def test_a_producer_tells_of_its_batches_and_its_store(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            uri = f"file://{folder}/log"
            namespace = create_namespace(uri, rows=1)
            with namespace.producer("p") as producer:
                producer.append([b"first"])
                producer.flush()
                during = points(self.reader, uri)
                self.assertEqual(during["batchweave.producer.in.flight.batches"].value, 0)
                self.assertLess(during["batchweave.producer.commit.age"].value, 60)
        after = points(self.reader, uri)
        labels = {"namespace": uri, "role": "producer", "producer": "p"}
        self.assertEqual((after["batchweave.batches.committed"].value, dict(after["batchweave.batches.committed"].attributes)), (1, labels))
        self.assertEqual(after["batchweave.uploaded"].value, 5)
        self.assertNotIn("batchweave.producer.in.flight.batches", after)
        self.assertGreater(after["batchweave.store.sent"].value, 100)
        asked = {point.attributes["op"] for name, point in every_point(self.reader) if name == "batchweave.store.requests" and point.attributes["namespace"] == uri}
        self.assertLessEqual({"create", "put", "get", "list"}, asked)
        root = [span for span in self.spans.get_finished_spans() if span.name == "batchweave.batch"][-1]
        inner = [span.name for span in self.spans.get_finished_spans() if span.parent and span.parent.span_id == root.context.span_id]
        self.assertEqual(inner, ["batchweave.queue", "batchweave.upload", "batchweave.commit"])

    def test_a_loader_tells_of_its_source(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            seen: dict[str, Any] = {}

            def look(n: int) -> Any:
                seen.update(points(self.reader))
                return {"tokens": [n]}

            load(Source("looked", stream(lambda: range(5)), transforms=[look], lanes=1), f"file://{folder}/log.sources", workers=0)
            samples = seen["batchweave.source.samples"]
            self.assertEqual(dict(samples.attributes), {"namespace": f"file://{folder}/log", "role": "loader", "source": "looked"})
            self.assertGreater(samples.value, 0)
            self.assertGreater(seen["batchweave.source.transform"].value, 0)

    def test_a_command_serves_prometheus_under_the_names_of_the_other_language(self) -> None:
        with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
            uri = f"file://{folder}/log"
            with create_namespace(uri, rows=1).producer("p") as producer:
                producer.append([b"first"])
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
            command = [sys.executable, "-m", "batchweave", "consume", uri, "--dp", "1", "--rank", "0", "--metrics", str(port), "--json"]
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                try:
                    assert process.stdout is not None
                    self.assertIn("iteration", process.stdout.readline())
                    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode()
                finally:
                    process.kill()
            names = set(re.findall(r"^# TYPE (batchweave_\w+)", text, re.MULTILINE))
            sources = "".join(path.read_text() for path in (Path(__file__).parents[2] / "src").rglob("*.ts"))
            self.assertEqual({name for name in names if f'"{name}"' not in sources}, set())
            self.assertLessEqual(
                {"batchweave_data_wait_seconds_total", "batchweave_lag_steps", "batchweave_store_requests_total", "batchweave_store_request_seconds"}, names
            )

    def test_the_wait_grows_while_the_rank_waits_and_shares_are_spans(self) -> None:
        reader, spans = self.reader, self.spans
        world = World()
        with Consumer(world.open(), resolve_mesh({"dp": 2}, 1, {}), group="g") as consumer:
            thread = threading.Thread(target=lambda: next(consumer))
            thread.start()
            time.sleep(0.4)
            first = points(reader, "memory:test")["batchweave.data.wait"]
            time.sleep(0.4)
            second = points(reader, "memory:test")["batchweave.data.wait"]
            self.assertGreater(first.value, 0.1)
            self.assertGreater(second.value, first.value + 0.2)
            self.assertEqual(dict(second.attributes), {"namespace": "memory:test", "role": "rank", "rank": "1", "group": "g"})
            Writer(world.log, "p").write(2)
            thread.join(20)
            after = points(reader, "memory:test")
            self.assertEqual(after["batchweave.shares"].value, 1)
            self.assertEqual(after["batchweave.data.waiting"].value, 0)
        roots = [span for span in spans.get_finished_spans() if span.name == "batchweave.share"]
        self.assertEqual(len(roots), 1)
        inner = [span for span in spans.get_finished_spans() if span.parent and span.parent.span_id == roots[0].context.span_id]
        self.assertEqual([span.name for span in inner], ["batchweave.wait"])


class Untold(unittest.TestCase):
    def test_without_the_package_nothing_is_said(self) -> None:
        program = (
            "import sys; sys.modules['opentelemetry'] = None\n"
            "from batchweave.observe.rank_metrics import watch\n"
            "from batchweave.observe.store_metrics import metered\n"
            "from batchweave.observe.producer_metrics import producer_metrics\n"
            "store = object()\n"
            "print(watch(object()), metered(store) is store, producer_metrics('u', 'p'))\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.returncode), ("False True None\n", 0), done.stderr)


if __name__ == "__main__":
    unittest.main()
