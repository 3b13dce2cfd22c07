"""The producer: accept -> upload -> intent -> carried by others or committed by itself, exactly once (FORMAT.md 15 and 19)."""
from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ..errors import BatchWeaveError, invalid
from ..flow.threads import JOIN_S, Pool, join_threads, stop_at_exit
from ..format.batch import SLICE_BYTES_MAX, encode_extent
from ..format.descriptor import EXTENTS_MAX, BatchName, Descriptor, Extent
from ..format.keys import batch_key
from ..format.lineage import encode_lineage
from ..format.manifest import Manifest
from ..format.seal import stride_for
from ..lifecycle.checkpoints import LagGate
from ..log.log import Log, Opening
from ..log.stage import holds, lane_number, seq_in_log
from ..observe.producer_metrics import producer_metrics
from ..pulse.pulse import Pulse
from .batch_input import checked_json, flatten_slices, unchanging
from .publisher import Publisher

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Ticket:
    """A batch that was accepted. `wait` returns when it is in the log."""

    def __init__(self, seq: int, on_wait: Callable[[], None]) -> None:
        self.seq = seq
        self._on_wait = on_wait
        self._is_awaited = False
        self.version: int | None = None
        self._error: BaseException | None = None
        self._event = threading.Event()

    def wait(self, timeout: float | None = None) -> int:
        """The version that showed the batch committed. Raises when it is not known to be: open again to find out.

        Waiting makes the producer look for the batch soon after its commit is expected; one without a waiting caller looks at leisure.
        """
        if not self._is_awaited:
            self._is_awaited = True
            self._on_wait()
        if not self._event.wait(timeout):
            raise BatchWeaveError("WAIT_TIMEOUT", f"Batch {self.seq} was not committed within {timeout} s.", {"seq": self.seq})
        if self._error is not None:
            raise self._error
        assert self.version is not None
        return self.version

    def _settle(self, version: int | None, error: BaseException | None = None) -> None:
        self.version, self._error = version, error
        self._event.set()


class _Entry:
    """A batch from acceptance to acknowledgement. Its bytes are kept until it was seen committed."""

    def __init__(self, ticket: Ticket, slices: list[Any], metadata: dict[str, Any], lineage: bytes | None) -> None:
        self.ticket = ticket
        self.slices = slices
        self.metadata = metadata
        self.lineage = lineage
        self.bytes = sum(len(s) for s in slices)
        self.extents: list[tuple[list[Any], Extent]] = []
        self.stride: int | None = None
        self.attempt = 0
        self.descriptor: Descriptor | None = None


