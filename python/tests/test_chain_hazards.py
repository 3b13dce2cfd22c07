"""Property: whatever a reclaimer, a zombie or a lost answer does to the chain, a batch is in the log once, and only verified state concludes anything.

Method: step in at the exact call where the hazard strikes, with names really announced and deleted in between; hazards of docs/hazards.md by
number. Each test fails when the guard that it names is taken away.
"""
from __future__ import annotations

import unittest
from dataclasses import replace
from typing import Any, Callable

from batchweave import BatchWeaveError
from batchweave.format.descriptor import Extent
from batchweave.format.keys import batch_intents, batch_key, boundary_key, manifest_key
from batchweave.format.producer_state import LastBatch
from batchweave.format.stored_json import load_json, seal_json
from batchweave.log.draft import Draft, Stamp, encode_manifest
from hooked_store import HookedStore
from memory_store import MemoryStore
from small_world import World, Writer, announce, move_on, occurrences, reclaim


class Code(unittest.TestCase):
    def assertCode(self, code: str, call: Callable[[], Any]) -> None:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception)

    def begin(self) -> World:
        world = World()
        Writer(world.log, "first").write(3)
        return world


class OnceAfterCreate:
    """Runs `strike` after the next manifest that is created, and may answer for it."""

    def __init__(self, world: World, strike: Callable[[str], str | None]) -> None:
        self.store = HookedStore(world.store)
        self.store.around_create = self.create
        self.strike: Callable[[str], str | None] = strike
        self.is_armed = False

    def create(self, key: str, body: Any, call: Callable[[], str]) -> str:
        outcome = call()
        if self.is_armed and "manifest/" in key and outcome == "created":
            self.is_armed = False
            return self.strike(key) or outcome
        return outcome


