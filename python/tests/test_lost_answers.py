"""Property: a lost answer leaves a commit unknown, never lost and never dead: the producer settles it, however many look-ups fail meanwhile.

Method: a store that applies creates and loses their answers, fails what is asked next many times over, or says 409; and obstore behind a server
that does the same.
"""
from __future__ import annotations

import http.server
import importlib.util
import os
import threading
import unittest
from typing import Any, Callable
from unittest import mock

from batchweave import BatchWeaveError, create_namespace
from batchweave.store.object_store import RetryingStore, Store, open_store
from hooked_store import HookedStore
from memory_store import MemoryStore
from test_log import read_all


def unavailable(key: str) -> BatchWeaveError:
    return BatchWeaveError("STORE_UNAVAILABLE", f"{key}: the connection was reset; try again", {"key": key})


class FaultyStore(HookedStore):
    """Every third create of a manifest is applied and its answer lost; then so many reads of that very name fail."""

    def __init__(self, store: Store, failures: int) -> None:
        super().__init__(store)
        self.failures = failures
        self.failing: dict[str, int] = {}
        self.failed = self.lost = self.asked = 0
        self.around_create = self.lose
        self.before_read = self.fail

    def lose(self, key: str, body: Any, call: Callable[[], str]) -> str:
        outcome = call()
        if "/manifest/" not in key:
            return outcome
        self.asked += 1
        if outcome == "created" and self.asked % 3 == 0:
            self.lost += 1
            self.failing[key] = self.failures
            return "unknown"
        return outcome

    def fail(self, key: str) -> None:
        left = self.failing.get(key, 0)
        if left > 0:
            self.failing[key] = left - 1
            self.failed += 1
            raise unavailable(key)


class Commits(unittest.TestCase):
    def test_look_ups_that_fail_after_a_lost_answer_leave_it_unknown(self) -> None:
        store = FaultyStore(MemoryStore(), 4)
        namespace = create_namespace("memory:test", rows=2, store=store)
        with namespace.producer("p") as producer:
            for i in range(6):
                producer.append([f"{i}/{row}".encode() for row in range(2)]).wait(60)
        store.around_create = store.before_read = None
        namespace.end_log()
        self.assertEqual(read_all(namespace), [f"{i}/0".encode() for i in range(6)])
        self.assertGreater(store.lost, 1)
        self.assertGreaterEqual(store.failed, 4 * (store.lost - 1))

    def test_a_create_that_could_not_be_sent_is_sent_again(self) -> None:
        store = HookedStore(MemoryStore())
        namespace = create_namespace("memory:test", rows=1, store=store)
        refused: list[str] = []

        def refuse(key: str, body: Any, call: Callable[[], str]) -> str:
            if len(refused) < 3:
                refused.append(key)
                raise unavailable(key)
            return call()

        with namespace.producer("p") as producer:
            store.around_create = refuse
            producer.append([b"a"]).wait(20)
        self.assertEqual(len(refused), 3)

    def test_one_that_can_never_be_sent_is_told(self) -> None:
        store = HookedStore(MemoryStore())
        namespace = create_namespace("memory:test", rows=1, store=store)
        producer = namespace.producer("p")

        def refuse(key: str, body: Any, call: Callable[[], str]) -> str:
            raise unavailable(key)

        store.around_create = refuse
        with self.assertRaises(BatchWeaveError) as caught:
            producer.append([b"a"]).wait(60)
        self.assertEqual(caught.exception.code, "STORE_UNAVAILABLE")


class FaultyServer(http.server.ThreadingHTTPServer):
    """S3 as a faulty proxy shows it: a create is applied and answered 500; the next one 409 or 412; so many HEADs fail with 503."""

    def __init__(self, second: int, failures: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.second = second
        self.failures = failures
        self.heads = 0
        self.objects: dict[str, bytes] = {}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        taken = self.path in self.server.objects
        self.server.objects.setdefault(self.path, body)
        self.answer(self.server.second if taken else 500)

    def do_HEAD(self) -> None:
        self.server.heads += 1
        self.answer(503 if self.server.heads <= self.server.failures else 200)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.send_header("etag", '"1"')
        self.send_header("last-modified", "Mon, 16 Nov 2026 00:00:00 GMT")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@unittest.skipIf(importlib.util.find_spec("obstore") is None, "obstore is not installed")
class Creates(unittest.TestCase):
    def open(self, second: int, failures: int) -> tuple[FaultyServer, Store]:
        server = FaultyServer(second, failures)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        }
        patch = mock.patch.dict(os.environ, env)
        patch.start()
        self.addCleanup(patch.stop)
        return server, RetryingStore(open_store("s3://bucket/ns"))

    def test_409_is_unknown_while_nobody_can_look_and_a_loss_once_the_object_is_seen(self) -> None:
        server, store = self.open(409, 7)
        self.assertEqual(store.create("a", b"x"), "unknown")
        self.assertEqual([store.create("a", b"x") for _ in range(8)], ["unknown"] * 7 + ["exists"])
        self.assertEqual(server.heads, 8)

    def test_412_is_a_loss_that_nobody_looks_up(self) -> None:
        server, store = self.open(412, 1_000)
        self.assertEqual([store.create("a", b"x") for _ in range(2)], ["unknown", "exists"])
        self.assertEqual(server.heads, 0)


if __name__ == "__main__":
    unittest.main()
