"""Property: the newest version is found however long the log is, and within few requests; what may be concluded from a look ends with it.

Method: logs of every length around the strides of the search, on a store whose listings are short; stores that forget, refuse or answer late.
"""
from __future__ import annotations

import unittest
from dataclasses import replace
from typing import Any, Callable
from unittest import mock

from batchweave import BatchWeaveError, create_namespace
from batchweave.format.descriptor import Descriptor
from batchweave.format.keys import BATCH_PREFIX, INTENT_PREFIX, MANIFEST_PREFIX, NAMESPACE_KEY, LeavingIntent, OpeningIntent, batch_intents, manifest_key
from batchweave.format.producer_state import ProducerState
from batchweave.format.stored_json import load_json
from batchweave.log import head as head_module
from batchweave.log import log as log_module
from batchweave.log.draft import Draft, Stamp, encode_manifest
from batchweave.log.round_trip import RoundTrip
from batchweave.log.stage import is_spent
from hooked_store import HookedStore
from memory_store import MemoryStore, at
from small_world import World, Writer, announce, reclaim

PAGE = 2


class Search(unittest.TestCase):
    def test_the_head_of_a_log_of_any_length_is_found_in_few_requests(self) -> None:
        world = World()
        Writer(world.log, "p").write(170)
        newest = world.log.head.jump().version
        whole = dict(world.store.objects)
        for length in (1, 2, 3, 17, 18, 19, 20, 33, 34, 35, 145, 146, 147, 162, newest):
            for lowest in (1, 16):
                store = MemoryStore()
                kept = {at(world.log.spec, manifest_key(v)) for v in range(lowest, length + 1)}
                store.objects = {key: data for key, data in whole.items() if MANIFEST_PREFIX not in key or key in kept}
                log = world.open(store)
                if lowest > 1:
                    if length <= lowest:
                        continue
                    announce(log, lowest - 1)
                store.requests.clear()
                with mock.patch.object(head_module, "LIST_PAGE_MAX", PAGE):
                    self.assertEqual(log.head.load().version, length)
                self.assertLess(len(store.requests), 40, length)

    def test_a_jump_over_more_than_a_listing_shows_reaches_the_end(self) -> None:
        world = World()
        Writer(world.log, "p").write(2)
        follower = world.open()
        follower.head.load()
        Writer(world.log, "q").write(40)
        with mock.patch.object(head_module, "LIST_PAGE_MAX", PAGE):
            self.assertEqual(follower.head.jump().version, world.log.head.jump().version)

    def test_a_log_without_a_manifest_above_the_boundary_is_given_up_after_twenty_looks(self) -> None:
        world = World()
        Writer(world.log, "p").write(5)
        reclaim(world.log, 1)
        for key in [key for key in world.store.objects if MANIFEST_PREFIX in key]:
            del world.store.objects[key]
        with mock.patch("time.sleep") as slept, self.assertRaises(BatchWeaveError) as caught:
            world.open().head.load()
        self.assertEqual(caught.exception.code, "MISSING_OBJECT")
        self.assertEqual(slept.call_count, 19)

    def test_what_is_recent_was_looked_at_within_a_second(self) -> None:
        world = World()
        follower = world.open()
        follower.head.recent()
        Writer(world.log, "p").write(1)
        with mock.patch("time.monotonic", return_value=follower.head._looked_at + 0.9):
            self.assertEqual(follower.head.recent().version, 0)
        with mock.patch("time.monotonic", return_value=follower.head._looked_at + 1.1):
            self.assertEqual(follower.head.recent().version, 2)

    def test_a_walk_ends_at_what_is_enough_at_the_limit_or_at_the_end(self) -> None:
        world = World()
        follower = world.open()
        follower.head.load()
        Writer(world.log, "p").write(6)
        self.assertEqual(follower.head.walk(lambda m: False, 2).version, 2)
        self.assertEqual(follower.head.walk(lambda m: m.version == 4, 9).version, 4)
        self.assertEqual(follower.head.walk(lambda m: False, 9).version, 7)
        self.assertEqual(follower.head.walk(lambda m: False, 9).version, 7)

    def test_a_version_that_is_kept_is_synced_once_and_those_before_it_never_again(self) -> None:
        world = World()
        Writer(world.log, "p").write(3)
        store: Any = HookedStore(world.store)
        synced: list[str] = []
        store.sync = synced.append
        head = head_module.Head(store, world.log.spec)
        manifests = [m for v in (2, 1, 3, 3) if (m := world.log.head.read(v))]
        for manifest in manifests:
            head.keep(manifest)
        self.assertEqual(synced, [manifest_key(2), manifest_key(3)])


    def test_a_version_that_says_deleted_is_of_format_2_so_that_older_readers_stop_at_it(self) -> None:
        newest = World().log.head.newest()
        for is_deleted, format in ((True, 2), (False, 1)):
            manifest = replace(newest, deleted=is_deleted)
            self.assertEqual(load_json(encode_manifest(manifest))["format"], format)


