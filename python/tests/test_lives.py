"""Property: a process that has a namespace open that is deleted ends with DELETED at its next request, and nothing is acknowledged that is not in the log.

Method: a store in memory whose objects are taken away as a deletion does it, one role after another.
"""
from __future__ import annotations

import threading
import unittest
from typing import Any, Callable

from batchweave import BatchWeaveError, create_namespace, open_namespace
from batchweave.format.keys import NAMESPACE_KEY, boundary_key, manifest_key
from batchweave.format.stored_json import SAFE_INTEGER_MAX, load_json, seal_json
from batchweave.namespace import Namespace
from memory_store import MemoryStore, at

URI = "memory:test"


def mark(store: MemoryStore, namespace: Namespace) -> None:
    """The version that says deleted."""
    version = max(int(key[-25:-5]) for key in store.objects if key.startswith(at(namespace, "manifest/")))
    fields = load_json(store.objects[at(namespace, manifest_key(version))])
    fields.update(version=version + 1, commit={"id": "deletedelete", "by": "delete log", "time": 1}, deleted=True)
    store.objects[at(namespace, manifest_key(version + 1))] = seal_json("manifest", namespace.uuid, fields, 2)


def delete(store: MemoryStore, namespace: Namespace) -> None:
    """All of a deletion: the version, the last marker, the objects, namespace.json."""
    mark(store, namespace)
    fields = {"n": 1, "upTo": SAFE_INTEGER_MAX, "deleted": True}
    store.objects[at(namespace, boundary_key(1))] = seal_json("boundary", namespace.uuid, fields, 2)
    store.delete([key for key in list(store.objects) if key.startswith(at(namespace, "")) and "/boundary/" not in key])
    store.delete([NAMESPACE_KEY])


class Lives(unittest.TestCase):
    def code(self, call: Callable[[], Any]) -> str:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        return caught.exception.code

    def setUp(self) -> None:
        self.store = MemoryStore()
        self.namespace = create_namespace(URI, rows=1, store=self.store)

    def again(self) -> dict[str, bytes]:
        """Another namespace at the place, with a batch; gives its objects."""
        other = create_namespace(URI, rows=1, store=self.store)
        with other.producer("p") as producer:
            producer.append([b"new"])
        return {key: data for key, data in self.store.objects.items() if key.startswith(at(other, "")) or key == NAMESPACE_KEY}

    def test_a_producer_is_told_nothing_after_the_deletion(self) -> None:
        producer = self.namespace.producer("p")
        producer.append([b"a"]).wait(20)
        delete(self.store, self.namespace)
        after = self.again()
        ticket = producer.append([b"b"])
        self.assertEqual(self.code(lambda: ticket.wait(20)), "DELETED")
        self.assertEqual(self.code(lambda: producer.append([b"c"])), "DELETED")
        self.assertEqual({key: self.store.objects.get(key) for key in after}, after, "the new one is untouched")

    def test_a_producer_that_is_stopped_right_before_its_commit(self) -> None:
        producer = self.namespace.producer("p")
        producer.append([b"a"]).wait(20)
        after: dict[str, bytes] = {}

        def stopped(key: str, _: bytes) -> None:
            if "/manifest/" in key:
                self.store.on_create = None
                delete(self.store, self.namespace)
                after.update(self.again())

        self.store.on_create = stopped
        ticket = producer.append([b"b"])
        self.assertEqual(self.code(lambda: ticket.wait(20)), "DELETED")
        self.assertEqual({key: self.store.objects.get(key) for key in after}, after, "the new one is untouched")

    def test_whoever_loses_to_the_version_that_says_deleted(self) -> None:
        producer = self.namespace.producer("p")
        mark(self.store, self.namespace)
        ticket = producer.append([b"a"])
        self.assertEqual(self.code(lambda: ticket.wait(20)), "DELETED")

    def test_a_name_that_was_answered_with_exists_and_is_gone(self) -> None:
        self.namespace.log.open_producer("p")

        def exists(key: str, _: bytes) -> str:
            self.store.on_create = None
            delete(self.store, self.namespace)
            return "exists"

        self.store.on_create = exists
        self.assertEqual(self.code(lambda: self.namespace.set_max_lag(3)), "DELETED")

    def test_a_rank_that_waits_a_checkpoint_and_everybody_else(self) -> None:
        with self.namespace.producer("p") as producer:
            producer.append([b"a"])
        consumer = self.namespace.consumer({"dp": 1}, 0, environment={})
        cursor = next(consumer).next
        timer = threading.Timer(0.3, lambda: delete(self.store, self.namespace))
        timer.start()
        self.assertEqual(self.code(lambda: next(consumer)), "DELETED")
        consumer.close()
        namespace = self.namespace
        calls = (lambda: namespace.checkpoint("c", cursor), namespace.info, namespace.end_log, lambda: namespace.producer("q"))
        for call in calls:
            self.assertEqual(self.code(call), "DELETED")
        self.assertEqual(self.code(lambda: open_namespace(URI, store=self.store)), "NO_NAMESPACE")

    def test_a_folder_that_was_removed_by_hand_is_noticed(self) -> None:
        self.namespace.log.open_producer("p")
        self.store.objects.clear()
        self.namespace.log._seen_at -= 60
        self.assertEqual(self.code(lambda: self.namespace.set_max_lag(3)), "DELETED")

    def test_a_life_that_lost_its_namespace_json_is_not_overlooked(self) -> None:
        self.namespace.log.open_producer("p")
        del self.store.objects[NAMESPACE_KEY]
        self.assertEqual(self.code(lambda: create_namespace(URI, rows=1, store=self.store)), "NOT_EMPTY")


if __name__ == "__main__":
    unittest.main()