class Commits(Code):
    def test_hazard_1_a_lost_answer_is_known_for_ones_own_by_the_commit_id(self) -> None:
        world = self.begin()
        hook = OnceAfterCreate(world, lambda key: "unknown")
        writer = Writer(world.open(hook.store), "p").open()
        batch = writer.upload()
        hook.is_armed = True
        self.assertEqual(writer.log.attempt_batches(writer.holder, [batch]).outcome, "committed")
        self.assertEqual(len({body for key, body, _ in hook.store.creates[-2:]}), 1, "the same bytes were tried again")

    def test_hazard_16_a_commit_that_the_boundary_passed_is_unknown_not_lost_and_not_published_twice(self) -> None:
        world = self.begin()
        hook = OnceAfterCreate(world, lambda key: move_on(world.log))
        writer = Writer(world.open(hook.store), "late").open()
        batch = writer.upload()
        hook.is_armed = True
        self.assertEqual(writer.log.attempt_batches(writer.holder, [batch]).outcome, "unsettled")
        self.assertEqual(writer.log.attempt_batches(writer.holder, [batch]).result[0], ["in"])
        self.assertEqual(occurrences(world.open(), "late", 0), 1)

    def test_hazard_16_a_boundary_that_is_exactly_the_own_version_vouches_for_nothing(self) -> None:
        world = self.begin()

        def strike(key: str) -> None:
            announce(world.open(), int(key[-25:-5]))

        hook = OnceAfterCreate(world, strike)
        writer = Writer(world.open(hook.store), "late").open()
        batch = writer.upload()
        Writer(world.log, "other").open()  # for head.load: a version above the boundary will be there
        following: list[str] = []

        def commit_after(key: str) -> None:
            strike(key)
            following.append(key)
            fields = load_json(world.store.objects[key])
            fields.update(version=fields["version"] + 1, commit={"id": "othersothers", "by": "other", "time": 1})
            world.store.objects[key.replace(key[-25:], f"{fields['version']:020d}.json")] = seal_json("manifest", world.log.spec.uuid, fields)

        hook.strike = commit_after
        hook.is_armed = True
        self.assertEqual(writer.log.attempt_batches(writer.holder, [batch]).outcome, "unsettled")
        self.assertEqual(len(following), 1)

    def test_hazard_16_a_loser_that_reads_a_zombie_winner_with_its_batch_in_it_acknowledges_nothing(self) -> None:
        world = self.begin()
        writer = Writer(world.open(), "loser").open()
        batch = writer.upload()
        base = writer.log.head.newest()
        # A very stale process will create the name again, with the loser's batch carried.
        draft = Draft(base, Stamp("aaaaaaaaaaaa", "zombie", 0, 0))
        draft.push(batch)
        state = draft.producers["loser"]
        draft.producers["loser"] = state._replace(seq=1, at=draft.version)
        zombie = encode_manifest(draft.finish())
        move_on(world.log)
        self.assertEqual(world.log.store.create(manifest_key(base.version + 1), zombie), "created")
        attempt = writer.log.attempt_batches(writer.holder, [batch], fresh=False)
        self.assertNotEqual(attempt.outcome, "committed")
        self.assertGreater(attempt.manifest.version, base.version + 5)
        self.assertEqual(attempt.manifest.producers["loser"].seq, 0)
        self.assertEqual(occurrences(world.open(), "loser", 0), 0)

    def test_hazard_17_a_re_put_of_the_same_bytes_resurrects_a_name_and_proves_nothing(self) -> None:
        world = self.begin()

        def strike(key: str) -> str:
            # It landed, the answer is lost, and before the re-PUT the name is gone again.
            move_on(world.log)
            self.assertNotIn(key, world.store.objects)
            return "unknown"

        hook = OnceAfterCreate(world, strike)
        writer = Writer(world.open(hook.store), "p").open()
        batch = writer.upload()
        hook.is_armed = True
        self.assertEqual(writer.log.attempt_batches(writer.holder, [batch]).outcome, "unsettled")
        writer.commit([batch])
        self.assertEqual(occurrences(world.open(), "p", 0), 1)

    def test_hazard_3_a_taken_name_is_mine_only_by_its_commit_id(self) -> None:
        world = self.begin()
        store = HookedStore(world.store)
        writer = Writer(world.open(store), "p").open()
        batch = writer.upload()
        struck: list[str] = []

        def others_first(key: str, body: Any, call: Callable[[], str]) -> str:
            if "manifest/" in key and not struck:
                struck.append(key)
                Writer(world.open(), "winner").open()
            return call()

        store.around_create = others_first
        attempt = writer.log.attempt_batches(writer.holder, [batch])
        self.assertEqual(attempt.outcome, "lost")
        self.assertEqual(attempt.manifest.producers["p"].seq, 0)
        writer.commit([batch])
        self.assertEqual(occurrences(world.open(), "p", 0), 1)

    def test_nothing_is_refused_from_a_base_that_was_not_looked_at(self) -> None:
        world = self.begin()
        stale = world.open()
        stale.head.load()
        opening = world.log.open_producer("p")
        writer = Writer(world.open(), "p")
        writer.holder, writer.seq = opening.holder, 0
        batch = writer.upload()
        # The newest manifest that this process knows has no such producer: it must look again before it says FENCED.
        self.assertEqual(stale.attempt_batches(opening.holder, [batch], fresh=False).outcome, "committed")

    def test_nothing_is_called_in_from_a_base_that_was_not_looked_at(self) -> None:
        world = self.begin()
        writer = Writer(world.open(), "p").open()
        batch = writer.upload()
        base = writer.log.head.newest()
        draft = Draft(base, Stamp("aaaaaaaaaaaa", "zombie", 0, 0))
        state = draft.producers["p"]
        last = LastBatch(base.version, 0, 0, 1, batch.extents[-1].check, state.epoch, state.incarnation)
        draft.producers["p"] = state._replace(seq=1, at=draft.version, last=last)
        # Known without a look, as a version of this process's own is before it is vouched for.
        writer.log.head.known = draft.finish()
        move_on(world.log)
        attempt = writer.log.attempt_batches(writer.holder, [batch], fresh=False)
        self.assertGreater(attempt.manifest.version, base.version + 5)
        self.assertEqual(attempt.result[0] if attempt.result else ["staged"], ["staged"])

    def test_index_objects_are_there_before_the_manifest_that_names_them(self) -> None:
        world = self.begin()
        store = HookedStore(world.store)
        writer = Writer(world.open(store), "p").open()
        batches = [writer.upload(str(i)) for i in range(70)]
        seen: list[int] = []

        def look(key: str, body: Any, call: Callable[[], str]) -> str:
            refs = [ref for level in load_json(bytes(body))["index"] for ref in level[1]] if "manifest/" in key else []
            for ref in refs:
                self.assertTrue(any(f"index/{ref[0]:020d}-{ref[1]}-{ref[2]}.json" in name for name in world.store.objects), ref)
            seen.append(len(refs))
            return call()

        store.around_create = look
        writer.commit(batches)
        self.assertEqual(max(seen), 1)

    def test_hazard_48_and_49_of_two_holders_one_holds_it_and_their_names_differ(self) -> None:
        world = self.begin()
        pair = [Writer(world.open(), "twin").open(), Writer(world.open(), "twin").open()]
        first, second = (writer.upload() for writer in pair)
        self.assertNotEqual(batch_key(first, 0), batch_key(second, 0))
        self.assertCode("FENCED", lambda: pair[0].commit([first]))
        pair[1].commit([second])
        self.assertEqual(occurrences(world.open(), "twin", 0), 1)

    def test_hazard_10_and_48_an_epoch_is_ones_own_only_with_its_incarnation(self) -> None:
        world = self.begin()
        writer = Writer(world.open(), "p").open()
        writer.holder = writer.holder._replace(incarnation="aaaaaaaaaaaa")
        batch = writer.upload()
        self.assertCode("FENCED", lambda: writer.commit([batch]))
        self.assertEqual(occurrences(world.open(), "p", 0), 0)

    def test_hazard_12_a_gap_in_the_sequence_is_refused(self) -> None:
        world = self.begin()
        writer = Writer(world.open(), "p").open()
        writer.upload()
        second = writer.upload()
        self.assertCode("SEQUENCE_CONFLICT", lambda: writer.commit([second]))
        self.assertEqual(occurrences(world.open(), "p", 1), 0)

    def test_hazard_13_the_same_seq_with_other_content_fails_hard(self) -> None:
        world = self.begin()
        writer = Writer(world.open(), "p").open()
        writer.commit([writer.upload("one")])
        writer.seq = 0
        other = writer.upload("other")
        self.assertCode("SEQUENCE_CONFLICT", lambda: writer.commit([other]))

    def test_hazard_47_and_54_a_zombies_intent_is_not_carried_and_a_poisoned_one_is_skipped(self) -> None:
        world = self.begin()
        uuid = world.log.spec.uuid
        old = Writer(world.open(), "twice").open().upload()
        Writer(world.open(), "twice").open()
        fine = Writer(world.open(), "good").open().upload()
        bad = Writer(world.open(), "poisoned").open().upload()._replace(extents=(Extent(9, 1, 1, 1),))
        for batch in (old, fine, bad):
            for key in batch_intents(uuid, [batch])[0]:
                world.log.store.put(key, b"")
        helper = Writer(world.open(), "helper").open()
        attempt = helper.log.attempt_batches(helper.holder, [helper.upload()], helper.log.list_intents())
        self.assertEqual((attempt.outcome, attempt.result), ("committed", (["staged"], 1)))
        self.assertEqual([occurrences(world.open(), id, 0) for id in ("good", "twice", "poisoned")], [1, 0, 0])


