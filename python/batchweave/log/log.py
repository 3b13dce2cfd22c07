"""The log of one namespace: reading verified state and committing changes to it (FORMAT.md 8, 10, 15)."""
from __future__ import annotations

import random
import time
from typing import Any, Callable, NamedTuple, Sequence

from ..env.ids import random_id
from ..errors import BatchWeaveError, corrupt, deleted, is_error
from ..format.batch import TRAILER_BYTES, decode_metadata, decode_trailer, footer_check
from ..format.descriptor import Descriptor
from ..format.index_node import Reference
from ..format.keys import (
    INTENT_PREFIX,
    MANIFEST_PREFIX,
    NAMESPACE_KEY,
    LeavingIntent,
    OpeningIntent,
    batch_key,
    life_folder,
    manifest_key,
    opening_intent_key,
    parse_intent_key,
)
from ..format.manifest import Manifest
from ..format.namespace_spec import NamespaceSpec, decode_namespace
from ..format.producer_state import LastBatch, ProducerState, SilentProducer, decode_table
from ..store.object_store import Store
from ..store.prefix import life_store
from .draft import Draft, Stamp, encode_manifest
from .head import Head
from .stage import Holder, SilentFinding, closed, fenced, holds, stage_batches, stage_closing, stage_intents, stage_leaving, stage_opening, stage_return
from .step_index import BatchPlace, StepIndex

_ATTEMPTS_MAX = 1_000
_INTENTS_MAX = 16_000
#: Tries of a PUT that could not even be sent.
_REFUSALS_MAX = 6
_OPEN_ROUNDS_MAX = 500
#: How long a process believes that its namespace is still there.
_BELIEVED_S = 30.0


class Intents(NamedTuple):
    """What lies in the intent prefix."""

    keys: dict[str, Any]
    batches: list[Descriptor]
    openings: list[OpeningIntent]
    leavings: list[LeavingIntent]


NO_INTENTS = Intents({}, [], [], [])


class Attempt(NamedTuple):
    """How one attempt at a commit ended: committed, nothing, lost or unsettled. `manifest` is verified."""

    outcome: str
    manifest: Manifest
    result: Any = None


class Opening(NamedTuple):
    """An opened producer: what it holds and where it goes on."""

    holder: Holder
    seq: int
    resume_point: Any


#: Changes a draft; gives (nothing is left to commit, result). May raise a refusal. Called again from every new base.
Stage = Callable[[Draft, Any], "tuple[bool, Any]"]