class Intents(unittest.TestCase):
    def test_intents_are_listed_page_by_page_to_the_end_and_what_is_none_is_skipped(self) -> None:
        world = World()
        writer = Writer(world.open(), "p").open()
        batches = [writer.upload(str(i)) for i in range(5)]
        for batch in batches:
            for key in batch_intents(world.log.spec.uuid, [batch])[0]:
                world.log.store.put(key, b"")
        world.log.store.put(INTENT_PREFIX + "nonsense", b"")
        listed = world.store.list

        def short(prefix: str, start_after: str = "", limit: int = 1_000) -> tuple[list[str], bool]:
            return listed(prefix, start_after, 2)

        with mock.patch.object(world.store, "list", short):
            found = world.open().list_intents()
        self.assertEqual(sorted(batch.seq for batch in found.batches), [0, 1, 2, 3, 4])
        self.assertEqual(len(found.keys), 5)
        for most in 3, 4:
            with mock.patch.object(world.store, "list", short), mock.patch.object(log_module, "_INTENTS_MAX", most):
                self.assertEqual(len(world.open().list_intents().keys), 4)


    def test_an_attempt_with_nothing_to_commit_commits_nothing(self) -> None:
        world = World()
        writer = Writer(world.open(), "p").open()
        before = dict(world.store.objects)
        for fresh in (True, False):
            self.assertEqual(writer.log.attempt_batches(writer.holder, [], fresh=fresh).outcome, "nothing")
        self.assertEqual(world.store.objects, before)

    def test_an_intent_is_spent_once_the_state_has_passed_it_and_not_before(self) -> None:
        batches = [Descriptor("p", 3, "aaaaaaaaaaaa", seq, 0, 0) for seq in (4, 5)]

        def state(epoch: int, incarnation: str, seq: int, left: int = 0) -> dict[str, ProducerState]:
            return {"p": ProducerState(epoch, incarnation, seq, 1, None, left)}

        mine, other = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
        opening, leaving = OpeningIntent("p", 2, mine), LeavingIntent("p", 3, mine)
        expected: list[tuple[Any, dict[str, ProducerState], bool]] = [
            (batches, {}, False), (opening, {}, False), (leaving, {}, False),
            (batches, state(3, mine, 5), False), (batches, state(3, mine, 6), True),
            (batches, state(3, other, 6), False), (batches, state(4, other, 0), True), (batches, state(2, mine, 6), False),
            (opening, state(2, other, 0), False), (opening, state(3, other, 0), True),
            (leaving, state(3, mine, 6), False), (leaving, state(3, mine, 6, 3), True), (leaving, state(4, other, 6), True),
        ]
        for intent, states, spent in expected:
            self.assertIs(bool(is_spent(intent, states)), spent, (intent, states))