class Heads(Code):
    def test_hazard_23_an_absent_name_counts_only_after_a_look(self) -> None:
        world = self.begin()
        for step in ("advance", "jump"):
            follower = world.open()
            known = follower.head.load()
            move_on(world.log)
            seen = getattr(follower.head, step)()
            self.assertGreater(seen.version, known.version + 5, step)

    def test_hazard_24_a_zombie_at_the_next_name_is_not_followed(self) -> None:
        world = self.begin()
        follower = world.open()
        following = follower.head.load().version + 1
        Writer(world.log, "other").write(1)
        stale = world.log.head.read(following)
        assert stale is not None
        move_on(world.log)
        world.log.store.create(manifest_key(following), encode_manifest(replace(stale, closed=True)))
        seen = follower.head.advance()
        self.assertGreater(seen.version, following + 5)
        self.assertFalse(seen.closed)

    def test_hazard_25_and_33_listed_then_deleted_before_it_is_read(self) -> None:
        world = self.begin()
        strikes: list[str] = []
        store = HookedStore(world.store)

        def strike(prefix: str) -> None:
            if prefix.endswith("manifest/") and len(strikes) < 3:
                strikes.append(prefix)
                move_on(world.log)

        store.after_list = strike
        head = world.open(store).head.load()
        self.assertGreater(len(strikes), 1)
        self.assertGreater(head.version, 40)
        self.assertIsNotNone(world.log.store.get(manifest_key(head.version)))

    def test_the_look_begins_after_the_manifest_was_read(self) -> None:
        world = self.begin()
        for call in ("load", "recent", "advance"):
            store = HookedStore(world.store)
            log = world.open(store)
            if call == "advance":
                log.head.load()
                Writer(world.log, "other").write(1)
            before = world.log.head.jump().version
            strikes: list[str] = []

            def strike(key: str) -> None:
                if "manifest/" in key and not strikes:
                    strikes.append(key)
                    move_on(world.log)

            store.after_get = strike
            self.assertGreater(getattr(log.head, call)().version, before + 5, call)

    def test_hazard_31_a_corrupt_manifest_stops_readers(self) -> None:
        world = self.begin()
        key = next(k for k in world.store.objects if k.endswith(manifest_key(world.log.head.jump().version)))
        data = bytearray(world.store.objects[key])
        data[40] ^= 1
        world.store.objects[key] = bytes(data)
        self.assertCode("CORRUPT", lambda: world.open().head.load())

    def test_hazard_32_a_short_listing_is_only_where_the_search_begins(self) -> None:
        world = self.begin()

        class Stale(MemoryStore):
            def list(self, prefix: str, start_after: str = "", limit: int = 1_000) -> tuple[list[str], bool]:
                keys, more = super().list(prefix, start_after, limit)
                return keys[:2] if prefix.endswith("manifest/") else keys, more

        stale = Stale()
        stale.objects = world.store.objects
        self.assertEqual(world.open(stale).head.load().version, world.log.head.jump().version)

    def test_a_process_never_goes_back_behind_what_it_verified(self) -> None:
        world = self.begin()
        store = HookedStore(world.store)
        log = world.open(store)
        log.head.load()
        Writer(world.log, "other").write(1)
        strikes: list[str] = []

        def strike(key: str) -> None:
            if "manifest/" in key and not strikes:
                strikes.append(key)
                Writer(world.log, "more").write(3)
                log.head.jump()  # another thread of the same process

        store.after_get = strike
        known = log.head.jump()
        self.assertEqual(known.version, world.log.head.jump().version)
        self.assertEqual(log.head.newest().version, known.version)


