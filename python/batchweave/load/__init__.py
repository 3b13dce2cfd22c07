"""Samples into source logs: what a loader is, in Python. Twin of src/plan/load and src/plan/exchange; `construct` reads what is written here."""
from .loader import Loader, LoadReport, load
from .prepared_sample import PreparedImage, PreparedSample
from .reader import Item, LanePart, Reader, Unit, UnitReader, stream
from .readers import arrow, huggingface, webdataset
from .sample_writer import SampleWriter
from .source import Source

__all__ = [
    "Item", "LanePart", "LoadReport", "Loader", "PreparedImage", "PreparedSample", "Reader", "SampleWriter", "Source", "Unit", "UnitReader", "arrow",
    "huggingface", "load", "stream", "webdataset",
]
