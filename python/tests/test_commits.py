"""Property: one attempt at a commit asks, writes and concludes exactly what the rules say, whatever the store answers; an opening ends open, fenced or contended; a
producer's state and its resume point are found wherever they are.

Method: a log in memory whose parts answer as a test says, with every call written down, and a clock that only sleeping moves.
"""
from __future__ import annotations

import dataclasses
import unittest
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.format.batch import encode_extent
from batchweave.format.checksum import crc32
from batchweave.format.descriptor import BatchName, Descriptor
from batchweave.format.index_node import Reference
from batchweave.format.keys import MANIFEST_PREFIX, NAMESPACE_KEY, LeavingIntent, OpeningIntent, batch_key, index_key, manifest_key, opening_intent_key
from batchweave.format.producer_state import LastBatch, ProducerState
from batchweave.format.stored_json import seal_json
from batchweave.log import log as module
from batchweave.log.draft import Draft, Stamp, encode_manifest
from batchweave.log.log import NO_INTENTS, Attempt, Intents, Log
from batchweave.log.stage import Holder, SilentFinding, stage_max_lag
from small_world import World, Writer

ME, OTHER = "0123456789ab", "ba9876543210"


class Bench(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        Writer(self.world.log, "p").write(2)
        self.log = self.world.open()
        self.log.head.load()
        self.clock = [1_000.0]
        self.slept: list[float] = []

        def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.clock[0] += seconds

        self.time = mock.Mock(monotonic=lambda: self.clock[0], time=lambda: 1_234.5678, sleep=sleep)
        self.log._seen_at = 1_000.0
        for name, value in ("time", self.time), ("random", mock.Mock(random=lambda: 0.5)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def refused(self, call: Any, code: str) -> BatchWeaveError:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        return caught.exception

    def missing(self) -> BatchWeaveError:
        return BatchWeaveError("MISSING_OBJECT", "it is gone", {})


class Attempts(Bench):
    def attempt(self, max_lag: int = 7, **settings: Any) -> Attempt:
        return self.log.attempt("me", "settings", lambda draft, _: (stage_max_lag(draft, max_lag), "result"), **settings)

    def test_a_version_says_who_made_it_when_and_for_what(self) -> None:
        made = self.attempt()
        self.assertEqual((made.outcome, made.manifest.version, made.result), ("committed", 4, "result"))
        self.assertEqual({k: v for k, v in made.manifest.commit.items() if k != "id"}, {"by": "me", "time": 1_234_567, "kind": "settings"})
        again = self.attempt()
        self.assertEqual((again.outcome, again.manifest.version, again.result), ("nothing", 4, "result"))

    def test_nothing_is_concluded_from_a_base_that_was_not_looked_at(self) -> None:
        jumps: list[int] = []
        head = self.log.head
        jump = head.jump
        with mock.patch.object(head, "jump", lambda: (jumps.append(1), jump())[1]), mock.patch.object(head, "keep", wraps=head.keep) as kept:
            self.attempt(fresh=False)
            self.assertEqual((jumps, kept.called), ([], False), "a commit needs no look of its own")
            self.assertEqual((self.attempt(fresh=False).outcome, jumps, kept.call_count), ("nothing", [1], 1))
            self.attempt()
            self.assertEqual(jumps, [1, 1])

            def refuse(draft: Any, _: Any) -> Any:
                raise BatchWeaveError("LIMIT", "no", {})

            self.refused(lambda: self.log.attempt("me", "x", refuse, fresh=False), "LIMIT")
            self.assertEqual(jumps, [1, 1, 1])
            self.refused(lambda: self.log.attempt("me", "x", refuse), "LIMIT")
            self.assertEqual(jumps, [1] * 4)

    def test_a_look_up_that_finds_its_object_gone_begins_anew_if_there_is_a_newer_version(self) -> None:
        seen: list[int] = []

        def prepare(base: Any) -> str:
            seen.append(base.version)
            if len(seen) == 1:
                raise self.missing()
            return "prepared"

        self.refused(lambda: self.attempt(prepare=prepare), "MISSING_OBJECT")
        self.assertEqual(seen, [3])
        seen.clear()
        Writer(self.world.log, "q").write(1)
        jumps: list[int] = []
        jump = self.log.head.jump
        with mock.patch.object(self.log.head, "jump", lambda: (jumps.append(1), jump())[1]):
            done = self.log.attempt("me", "x", lambda draft, prepared: (True, prepared), prepare, fresh=False)
        self.assertEqual((done.outcome, done.result, seen, jumps), ("nothing", "prepared", [3, 5], [1]), "the newer one was looked at")

        def corrupt(base: Any) -> None:
            raise BatchWeaveError("CORRUPT", "it is", {})

        with mock.patch.object(self.log.head, "jump", side_effect=AssertionError):
            self.refused(lambda: self.attempt(prepare=corrupt, fresh=False), "CORRUPT")

    def test_how_an_attempt_ends(self) -> None:
        head = self.log.head
        newest = head.newest()
        for verdict, vouched, outcome, loads in ("mine", True, "committed", []), ("mine", False, "unsettled", ["load"]), ("other", True, "lost", ["jump"]), ("gone", True, "unsettled", ["load"]):
            calls: list[str] = []
            with mock.patch.object(self.log, "_publish", lambda following: verdict), mock.patch.object(head, "vouch", lambda following: vouched), mock.patch.object(
                head, "load", lambda: calls.append("load") or newest
            ), mock.patch.object(head, "jump", lambda: calls.append("jump") or newest):
                found = self.attempt(fresh=False)
            self.assertEqual((found.outcome, calls), (outcome, loads))
            self.assertEqual(found.manifest.version, newest.version + (outcome == "committed"))

    def test_index_objects_are_written_before_the_commit(self) -> None:
        writer = Writer(self.world.log, "q").open()
        writer.write(61)
        self.world.store.requests.clear()
        writer.write(1)
        keys = [key for name, key in self.world.store.requests if name in ("put", "create")]
        self.assertEqual([("/batch/" in key, "/index/" in key, "/manifest/" in key) for key in keys], [(True, False, False), (False, True, False), (False, False, True)])

    def test_a_commit_is_tried_until_it_is_in(self) -> None:
        newest = self.log.head.newest()
        outcomes = ["lost", "unsettled", "committed"]
        with mock.patch.object(self.log, "attempt", lambda *_: Attempt(outcomes.pop(0), newest, 5)):
            self.assertEqual(self.log.commit("me", "x", None), (newest, 5))  # type: ignore[arg-type]
        self.assertEqual(len(self.slept), 2)
        with mock.patch.object(self.log, "attempt", lambda *_: Attempt("nothing", newest, 5)):
            self.assertEqual(self.log.commit("me", "x", None), (newest, 5))  # type: ignore[arg-type]
        self.slept.clear()
        with mock.patch.object(self.log, "attempt", lambda *_: Attempt("lost", newest)):
            self.assertEqual(self.refused(lambda: self.log.commit("me", "x", None), "CONTENDED").details, {"attempts": 1_000})  # type: ignore[arg-type]
        self.assertEqual(len(self.slept), 1_000)
        self.assertTrue(all(0 < seconds <= 1.0 for seconds in self.slept))


class Publishing(Bench):
    def publish(self, *answers: Any, owners: Any = ()) -> Any:
        left, owned = list(answers), list(owners)
        self.bodies: list[Any] = []
        self.slept.clear()

        def create(key: str, body: bytes) -> str:
            self.bodies.append((key, body))
            self.clock[0] += 0.25
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        following = dataclasses.replace(self.log.head.newest(), version=9)
        with mock.patch.object(self.log.store, "create", create), mock.patch.object(self.log, "_owner", lambda _: owned.pop(0)), mock.patch.object(self.log.round_trip, "learn") as learned:
            try:
                return self.log._publish(following)
            finally:
                self.learned = [call.args[0] for call in learned.mock_calls]
                self.assertEqual((len(set(self.bodies)), self.bodies[0][0], left, owned), (1, manifest_key(9), [], []), "the same bytes again and again")

    def test_only_an_answer_decides_whose_a_name_is(self) -> None:
        away = BatchWeaveError("STORE_UNAVAILABLE", "later", {})
        for answers, owners, expected, learned in (
            (["created"], [], "mine", 1), (["exists"], ["other"], "other", 1), (["exists"], ["gone"], "gone", 1), (["unknown", "created"], [], "mine", 1),
            (["unknown", "exists"], ["mine"], "mine", 1), (["exists", "exists"], [None, "mine"], "mine", 2), ([away] * 5 + ["created"], [], "mine", 1),
        ):
            self.assertEqual(self.publish(*answers, owners=owners), expected, answers)
            self.assertEqual((len(self.slept), self.learned), (len(answers) - 1, [0.25] * learned))
        self.assertEqual(self.slept, [0.05, 0.1, 0.2, 0.4, 0.8])
        self.publish(*["unknown"] * 12, "created")
        self.assertEqual(max(self.slept), 5.0)

    def test_a_refusal_that_was_not_sent_is_repeated_five_times_and_any_other_is_told(self) -> None:
        away = BatchWeaveError("STORE_UNAVAILABLE", "later", {})
        self.refused(lambda: self.publish(*[away] * 6), "STORE_UNAVAILABLE")
        self.assertEqual(len(self.slept), 5)
        self.refused(lambda: self.publish(BatchWeaveError("STORE_DENIED", "no", {})), "STORE_DENIED")
        self.refused(lambda: self.publish("unknown", BatchWeaveError("STORE_FULL", "no", {})), "STORE_FULL")

    def test_the_owner_of_a_name_is_who_signed_it(self) -> None:
        newest = self.log.head.newest()
        following = dataclasses.replace(newest, version=9)
        other = dataclasses.replace(following, commit={**newest.commit, "id": OTHER})
        for found, expected in (None, "gone"), (following, "mine"), (other, "other"):
            with mock.patch.object(self.log.head, "read", lambda version: found):
                self.assertEqual(self.log._owner(following), expected)
        for code, is_raised in ("STORE_UNAVAILABLE", False), ("CORRUPT", True):
            with mock.patch.object(self.log.head, "read", side_effect=BatchWeaveError(code, "so", {})):
                if is_raised:
                    self.refused(lambda: self.log._owner(following), code)
                else:
                    self.assertIsNone(self.log._owner(following))


class Presence(Bench):
    def check(self, after: float) -> list[tuple[str, str]]:
        self.clock[0] = self.log._seen_at + after
        self.world.store.requests.clear()
        self.log._check_presence()
        return [(name, key.rpartition(self.log.spec.uuid + "/")[2]) for name, key in self.world.store.requests]

    def test_namespace_json_is_looked_at_twice_a_minute(self) -> None:
        self.assertEqual(self.check(29.75), [])
        self.assertEqual(self.check(30.0), [("get", NAMESPACE_KEY)])
        self.assertEqual(self.log._seen_at, self.clock[0])
        self.assertEqual(self.check(0.0), [])

    def test_one_of_another_life_or_none_without_a_log_ends_it(self) -> None:
        kept = self.world.store.objects.pop(NAMESPACE_KEY)
        looked = [("get", NAMESPACE_KEY), ("list", MANIFEST_PREFIX), ("get", "boundary/00000000000000000001.json")]
        self.assertEqual(self.check(30.0), looked)
        after: list[Any] = []
        listed = self.log.store.list
        with mock.patch.object(self.log.store, "list", lambda *args: after.append(args) or listed(*args)):
            self.check(30.0)
            self.log.head.known = None
            self.check(30.0)
            self.log.head.known = dataclasses.replace(self.world.log.head.newest(), version=0)
            self.check(30.0)
        self.assertEqual(after, [(MANIFEST_PREFIX, manifest_key(2), 1), (MANIFEST_PREFIX, "", 1), (MANIFEST_PREFIX, manifest_key(0), 1)])
        self.log.spec.format, own = 1, self.log.spec.format
        self.refused(lambda: self.check(30.0), "DELETED")
        self.log.spec.format = own
        with mock.patch.object(self.log.store, "list", lambda *_: ([], False)):
            self.refused(lambda: self.check(30.0), "DELETED")
        self.world.store.objects[NAMESPACE_KEY] = World().store.objects[NAMESPACE_KEY]
        self.refused(lambda: self.check(30.0), "DELETED")
        self.world.store.objects[NAMESPACE_KEY] = kept
        self.check(30.0)


class Batches(Bench):
    def test_what_an_attempt_at_batches_did(self) -> None:
        writer = Writer(self.world.log, "q").open()
        log = self.world.log
        batches = [writer.upload(), writer.upload()]
        found = log.attempt_batches(writer.holder, batches)
        self.assertEqual((found.outcome, found.result, found.manifest.commit["kind"], found.manifest.commit["by"]), ("committed", (["staged", "staged"], 0), "carrier", "q"))
        self.assertEqual((log.attempt_batches(writer.holder, batches).outcome, log.attempt_batches(writer.holder, []).outcome), ("nothing", "nothing"))
        other = Writer(self.world.open(), "r").open()
        intents = Intents({}, [other.upload()], [OpeningIntent("s", 0, ME)], [])
        found = log.attempt_batches(writer.holder, [], intents)
        self.assertEqual((found.outcome, found.result, found.manifest.producers["s"].epoch), ("committed", ([], 2), 1))
        found = log.attempt_batches(writer.holder, [], Intents({}, [], [], [LeavingIntent(*other.holder)]), kind="leave")
        self.assertEqual((found.outcome, found.result, found.manifest.commit["kind"]), ("committed", ([], 1), "leave"))
        self.assertTrue(found.manifest.producers["q"].has_left and found.manifest.producers["r"].has_left)
        self.assertEqual(log.attempt_batches(writer.holder, [], kind="leave").outcome, "nothing")

    def test_who_comes_back_from_a_table_is_in_the_manifest_again(self) -> None:
        writer = Writer(self.world.log, "q").write(1)
        log = self.world.log
        batch = Descriptor("q", *writer.holder[1:], 0, 0, 0, log.head.newest().tail.batches[-1].extents)
        state = log.head.newest().producers["q"]
        self.silence(state, "point")
        found = self.log.attempt_batches(writer.holder, [batch])
        self.assertEqual((found.outcome, found.result[0], found.manifest.producers["q"].last), ("committed", ["in"], self.ref))
        self.silence(state, "point")
        found = self.log.attempt_batches(writer.holder, [], NO_INTENTS)
        self.assertEqual((found.outcome, "q" in found.manifest.producers), ("nothing", False))

    def silence(self, state: ProducerState, point: Any, *others: dict[str, Any]) -> None:
        """Puts a producer's state into a table, as a reclaimer does."""
        refs = []
        for i, producers in enumerate([{"q": [state.stored(), point]}, *others]):
            data = seal_json("table", self.log.spec.uuid, {"producers": producers})
            refs.append(Reference(1, ME, i, crc32(data)))
            self.log.store.put(index_key(refs[-1]), data)
        self.ref = refs[0]
        newest = self.log.head.jump()
        producers = {id: found for id, found in newest.producers.items() if id != "q"}
        made = dataclasses.replace(newest, version=newest.version + 1, producers=producers, tables=refs, commit={**newest.commit, "id": OTHER})
        self.log.store.put(manifest_key(made.version), encode_manifest(made))
        self.log.head.jump()

    def test_a_silent_producer_is_in_the_newest_table_that_has_it(self) -> None:
        writer = Writer(self.world.log, "q").write(1)
        state = self.world.log.head.newest().producers["q"]
        newer = state._replace(seq=9)
        self.silence(state, "old", {"q": [newer.stored(), None], "r": [newer.stored(), "r's"]}, {"x": [newer.stored(), 1]})
        newest = self.log.head.newest()
        found = self.log._find_silent(newest, ["q", "r", "p", "none"])
        self.assertEqual({k: (f.state.seq, f.table, f.has_resume_point) for k, f in found.items()}, {"q": (9, newest.tables[1], False), "r": (9, newest.tables[1], True)})
        self.assertEqual(self.log._find_silent(newest, ["p"]), {})
        read: list[Any] = []
        with mock.patch.object(self.log, "_read_table", lambda ref: read.append(ref) or {}):
            self.log._find_silent(newest, ["p"])
            self.log._find_silent(newest, ["none"])
        self.assertEqual(read, list(reversed(newest.tables)))
        self.assertEqual([self.log.find_resume_point(newest, id) for id in ("q", "r", "none")], [None, "r's", None])
        self.assertEqual(self.log.read_resume_point("x", state._replace(last=newest.tables[0])), None)
        opening = self.log.open_producer("r")
        self.assertEqual((opening.seq, opening.resume_point, opening.holder.epoch), (9, "r's", writer.holder.epoch + 1))


class Openings(Bench):
    def open(self, *outcomes: str, tables: Any = (), opened: Any = None, state: ProducerState | None = None, **settings: Any) -> Any:
        left = list(outcomes)
        newest = self.log.head.newest()
        self.puts: list[str] = []
        self.waited: list[float] = []
        self.lists = 0
        manifest = dataclasses.replace(newest, producers={"n": state} if state else {}, tables=list(tables))

        def attempt(by: str, kind: str, stage: Any, prepare: Any) -> Attempt:
            self.assertEqual((by, kind), ("open n", "open"))
            return Attempt(left.pop(0), manifest)

        def listed() -> Intents:
            self.lists += 1
            return NO_INTENTS

        def wait(producer: str, incarnation: str, seconds: float) -> Any:
            self.waited.append(round(seconds, 6))
            return opened if not left else None

        with mock.patch.object(self.log, "attempt", attempt), mock.patch.object(self.log, "_wait_opened", wait), mock.patch.object(
            self.log.store, "put", lambda key, body: self.puts.append(key)
        ), mock.patch.object(self.log, "list_intents", listed):
            return self.log._open("n", ME, **settings)

    def test_an_opener_that_loses_twice_says_what_it_wants_and_waits_longer_and_longer(self) -> None:
        self.open("committed")
        self.assertEqual((self.puts, self.waited, self.slept, self.lists), ([], [], [], 0))
        self.open("nothing")
        self.open("lost", "committed")
        self.assertEqual((self.puts, self.waited, self.slept, self.lists), ([], [], [0.05], 0))
        key = opening_intent_key(self.log.spec.uuid, OpeningIntent("n", 0, ME))
        found = self.open("lost", "unsettled", opened="opened")
        self.assertEqual((found, self.puts, self.waited), ("opened", [key], [0.4]))
        self.open("lost", *["lost"] * 7, "committed")
        self.assertEqual((self.puts, self.waited, self.lists), ([key], [0.4, 0.8, 1.6, 3.2, 6.4, 8.0, 8.0], 7))
        # Whoever may be in a table is not carried: only who looks there may open it.
        self.open("lost", "lost", "committed", tables=[Reference(1, ME, 0, 7)])
        self.assertEqual((self.puts, self.lists), ([], 0))
        self.open("lost", "lost", "committed", tables=[Reference(1, ME, 0, 7)], state=ProducerState(3, OTHER, 0, 1))
        self.assertEqual((self.puts, self.lists), ([opening_intent_key(self.log.spec.uuid, OpeningIntent("n", 3, ME))], 1))
        with mock.patch.object(module, "_OPEN_ROUNDS_MAX", 4):
            self.refused(lambda: self.open(*["lost"] * 4), "CONTENDED")

    def test_what_an_opening_stages(self) -> None:
        intents = Intents({}, ["batches"], [OpeningIntent("o", 0, ME)], ["leavings"])  # type: ignore[list-item]
        stages: list[Any] = []

        def attempt(by: str, kind: str, stage: Any, prepare: Any) -> Attempt:
            stages.append((stage, prepare(None)))
            return Attempt("lost" if len(stages) < 3 else "committed", dataclasses.replace(self.log.head.newest(), tables=[]))

        def staged(epoch: int | None, producers: dict[str, ProducerState], silent: Any, closed: bool = False) -> Any:
            draft = Draft(dataclasses.replace(self.log.head.newest(), producers=producers, closed=closed), Stamp(ME, "me", 1, 0))
            stages.clear()
            with mock.patch.object(self.log, "attempt", attempt), mock.patch.object(self.log, "_wait_opened", lambda *_: None), mock.patch.object(
                self.log, "list_intents", lambda: intents
            ), mock.patch.object(self.log, "_find_silent", lambda base, wanted: wanted):
                self.log._open("n", ME, epoch)
                self.assertEqual([wanted for _, wanted in stages], [["n"], ["n"], ["n", "o"]])
            with mock.patch.object(module, "stage_intents") as carried:
                try:
                    done, _ = stages[2][0](draft, silent)
                except BatchWeaveError as error:
                    return error.code
            self.assertEqual(carried.mock_calls, [] if done else [mock.call(draft, self.log.spec, intents.batches, intents.openings, silent, intents.leavings)])
            return done, draft.producers["n"].epoch

        own, other = ProducerState(3, ME, 0, 1), ProducerState(3, OTHER, 0, 1)
        silent = {"n": SilentFinding(other, Reference(1, ME, 0, 7), True)}
        for epoch, inline, found, closed, expected in (
            (None, None, {}, False, (False, 1)), (None, other, {}, False, (False, 4)), (None, own, {}, False, (True, 3)), (None, None, silent, False, (False, 4)), (0, None, {}, False, (False, 1)),
            (1, None, {}, False, "FENCED"), (3, other, {}, False, (False, 4)), (2, other, {}, False, "FENCED"), (3, None, silent, False, (False, 4)), (0, None, silent, False, "FENCED"),
            (2, own, {}, False, (True, 3)), (None, None, {}, True, "CLOSED"), (None, other, {}, True, "CLOSED"), (None, own, {}, True, (True, 3)),
        ):
            self.assertEqual(staged(epoch, {"n": inline} if inline else {}, found, closed), expected, (epoch, inline, closed))

    def test_a_state_that_moved_to_a_table_is_read_there(self) -> None:
        moved = self.opened().producers["p"]._replace(incarnation=ME)
        ref = Reference(1, ME, 0, 7)
        read: list[Any] = []

        def resume(producer: str, state: Any) -> str:
            read.append(state.last)
            if len(read) == 1:
                raise self.missing()
            return "point"

        newest = dataclasses.replace(self.log.head.newest(), producers={})
        with mock.patch.object(self.log, "read_resume_point", resume), mock.patch.object(self.log, "_open", lambda *_: dataclasses.replace(newest, producers={"p": moved})), mock.patch.object(
            self.log.head, "jump", lambda: newest
        ), mock.patch.object(self.log, "_find_silent", lambda base, wanted: {"p": SilentFinding(moved, ref, True)}), mock.patch.object(module, "random_id", lambda: ME):
            self.assertEqual((self.log.open_producer("p").resume_point, read), ("point", [None, ref]))

    def test_only_the_epoch_that_was_seen_is_followed(self) -> None:
        held = self.log.head.newest().producers["p"].epoch
        for id, epoch, is_right in ("p", held, True), ("p", held, False), ("p", held + 2, False), ("n", 1, False), ("n", 0, True), ("n", 0, False):
            if is_right:
                self.assertEqual(self.log.open_producer(id, epoch).holder.epoch, epoch + 1)
            else:
                self.refused(lambda: self.log.open_producer(id, epoch), "FENCED")
        self.log.close()
        self.refused(lambda: self.log.open_producer("p"), "CLOSED")

    def test_waiting_for_a_carrier_ends_when_it_opened_it_or_after_so_long(self) -> None:
        newest = self.log.head.newest()
        mine, others = (dataclasses.replace(newest, producers={"n": ProducerState(1, who, 0, 1)}) for who in (ME, OTHER))
        for found, wait, expected, slept in (
            ([mine], 5.0, mine, [0.3]), ([others, newest, mine], 5.0, mine, [0.3, 0.6, 1.2]), ([others] * 9, 1.0, None, [0.3, 0.6, 0.1]), ([others] * 9, 0.25, None, [0.25]),
        ):
            left = list(found)
            self.slept.clear()
            with mock.patch.object(self.log.head, "jump", lambda: left.pop(0)), mock.patch.object(self.log.head, "keep") as kept:
                self.assertIs(self.log._wait_opened("n", ME, wait), expected)
            self.assertEqual(([round(seconds, 6) for seconds in self.slept], kept.mock_calls), (slept, [mock.call(mine)] if expected else []))

    def test_a_resume_point_that_moved_is_looked_for_three_times_more(self) -> None:
        for failures, is_found in (0, True), (3, True), (4, False):
            tries: list[int] = []

            def read(producer: str, state: Any) -> str:
                tries.append(1)
                if len(tries) <= failures:
                    raise self.missing()
                return "point"

            with mock.patch.object(self.log, "read_resume_point", read):
                if is_found:
                    self.assertEqual(self.log.open_producer("p").resume_point, "point")
                else:
                    self.refused(lambda: self.log.open_producer("p"), "MISSING_OBJECT")
            self.assertEqual(len(tries), min(failures + 1, 4))
        with mock.patch.object(self.log, "read_resume_point", side_effect=BatchWeaveError("CORRUPT", "so", {})) as read_once:
            self.refused(lambda: self.log.open_producer("p"), "CORRUPT")
        self.assertEqual(read_once.call_count, 1)
        for changes in ({"producers": {}}, {"producers": {"p": ProducerState(99, OTHER, 0, 1)}}):
            newest = dataclasses.replace(self.log.head.newest(), **changes)
            with mock.patch.object(self.log, "read_resume_point", side_effect=self.missing()), mock.patch.object(self.log, "_open", lambda *_: self.opened()), mock.patch.object(
                self.log.head, "jump", lambda: newest
            ):
                self.refused(lambda: self.log.open_producer("p"), "FENCED")

    def opened(self) -> Any:
        return dataclasses.replace(self.log.head.newest(), producers={"p": ProducerState(3, OTHER, 2, 3)})


class ResumePoints(Bench):
    def test_a_resume_point_is_in_the_footer_that_the_commit_names(self) -> None:
        name = BatchName("p", 1, ME, 4)
        body, extent = encode_extent(self.log.spec.uuid, name, 2, 0, [b"abc"], {"resumePoint": {"at": 7}})
        data = b"".join(body)
        key = batch_key(Descriptor(*name, 6, 1), 2)
        state = ProducerState(1, ME, 5, 9, LastBatch(6, 1, 2, extent.size, extent.check, 1, ME))
        self.log.store.put(key, data)
        self.world.store.requests.clear()
        self.assertEqual(self.log.read_resume_point("p", state), {"at": 7})
        self.assertEqual([name for name, _ in self.world.store.requests], ["get_range"] * 2)
        with mock.patch.object(self.log, "_range", wraps=self.log._range) as ranges:
            self.log.read_resume_point("p", state)
        self.assertEqual([call.args[1:] for call in ranges.mock_calls], [(extent.size - 80, 80), (3, extent.size - 3)])
        self.assertIsNone(self.log.read_resume_point("p", state._replace(last=None)))
        wrong = state._replace(last=state.last._replace(check=5))  # type: ignore[union-attr]
        self.world.store.requests.clear()
        self.assertIn("does not match the commit", self.refused(lambda: self.log.read_resume_point("p", wrong), "CORRUPT").message)
        self.assertEqual(len(self.world.store.requests), 4, "once more")
        self.log.store.delete([key])
        self.world.store.requests.clear()
        self.assertEqual(self.refused(lambda: self.log.read_resume_point("p", state), "MISSING_OBJECT").details, {"key": key})
        self.assertEqual(len(self.world.store.requests), 1)
        self.refused(lambda: self.log._range(key, -1, 5), "MISSING_OBJECT")
        self.assertEqual(Log.find_resume_point(self.log, self.log.head.newest(), "none"), None)

    def test_a_holder_is_named_by_producer_epoch_and_incarnation(self) -> None:
        opening = self.log.open_producer("n")
        self.assertEqual((opening.holder[:2], opening.seq, opening.resume_point), (("n", 1), 0, None))
        self.assertIsInstance(opening.holder, Holder)


if __name__ == "__main__":
    unittest.main()
