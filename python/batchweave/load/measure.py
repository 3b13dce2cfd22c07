"""What a source costs, measured by reading some of it and running its transforms in one worker. Writes nothing. `fleet size` asks for it."""
from __future__ import annotations

import base64
import resource
import sys
import time
from typing import Any, Iterator

from ..errors import invalid
from ..format.sample_block import BlockSample, encode_sample_block
from .preparing import Preparing
from .reader import Item
from .source import Source
from .transform_pool import TransformPool

#: Samples are handed on so that a batch of them can be measured, too: so many bytes of them.
_HANDED_BYTES_MAX = 16 << 20
#: The unit of ru_maxrss.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def _first_items(source: Source) -> Iterator[Item]:
    """Of the first lane that has any: of many lanes, some have none in a small source."""
    for lane in range(source.lanes):
        items = iter(source.reader.read(source.part(lane), None))
        first = next(items, None)
        if first is not None:
            yield first
            yield from items
            return


def measure(source: Source, samples_max: int, seconds: float, place: str | None = None) -> dict[str, Any]:
    """Times are of one sample as it is read; the first does not count where there are others: it loads what the worker needs."""
    pool = TransformPool(source.transforms, 1, source.timeout, source.memory_max, place, source.name, Preparing(source.tokens_max, source.too_long))
    handed: list[BlockSample] = []
    handed_bytes = samples = faults = tokens = pieces = ready = 0
    reading: list[float] = []
    making: list[float] = []
    reason = ""
    try:
        items = _first_items(source)
        begun = time.monotonic()
        while samples < samples_max and (samples < 2 or time.monotonic() - begun < seconds):
            if samples == 1:
                begun = time.monotonic()  # the worker has started
            at = time.monotonic()
            item = next(items, None)
            if item is None:
                break
            reading.append(time.monotonic() - at)
            samples += 1
            if item.error is not None:
                faults, reason = faults + 1, item.error
                continue
            at = time.monotonic()
            outcome = pool.submit(item.value, item.id).wait()
            making.append(time.monotonic() - at)
            assert outcome is not None
            if outcome.error is not None:
                faults, reason = faults + 1, outcome.error
                continue
            for piece in outcome.values:
                if piece.sample is None:
                    reason = (piece.fault or ("", ""))[1]
                    continue
                pieces += 1
                tokens += piece.sample.tokens
                ready += len(piece.sample.data)
                if handed_bytes + len(piece.sample.data) <= _HANDED_BYTES_MAX:
                    handed_bytes += len(piece.sample.data)
                    handed.append(piece.sample._replace(id=item.id + piece.suffix))
    finally:
        pool.close()
    if not handed:
        what = f": {reason}" if reason else ""
        raise invalid(f"Source {source.name} has no sample that can be used, of {samples} looked at{what}. Mend the source or its transforms.", source=source.name)
    table, payload = encode_sample_block(source.name, handed)
    return {
        "source": source.name, "lanes": source.lanes, "samples": samples, "faults": faults, "tokens": tokens / samples, "pieces": pieces / samples,
        "readMs": _mean_ms(reading), "loaderMs": _mean_ms(making), "readyBytes": ready / samples,
        "processBytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT,
        "workerBytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _RSS_UNIT,
        "block": [base64.b64encode(table).decode(), base64.b64encode(payload).decode()],
    }


def _mean_ms(times: list[float]) -> float:
    counted = times[1:] if len(times) > 1 else times
    return 1_000 * sum(counted) / max(1, len(counted))