class Openings(unittest.TestCase):
    def test_who_loses_twice_publishes_an_intent_and_whoever_commits_next_opens_it(self) -> None:
        world = World()
        store = HookedStore(world.store)
        winner = Writer(world.open(), "winner").open()
        helper = Writer(world.open(), "helper").open()

        def others_first(key: str, body: Any, call: Callable[[], str]) -> str:
            if MANIFEST_PREFIX in key:
                winner.write(1)
            return call()

        def carry(key: str) -> None:
            if INTENT_PREFIX in key:
                attempt = helper.log.attempt_batches(helper.holder, [helper.upload()], helper.log.list_intents())
                self.assertEqual(attempt.result, (["staged"], 1))

        store.around_create = others_first
        store.after_put = carry
        with mock.patch.object(log_module, "_OPEN_ROUNDS_MAX", 3):
            opening = world.open(store).open_producer("late")
        self.assertEqual((opening.holder.epoch, opening.seq), (1, 0))
        state = world.log.head.jump().producers["late"]
        manifest = world.log.head.read(state.at)
        assert manifest is not None
        self.assertEqual((state.incarnation, manifest.commit["by"]), (opening.holder.incarnation, "helper"))
        self.assertEqual([key for key, _, outcome in store.creates if outcome == "created"], [])

    def test_a_namespace_json_of_another_life_is_noticed_after_half_a_minute_and_not_looked_at_before(self) -> None:
        world = World()
        log = world.open()
        other = MemoryStore()
        create_namespace("memory:test", rows=1, store=other)
        world.store.objects[NAMESPACE_KEY] = other.objects[NAMESPACE_KEY]
        with mock.patch("time.monotonic", return_value=log._seen_at + 29):
            log.open_producer("p")
        with mock.patch("time.monotonic", return_value=log._seen_at + 31), self.assertRaises(BatchWeaveError) as caught:
            log.open_producer("p")
        self.assertEqual(caught.exception.code, "DELETED")

    def test_a_namespace_json_that_is_gone_stops_nobody_while_the_chain_goes_on(self) -> None:
        world = World()
        Writer(world.log, "p").write(2)
        del world.store.objects[NAMESPACE_KEY]
        log = world.open()
        log._seen_at -= 60
        self.assertEqual(log.open_producer("p").holder.epoch, 2)


class RoundTrips(unittest.TestCase):
    def test_the_first_write_counts_whole_a_faster_one_half_a_slower_one_a_tenth_and_reads_only_before(self) -> None:
        measure = RoundTrip()
        self.assertEqual(measure.seconds, 0.1)
        measure.guess(0.2)
        self.assertAlmostEqual(measure.seconds, 0.3)
        measure.learn(1)
        self.assertAlmostEqual(measure.seconds, 1)
        measure.learn(2)
        self.assertAlmostEqual(measure.seconds, 1.1)
        measure.learn(0.1)
        self.assertAlmostEqual(measure.seconds, 0.6)
        measure.guess(9)
        self.assertAlmostEqual(measure.seconds, 0.6)


class ResumePoints(unittest.TestCase):
    def test_one_of_a_producer_in_a_sealed_table_is_found_without_opening_it(self) -> None:
        world = World()
        Writer(world.log, "p").write(1)
        newest = world.log.head.jump()
        draft = Draft(newest, Stamp("aaaaaaaaaaaa", "reclaimer", 0, 0))
        ref = draft._seal("table", {"producers": {"p": [newest.producers["p"].stored(), {"at": 7}]}})
        world.log.store.put(*draft.sealed[0])
        silent = replace(newest, version=newest.version + 1, producers={}, tables=[ref])
        world.log.store.put(manifest_key(silent.version), encode_manifest(silent))
        log = world.open()
        self.assertEqual([log.find_resume_point(log.head.jump(), id) for id in ("p", "q")], [{"at": 7}, None])

    def test_one_damaged_on_the_way_is_read_again_and_one_damaged_at_rest_is_corrupt(self) -> None:
        world = World()
        Writer(world.log, "p").write(1)
        state = world.log.head.jump().producers["p"]
        read = world.store.get_range
        bad = [1]

        def damage(key: str, start: int, length: int) -> bytes | None:
            data = read(key, start, length)
            if data is None or BATCH_PREFIX not in key or not bad:
                return data
            bad.pop()
            return bytes([data[0] ^ 1]) + data[1:]

        with mock.patch.object(world.store, "get_range", damage):
            self.assertIsNone(world.log.read_resume_point("p", state))
            self.assertEqual(bad, [])
            bad += [1] * 4
            with self.assertRaises(BatchWeaveError) as caught:
                world.log.read_resume_point("p", state)
        self.assertEqual(caught.exception.code, "CORRUPT")
        self.assertEqual(len(bad), 2, "it is read twice")

    def test_one_whose_object_is_gone_is_looked_for_where_the_newest_state_says(self) -> None:
        world = World()
        Writer(world.log, "p").write(1)
        for key in [key for key in world.store.objects if BATCH_PREFIX in key]:
            del world.store.objects[key]
        with self.assertRaises(BatchWeaveError) as caught:
            world.open().open_producer("p")
        self.assertEqual(caught.exception.code, "MISSING_OBJECT")


if __name__ == "__main__":
    unittest.main()
