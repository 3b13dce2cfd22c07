"""Property: the newest version is found however long the log is, and within few requests; what may be concluded from a look ends with it.

Method: logs of every length around the strides of the search, on a store whose listings are short; stores that forget, refuse or answer late.
"""
from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.format.keys import BATCH_PREFIX, INTENT_PREFIX, MANIFEST_PREFIX, batch_intents, manifest_key
from batchweave.log import head as head_module
from batchweave.log import log as log_module
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
        self.assertEqual(sorted(batch[3] for batch in found.batches), [0, 1, 2, 3, 4])
        self.assertEqual(len(found.keys), 5)
        with mock.patch.object(world.store, "list", short), mock.patch.object(log_module, "_INTENTS_MAX", 4):
            self.assertEqual(len(world.open().list_intents().keys), 4)


class ResumePoints(unittest.TestCase):
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