class Log:
    """One process's view of one namespace."""

    def __init__(self, store: Store, spec: NamespaceSpec, open_origin: Callable[[str], Store]) -> None:
        #: The store that namespace.json is in, and that of everything else: in this life's own folder.
        self.place = store
        self.store = life_store(store, life_folder(spec.format, spec.uuid))
        self.spec = spec
        self.head = Head(self.store, spec)
        #: How long this store takes for a small write.
        self.round_trip = self.head.round_trip
        self.index = StepIndex(self.store, spec, open_origin)
        self._seen_at = time.monotonic()

    def locate(self, manifest: Manifest, step: int) -> BatchPlace:
        """The batch at a step of a verified manifest."""
        return self.index.locate(manifest, step)

    # Committing.

    def commit(self, by: str, kind: str, stage: Stage, prepare: Callable[[Manifest], Any] | None = None) -> tuple[Manifest, Any]:
        """Tries until the change is in, or is refused. Gives the verified manifest that has it, and the stage's result."""
        for lost in range(_ATTEMPTS_MAX):
            attempt = self.attempt(by, kind, stage, prepare)
            if attempt.outcome in ("committed", "nothing"):
                return attempt.manifest, attempt.result
            # Full jitter: competitors that lost together must not meet again.
            time.sleep(random.random() * min(2.0, 0.02 * 2 ** min(lost, 10)))
        raise BatchWeaveError(
            "CONTENDED",
            f"{by} lost {_ATTEMPTS_MAX} commits in a row on {self.store.uri}. Commit less often, or use the cooperative "
            "cadence.",
            {"attempts": _ATTEMPTS_MAX},
        )

    def attempt(
        self, by: str, kind: str, stage: Stage, prepare: Callable[[Manifest], Any] | None = None, fresh: bool = True
    ) -> Attempt:
        """One attempt. Lost or unsettled, the newest verified manifest is loaded, and the caller tries again."""
        self._check_presence()
        base = self.head.jump() if fresh else self.head.newest()
        while True:
            try:
                prepared = prepare(base) if prepare else None
            except BatchWeaveError as error:
                # A look-up found its object gone. If a reclaim followed a newer version, the base is what is out of date.
                if not is_error(error, "MISSING_OBJECT"):
                    raise
                newer = self.head.jump()
                if newer.version <= base.version:
                    raise
                base, fresh = newer, True
                continue
            stamp = Stamp(random_id(), by, int(time.time() * 1_000), self.head.boundary.kept, kind)
            draft = Draft(base, stamp)
            refusal = None
            done, result = True, None
            try:
                done, result = stage(draft, prepared)
            except BatchWeaveError as error:
                refusal = error
            if not done:
                break
            if fresh:
                if refusal:
                    raise refusal
                self.head.keep(base)
                return Attempt("nothing", base, result)
            # Concluding without a PUT needs a look of its own at the base, and the newest state there is.
            base = self.head.jump()
            fresh = True
        following = draft.finish()
        for key, data in draft.sealed:
            self.store.put(key, data)
        verdict = self._publish(following)
        if verdict == "mine":
            # Nothing is concluded before a look begun after the verdict.
            if self.head.vouch(following):
                return Attempt("committed", following, result)
            # The boundary passed this version before it could be checked: real or a zombie. Producer state will tell.
            return Attempt("unsettled", self.head.load())
        if verdict == "other":
            return Attempt("lost", self.head.jump())
        return Attempt("unsettled", self.head.load())

    def _check_presence(self) -> None:
        """The chain tells that a namespace was deleted; that its folder was removed by hand, only namespace.json does."""
        now = time.monotonic()
        if now - self._seen_at < _BELIEVED_S:
            return
        data = self.place.get(NAMESPACE_KEY)
        if data is not None:
            if decode_namespace(data, NAMESPACE_KEY).uuid != self.spec.uuid:
                raise deleted(self.place.uri, self.spec.uuid)
        else:
            # A deletion removes it long after the chain has ended. If the chain goes on, and the log is there, a deleter of an
            # earlier life that was stopped for long took it; a committer in TypeScript puts it back.
            known = self.head.known
            after = manifest_key(max(0, known.version - 1)) if known else ""
            is_there = bool(self.store.list(MANIFEST_PREFIX, after, 1)[0])
            self.head.boundary.look()
            if not is_there or self.spec.format == 1:
                raise deleted(self.place.uri, self.spec.uuid)
        self._seen_at = now

    def _publish(self, following: Manifest) -> str:
        """THE COMMIT POINT: the first creator of manifest/N decides what version N is. Gives mine, other or gone.

        A crash before leaves orphans; a crash after leaves a committed batch whose producer learns of it from producer state.
        """
        key = manifest_key(following.version)
        data = encode_manifest(following)
        delay = 0.05
        refusals = 0
        while True:
            begun = time.monotonic()
            outcome = "unknown"
            try:
                outcome = self.store.create(key, data)
            except BatchWeaveError as error:
                # Not even sent. No other request gives up at the first refusal, and this one may be repeated just as well.
                refusals += 1
                if not is_error(error, "STORE_UNAVAILABLE") or refusals == _REFUSALS_MAX:
                    raise
            if outcome != "unknown":
                self.round_trip.learn(time.monotonic() - begun)
            if outcome == "created":
                return "mine"
            if outcome == "exists" and (verdict := self._owner(following)) is not None:
                return verdict
            # Unknown: it may have landed, or may land minutes from now. Only the same bytes may be tried again.
            time.sleep(delay * (0.5 + random.random()))
            delay = min(2 * delay, 5.0)

    def _owner(self, following: Manifest) -> str | None:
        """Whose the name is: an earlier request of this very attempt may have created it, whatever its answer said. None: still unknown."""
        try:
            found = self.head.read(following.version)
        except BatchWeaveError as error:
            if not is_error(error, "STORE_UNAVAILABLE"):
                raise
            return None
        if found is None:
            return "gone"
        return "mine" if found.commit["id"] == following.commit["id"] else "other"

    def attempt_batches(
        self,
        holder: Holder,
        batches: Sequence[Descriptor],
        intents: Intents = NO_INTENTS,
        fresh: bool = True,
        kind: str = "carrier",
    ) -> Attempt:
        """One attempt at own batches and, with `intents`, all other producers'. Result: (verdicts of the own, carried)."""
        wanted = [holder.producer, *(opening.producer for opening in intents.openings)]

        def prepare(base: Manifest) -> dict[str, SilentFinding]:
            return self._find_silent(base, wanted)

        def stage(draft: Draft, returning: dict[str, SilentFinding]) -> tuple[bool, Any]:
            verdicts: list[str] = []
            returned = False
            if batches:
                # Even when its batches are in already: only state in a manifest, not in a table, acknowledges them.
                returned = stage_return(draft, holder, returning.get(holder.producer))
                verdicts = stage_batches(draft, self.spec, holder, batches)
            carried = stage_intents(draft, self.spec, intents.batches, intents.openings, returning, intents.leavings)
            left = kind == "leave" and stage_leaving(draft, holder)
            return carried == 0 and not returned and not left and "staged" not in verdicts, (verdicts, carried)

        return self.attempt(holder.producer, kind, stage, prepare, fresh)

    def list_intents(self) -> Intents:
        """Lists the intents: one request per thousand. They are hints; what is not exactly one is skipped."""
        keys: dict[str, Any] = {}
        start_after, more, seen = "", True, 0
        while more and seen < _INTENTS_MAX:
            page, more = self.store.list(INTENT_PREFIX, start_after)
            seen += len(page)
            for key in page:
                intent = parse_intent_key(self.spec.uuid, key)
                if intent is not None:
                    keys[key] = intent
            if not page:
                break
            start_after = page[-1]
        openings = [i for i in keys.values() if isinstance(i, OpeningIntent)]
        leavings = [i for i in keys.values() if isinstance(i, LeavingIntent)]
        batches = [batch for i in keys.values() if isinstance(i, list) for batch in i]
        return Intents(keys, batches, openings, leavings)

    # Producers.

    def open_producer(self, producer: str, epoch: int | None = None) -> Opening:
        """Commits the next epoch with a new incarnation, fencing the id's holder, and reads the resume point.

        epoch: refused with FENCED unless this is the last one, 0 for an id that was never opened. Of several that saw the same, one opens it.
        """
        incarnation = random_id()
        manifest = self._open(producer, incarnation, epoch)
        state = manifest.producers[producer]
        holder = Holder(producer, state.epoch, incarnation)
        for attempt in range(4):
            try:
                return Opening(holder, state.seq, self.read_resume_point(producer, state))
            except BatchWeaveError as error:
                # The state moved on without us, or the head names another place for it.
                if not is_error(error, "MISSING_OBJECT") or attempt == 3:
                    raise
                newest = self.head.jump()
                newer = newest.producers.get(producer)
                if newer is None and (found := self._find_silent(newest, [producer]).get(producer)):
                    newer = found.state._replace(last=found.table)
                if newer is None or not holds(newer, holder.epoch, holder.incarnation):
                    raise fenced(holder, newer) from None
                state = newer
        raise AssertionError

    def _open(self, producer: str, incarnation: str, epoch: int | None = None) -> Manifest:
        """One commit when no other committer is in the way; an opener that loses twice publishes an intent, and the next committer opens it."""
        published: int | None = None
        wait = 0.4
        for round_number in range(_OPEN_ROUNDS_MAX):
            intents = NO_INTENTS if published is None else self.list_intents()
            wanted = [producer, *(opening.producer for opening in intents.openings)]

            def stage(draft: Draft, silent: dict[str, SilentFinding]) -> tuple[bool, Any]:
                held = draft.producers.get(producer)
                if draft.closed and (held is None or held.incarnation != incarnation):
                    raise closed(draft.end)  # before an epoch is spent on a producer that could only be told at its first batch
                last = held or (silent[producer].state if producer in silent else None)
                if epoch is not None and (last.epoch if last else 0) != epoch and not (held and held.incarnation == incarnation):
                    raise fenced(Holder(producer, epoch, incarnation), last)
                done = stage_opening(draft, producer, incarnation, silent.get(producer))
                if not done:
                    stage_intents(draft, self.spec, intents.batches, intents.openings, silent, intents.leavings)
                return done, None

            attempt = self.attempt(f"open {producer}", "open", stage, lambda base: self._find_silent(base, wanted))
            if attempt.outcome in ("committed", "nothing"):
                return attempt.manifest
            if round_number == 0:
                time.sleep(0.1 * random.random())
                continue
            state = attempt.manifest.producers.get(producer)
            before = state.epoch if state else 0
            if published != before and (state or not attempt.manifest.tables):
                intent = OpeningIntent(producer, before, incarnation)
                self.store.put(opening_intent_key(self.spec.uuid, intent), b"")
                published = before
            opened = self._wait_opened(producer, incarnation, wait * (0.5 + random.random()))
            if opened:
                return opened
            wait = min(2 * wait, 8.0)
        raise BatchWeaveError(
            "CONTENDED",
            f"Producer {producer} could not be opened on {self.store.uri}: every attempt lost to another commit. Try again.",
            {"producer": producer},
        )

    def _wait_opened(self, producer: str, incarnation: str, wait: float) -> Manifest | None:
        until = time.monotonic() + wait
        pause = min(0.3, wait)
        while True:
            time.sleep(max(0.001, min(pause, until - time.monotonic())))
            manifest = self.head.jump()
            state = manifest.producers.get(producer)
            if state and state.incarnation == incarnation:
                self.head.keep(manifest)
                return manifest
            if time.monotonic() >= until:
                return None
            pause *= 2

    def _find_silent(self, base: Manifest, producers: Sequence[str]) -> dict[str, SilentFinding]:
        """States of producers that are not inline, from the sealed tables of `base`, newest table first."""
        absent = {p for p in producers if p not in base.producers}
        found: dict[str, SilentFinding] = {}
        for ref in reversed(base.tables):
            if not absent:
                break
            table = self._read_table(ref)
            for producer in [p for p in absent if p in table]:
                state, point = table[producer]
                found[producer] = SilentFinding(state, ref, point is not None)
                absent.discard(producer)
        return found

    def _read_table(self, ref: Reference) -> dict[str, SilentProducer]:
        return self.index.read_object(self.store, self.spec.uuid, ref, decode_table)

    def read_resume_point(self, producer: str, state: ProducerState) -> Any:
        """The resume point of a producer state: in its last batch's footer, or in a table's copy. None: there is none."""
        last = state.last
        if last is None:
            return None
        if not isinstance(last, LastBatch):
            silent = self._read_table(last).get(producer)
            return silent.resume_point if silent else None
        key = batch_key(Descriptor(producer, last.epoch, last.incarnation, state.seq - 1, last.base, last.attempt), last.extent)
        try:
            return self._resume_point_in(key, last.size, last.check)
        except BatchWeaveError as error:
            # Bytes can also be damaged on their way: one more read before the object is called corrupt.
            if not is_error(error, "CORRUPT"):
                raise
        return self._resume_point_in(key, last.size, last.check)

    def find_resume_point(self, manifest: Manifest, producer: str) -> Any:
        """The resume point of a producer that is not opened; None: it has none, or has never been."""
        state = manifest.producers.get(producer)
        if state is None and (found := self._find_silent(manifest, [producer]).get(producer)):
            state = found.state._replace(last=found.table if found.has_resume_point else None)
        return None if state is None else self.read_resume_point(producer, state)

    def _resume_point_in(self, key: str, size: int, check: int) -> Any:
        trailer = decode_trailer(self._range(key, size - TRAILER_BYTES, TRAILER_BYTES), key, self.spec.uuid)
        start = trailer.metadata_offset
        footer = memoryview(self._range(key, start, size - start))
        if footer_check(footer[trailer.table_offset - start :]) != check:
            raise corrupt(key, "its footer does not match the commit")
        return decode_metadata(footer[: trailer.metadata_length], key, trailer).get("resumePoint")

    def _range(self, key: str, start: int, length: int) -> Any:
        data = self.store.get_range(key, start, length) if start >= 0 else None
        if data is None:
            raise BatchWeaveError(
                "MISSING_OBJECT", f"{key} holds a resume point and is not in {self.store.uri}. Restore it.", {"key": key}
            )
        return data

    def close(self, drop_waiting: bool = False) -> Manifest:
        """Closes the log: no batch after the current end, ever."""
        return self.commit("close log", "close", lambda draft, _: (stage_closing(draft, drop_waiting), None))[0]
