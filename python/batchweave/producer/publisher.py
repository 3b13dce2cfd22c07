"""What brings uploaded batches into the log: one thread that follows a carrier, or carries the batches of all itself."""
from __future__ import annotations

import math
import random
import threading
import time
from typing import Any, Callable, Protocol

from ..format.descriptor import Descriptor
from ..format.keys import LeavingIntent, batch_intents, leaving_intent_key
from ..format.manifest import Manifest
from ..log.log import NO_INTENTS, Log
from ..log.stage import Holder, is_spent
from .pace import CarrierRhythm, CycleTime, Pace, pace_of, spread

# Each look in vain makes the next one later, up to half the patience.
_LOOK_GROWTH = 1.5
#: How many times longer a follower waits while it sees a carrier at work.
_BUSY_PATIENCE = 6
#: A follower that is likely to be that many versions behind, at most, reads them one by one; others list.
_WALKED_VERSIONS_MAX = 3


class Outbox(Protocol):
    """What a producer shows its publisher. `changed` guards it, and is notified when any of it changes."""

    changed: threading.Condition

    @property
    def is_ended(self) -> bool:
        """The producer was stopped, or failed."""

    def pending(self) -> list[Descriptor]:
        """Uploaded batches not yet seen committed, contiguous from the first such seq."""

    def is_waiting(self) -> bool:
        """Batches were accepted that are not yet seen committed, uploaded or not."""

    def is_all_uploaded(self) -> bool:
        """All that was accepted is pending."""

    def is_awaited(self) -> bool:
        """A caller waits for the ticket of a pending batch."""

    def settle(self, manifest: Manifest) -> None:
        """A verified manifest: batches that its producer state has are acknowledged."""

    def expire(self, batches: list[Descriptor]) -> None:
        """Uploads that fell behind the orphan cutoff must be made again under a new name."""


def _name(batch: Descriptor) -> tuple[int, int]:
    return batch.seq, batch.attempt


