"""Property: with OpenTelemetry's API and a provider, a rank's exposed data wait grows while it waits, with labels, and each share is one tree of spans; without, nothing is imported or spent.
Method: OpenTelemetry's own SDK with a reader in memory (skipped where it is not installed); a consumer on a store in memory that waits for its first batch."""
from __future__ import annotations

import subprocess
import sys
import threading
import time
import unittest
from typing import Any

from batchweave.consumer.consumer import Consumer
from batchweave.consumer.mesh import resolve_mesh
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


def points(reader: Any) -> dict[str, Any]:
    data = reader.get_metrics_data()
    found: dict[str, Any] = {}
    for resource in data.resource_metrics if data else []:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name] = list(metric.data.data_points)[0]
    return found


class RankMetrics(unittest.TestCase):
    @unittest.skipUnless(HAS_SDK, "opentelemetry-sdk is not installed")
    def test_the_wait_grows_while_the_rank_waits_and_shares_are_spans(self) -> None:
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        trace.set_tracer_provider(tracers)
        world = World()
        with Consumer(world.open(), resolve_mesh({"dp": 2}, 1, {}), group="g") as consumer:
            thread = threading.Thread(target=lambda: next(consumer))
            thread.start()
            time.sleep(0.4)
            first = points(reader)["batchweave.data.wait"]
            time.sleep(0.4)
            second = points(reader)["batchweave.data.wait"]
            self.assertGreater(first.value, 0.1)
            self.assertGreater(second.value, first.value + 0.2)
            self.assertEqual(dict(second.attributes), {"namespace": "memory:test", "role": "rank", "rank": "1", "group": "g"})
            Writer(world.log, "p").write(2)
            thread.join(20)
            after = points(reader)
            self.assertEqual(after["batchweave.shares"].value, 1)
            self.assertEqual(after["batchweave.data.waiting"].value, 0)
        roots = [span for span in spans.get_finished_spans() if span.name == "batchweave.share"]
        self.assertEqual(len(roots), 1)
        inner = [span for span in spans.get_finished_spans() if span.parent and span.parent.span_id == roots[0].context.span_id]
        self.assertEqual([span.name for span in inner], ["batchweave.wait"])

    def test_without_the_package_nothing_is_said(self) -> None:
        program = (
            "import sys; sys.modules['opentelemetry'] = None\n"
            "from batchweave.observe.rank_metrics import watch\n"
            "print(watch(object()))\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.returncode), ("False\n", 0), done.stderr)


if __name__ == "__main__":
    unittest.main()