class Producer:
    """Writes batches for one producer id; a newer holder of the id fences this one. Use it as a context manager."""

    def __init__(
        self,
        log: Log,
        opening: Opening,
        buffered_bytes_max: int = 256 * 1024 * 1024,
        buffered_batches_max: int = 1_024,
        uploads_in_flight_max: int = 8,
        extent_bytes_max: int = 512 * 1024 * 1024,
        lag_poll_delay: float = 1.0,
        pulse: bool = False,
    ) -> None:
        self._log = log
        self._holder = opening.holder
        self.id = opening.holder.producer
        self.epoch = opening.holder.epoch
        #: Position after the last committed batch, as the previous holder left it; None for a new producer.
        self.resume_point = opening.resume_point
        self._next_seq = opening.seq
        self._buffered_bytes_max = buffered_bytes_max
        self._buffered_batches_max = buffered_batches_max
        self._extent_bytes_max = min(extent_bytes_max, SLICE_BYTES_MAX)
        self._entries: dict[int, _Entry] = {}
        self._buffered_bytes = 0
        self._changed = threading.Condition()
        self._pid = os.getpid()
        self._uploads = Pool(uploads_in_flight_max, "upload")
        self._gate = LagGate(log, lag_poll_delay)
        self._failure: BaseException | None = None
        #: Accepts nothing more: it was stopped, or failed, which `close` still tells.
        self._is_closed = False
        self._is_stopped = False
        self._metrics = producer_metrics(log.place.uri, self.id, None if log.spec.lanes is None else lane_number(self.id, log.spec.lanes))
        self._publisher = Publisher(log, self._holder, _Outbox(self))
        self._thread = threading.Thread(target=self._run, name=f"batchweave-{self.id}", daemon=True)
        self._pulse = Pulse(log.store, log.spec.uuid, "producer", self.id, self._facts) if pulse else None
        stop_at_exit(self)
        self._thread.start()

    def _facts(self) -> dict[str, Any]:
        return {"batches": self._next_seq, "inFlight": len(self._entries), "bytes": self._buffered_bytes, "client": "python"}

    @property
    def next_seq(self) -> int:
        """The seq the next batch gets; everything below was accepted, or committed before this producer was opened."""
        return self._next_seq

    @property
    def pending_batches(self) -> int:
        """Batches accepted and not yet known to be in the log."""
        return len(self._entries)

    def append(
        self,
        slices: "Sequence[Buffer | Sequence[Buffer]]",
        resume_point: Any = None,
        content_type: str = "application/octet-stream",
        user: Any = None,
        lineage: Sequence[dict[str, Any]] | None = None,
    ) -> Ticket:
        """Accepts one batch: its slices in row-major order, or a list per row. Blocks while the buffer is full.

        What is stored is what the slices held now: anything that can be changed later is copied, so a buffer may be filled again at once.
        """
        self._raise_if_done()
        flat = flatten_slices(slices, self._log.spec.rows, self._log.spec.chunks)
        metadata: dict[str, Any] = {"contentType": content_type}
        if resume_point is not None:
            metadata["resumePoint"] = checked_json(resume_point, "The resume point")
        if user is not None:
            metadata["user"] = checked_json(user, "What the user attaches")
        metadata["created"] = int(time.time() * 1_000)
        block = encode_lineage(lineage) if lineage is not None else None
        self._gate.wait(lambda: len(self._entries), self._hurry)
        size = sum(len(s) for s in flat)
        with self._changed:
            while self._entries and (
                self._buffered_bytes + size > self._buffered_bytes_max or len(self._entries) >= self._buffered_batches_max
            ):
                # A caller that waits for room must not wait for a cadence that waits for more batches.
                self._publisher.is_urgent = True
                self._changed.notify_all()
                self._changed.wait(1.0)
                self._raise_if_done()
            ticket = Ticket(self._next_seq, self._notify)
            self._next_seq += 1
            entry = _Entry(ticket, flat, metadata, block)
            self._entries[ticket.seq] = entry
            self._buffered_bytes += entry.bytes
            if self._metrics is not None:
                self._metrics.accepted(ticket.seq, entry.bytes)
        try:
            # Only now: what waits for room must not take memory. Without the lock: no thread looks at the slices before the upload begins.
            entry.slices = [unchanging(piece) for piece in flat]
        except BaseException as error:
            self._fail(error)  # its seq is taken, and nothing can be put in its place
            raise
        self._uploads.submit(lambda: self._upload(entry))
        return ticket

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything accepted so far is in the log."""
        self._raise_if_forked()
        last = self._next_seq
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._entries and min(self._entries) < last:
                self._raise_if_failed()
                if until is not None and time.monotonic() >= until:
                    raise BatchWeaveError("WAIT_TIMEOUT", f"Producer {self.id} was not flushed within {timeout} s.", {})
                self._publisher.is_urgent = True
                self._changed.notify_all()
                self._changed.wait(1.0)
            self._raise_if_failed()

    def close(self) -> None:
        """Flushes and stops. The producer id stays what it was; open it again to go on."""
        if self._is_stopped or self._pid != os.getpid():
            return  # what a process inherited by a fork is its parent's to close
        try:
            self.flush()
        finally:
            self._stop()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # The user's own exception must not wait for a flush, nor be hidden by a failure.
        if kind is None:
            self.close()
        else:
            self._stop()

    def stop(self) -> None:
        """Asks the threads to end; `close` is what one wants, and this is for a process that ends."""
        with self._changed:
            self._is_closed = self._is_stopped = True
            self._changed.notify_all()
        if self._metrics is not None:
            self._metrics.ended()
        if self._pulse is not None:
            self._pulse.stop()
        self._uploads.drop()

    def join(self, until: float) -> None:
        """Waits for them."""
        join_threads([self._thread], until)
        self._uploads.join(until)
        if self._pulse is not None:
            self._pulse.join(until)

    def _stop(self) -> None:
        if self._pid != os.getpid():
            return
        self.stop()
        # Not for uploads: after a flush there are none, and the user's own exception waits for no store.
        join_threads([self._thread], time.monotonic() + JOIN_S)
        if self._pulse is not None:
            self._pulse.join(time.monotonic() + JOIN_S)
        if self._failure is None and not self._thread.is_alive():
            self._publisher.leave()
        stopped = invalid(f"Producer {self.id} was stopped before this batch was seen in the log. Open it again: next_seq tells.", producer=self.id)
        with self._changed:
            for entry in self._entries.values():
                if not entry.ticket._event.is_set():
                    entry.ticket._settle(None, stopped)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _hurry(self) -> None:
        with self._changed:
            self._publisher.is_urgent = True
            self._changed.notify_all()

    # Uploading.

    def _upload(self, entry: _Entry) -> None:
        """Uploads, or uploads again under a new name: the same bytes, the newest base."""
        try:
            if not entry.extents:
                entry.extents = self._encode(entry)
            known = self._log.head.known
            descriptor = Descriptor(
                *self._holder, entry.ticket.seq, known.version if known else 0, entry.attempt,
                tuple(extent for _, extent in entry.extents), stride=entry.stride,
            )
            entry.attempt += 1
            begun = time.monotonic()
            for number, (body, _) in enumerate(entry.extents):
                self._log.store.put(batch_key(descriptor, number), body)
            if self._metrics is not None:
                self._metrics.uploaded(entry.ticket.seq, entry.bytes, time.monotonic() - begun)
            with self._changed:
                entry.descriptor = descriptor
                self._changed.notify_all()
        except BaseException as error:
            self._fail(error)

    def _encode(self, entry: _Entry) -> list[tuple[list[Any], Extent]]:
        runs: list[list[Any]] = [[]]
        size = 0
        for piece in entry.slices:
            if runs[-1] and size + len(piece) > self._extent_bytes_max:
                runs.append([])
                size = 0
            runs[-1].append(piece)
            size += len(piece)
        if len(runs) > EXTENTS_MAX:
            raise BatchWeaveError("LIMIT", f"A batch can have {EXTENTS_MAX} extents. Raise extent_bytes_max.", {})
        name = BatchName(*self._holder, entry.ticket.seq)
        # Readers of format 1 do not know sealed slices.
        entry.stride = stride_for(entry.slices, SLICE_BYTES_MAX) if self._log.spec.format > 1 else None
        is_sealed = entry.stride is not None
        extents = []
        first = 0
        for number, run in enumerate(runs):
            # The resume point and the lineage are the whole batch's: they go with its last extent.
            is_last = number == len(runs) - 1
            metadata, lineage = (entry.metadata, entry.lineage) if is_last else ({}, None)
            extents.append(encode_extent(self._log.spec.uuid, name, number, first, run, metadata, lineage, is_sealed))
            first += len(run)
        return extents

    def _run(self) -> None:
        try:
            self._publisher.run()
        except BaseException as error:
            self._fail(error)

    def _upload_again(self, expired: list[Descriptor]) -> None:
        for descriptor in expired:
            with self._changed:
                entry = self._entries.get(descriptor.seq)
                if entry is None or entry.descriptor is not descriptor:
                    continue
                entry.descriptor = None
            self._uploads.submit(lambda e=entry: self._upload(e))  # type: ignore[misc]

    def _settle(self, manifest: Manifest) -> None:
        """Only a verified manifest in which this incarnation still holds the id acknowledges anything."""
        state = manifest.producers.get(self.id)
        if state is None or not holds(state, self.epoch, self._holder.incarnation):
            return
        # What a closing dropped is not acknowledged: staging refuses it as CLOSED.
        next_seq = seq_in_log(self._log.spec, manifest, self.id, state.seq)
        with self._changed:
            if not any(seq < next_seq for seq in self._entries):
                return
        self._log.head.keep(manifest)
        with self._changed:
            for seq in [seq for seq in self._entries if seq < next_seq]:
                entry = self._entries.pop(seq)
                self._buffered_bytes -= entry.bytes
                entry.ticket._settle(manifest.version)
                if self._metrics is not None:
                    self._metrics.committed(seq, manifest.version)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failure is None and not self._is_closed:
                self._failure = error
                for entry in self._entries.values():
                    entry.ticket._settle(None, error)
            self._is_closed = True
            self._changed.notify_all()

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _raise_if_forked(self) -> None:
        """The threads that publish stayed in the parent; and an upload from here could have the name of one from there."""
        if self._pid != os.getpid():
            raise invalid(
                f"Producer {self.id} was opened by the process that this one was forked from. Open one in each process, each with an id "
                "of its own.",
                producer=self.id,
            )

    def _raise_if_done(self) -> None:
        self._raise_if_forked()
        self._raise_if_failed()
        if self._is_closed:
            raise invalid(f"Producer {self.id} is closed. Open it again to append.", producer=self.id)


class _Outbox:
    """A producer as its publisher sees it."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.changed = producer._changed

    @property
    def is_ended(self) -> bool:
        return self._producer._is_closed

    def pending(self) -> list[Descriptor]:
        ready = []
        for entry in self._producer._entries.values():
            if entry.descriptor is None:
                break
            ready.append(entry.descriptor)
        return ready

    def is_waiting(self) -> bool:
        return bool(self._producer._entries)

    def is_all_uploaded(self) -> bool:
        return all(entry.descriptor is not None for entry in self._producer._entries.values())

    def is_awaited(self) -> bool:
        for entry in self._producer._entries.values():
            if entry.descriptor is None:
                return False
            if entry.ticket._is_awaited:
                return True
        return False

    def settle(self, manifest: Manifest) -> None:
        self._producer._settle(manifest)

    def expire(self, batches: list[Descriptor]) -> None:
        self._producer._upload_again(batches)
