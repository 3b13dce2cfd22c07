"""The writer: samples in, whole batches of the grid out, each once. What it has written is known by its id, so that running it again is harmless."""
from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Literal, Mapping, NamedTuple

from ..errors import BatchWeaveError, invalid
from ..format.checksum import crc32
from ..producer.producer import Producer
from .packing import Packer, tokens_of
from .progress import Progress, ProgressBar
from .row_codec import EncodedRow, Row, RowCodec
from .source import Paths, Source, source_of

#: Where writers tell what they left out, padded or found done already.
WRITES = logging.getLogger("batchweave.write")
_VERSION = 1
_ABSENT: Any = object()


class Mark(NamedTuple):
    """A place in the stream of samples: between two of them."""

    samples: int = 0
    #: Which of several sources the writer was given, and the place in it that the source named.
    call: int = 0
    position: Any = None
    #: Of all samples before it, where the writer is given them again from the first.
    check: int = 0


class Written(NamedTuple):
    """What a writer did, in this process."""

    samples: int
    rows: int
    batches: int
    #: Samples that were in the log already.
    known_samples: int
    padding_rows: int
    dropped_rows: int


class RowWriter:
    """Batches rows into the grid. Use it as a context manager: leaving the block writes what is left and waits until all is in the log.

    A writer id stands for one stream of samples. A process that opens it again gives the same stream, from its beginning (`write`), from a position
    (`write(sample, position=...)`, after `writer.position`) or as a source that goes on by itself (`write_all`, `from_jsonl`, ...); what is in
    the log already is not written again. For other samples use another id.
    """

    def __init__(
        self,
        id: str,
        uri: str,
        rows: int,
        chunks: int,
        producer: Producer | None,
        resume_point: Any,
        tail: Literal["pad", "drop"] = "pad",
        pack: int | None = None,
        eos: int | None = None,
        joins: Mapping[str, Mapping[str, Any]] | None = None,
        pad: Mapping[str, float] | None = None,
        fill: Mapping[str, float] | None = None,
        user: Any = None,
    ) -> None:
        if tail not in ("pad", "drop"):
            raise invalid(f'tail is "pad" (fill the last batch with rows that say they are none) or "drop", not {tail!r}.')
        if eos is not None and pack is None:
            raise invalid("eos goes with pack: it ends each document in a packed sequence.")
        self.id = id
        self._uri = uri
        self._rows = rows
        #: None: the log is closed, and only what is in it already may come.
        self._producer = producer
        self._tail = tail
        self._settings = {"pack": pack, "eos": eos}
        self._mode: str | None = None
        #: `_offset`: so many tokens of the document that comes next are in the log.
        self._known, self._offset = self._parse(resume_point)
        self._codec = RowCodec(chunks, joins, pad, fill)
        self._fill = fill or {}
        self._packer: Packer[Mark] | None = None if pack is None else Packer(pack, eos, self._offset)
        self._user = user
        self._batch: list[EncodedRow] = []
        #: After the last sample taken.
        self._mark = self._known
        self._replayed = Mark()
        self._calls = 0
        self._is_ended = False
        #: A sample was refused, and the caller may have gone on.
        self._is_refused = False
        #: The samples are not those in the log: nothing may follow them.
        self._other: BatchWeaveError | None = None
        self._counts = {name: 0 for name in Written._fields}

    def _parse(self, point: Any) -> tuple[Mark, int]:
        if point is None:
            return Mark(), 0
        if not isinstance(point, dict) or point.get("writer") != _VERSION:
            raise invalid(
                f"{self.id} was written by producer() and not by writer(): its resume point is not a writer's. Go on with producer({self.id!r}), or use another id."
            )
        if point["settings"] != self._settings:
            raise invalid(
                f"Writer {self.id} wrote with {_shown(point['settings'])}, and is opened with {_shown(self._settings)}. Open it as before, or use another id."
            )
        self._mode = point["mode"]
        return Mark(point["samples"], point["call"], point["position"], point["check"]), point["offset"]

    # What there is already.

    @property
    def position(self) -> Any:
        """The position given with the last sample that is safely in the log when this writer was opened; None: none."""
        return self._known.position

    @property
    def samples(self) -> int:
        """Samples taken so far, by this writer and those who held its id before."""
        return self._mark.samples

    @property
    def written(self) -> Written:
        """What this writer did, so far."""
        return Written(**self._counts)

    # Taking samples.

    def write(self, row: Row, position: Any = _ABSENT) -> bool:
        """Takes one sample, a row of the grid (with `pack`: a document). Blocks while the buffer is full. False: it was in the log already.

        Without `position`, the first so many samples are those in the log, and are compared with them. With it, begin after `writer.position`.
        """
        try:
            return self._write(row, position)
        except BaseException:
            self._is_refused = True
            raise

    def _write(self, row: Row, position: Any) -> bool:
        self._check_mode("position" if position is not _ABSENT else "replay")
        if position is not _ABSENT:
            self._accept(*self._prepare(row), Mark(self._mark.samples + 1, 0, position))
            return True
        before = self._replayed
        tokens, encoded = self._prepare(row)
        check = crc32(tokens.tobytes(), before.check) if tokens is not None else before.check
        for piece in encoded.slices if encoded else ():
            check = crc32(piece, check)
        self._replayed = Mark(before.samples + 1, 0, None, check)
        if self._replayed.samples <= self._known.samples:
            self._counts["known_samples"] += 1
            if self._replayed.samples == self._known.samples and check != self._known.check:
                self._other = invalid(
                    f"The first {self._known.samples} samples given to writer {self.id} are not those that it wrote into {self._uri}. A writer's id stands for "
                    "one stream of samples: give the same ones, or write these with another id.",
                    writer=self.id,
                    samples=self._known.samples,
                )
                raise self._other
            return False
        self._accept(tokens, encoded, self._replayed)
        return True

    def write_all(self, samples: Iterable[Any], map: Callable[[Any], Any] | None = None, progress: Progress = False) -> int:
        """Writes all that an iterable gives, and goes on after what is in the log: by its state_dict() if it has one, else by passing over as many.

        map: makes of a sample the row that is written; None leaves it out.   Gives the number of samples read.
        """
        return self._read_from(source_of(samples), map, progress)

    def from_jsonl(self, paths: Paths, map: Callable[[dict[str, Any]], Any] | None = None, progress: Progress = False) -> int:
        """Lines of JSON, of files that may be compressed with gzip. Strings become bytes; `map` tokenises."""
        from .jsonl import JsonLines

        return self._read_from(JsonLines(paths), map, progress)

    def from_parquet(
        self, paths: Paths, columns: list[str] | None = None, map: Callable[[dict[str, Any]], Any] | None = None, progress: Progress = False
    ) -> int:
        """Rows of Parquet files; needs pyarrow."""
        from .parquet import ParquetRows

        return self._read_from(ParquetRows(paths, columns), map, progress)

    def from_hf(self, dataset: Any, split: str = "train", map: Callable[[dict[str, Any]], Any] | None = None, progress: Progress = False) -> int:
        """A Hugging Face dataset, map-style or iterable, or its name, which is streamed."""
        from .hugging_face import HuggingFace

        return self._read_from(HuggingFace(dataset, split), map, progress)

    def from_webdataset(self, shards: Paths, map: Callable[[dict[str, Any]], Any] | None = None, progress: Progress = False) -> int:
        """Samples of tar shards: files with one base name. Fields are named by extension; `cls` is a number, `txt` text, others bytes."""
        from .webdataset import TarSamples

        return self._read_from(TarSamples(shards), map, progress)

    def from_mds(self, folder: str, map: Callable[[dict[str, Any]], Any] | None = None, progress: Progress = False) -> int:
        """A folder that mosaicml-streaming's MDSWriter wrote; needs no package (zstandard for shards compressed so)."""
        from .mds import MdsSamples

        return self._read_from(MdsSamples(folder), map, progress)

    def from_litdata(self, folder: str, map: Callable[[Any], Any] | None = None, progress: Progress = False) -> int:
        """A folder that litdata.optimize wrote; needs litdata. A sample that is no dict becomes the field `value`."""
        from .litdata import LitDataSamples

        return self._read_from(LitDataSamples(folder), map, progress)

    def _read_from(self, source: Source, map: Callable[[Any], Any] | None, progress: Progress) -> int:
        try:
            return self._take_all(source, map, progress)
        except BaseException:
            self._is_refused = True
            raise

    def _take_all(self, source: Source, map: Callable[[Any], Any] | None, progress: Progress) -> int:
        self._check_mode("source")
        call, self._calls = self._calls, self._calls + 1
        if call < self._known.call:
            return 0  # all of it is in the log: what is in there last is of a source that came later
        kind = type(source).__name__
        after = None
        if call == self._known.call and self._known.samples:
            self._counts["known_samples"] = self._known.samples
            if self._known.position["kind"] != kind:
                raise invalid(f"Writer {self.id} read {self._known.position['kind']} before, not {kind}. Give it the same source, or use another id.")
            after = self._known.position["at"]
            WRITES.info("%s goes on after %d samples, which are in %s already.", self.id, self._known.samples, self._uri)
        bar = ProgressBar(progress, source.name, source.total())
        first = self._mark.samples
        for sample, at in source.read(after):
            row = sample if map is None else map(sample)
            mark = Mark(self._mark.samples + 1, call, {"kind": kind, "at": at})
            if row is None:
                self._mark = mark  # left out: it is passed over together with the next one that is not
            else:
                self._accept(*self._prepare(row), mark)
            bar.tell(mark.samples)
        bar.end(self._mark.samples)
        return self._mark.samples - first

    def _check_mode(self, mode: str) -> None:
        if self._is_ended:
            raise invalid(f"Writer {self.id} is closed. Open it again to go on.", writer=self.id)
        if self._other is not None:
            raise self._other
        if self._mode not in (None, mode):
            raise invalid(
                f"Writer {self.id} takes its samples in one way: without positions, with them, or from sources. It {'wrote' if self._known.samples else 'began'} "
                "in another one. Use one writer id for each.",
                writer=self.id,
            )
        self._mode = mode

    def _prepare(self, row: Any) -> tuple[Any, EncodedRow | None]:
        return (None, self._codec.encode(row)) if self._packer is None else (tokens_of(row), None)

    def _accept(self, tokens: Any, encoded: EncodedRow | None, mark: Mark) -> None:
        if self._producer is None:
            raise BatchWeaveError(
                "CLOSED",
                f"{self._uri} is closed, and sample {mark.samples} of writer {self.id} is not in it: {self._known.samples} are. Nothing can follow in a closed log; "
                "write to another namespace.",
                {"writer": self.id, "samples": self._known.samples},
            )
        before, self._mark = self._mark, mark
        self._counts["samples"] += 1
        if self._packer is None:
            assert encoded is not None
            self._add(encoded, mark, 0)
            return
        for packed, (place, out) in self._packer.add(tokens, before, mark):
            self._add(self._codec.encode(packed), place, out)

    def _add(self, row: EncodedRow, place: Mark, out: int) -> None:
        """One more row; `place` and `out` are where to go on when it is in the log."""
        if self._batch and row.content_type != self._batch[0].content_type:
            raise invalid("A batch holds rows of tensors or rows of bytes, not both. Write rows of one kind with each writer.")
        self._batch.append(row)
        self._counts["rows"] += 1
        if len(self._batch) == self._rows:
            self._append(place, out)

    def _append(self, place: Mark, out: int) -> None:
        assert self._producer is not None
        point = {"writer": _VERSION, **place._asdict(), "offset": out, "mode": self._mode, "settings": self._settings}
        slices = [piece for row in self._batch for piece in row.slices]
        self._producer.append(slices, point, self._batch[0].content_type, self._user)
        self._counts["batches"] += 1
        self._batch = []

    # The end.

    def flush(self) -> None:
        """Waits until all whole batches are in the log. Rows that do not fill one yet wait for more, or for `close`."""
        if self._producer is not None:
            self._producer.flush()

    def close(self) -> None:
        """Writes what is left, by `tail`, and waits until all is in the log. Refuses a stream that ended before what is in the log."""
        if self._is_ended:
            return
        self._is_ended = True
        if self._producer is not None:
            try:
                self._finish_tail()
            except BaseException:
                self._producer.stop()
                raise
            self._producer.close()
        self._assert_reached()
        self._tell()

    def _finish_tail(self) -> None:
        if self._packer is not None and self._packer.waiting_tokens:
            tokens = self._packer.waiting_tokens
            if self._tail == "drop":
                WRITES.warning("%s left out the last %d tokens, which do not fill a sequence.", self.id, tokens)
            elif row := self._packer.rest(int(self._fill.get("input_ids", 0))):
                self._add(self._codec.encode(row), self._mark, 0)
        if not self._batch:
            return
        missing = self._rows - len(self._batch)
        if self._tail == "drop":
            self._counts["dropped_rows"] = len(self._batch)
            self._counts["rows"] -= len(self._batch)
            WRITES.warning(
                "%s left out the last %d rows, which do not fill a batch of %d. tail=\"pad\" keeps them.", self.id, len(self._batch), self._rows
            )
            return
        self._batch += [self._codec.padding(self._batch[-1])] * missing
        self._counts["padding_rows"] = missing
        self._append(self._mark, 0)

    def _assert_reached(self) -> None:
        """Fewer samples than are in the log cannot be compared with them. A writer that was given none was only looked at."""
        what = ""
        if self._mode == "replay" and 0 < self._replayed.samples < self._known.samples:
            what = f"{self._replayed.samples} samples, and wrote {self._known.samples}"
        elif self._mode == "source" and 0 < self._calls <= self._known.call:
            what = f"{self._calls} of its sources, and wrote from {self._known.call + 1}"
        elif self._offset and (self._replayed.samples or self._calls) and not self._counts["samples"] and not self._is_refused:
            what = f"{self._known.samples} samples, and wrote these and a part of the next"
        if what:
            raise invalid(
                f"Writer {self.id} was given {what} into {self._uri} before: these are fewer, or others. Nothing was written. Give all of them again (more may "
                "follow them), or write these with another id.",
                writer=self.id,
                samples=self._known.samples,
            )

    def _tell(self) -> None:
        known = self._known.samples
        if self._is_refused or not known or self._counts["samples"] or self._mode is None:
            return
        if self._mode == "replay" and not self._replayed.samples:
            WRITES.warning("%s was given no samples, and %d are in %s already. Nothing was written.", self.id, known, self._uri)
        else:
            WRITES.warning("%s: all %d samples are in %s already. Nothing was written.", self.id, known, self._uri)

    def __enter__(self) -> "RowWriter":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        # The user's own exception must not write a tail: the process that opens the id again goes on after the last whole batch.
        if kind is None:
            self.close()
            return
        self._is_ended = True
        if self._producer is not None:
            self._producer.__exit__(kind, *rest)


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
