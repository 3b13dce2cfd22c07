"""Property: a process concludes from the store exactly what the rules of manifests and markers allow, with the requests that they need and no more, up to the last
version and the last row that can be counted.

Method: logs in memory with every request written down; heads of which single parts are replaced by what a test says they find.
"""
from __future__ import annotations

import dataclasses
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.format.index_node import Run
from batchweave.format.keys import MANIFEST_PREFIX, boundary_key, manifest_key
from batchweave.format.manifest import genesis
from batchweave.format.namespace_spec import decode_namespace
from batchweave.format.stored_json import SAFE_INTEGER_MAX, seal_json
from batchweave.log import head as module
from batchweave.log.draft import encode_manifest
from batchweave.log.head import BoundaryChain, Head
from batchweave.store.object_store import LIST_PAGE_MAX
from hooked_store import HookedStore
from memory_store import MemoryStore
from small_world import World, Writer, announce

UUID = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5"


def spec_of(rows: int) -> Any:
    return decode_namespace(seal_json("namespace", UUID, {"grid": {"rows": rows, "chunks": 1}, "order": {"kind": "commit"}, "created": 1}), "namespace.json")


class Verified(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        Writer(self.world.log, "p").write(6)
        self.log = self.world.open()
        self.folder = f"life/{self.log.spec.uuid}/"

    def refused(self, call: Any, code: str) -> BatchWeaveError:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        return caught.exception

    def requests(self, call: Any) -> list[str]:
        self.world.store.requests.clear()
        call()
        return [f"{name} {key.removeprefix(self.folder)}" for name, key in self.world.store.requests]


class Loads(Verified):
    def test_a_reader_that_goes_on_by_itself_does_not_probe(self) -> None:
        found = [f"list {MANIFEST_PREFIX}", f"get {manifest_key(7)}", f"get {boundary_key(1)}"]
        self.assertEqual(self.requests(self.log.head.recent), found)
        self.assertEqual(self.requests(self.log.head.recent), [])
        self.log = self.world.open()
        self.assertEqual(self.requests(self.log.head.newest), [*found, f"get {manifest_key(8)}", f"get {boundary_key(1)}"])
        self.assertEqual(self.requests(self.log.head.newest), [])
        self.assertEqual(self.requests(self.log.head.advance), [f"get {manifest_key(8)}", f"get {boundary_key(1)}"])
        self.assertEqual(self.requests(self.log.head.jump), [f"list {MANIFEST_PREFIX}", f"get {boundary_key(1)}"])
        Writer(self.world.log, "q").write(1)
        self.assertEqual(self.requests(self.log.head.jump), [f"list {MANIFEST_PREFIX}", f"get {manifest_key(9)}", f"get {boundary_key(1)}"])

    def test_what_the_boundary_has_reached_is_no_head(self) -> None:
        for up_to, expected in (4, 5), (5, 7):
            world = World()
            Writer(world.log, "p").write(6)
            store = HookedStore(world.store)
            head = world.open(store).head
            pages = [lambda keys: keys[:5], lambda keys: keys]

            def listed(prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Any:
                keys, more = world.store.list(prefix, start_after, limit)
                if len(pages) == 2:
                    announce(world.log, up_to)
                return pages.pop(0)(keys), more

            with mock.patch.object(store, "list", listed), mock.patch.object(module, "time", mock.Mock(monotonic=lambda: 1.0)):
                self.assertEqual(head.load(is_probing=False).version, expected)

    def test_an_empty_log_is_its_beginning_only_below_no_boundary(self) -> None:
        world = World()
        self.assertEqual(world.open().head.load().version, 0)
        announce(world.log, 1)
        with mock.patch.object(module, "time", mock.Mock(monotonic=lambda: 1.0)) as time:
            said = self.refused(lambda: world.open().head.load(), "MISSING_OBJECT")
        self.assertEqual((said.details, time.sleep.call_count), ({"boundary": {"n": 1, "upTo": 1}}, 19))

    def test_a_manifest_ends_at_a_row_that_can_be_counted(self) -> None:
        # 2^53 - 1 is 6,361 times a whole number.
        for rows, end, is_right in (6_361, SAFE_INTEGER_MAX // 6_361, True), (6_361, SAFE_INTEGER_MAX // 6_361 + 1, False), (2, 2**52 - 1, True), (2, 2**52, False), (1, SAFE_INTEGER_MAX, True):
            spec, store = spec_of(rows), MemoryStore()
            made = dataclasses.replace(genesis(spec), version=1, commit={"id": "0123456789ab", "by": "x", "time": 1}, tail=Run(end, []))
            store.put(manifest_key(1), encode_manifest(made))
            if is_right:
                self.assertEqual(Head(store, spec).read(1).end, end)  # type: ignore[union-attr]
            else:
                self.assertIn("beyond the last row that can be counted", self.refused(lambda: Head(store, spec).read(1), "CORRUPT").message)

    def test_the_last_version_is_found_up_to_the_last_number_there_is(self) -> None:
        head = self.log.head
        for low, last in (0, 0), (0, 7_999), (0, 8_000), (0, 8_001), (1_000, 73_000), (5, 700_000), (SAFE_INTEGER_MAX - 8_000, SAFE_INTEGER_MAX), (SAFE_INTEGER_MAX - 7_999, SAFE_INTEGER_MAX - 5):
            asked: list[int] = []

            def exists(version: int) -> bool:
                asked.append(version)
                return version <= last

            def listed(prefix: str, after: str, limit: int) -> Any:
                first = int(after[-25:-5]) + 1
                return [manifest_key(v) for v in range(first, min(last, first + limit - 1) + 1)], False

            with mock.patch.object(head, "_exists", exists), mock.patch.object(head, "_store", SimpleNamespace(list=listed)):
                self.assertEqual(head._gallop(low), last)
            # The first stride, or half of it where there is no such number.
            self.assertEqual(asked[0], low + (8_000 if low + 8_000 <= SAFE_INTEGER_MAX else 4_000))
            if low + 8_000 <= last and low + 72_000 <= SAFE_INTEGER_MAX:
                self.assertEqual(asked[1], low + 72_000)
            self.assertLess(len(asked), 20)
        self.world.store.requests.clear()
        self.assertEqual((head._exists(7), head._exists(8)), (True, False))
        self.assertEqual([name for name, _ in self.world.store.requests], ["get_range"] * 2)


class Conclusions(Verified):
    def verify(self, base: Any, following: Any, up_to: int, known: Any = None) -> Any:
        head = self.log.head
        head.known, head._looked_at = known or base, -1.0
        with mock.patch.object(head.boundary, "look", lambda: up_to), mock.patch.object(head, "load", lambda: "loaded"):
            return head._verify(base, following, 5.0)

    def test_an_absent_name_and_a_read_one_say_nothing_at_or_below_the_boundary(self) -> None:
        versions = {v: dataclasses.replace(self.world.log.head.newest(), version=v) for v in (1, 2, 3)}
        for base, following, up_to, expected in (
            (1, 2, 0, 2), (1, 2, 1, 2), (1, 2, 2, "loaded"), (1, 2, 3, "loaded"), (1, None, 0, 1), (1, None, 1, "loaded"), (2, None, 1, 2), (2, None, 2, "loaded"), (2, None, 3, "loaded"),
        ):
            found = self.verify(versions[base], versions.get(following), up_to)
            self.assertEqual(found if found == "loaded" else found.version, expected, (base, following, up_to))
            self.assertEqual(self.log.head._looked_at, 5.0 if following is None and expected != "loaded" else -1.0)
        genesis_of = dataclasses.replace(versions[1], version=0)
        self.assertEqual(self.verify(genesis_of, None, 0).version, 0)
        self.assertEqual(self.verify(versions[1], None, 0, versions[3]).version, 3, "another thread is further on")
        self.assertEqual(self.verify(versions[1], versions[2], 0, versions[3]).version, 3)

    def test_a_process_never_goes_back_and_stops_at_the_last_version(self) -> None:
        head, newest = self.log.head, self.log.head.load()
        self.assertIs(head._adopt(dataclasses.replace(newest)), newest)
        self.assertIs(head._adopt(dataclasses.replace(newest, version=newest.version - 1)), newest)
        later = dataclasses.replace(newest, version=newest.version + 1)
        self.assertIs(head._adopt(later), later)
        self.refused(lambda: head._adopt(dataclasses.replace(newest, deleted=True)), "DELETED")

    def test_what_it_made_is_its_own_above_the_boundary_only(self) -> None:
        head, newest = self.log.head, self.log.head.load()
        made = dataclasses.replace(newest, version=newest.version + 1)
        for up_to, expected in (made.version, False), (made.version + 1, False), (made.version - 1, True):
            with mock.patch.object(head.boundary, "look", lambda: up_to):
                self.assertEqual(head.vouch(made), expected)
            self.assertEqual(head.known is made, expected)
        synced: list[str] = []
        head._store = SimpleNamespace(sync=synced.append)  # type: ignore[assignment]
        head.keep(made)
        self.assertEqual(synced, [], "a create has synced it")
        head.keep(dataclasses.replace(made, version=made.version + 1))
        self.assertEqual(synced, [manifest_key(made.version + 1)])

    def test_every_look_is_a_measure_of_the_store(self) -> None:
        head = self.log.head
        head.load()
        clock = iter((10.0, 20.0, 20.5))
        with mock.patch.object(head.round_trip, "guess") as guessed, mock.patch.object(module, "time", mock.Mock(monotonic=lambda: next(clock))):
            head.advance()
        self.assertEqual((guessed.mock_calls, head._looked_at), ([mock.call(0.5)], 10.0))

    def test_a_first_version_is_synced_before_it_is_relied_on(self) -> None:
        synced: list[str] = []
        store: Any = HookedStore(self.world.store)
        store.sync = synced.append
        head = Head(store, self.log.spec)
        head.keep(dataclasses.replace(self.log.head.newest(), version=1))
        self.assertEqual(synced, [manifest_key(1)])


class Markers(Verified):
    def chain(self, *marks: int, store: Any = None) -> BoundaryChain:
        self.store = store or MemoryStore()
        for n, up_to in enumerate(marks, 1):
            self.store.put(boundary_key(n), seal_json("boundary", UUID, {"n": n, "upTo": up_to}))
        return BoundaryChain(self.store, UUID)

    def test_markers_are_read_one_by_one_to_the_first_that_is_absent(self) -> None:
        chain = self.chain(3, 5, 9)
        self.store.requests.clear()
        self.assertEqual((chain.look(), chain.n, chain.up_to), (9, 3, 9))
        self.assertEqual([key for _, key in self.store.requests], [boundary_key(n) for n in (1, 2, 3, 4)])
        self.store.requests.clear()
        self.assertEqual((chain.look(), [key for _, key in self.store.requests]), (9, [boundary_key(4)]))
        for marks in ([3, 3], [3, 2]):
            said = self.refused(self.chain(*marks).look, "CORRUPT")
            self.assertEqual(said.details, {"n": 2, "upTo": marks[1]})
            self.assertIn("does not raise the boundary above 3", said.message)
        self.assertEqual(self.chain().look(), 0)

    def test_a_hint_is_jumped_to_if_it_is_ahead_and_must_be_there(self) -> None:
        chain = self.chain(3, 5, 9)
        self.store.requests.clear()
        chain.jump(0)
        self.assertEqual((chain.n, self.store.requests), (0, []))
        chain.jump(2)
        self.assertEqual((chain.n, chain.up_to, [key for _, key in self.store.requests]), (2, 5, [boundary_key(2)]))
        chain.jump(2)
        chain.jump(1)
        self.assertEqual((chain.n, len(self.store.requests)), (2, 1))
        self.assertEqual(self.refused(lambda: chain.jump(4), "MISSING_OBJECT").details, {"key": boundary_key(4)})
        chain.assert_intact()
        self.store.delete([boundary_key(2)])
        self.assertEqual(self.refused(chain.assert_intact, "MISSING_OBJECT").details, {"key": boundary_key(2)})
        self.store.requests.clear()
        self.chain().assert_intact()
        self.assertEqual(self.store.requests, [])
        chain._adopt(1, 99)
        self.assertEqual((chain.n, chain.up_to), (2, 5))

    def test_a_marker_that_may_vanish_is_named_by_no_manifest(self) -> None:
        chain = self.chain(3, 5)
        chain.look()
        self.assertEqual(chain.kept, 2, "a store that loses nothing")
        store: Any = MemoryStore()
        store.sync = None
        chain = self.chain(3, 5, store=store)
        chain.look()
        self.assertEqual(chain.kept, 2)
        store.sync = lambda key: None
        chain = self.chain(3, 5, store=store)
        chain.look()
        self.assertEqual(chain.kept, 0)
        chain.jump(1)
        self.assertEqual(chain.kept, 1)
        chain.jump(2)
        chain.jump(1)
        self.assertEqual(chain.kept, 2)

    def test_after_the_last_marker_nothing_is_asked(self) -> None:
        chain = self.chain(3)
        self.store.put(boundary_key(2), seal_json("boundary", UUID, {"n": 2, "upTo": 4, "deleted": True}))
        self.refused(chain.look, "DELETED")
        self.store.requests.clear()
        self.refused(chain.look, "DELETED")
        self.assertEqual(self.store.requests, [])


if __name__ == "__main__":
    unittest.main()
