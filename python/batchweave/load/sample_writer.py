"""`SampleWriter`: any iterable of samples into a source log, exactly once."""
from __future__ import annotations

from typing import Any, Iterable

from ..errors import BatchWeaveError, invalid, is_error
from ..format.sample_block import SAMPLE_BLOCK_TYPE
from ..producer.producer import Producer
from .block_rule import BLOCK_BYTES, BLOCK_SAMPLES, Block, BlockRule
from .fault import make_fault
from .lane_point import LanePoint, encode_point
from .prepared_sample import Garbage, NoTokens, as_prepared, block_sample
from .source_log import GapWatch, SourceLog, open_source_log


class LaneAppender:
    """Blocks of one lane into its log, each with the point from which another process goes on."""

    def __init__(self, log: SourceLog, producer: Producer, point: LanePoint) -> None:
        self.log = log
        self.producer = producer
        self.point = point

    def append(self, block: Block, is_over: bool = False) -> None:
        at, used = block.at, self.point.used + block.samples
        # A crash before the append: the lane is read again from the point before it. After: its producer's state has it.
        self.point = self.point._replace(at=at, used=used, seq=self.producer.next_seq + 1, is_over=is_over)
        self.producer.append(block.slices, encode_point(self.point), SAMPLE_BLOCK_TYPE)

    @property
    def next_step(self) -> int:
        return self.log.step_of(self.point.lane, self.producer.next_seq)

    def end(self, rule: BlockRule) -> None:
        """The lane's last block says that it is the last; a lane without one more sample says it in a filler."""
        if rule.is_empty:
            self.point = self.log.append_filler(self.producer, self.point)
        else:
            self.append(rule.take(), is_over=True)


class SampleWriter:
    """Writes one lane of a source log. A newer writer of the lane fences this one, and goes on from `position`.

        with SampleWriter("s3://train/7b.sources", "books") as writer:
            writer.write(tokenized(books))        # in the same order every time; what is in the log is passed over

    With positions of your own: start behind `writer.position`, call `add(sample, at)` for each sample and `end()` behind the last. A position
    is JSON, and says from where the samples behind that one are read. Samples become visible by blocks.
    """

    def __init__(
        self,
        uri: str,
        source: str,
        lane: int = 0,
        lanes: int = 1,
        block_samples: int = BLOCK_SAMPLES,
        block_bytes: int = BLOCK_BYTES,
        print: str = "",
        epoch: int | None = None,
        **settings: Any,
    ) -> None:
        if not 0 <= lane < lanes:
            raise invalid(f"Lane {lane} of {lanes} does not exist: lanes count from 0.")
        self._log = open_source_log(uri, source, lanes, print, **settings)
        self._rule = BlockRule(source, block_samples, block_bytes)
        self._lane: LaneAppender | None = None
        self._gaps: GapWatch | None = None
        try:
            self._lane = LaneAppender(self._log, *self._log.open(lane, epoch))
            self.point = self._lane.point
            self._gaps = GapWatch(self._log, lambda: {lane})
        except BatchWeaveError as error:
            if not is_error(error, "CLOSED"):
                raise
            _, states = self._log.look()
            self.point = self._log.point_of(states[lane])

    @property
    def position(self) -> Any:
        """Behind the last sample that is in the log; None at the beginning."""
        return self.point.at

    @property
    def is_over(self) -> bool:
        """The lane was ended, or its log closed: nothing can be added."""
        return self._lane is None or self._lane.point.is_over

    def add(self, sample: Any, at: Any, id: str | None = None) -> None:
        """One sample: a PreparedSample, or a dict with `tokens` and what else it has. Blocks while constructors are far behind."""
        name = str(at) if id is None else id
        try:
            self._take(self._rule.add(block_sample(name, as_prepared(sample)), at))
        except NoTokens:
            raise invalid(f"Sample {name} of source {self._log.source} has no tokens: give a dict with tokens, or a PreparedSample.") from None
        except Garbage as error:
            raise invalid(f"Sample {name} of source {self._log.source} cannot be stored: {error}.") from None

    def leave_out(self, id: str, reason: str, at: Any, stage: str = "transform") -> None:
        """Records a sample that is not written, and why."""
        self._take(self._rule.leave_out(make_fault(self._log.source, id, stage, reason), at))

    def write(self, samples: Iterable[Any]) -> int:
        """All samples of an iterable, which has the same order every time; then ends the lane. Gives how many were added now."""
        if self.is_over:
            return 0
        done = 0 if self.position is None else int(self.position)
        n = 0
        for n, sample in enumerate(samples, 1):
            if n > done:
                self.add(sample, n, str(n - 1))
        if n < done:
            # They cannot be those in the log, and must not end the lane.
            raise invalid(
                f"Source {self._log.source} was given {n} samples, and {done} are in {self._log.uri} already: these are fewer, or others. Nothing was written. Give "
                "all of them again, in the same order.",
                source=self._log.source,
                samples=done,
            )
        self.end()
        return n - done

    def flush(self) -> None:
        """Waits until every full block is in the log. What is in none yet is added again by the next writer."""
        self._held().producer.flush()

    def end(self) -> None:
        """The lane has no more samples. Closes the log when it is the last lane to end."""
        held = self._held()
        held.end(self._rule)
        held.producer.flush()
        self.close()
        self._log.finish()

    def close(self) -> None:
        """Gives the lane up. Without `end`, the next writer of the lane goes on."""
        if self._gaps:
            self._gaps.stop()
            self._gaps = None
        if self._lane:
            self._lane.producer.close()

    def __enter__(self) -> "SampleWriter":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            self.close()
            return
        if self._gaps:
            self._gaps.stop()
        if self._lane:
            self._lane.producer.__exit__(kind, *rest)

    def _held(self) -> LaneAppender:
        if self._lane is None or self._lane.point.is_over:
            raise invalid(f"This lane of {self._log.uri} has ended: nothing can be added to it.")
        return self._lane

    def _take(self, block: Block | None) -> None:
        held = self._held()
        if block:
            held.append(block)
            self.point = held.point
