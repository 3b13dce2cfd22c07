"""The producer: accept -> upload -> intent -> carried by others or committed by itself, exactly once (FORMAT.md 15 and 19)."""
from __future__ import annotations

import math
import os
import random
import threading
import time
from typing import Any, Sequence

from ..errors import BatchWeaveError, invalid
from ..flow.threads import JOIN_S, Pool, join_threads, stop_at_exit
from ..format.batch import EXTENTS_MAX, SLICE_BYTES_MAX, encode_extent
from ..format.keys import ATTEMPT, SEQ, batch_intents, batch_key
from ..format.lineage import encode_lineage
from ..format.manifest import STATE_SEQ, Manifest
from ..lifecycle.checkpoints import LagGate
from ..log.log import Intents, Log, Opening
from ..log.stage import holds, is_spent, seq_in_log
from .batch_input import checked_json, flatten_slices, unchanging

#: How long a carrier has for a published batch before its owner commits it, and how often an untroubled follower looks.
_PATIENCE_S = 1.5
_CONFIRM_S = 10.0
# Batches that come faster than this share intents; when somebody waits for them, those faster than the second.
_ANNOUNCE_S = 0.15
_URGENT_ANNOUNCE_S = 0.05
_INTERVAL_S = 0.2
_URGENT_INTERVAL_S = 0.05
_IDLE_INTERVAL_MAX_S = 1.0


