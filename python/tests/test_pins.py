"""Property: a fork is opened only while its ancestors hold its pins, as the TypeScript client does, and the process that opens it confirms them; once it
has trimmed all it inherited it needs none. A place among another namespace's objects is refused, however it is written.

Method: a parent and a fork on files, made by hand, with a pin, without one, with an unconfirmed one, and without the parent.
"""
from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import batchweave
from batchweave.errors import BatchWeaveError
from batchweave.format.index_node import Reference
from batchweave.format.stored_json import seal_json
from batchweave.log.draft import Draft
from batchweave.store.file_store import FileStore

NO_ROOT = Reference(0, "0123456789ab", 0, 7)
FORK = "00000000-1111-4222-8333-444444444444"


class Pins(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="batchweave-pins-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.parent = batchweave.create_namespace((self.folder / "parent").as_uri(), rows=1)
        with self.parent.producer("p") as producer:
            producer.append([b"first"])
            producer.append([b"second"])
        self.base = self.parent.log.head.jump()

    def pin(self, confirmed: bool) -> Reference:
        root = NO_ROOT

        def stage(draft: Draft, _: Any) -> tuple[bool, Any]:
            nonlocal root
            root = draft._seal("root", {"index": draft.base.index, "tail": draft.base.tail.stored()})
            draft.pins[FORK] = {
                "fork": FORK, "uri": (self.folder / "fork").as_uri(), "created": 1, "confirmed": confirmed, "from": 0, "to": 2,
                "root": root,
            }
            return False, None

        self.parent.log.commit("pin fork", "pin", stage)
        return root

    def fork(self, root: Reference, trim: int = 0) -> str:
        origin = {"uuid": self.parent.uuid, "uri": self.parent.uri, "format": self.parent.log.spec.format, "root": root, "ranges": []}
        tail = {"start": 0, "batches": [d._replace(origin=0).stored() for d in self.base.tail.batches]}
        fields = {"grid": {"rows": 1, "chunks": 1}, "order": {"kind": "commit"}, "created": 5}
        (self.folder / "fork").mkdir()
        data = seal_json("namespace", FORK, {**fields, "fork": {"origins": [origin], "tail": tail, "trim": trim}})
        (self.folder / "fork" / "namespace.json").write_bytes(data)
        return (self.folder / "fork").as_uri()

    def refused(self, uri: str, code: str) -> None:
        with self.assertRaises(batchweave.BatchWeaveError) as caught:
            batchweave.open_namespace(uri)
        self.assertEqual(caught.exception.code, code)

    def test_a_fork_with_its_pin_is_read_and_an_unconfirmed_pin_is_confirmed(self) -> None:
        uri = self.fork(self.pin(confirmed=False))
        fork = batchweave.open_namespace(uri)
        self.assertTrue(self.parent.log.head.jump().pins[FORK]["confirmed"])
        fork.end_log()
        texts = [bytes(share.slices[0].bytes) for share in fork.consumer({"dp": 1}, 0)]
        self.assertEqual(texts, [b"first", b"second"])

    def test_a_fork_whose_pin_is_gone_is_refused(self) -> None:
        self.refused(self.fork(NO_ROOT), "RECLAIMED")

    def test_a_fork_whose_ancestor_is_gone_or_another_is_refused(self) -> None:
        uri = self.fork(self.pin(confirmed=True))
        shutil.rmtree(self.folder / "parent")
        self.refused(uri, "NO_NAMESPACE")
        batchweave.create_namespace((self.folder / "parent").as_uri(), rows=1)
        self.refused(uri, "WRONG_NAMESPACE")

    def test_whoever_may_only_read_relies_on_an_unconfirmed_pin_and_on_nothing_else(self) -> None:
        uri = self.fork(self.pin(False))

        def refuse(code: str) -> Any:
            return mock.patch.object(FileStore, "create", side_effect=BatchWeaveError(code, "planted", {}))

        with refuse("STORE_DENIED"):
            batchweave.open_namespace(uri)
        with refuse("STORE_FULL"):
            self.refused(uri, "STORE_FULL")
        self.assertFalse(self.parent.log.head.jump().pins[FORK]["confirmed"])

    def test_a_fork_that_has_trimmed_all_it_inherited_needs_no_pin(self) -> None:
        uri = self.fork(NO_ROOT, trim=2)
        shutil.rmtree(self.folder / "parent")
        self.assertEqual(batchweave.open_namespace(uri).info()["steps"], {"trim": 2, "end": 2})

    def test_a_namespace_among_another_ones_objects_is_refused(self) -> None:
        for place in ("batch/x", "%62atch/x", "x/../index"):
            with self.assertRaises(batchweave.BatchWeaveError) as caught:
                batchweave.create_namespace(f"{self.parent.uri}/{place}", rows=1)
            self.assertEqual(caught.exception.code, "NOT_EMPTY")


if __name__ == "__main__":
    unittest.main()