class Publisher:
    """The producer that commits goes on committing, for all (the carrier); all others announce their batches and look (followers)."""

    def __init__(self, log: Log, holder: Holder, outbox: Outbox) -> None:
        self._log = log
        self._holder = holder
        self._outbox = outbox
        #: A caller waits for a commit now. Set with the outbox's lock held.
        self.is_urgent = False
        self.is_carrying = False
        self._announced: dict[tuple[int, int], float] = {}
        self._announced_at = -math.inf
        self._rhythm = CarrierRhythm()
        self._looked_at = -math.inf
        self._looks_in_vain = 0
        self._carrier_seen_at = -math.inf
        self._take_over_at: float | None = None
        self._cycles = CycleTime()
        self._idle_cycles = 0
        #: The newest version known is this carrier's own: the next commit need not look for a newer one first.
        self._is_head_own = False

    def run(self) -> None:
        """Until the outbox has ended. Raises what the producer must die of."""
        while not self._outbox.is_ended:
            if self.is_carrying:
                self._carry()
            else:
                self._follow()

    def leave(self) -> None:
        """The producer is closed, and `run` has ended: says so, so that no producer waits for it. Never fails, nor takes long."""
        said = threading.Thread(target=self._say_farewell, name=f"batchweave-leave-{self._holder.producer}", daemon=True)
        said.start()
        said.join(timeout=self._pace().farewell)

    def _say_farewell(self) -> None:
        log, known = self._log, self._log.head.known
        if known is None or known.closed:
            return
        try:
            if self.is_carrying or known.active_producers == 1:
                intents = NO_INTENTS if known.active_producers == 1 else log.list_intents()
                if log.attempt_batches(self._holder, [], intents, fresh=False, kind="leave").outcome in ("committed", "nothing"):
                    return
            log.store.put(leaving_intent_key(log.spec.uuid, LeavingIntent(*self._holder)), b"")
        except Exception:  # noqa: BLE001: a courtesy; no caller must fail because of it
            pass

    def _pace(self) -> Pace:
        return pace_of(self._log.round_trip.seconds)

    def _rest(self, seconds: float, wake: Callable[[], Any]) -> None:
        """Sleeps, unless `wake()` becomes true or the producer ends."""
        outbox = self._outbox
        until = time.monotonic() + seconds
        with outbox.changed:
            while not outbox.is_ended and not wake() and (left := until - time.monotonic()) > 0:
                outbox.changed.wait(None if left == math.inf else left)

    # A follower: announces its batches, and looks whether a carrier committed them.

    def _follow(self) -> None:
        outbox = self._outbox
        with outbox.changed:
            pending = outbox.pending()
            if not outbox.is_waiting():
                self.is_urgent = False
        if not pending:
            self._announced.clear()
            self._rest(math.inf, outbox.pending)
            return
        newest = self._log.head.newest()
        if newest.active_producers == 1:
            self.is_carrying = True
            return
        pace = self._pace()
        if self._looked_at == -math.inf:
            # The carrier that opened this producer, if one did, is there.
            self._looked_at = time.monotonic()
            if self._is_recent(newest, pace):
                self._carrier_seen_at = self._looked_at
        fresh = [batch for batch in pending if _name(batch) not in self._announced]
        is_awaited = self.is_urgent or outbox.is_awaited()
        now = time.monotonic()
        announce_at = self._announced_at + (pace.urgent_announce if is_awaited else pace.announce) if fresh else math.inf
        look_at = self._look_at(pending[0], pace, is_awaited, now)
        # What was due first: a follower that looked only when all are announced would stand still while batches pour in.
        if announce_at <= now and announce_at <= look_at:
            self._announce(fresh)
        elif look_at <= now:
            self._look(pace)
        else:
            count = len(pending)

            def is_changed() -> bool:
                return (self.is_urgent or outbox.is_awaited()) != is_awaited or (not fresh and len(outbox.pending()) > count)

            self._rest(min(announce_at, look_at) - now, is_changed)

    def _announce(self, fresh: list[Descriptor]) -> None:
        log = self._log
        self._announced_at = time.monotonic()
        keys, all_named = batch_intents(log.spec.uuid, fresh)
        for key in keys:
            log.store.put(key, b"")
        now = time.monotonic()
        log.round_trip.learn((now - self._announced_at) / max(1, len(keys)))
        self._announced.update({_name(batch): now for batch in fresh})
        # Too many extents for a name: its owner commits it.
        self.is_carrying = not all_named

    def _look_at(self, oldest: Descriptor, pace: Pace, is_awaited: bool, now: float) -> float:
        take_over_at = math.inf if self._take_over_at is None else self._take_over_at
        if take_over_at < math.inf and not is_awaited:
            return take_over_at
        announced_at = self._announced.get(_name(oldest), now)
        if not is_awaited:
            # At leisure, when it is time to let go of the bytes; sooner, if no carrier was seen for long.
            delay = pace.confirm if now - self._carrier_seen_at < 2 * pace.confirm else pace.patience
            return max(announced_at + delay, self._looked_at + min(delay, pace.patience / 2))
        # Soon after the carrier's commit is expected, and again soon if that was in vain.
        growth = _LOOK_GROWTH ** min(self._looks_in_vain, 10)
        # What was seen so long ago says nothing about who carries now: the carrier may have closed.
        if announced_at - self._looked_at > pace.patience:
            return min(take_over_at, announced_at)
        again_at = self._looked_at + min(pace.patience / 2, pace.look * growth)
        offset = time.time() - time.monotonic()
        expected_at = self._rhythm.expected_at(announced_at + offset, self._log.round_trip.seconds, pace) - offset
        return min(take_over_at, max(expected_at, again_at))

    def _look(self, pace: Pace) -> None:
        outbox = self._outbox
        begun = time.monotonic()
        known = self._log.head.known
        with outbox.changed:
            waited_for = outbox.pending()[0]
            is_awaited = self.is_urgent or outbox.is_awaited()
        manifest = self._read_head(waited_for, pace)
        outbox.settle(manifest)
        self._looked_at = time.monotonic()
        with outbox.changed:
            left = outbox.pending()
        is_vain = bool(left) and left[0] is waited_for
        self._looks_in_vain = self._looks_in_vain + 1 if is_vain else 0
        if manifest.is_carriers:
            if known is None or manifest.version > known.version:
                self._carrier_seen_at = self._looked_at
            self._rhythm.see(manifest.version, manifest.commit["time"] / 1e3)
        # Below the cutoff no carrier stages anything any more: all of these must be uploaded again.
        expired = [batch for batch in left if batch.base < manifest.orphan_cutoff]
        if expired:
            outbox.expire(expired)
        self._step_up(bool(left) and self._must_commit(left[0], manifest, begun, pace, is_awaited), manifest.active_producers, pace)
        names = {_name(batch) for batch in left}
        self._announced = {name: at for name, at in self._announced.items() if name in names}

    def _read_head(self, waited_for: Descriptor, pace: Pace) -> Manifest:
        """Far behind, a listing finds the head; one or two versions behind, the next name does."""
        head = self._log.head
        if time.monotonic() - self._looked_at > _WALKED_VERSIONS_MAX * self._rhythm.interval(pace):
            return head.jump()

        def is_in(manifest: Manifest) -> bool:
            state = manifest.producers.get(waited_for.producer)
            return state is not None and state.seq > waited_for.seq

        return head.walk(is_in, _WALKED_VERSIONS_MAX)

    def _is_recent(self, manifest: Manifest, pace: Pace) -> bool:
        """A carrier committed lately, by its clock: a wrong one makes this follower compete too early or too late, no more."""
        return manifest.is_carriers and abs(time.time() - manifest.commit["time"] / 1e3) < 2 * pace.patience

    def _must_commit(self, oldest: Descriptor, seen: Manifest, now: float, pace: Pace, is_awaited: bool) -> bool:
        """Not carried although there was time for it: there is no carrier, or this batch cannot be carried, and its owner commits."""
        announced_at = self._announced.get(_name(oldest))
        if announced_at is None:
            return False
        # The carrier said that it is gone, and no carrier came after it.
        if seen.commit.get("kind") == "leave":
            return True
        is_carried = self._looked_at - self._carrier_seen_at < pace.patience and self._is_recent(seen, pace)
        factor = _BUSY_PATIENCE if is_carried else 0.5 if is_awaited else 1
        return now - announced_at >= factor * pace.patience

    def _step_up(self, is_due: bool, crowd: int, pace: Pace) -> None:
        """When a carrier is gone, many notice at once, and one of them is enough: each draws when it is its turn."""
        now = time.monotonic()
        if not is_due:
            self._take_over_at = None
        elif self._take_over_at is None:
            delay = spread(random.random(), pace.window * math.log2(crowd), crowd)
            self._take_over_at = now + delay
            self.is_carrying = delay < pace.window
        else:
            self.is_carrying = now >= self._take_over_at
        if self.is_carrying:
            self._take_over_at = None
            self._is_head_own = False
            self._idle_cycles = 0

    # The carrier: list the intents, stage all of them, PUT, keep a pace.

    def _carry(self) -> None:
        log, outbox = self._log, self._outbox
        begun = time.monotonic()
        pace = self._pace()
        alone = log.head.newest().active_producers == 1
        intents = NO_INTENTS if alone else log.list_intents()
        with outbox.changed:
            own = outbox.pending()
        attempt = log.attempt_batches(self._holder, own, intents, fresh=not (alone or self._is_head_own))
        self._is_head_own = attempt.outcome == "committed"
        outbox.settle(attempt.manifest)
        verdicts = attempt.result[0] if attempt.result else []
        expired = [batch for batch, verdict in zip(own, verdicts) if verdict == "expired"]
        if expired:
            outbox.expire(expired)
        if attempt.outcome == "committed":
            self._cycles.learn(time.monotonic() - begun)
            self._idle_cycles = 0
            spent = [key for key, intent in intents.keys.items() if is_spent(intent, attempt.manifest.producers)]
            if spent:
                log.store.delete(spent)
        elif attempt.outcome == "nothing":
            self._idle_cycles += 1
        else:
            if attempt.outcome == "lost" and attempt.manifest.is_carriers:
                self.is_carrying = False
                self._carrier_seen_at = time.monotonic()
            return
        with outbox.changed:
            if not outbox.is_waiting():
                self.is_urgent = False
            is_idle = alone and not outbox.is_waiting()
        # Alone and idle there is nothing to list: sleep until the next batch comes.
        wait = math.inf if is_idle else begun + self._cycles.interval(pace, alone, self._idle_cycles) - time.monotonic()
        if "ahead" in verdicts:
            wait = 0.05
        last = own[-1].seq if own else -1

        def is_new() -> bool:
            pending = outbox.pending()
            if not pending or pending[-1].seq <= last:
                return False
            # A caller waits for room, or for all of it: a commit for every upload would only slow the uploads down.
            is_due = outbox.is_all_uploaded() or time.monotonic() - begun > pace.interval_min
            return is_idle or (self.is_urgent and is_due)

        self._rest(wait, is_new)
