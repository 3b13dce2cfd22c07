"""Property: a folder is a store with at most one winner per key across processes; no reader sees part of an object, and no key leaves the root.

Method: the calls on a temporary folder; racing real processes; names that TypeScript's file store uses.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.store import object_store as store_module
from batchweave.store.file_store import TEMP_DIRECTORY, FileStore
from batchweave.store.object_store import RetryingStore, open_store, path_of_file_uri


class Files(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "deep" / "ns"
        self.store = FileStore(str(self.root))

    def test_create_put_get_range_list_delete(self) -> None:
        s = self.store
        self.assertIsNone(s.get("a/b"))
        self.assertEqual(s.create("a/b", b"one"), "created")
        self.assertEqual(s.create("a/b", b"two"), "exists")
        self.assertEqual(s.get("a/b"), b"one")
        s.put("a/c", [b"par", b"", memoryview(b"ts")])
        self.assertEqual(s.get_range("a/c", 1, 3), b"art")
        self.assertEqual(s.get_range("a/c", 3, 100), b"ts")
        self.assertEqual(s.get_range("a/c", 100, 1), b"")
        self.assertIsNone(s.get_range("a/x", 0, 1))
        self.assertIsNone(s.get("a"), "a folder is no object")
        self.assertEqual(s.create("empty", b""), "created")
        s.delete(["a/b", "a/none"])
        s.delete(["a/c"])
        self.assertFalse((self.root / "a").exists(), "folders that became empty go")
        self.assertEqual(os.listdir(self.root / TEMP_DIRECTORY), [])

    def test_listing_is_in_byte_order_of_whole_keys_and_in_pages(self) -> None:
        keys = ["a-", "a/1", "a/2/x", "a.", "a0", "b"]
        for key in keys:
            self.store.put(key, b"x")
        everything, more = self.store.list("")
        self.assertEqual((everything, more), (sorted(keys), False))
        self.assertEqual(self.store.list("a/"), (["a/1", "a/2/x"], False))
        self.assertEqual(self.store.list("", "a/1", 2), (["a/2/x", "a0"], True))
        self.assertEqual(self.store.list("../"), ([], False))

    def test_keys_cannot_lead_out_of_the_root(self) -> None:
        for key in ["../x", "a/../x", "/x", "a//b", "a/", "", "a\\b", "a\0b", "~", "é", "x" * 901]:
            with self.assertRaises(BatchWeaveError, msg=key) as caught:
                self.store.get(key)
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")

    def test_a_link_in_place_of_an_object_is_not_followed(self) -> None:
        self.store.put("a", b"x")
        os.symlink("/etc/hostname", self.root / "link")
        self.assertIsNone(self.store.get("link"))

    def test_of_many_processes_one_wins(self) -> None:
        script = (
            "import sys\nfrom batchweave.store.file_store import FileStore\n"
            "store = FileStore(sys.argv[1])\nsys.stdin.readline()\n"
            "print([store.create(f'k{i}', sys.argv[2].encode()) for i in range(50)].count('created'))"
        )
        command = [sys.executable, "-c", script, str(self.root)]
        children = [
            subprocess.Popen([*command, f"{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for n in range(4)
        ]
        for child in children:
            assert child.stdin
            child.stdin.write("go\n")
            child.stdin.flush()
        wins = [int(child.communicate()[0]) for child in children]
        self.assertEqual(sum(wins), 50)

    def test_leftovers_of_dead_processes_are_swept_and_those_of_the_living_stay(self) -> None:
        self.store.put("a", b"x")
        temp = self.root / TEMP_DIRECTORY
        mine = self.store._next_temp()
        Path(mine).write_bytes(b"x")
        scope = Path(mine).name.split(".")[0]
        (temp / f"{scope}.999999999.abc.0").write_bytes(b"x")
        (temp / "otherscope.1.abc.0").write_bytes(b"x")
        FileStore(str(self.root))
        self.assertEqual(sorted(os.listdir(temp)), sorted([Path(mine).name, "otherscope.1.abc.0"]))

    def test_a_missing_folder_under_a_write_is_made_again(self) -> None:
        self.store.put("a/b", b"1")
        self.store.delete(["a/b"])
        self.store.put("a/c", b"2")
        self.assertEqual(self.store.get("a/c"), b"2")


class Uris(unittest.TestCase):
    def code(self, uri: str) -> str:
        with self.assertRaises(BatchWeaveError) as caught:
            open_store(uri)
        return caught.exception.code

    def test_what_is_no_uri_is_refused_in_one_sentence(self) -> None:
        self.assertEqual(path_of_file_uri("file:///a%20b/../c"), "/c")
        for uri in ["file://host/x", "file:x", "file:///", "file:///a?b", "file:///a%2Fb", "file:///%zz"]:
            self.assertEqual(self.code(uri), "INVALID_ARGUMENT", uri)
        for uri in ["/data", "ftp://x/y", ""]:
            self.assertEqual(self.code(uri), "UNKNOWN_SCHEME", uri)
        with self.assertRaisesRegex(BatchWeaveError, "no setting 'durable'; it has: durability"):
            open_store("file:///tmp/x", durable=True)


class Retries(unittest.TestCase):
    def test_everything_but_create_is_tried_again_and_short_ranges_are_continued(self) -> None:
        class Flaky:
            uri = "test:"
            failures = 2
            creates = 0

            def get_range(self, key: str, start: int, length: int) -> bytes:
                if self.failures:
                    self.failures -= 1
                    raise BatchWeaveError("STORE_UNAVAILABLE", "later")
                return b"0123456789"[start : start + min(length, 3)]

            def create(self, key: str, body: bytes) -> str:
                self.creates += 1
                raise BatchWeaveError("STORE_UNAVAILABLE", "later")

        flaky = Flaky()
        store = RetryingStore(flaky, first_delay=0.001)  # type: ignore[arg-type]
        self.assertEqual(store.get_range("k", 1, 8), b"12345678")
        self.assertEqual(store.get_range("k", 8, 8), b"89")
        with self.assertRaises(BatchWeaveError):
            store.create("k", b"")
        self.assertEqual(flaky.creates, 1)

    def test_an_outage_is_outlived_by_any_number_of_reads_in_flight_and_the_store_is_not_buried(self) -> None:
        begun = time.monotonic()

        class Down:
            uri = "test:"
            create = None
            calls = 0

            def get(self, key: str) -> bytes:
                self.calls += 1
                if key != "before" and time.monotonic() - begun < 1.0:
                    raise BatchWeaveError("STORE_UNAVAILABLE", "later")
                return b"here"

        down = Down()
        store = RetryingStore(down)  # type: ignore[arg-type]
        store.get("before")
        found: list[Any] = []
        with mock.patch.object(store_module, "_RETRIES_AT_ONCE", 10.0):
            store._budget = 10.0
            threads = [threading.Thread(target=lambda: found.append(store.get("k"))) for _ in range(40)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        spent = time.monotonic() - begun
        self.assertEqual(found, [b"here"] * 40)
        self.assertLessEqual(down.calls, 1 + 40 + 10 + 20 * (spent + 1))

    def test_an_answer_that_took_all_the_patience_to_fail_is_asked_for_again(self) -> None:
        class Hanging:
            uri = "test:"
            create = None
            calls = 0

            def get(self, key: str) -> bytes:
                self.calls += 1
                if self.calls == 2:
                    time.sleep(0.2)
                    raise BatchWeaveError("STORE_UNAVAILABLE", "no answer")
                return b"here"

        store = RetryingStore(Hanging(), first_delay=0.001, patience=0.1)  # type: ignore[arg-type]
        self.assertEqual([store.get("k"), store.get("k")], [b"here", b"here"])

    def test_where_nothing_was_ever_served_whoever_waits_is_told_soon_and_else_when_patience_is_over(self) -> None:
        class Down:
            uri = "test:"
            create = None
            is_down = True
            calls = 0

            def get(self, key: str) -> bytes:
                self.calls += 1
                if self.is_down:
                    raise BatchWeaveError("STORE_UNAVAILABLE", "later")
                return b"here"

        down = Down()
        store = RetryingStore(down, first_delay=0.001, delay_max=0.01, patience=0.05)  # type: ignore[arg-type]
        for has_served, calls in ((False, range(6, 7)), (True, range(2, 13))):
            down.calls = 0
            with self.assertRaises(BatchWeaveError):
                store.get("k")
            self.assertIn(down.calls, calls, has_served)
            down.is_down = False
            store.get("k")
            down.is_down = True


if __name__ == "__main__":
    unittest.main()
