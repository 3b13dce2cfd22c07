"""BatchWeave on Ray: a sink for Ray Data, and a fleet of loaders and constructors that Ray supervises. Needs `pip install batchweave[ray]`."""
from .sample_sink import SampleSink, sink

__all__ = ["SampleSink", "sink"]