class Boundaries(Code):
    def test_a_look_reads_on_to_the_end_of_the_chain(self) -> None:
        world = self.begin()
        follower = world.open()
        follower.head.load()
        for _ in range(3):
            move_on(world.log, 3)
        self.assertEqual(follower.head.boundary.look(), world.log.head.boundary.look())
        self.assertEqual(follower.head.boundary.n, 3)

    def test_a_marker_that_does_not_raise_the_boundary_breaks_the_chain(self) -> None:
        world = self.begin()
        announce(world.log, 2)
        uuid = world.log.spec.uuid
        world.log.store.put(boundary_key(2), seal_json("boundary", uuid, {"n": 2, "upTo": 2}))
        self.assertCode("CORRUPT", lambda: world.open().head.boundary.look())

    def test_a_marker_that_a_manifest_tells_of_and_that_is_gone_stops_everything(self) -> None:
        world = self.begin()
        reclaim(world.log)
        Writer(world.log, "other").write(1)  # records the marker in its manifest
        self.assertEqual(world.log.head.newest().boundary_hint, 1)
        world.log.store.delete([boundary_key(1)])
        self.assertCode("MISSING_OBJECT", lambda: world.open().head.load())

    def test_what_was_seen_of_it_never_goes_back(self) -> None:
        world = self.begin()
        move_on(world.log)
        boundary = world.log.head.boundary
        n, up_to = boundary.n, boundary.up_to
        boundary._adopt(n - 1, up_to - 5)
        self.assertEqual((boundary.n, boundary.up_to), (n, up_to))


if __name__ == "__main__":
    unittest.main()
