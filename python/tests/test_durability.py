"""Property: nothing is acknowledged on files before its name survives power loss, whichever process wrote that name; a sync that failed is made again.

Method: the sync of folders is replaced by one that records, fails, or waits; a follower's batch is carried by a process that dies between
link(2) and the sync of the folder.
"""
from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any, Callable
from unittest import mock

from batchweave import BatchWeaveError, create_namespace, open_namespace
from batchweave.store import file_store as file_store_module
from batchweave.store.file_store import FileStore
from batchweave.store.object_store import RetryingStore
from small_world import World, Writer, announce

_sync = file_store_module._fsync_directory


class Syncs(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "ns"
        self.synced: list[str] = []
        self.on_sync: Callable[[str], None] | None = None
        patch = mock.patch.object(file_store_module, "_fsync_directory", self.sync)
        patch.start()
        self.addCleanup(patch.stop)

    def sync(self, path: str) -> None:
        if self.on_sync:
            self.on_sync(path)
        _sync(path)
        self.synced.append(os.path.relpath(path, self.root))

    def refuse(self, path: str) -> None:
        raise OSError(errno.EIO, "planted")

    def recorded(self, call: Callable[[], Any]) -> list[str]:
        """The system calls that make an object durable, in order: bytes synced, name given, folder synced."""
        calls: list[str] = []

        def record(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
            def recording(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                calls.append(name)
                return result

            return recording

        self.on_sync = lambda path: calls.append(f"sync {os.path.relpath(path, self.root)}")
        with mock.patch.object(file_store_module, "_fdatasync", record("bytes", file_store_module._fdatasync)), mock.patch.object(
            os, "link", record("link", os.link)
        ), mock.patch.object(os, "rename", record("rename", os.rename)):
            call()
        self.on_sync = None
        return calls

    def test_bytes_are_synced_before_the_name_and_the_folder_after_it(self) -> None:
        store = FileStore(str(self.root))
        self.assertEqual(self.recorded(lambda: store.create("a/k", b"x")), ["bytes", "link", "sync a", "sync .", "sync .."])
        self.assertEqual(self.recorded(lambda: store.put("a/p", b"x")), ["bytes", "rename", "sync a"])
        careless = FileStore(str(self.root), durability="process-crash")
        self.assertEqual(self.recorded(lambda: careless.create("a/l", b"x")), ["link"])

    def test_a_create_that_finds_the_name_taken_syncs_it_before_it_says_so(self) -> None:
        store = FileStore(str(self.root))
        self.on_sync = self.refuse
        self.assertEqual(store.create("manifest/1", b"x"), "unknown")
        self.assertEqual(store.get("manifest/1"), b"x", "it was linked, and not synced")
        self.assertEqual(store.create("manifest/1", b"x"), "unknown", "still not synced")
        self.on_sync = None
        self.synced.clear()
        self.assertEqual(store.create("manifest/1", b"x"), "exists")
        self.assertEqual(self.synced, ["manifest", ".", ".."], "the folder, and those above it, which nobody had synced")

    def test_a_folder_is_known_only_once_it_is_synced(self) -> None:
        store = FileStore(str(self.root))

        def fail_above(path: str) -> None:
            if path == str(self.root):
                self.refuse(path)

        self.on_sync = fail_above
        with self.assertRaises(BatchWeaveError):
            store.put("batch/aa/1", b"x")
        self.on_sync = None
        self.synced.clear()
        store.put("batch/aa/1", b"x")
        self.assertEqual(self.synced, ["batch/aa", "batch", ".", ".."])
        self.synced.clear()
        store.put("batch/aa/2", b"x")
        self.assertEqual(self.synced, ["batch/aa"])

    def test_a_folder_that_was_removed_and_made_again_is_synced_again(self) -> None:
        store = FileStore(str(self.root))
        store.put("batch/aa/1", b"x")
        shutil.rmtree(self.root / "batch")
        self.synced.clear()
        store.put("batch/aa/1", b"x")
        self.assertEqual(self.synced, ["batch/aa", "batch", ".", ".."])

    def test_only_the_folder_above_the_root_may_refuse_to_be_synced(self) -> None:
        store = FileStore(str(self.root))

        def deny(path: str) -> None:
            if path in denied:
                raise PermissionError(errno.EACCES, "planted")

        self.on_sync = deny
        denied = {str(self.root)}
        with self.assertRaises(BatchWeaveError) as caught:
            store.put("batch/1", b"x")
        self.assertEqual(caught.exception.code, "STORE_DENIED")
        denied = {str(self.root.parent)}
        store.put("batch/1", b"x")
        self.assertEqual(self.synced[-2:], ["batch", "."])

    def test_what_link_answers_is_created_only_by_the_link_count_and_unknown_unless_it_says_for_certain(self) -> None:
        store = FileStore(str(self.root))
        link = os.link

        def answer(code: int, is_made: bool) -> Callable[[str, str], None]:
            def linking(source: str, target: str) -> None:
                if is_made:
                    link(source, target)
                raise OSError(code, "planted")

            return linking

        store.put("a/0", b"x")
        for number, (code, is_made, expected) in enumerate(
            [(errno.EEXIST, True, "created"), (errno.EIO, True, "created"), (errno.EIO, False, "unknown"), (errno.ENOSPC, False, "STORE_FULL")], 1
        ):
            with mock.patch.object(os, "link", answer(code, is_made)):
                try:
                    found = store.create(f"a/{number}", b"x")
                except BatchWeaveError as error:
                    found = error.code
            self.assertEqual(found, expected, (code, is_made))
        self.assertEqual(store.create("a/0", b"y"), "exists")
        with self.assertRaises(BatchWeaveError) as caught:
            store.create("a", b"y")
        self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        self.assertEqual(os.listdir(self.root / ".tmp~"), [], "no temporary file is left")

    def test_no_thread_relies_on_a_sync_that_is_still_under_way(self) -> None:
        store = FileStore(str(self.root))
        at_parent, may_go_on = threading.Event(), threading.Event()

        def wait(path: str) -> None:
            if path.endswith("/batch") and threading.current_thread().name == "first":
                at_parent.set()
                may_go_on.wait(10)

        self.on_sync = wait
        first = threading.Thread(target=store.put, args=("batch/aa/1", b"x"), name="first")
        first.start()
        self.assertTrue(at_parent.wait(10))
        store.put("batch/aa/2", b"x")
        self.assertEqual(self.synced.count("batch"), 1, "the second one synced it itself")
        may_go_on.set()
        first.join()

    def test_a_carried_batch_is_acknowledged_only_when_the_carriers_manifest_is_durable(self) -> None:
        uri = self.root.as_uri()
        create_namespace(uri, rows=1)
        follower = open_namespace(uri, store=RetryingStore(FileStore(str(self.root)), first_delay=0.01))
        carriers_store = FileStore(str(self.root))
        carrier = open_namespace(uri, store=carriers_store)
        opening = carrier.log.open_producer("carrier")
        producer = follower.producer("follower")
        # The carrier's folder syncs do nothing from here on: it dies before them. The follower's are recorded.
        carriers_store._durable = False
        ticket = producer.append([b"x"])
        while not (intents := carrier.log.list_intents()).batches:
            pass
        failing = [0]

        def fail_a_while(path: str) -> None:
            if path.endswith("/manifest") and failing[0] < 3:
                failing[0] += 1
                self.assertFalse(ticket._event.is_set())
                self.refuse(path)

        self.synced.clear()
        self.on_sync = fail_a_while
        attempt = carrier.log.attempt_batches(opening.holder, [], intents)
        self.assertEqual((attempt.outcome, attempt.result[1]), ("committed", 1))
        ticket.wait(20)
        self.assertEqual(failing[0], 3)
        self.assertIn(f"life/{carrier.uuid}/manifest", self.synced)
        producer.close()

    def test_what_is_concluded_without_a_commit_is_synced_first(self) -> None:
        uri = self.root.as_uri()
        namespace = create_namespace(uri, rows=1, durability="process-crash")
        with namespace.producer("p") as producer:
            producer.append([b"x"])
        namespace.checkpoint("c", namespace.consumer({"dp": 1}, 0, environment={}).cursor)
        other = open_namespace(uri)
        self.synced.clear()
        other.checkpoint("c", other.consumer({"dp": 1}, 0, environment={}).cursor)
        self.assertIn(f"life/{namespace.uuid}/manifest", self.synced, "the registration of another rank, which may not have synced it")
        self.synced.clear()
        other.checkpoint("c", other.consumer({"dp": 1}, 0, environment={}).cursor)
        self.assertEqual(self.synced, [], "once is enough")


if __name__ == "__main__":
    unittest.main()

    def test_a_manifest_names_no_marker_that_its_writer_has_not_synced_yet(self) -> None:
        create_namespace(self.root.as_uri(), rows=1)
        log = open_namespace(self.root.as_uri()).log
        writer = Writer(log, "p").write(4)
        announce(log, 2)
        self.assertEqual(log.head.boundary.look(), 2)
        writer.write(1)
        self.assertEqual(log.head.newest().boundary_hint, 0, "it was seen, and not synced by us")
        world = World()
        announce(Writer(world.log, "p").write(4).log, 2)
        world.log.head.boundary.look()
        Writer(world.log, "q").write(1)
        self.assertEqual(world.log.head.newest().boundary_hint, 1, "in memory whatever can be read stays")

    def test_a_marker_that_a_manifest_names_may_be_named_again(self) -> None:
        create_namespace(self.root.as_uri(), rows=1)
        log = open_namespace(self.root.as_uri()).log
        Writer(log, "p").write(4)
        announce(log, 2)
        log.head.boundary.jump(1)
        Writer(log, "q").write(1)
        self.assertEqual(log.head.newest().boundary_hint, 1)