class Ticket:
    """A batch that was accepted. `wait` returns when it is in the log."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.version: int | None = None
        self._error: BaseException | None = None
        self._event = threading.Event()

    def wait(self, timeout: float | None = None) -> int:
        """The version that showed the batch committed. Raises when it is not known to be: open again to find out."""
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
        self.extents: list[tuple[list[Any], list[int]]] = []
        self.attempt = 0
        self.descriptor: list[Any] | None = None


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
        self._urgent = False
        self._carrying = False
        self._announced: dict[tuple[int, int], float] = {}
        self._announced_at = -math.inf
        self._looked_at = -math.inf
        self._carrier_seen_at = -math.inf
        self._idle_cycles = 0
        self._thread = threading.Thread(target=self._run, name=f"batchweave-{self.id}", daemon=True)
        stop_at_exit(self)
        self._thread.start()

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
        slices: Sequence[Any],
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
                # Whoever waits for room must not wait for a cadence that waits for more batches.
                self._urgent = True
                self._changed.notify_all()
                self._changed.wait(1.0)
                self._raise_if_done()
            ticket = Ticket(self._next_seq)
            self._next_seq += 1
            entry = _Entry(ticket, flat, metadata, block)
            self._entries[ticket.seq] = entry
            self._buffered_bytes += entry.bytes
        try:
            # Only now: what waits for room must not take memory. Without the lock: nobody looks at the slices before the upload begins.
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
                self._urgent = True
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
        self._uploads.drop()

    def join(self, until: float) -> None:
        """Waits for them."""
        join_threads([self._thread], until)
        self._uploads.join(until)

    def _stop(self) -> None:
        if self._pid != os.getpid():
            return
        self.stop()
        # Not for uploads: after a flush there are none, and the user's own exception waits for nobody's store.
        join_threads([self._thread], time.monotonic() + JOIN_S)
        stopped = invalid(f"Producer {self.id} was stopped before this batch was seen in the log. Open it again: next_seq tells.", producer=self.id)
        with self._changed:
            for entry in self._entries.values():
                if not entry.ticket._event.is_set():
                    entry.ticket._settle(None, stopped)

    def _hurry(self) -> None:
        with self._changed:
            self._urgent = True
            self._changed.notify_all()

    # Uploading.

    def _upload(self, entry: _Entry) -> None:
        """Uploads, or uploads again under a new name: the same bytes, the newest base."""
        try:
            if not entry.extents:
                entry.extents = self._encode(entry)
            known = self._log.head.known
            descriptor = [
                self.id, self.epoch, self._holder.incarnation, entry.ticket.seq, known.version if known else 0,
                entry.attempt, [extent for _, extent in entry.extents],
            ]
            entry.attempt += 1
            for number, (body, _) in enumerate(entry.extents):
                self._log.store.put(batch_key(descriptor, number), body)
            with self._changed:
                entry.descriptor = descriptor
                self._changed.notify_all()
        except BaseException as error:
            self._fail(error)

    def _encode(self, entry: _Entry) -> list[tuple[list[Any], list[int]]]:
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
        name = [self.id, self.epoch, self._holder.incarnation, entry.ticket.seq]
        extents = []
        first = 0
        for number, run in enumerate(runs):
            # The resume point and the lineage are the whole batch's: they go with its last extent.
            is_last = number == len(runs) - 1
            metadata, lineage = (entry.metadata, entry.lineage) if is_last else ({}, None)
            extents.append(encode_extent(self._log.spec.uuid, name, number, first, run, metadata, lineage))
            first += len(run)
        return extents

    # Publishing: one thread brings uploaded batches into the log.

    def _run(self) -> None:
        try:
            while not self._is_closed:
                if self._carrying:
                    self._carry()
                else:
                    self._follow()
        except BaseException as error:
            self._fail(error)

    def _pending(self) -> list[list[Any]]:
        """Uploaded batches not yet seen committed, contiguous from the first such seq. Call with the lock held."""
        ready = []
        for entry in self._entries.values():
            if entry.descriptor is None:
                break
            ready.append(entry.descriptor)
        return ready

    def _rest(self, seconds: float, wake: Any) -> None:
        """Sleeps, unless `wake()` becomes true or the producer is closed."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._is_closed and not wake() and (left := until - time.monotonic()) > 0:
                self._changed.wait(None if left == math.inf else left)

    def _follow(self) -> None:
        """A follower publishes its batches as intents and looks at leisure; nobody carried it in time: it commits itself."""
        with self._changed:
            pending = self._pending()
        if not pending:
            self._announced.clear()
            self._rest(math.inf, self._pending)
            return
        if self._log.head.newest().active_producers == 1:
            self._carrying = True
            return
        if self._announce([d for d in pending if (d[SEQ], d[ATTEMPT]) not in self._announced]):
            return
        oldest = self._announced[(pending[0][SEQ], pending[0][ATTEMPT])]
        now = time.monotonic()
        patience = _PATIENCE_S / 2 if self._urgent else _PATIENCE_S
        trusted = now - self._carrier_seen_at < 2 * _CONFIRM_S
        delay = patience if self._urgent or not trusted else _CONFIRM_S * (0.5 + random.random())
        due = max(oldest + delay, self._looked_at + min(delay, _PATIENCE_S / 2))
        if due > now:
            count, was_urgent = len(pending), self._urgent
            self._rest(due - now, lambda: len(self._pending()) > count or self._urgent != was_urgent)
            return
        known = self._log.head.known
        manifest = self._log.head.jump()
        self._settle(manifest)
        self._looked_at = time.monotonic()
        with self._changed:
            left = self._pending()
        announced = self._announced.get((left[0][SEQ], left[0][ATTEMPT])) if left else None
        if announced is not None and now - announced >= patience:
            self._carrying = True
        elif known is None or manifest.version > known.version:
            self._carrier_seen_at = self._looked_at
        names = {(d[SEQ], d[ATTEMPT]) for d in left}
        self._announced = {name: at for name, at in self._announced.items() if name in names}

    def _announce(self, fresh: list[list[Any]]) -> bool:
        """Publishes intents of batches that have none yet, or waits until it is time to: those that come fast share one."""
        if not fresh:
            return False
        wait = self._announced_at + (_URGENT_ANNOUNCE_S if self._urgent else _ANNOUNCE_S) - time.monotonic()
        if wait > 0:
            was_urgent = self._urgent
            self._rest(wait, lambda: self._urgent and not was_urgent)
            return True
        self._announced_at = time.monotonic()
        keys, all_named = batch_intents(self._log.spec.uuid, fresh)
        for key in keys:
            self._log.store.put(key, b"")
        now = time.monotonic()
        self._announced.update({(d[SEQ], d[ATTEMPT]): now for d in fresh})
        # Too many extents for a name: its owner commits it.
        self._carrying = not all_named
        return True

    def _carry(self) -> None:
        """Whoever commits goes on committing, for everybody: list the intents, stage all of them, PUT, keep a pace."""
        begun = time.monotonic()
        alone = self._log.head.newest().active_producers == 1
        intents = Intents({}, [], []) if alone else self._log.list_intents()
        with self._changed:
            own = self._pending()
        attempt = self._log.attempt_batches(self._holder, own, intents, fresh=not alone)
        self._settle(attempt.manifest)
        verdicts = attempt.result[0] if attempt.result else []
        self._upload_again([d for d, verdict in zip(own, verdicts) if verdict == "expired"])
        if attempt.outcome == "committed":
            self._idle_cycles = 0
            spent = [key for key, intent in intents.keys.items() if is_spent(intent, attempt.manifest.producers)]
            if spent:
                self._log.store.delete(spent)
        elif attempt.outcome == "nothing":
            self._idle_cycles += 1
        else:
            by = attempt.manifest.commit["by"]
            # Commits of batches are signed with the producer's id alone; openings and checkpoints have a blank in theirs.
            if attempt.outcome == "lost" and by != self.id and " " not in by:
                self._carrying = False
                self._carrier_seen_at = time.monotonic()
            return
        interval = min(_IDLE_INTERVAL_MAX_S, _INTERVAL_S * 2 ** min(self._idle_cycles, 10))
        with self._changed:
            if not self._entries:
                self._urgent = False
            is_idle = alone and not self._entries
        # Alone and idle there is nothing to list: sleep until the next batch comes.
        wait = math.inf if is_idle else begun + interval - time.monotonic()
        if "ahead" in verdicts:
            wait = 0.05
        last = own[-1][SEQ] if own else -1

        def is_new() -> bool:
            pending = self._pending()
            if not pending or pending[-1][SEQ] <= last:
                return False
            # Somebody waits for room, or for all of it: a commit for every upload would only slow the uploads down.
            is_due = len(pending) == len(self._entries) or time.monotonic() - begun > _URGENT_INTERVAL_S
            return is_idle or (self._urgent and is_due)

        self._rest(wait, is_new)

    def _upload_again(self, expired: list[list[Any]]) -> None:
        for descriptor in expired:
            with self._changed:
                entry = self._entries.get(descriptor[SEQ])
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
        next_seq = seq_in_log(self._log.spec, manifest, self.id, state[STATE_SEQ])
        with self._changed:
            if not any(seq < next_seq for seq in self._entries):
                return
        self._log.head.keep(manifest)
        with self._changed:
            for seq in [seq for seq in self._entries if seq < next_seq]:
                entry = self._entries.pop(seq)
                self._buffered_bytes -= entry.bytes
                entry.ticket._settle(manifest.version)
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
