"""Property: a commit is concluded only from verified state, whatever the store answers; hazards of docs/hazards.md by number.

Method: a store in memory whose answers a test can bend; producers, openers and checkpoints on it.
"""
from __future__ import annotations

import os
import re
import signal
import threading
import time
import unittest
from pathlib import Path
from typing import Any

from batchweave import BatchWeaveError, create_namespace, make_cursor, open_namespace
from batchweave.format.batch import SLICE_BYTES_MAX
from batchweave.format.descriptor import EXTENTS_MAX
from batchweave.format.keys import boundary_key, manifest_key
from batchweave.format.seal import SEAL_BYTES
from batchweave.format.stored_json import load_json, seal_json
from batchweave.log.log import Log
from batchweave.log.stage import CHECKPOINTS_MAX, GROUPS_MAX, LANE_AHEAD_MAX, RELEASED_MAX
from batchweave.namespace import Namespace
from memory_store import MemoryStore, at


def namespace_on(store: MemoryStore, **settings: Any) -> Namespace:
    return create_namespace("memory:test", **{"rows": 2, "chunks": 1, **settings}, store=store)


def slices(tag: str, n: int = 2) -> list[bytes]:
    return [f"{tag}/{i}".encode() for i in range(n)]


def read_all(namespace: Namespace) -> list[bytes]:
    """Slice 0 of every batch."""
    out = []
    with namespace.consumer({"dp": 1}, 0, policy="global-batch", environment={}) as consumer:
        for share in consumer:
            out.append(bytes(share.slices[0].bytes))
    return out


class Code(unittest.TestCase):
    def assertCode(self, code: str, call: Any) -> BatchWeaveError:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception


class Commits(Code):
    def test_hazard_1_lost_answer_is_settled_by_the_commit_id(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)

        def lose(key: str, data: bytes) -> str | None:
            store.on_create = None
            store.objects[key] = data
            return "unknown"

        store.on_create = lose
        with namespace.producer("p") as p:
            self.assertEqual(p.epoch, 1)
            store.on_create = lose
            p.append(slices("a")).wait(20)
        namespace.end_log()
        self.assertEqual(read_all(namespace), [b"a/0"])
        self.assertEqual(namespace.info()["version"], 4)

    def test_hazard_2_a_create_that_was_not_applied_is_tried_with_the_same_bytes(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        seen: list[bytes] = []

        def drop(key: str, data: bytes) -> str | None:
            seen.append(data)
            return "unknown" if len(seen) < 3 else None

        store.on_create = drop
        namespace.log.open_producer("p")
        self.assertEqual(len(seen), 3)
        self.assertEqual(len(set(seen)), 1)

    def test_hazard_9_and_10_a_newer_holder_fences_the_older_and_its_batches_stay_out(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        old = namespace.producer("p")
        old.append(slices("a"), resume_point={"n": 1}).wait(20)
        new = open_namespace("memory:test", store=store).producer("p")
        self.assertEqual((new.epoch, new.resume_point, new.next_seq), (2, {"n": 1}, 1))
        ticket = old.append(slices("zombie"))
        self.assertCode("FENCED", lambda: ticket.wait(20))
        self.assertCode("FENCED", lambda: old.append(slices("zombie again")))
        new.append(slices("b")).wait(20)
        new.close()
        namespace.end_log()
        self.assertEqual(read_all(namespace), [b"a/0", b"b/0"])

    def test_hazard_16_a_boundary_past_the_own_version_leaves_it_unknown_and_state_decides(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        p = namespace.producer("p")
        p.append(slices("a")).wait(20)
        uuid = namespace.uuid

        def overtake(key: str, data: bytes) -> str | None:
            # Others committed far ahead and a reclaimer announced it, all between this create and its look.
            store.on_create = None
            store.objects[key] = data
            fields = load_json(data)
            version = fields["version"]
            fields["version"] = version + 1
            fields["commit"] = {"id": "othersothers"[:12], "by": "other", "time": 1}
            store.objects[at(namespace, manifest_key(version + 1))] = seal_json("manifest", uuid, fields)
            store.objects[at(namespace, boundary_key(1))] = seal_json("boundary", uuid, {"n": 1, "upTo": version})
            return "created"

        store.on_create = overtake
        p.append(slices("b")).wait(20)
        p.close()
        namespace.end_log()
        self.assertEqual(read_all(namespace), [b"a/0", b"b/0"])

    def test_hazard_15_a_zombie_manifest_below_the_boundary_is_not_followed(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        with namespace.producer("p") as p:
            for i in range(4):
                p.append(slices(f"{i}")).wait(20)
        head = namespace.log.head.jump().version
        store.objects[at(namespace, boundary_key(1))] = seal_json("boundary", namespace.uuid, {"n": 1, "upTo": head - 1})
        zombie = load_json(store.objects[at(namespace, manifest_key(1))])
        for version in range(1, head):
            del store.objects[at(namespace, manifest_key(version))]
        zombie["version"] = 2
        store.objects[at(namespace, manifest_key(2))] = seal_json("manifest", namespace.uuid, zombie)
        fresh = Log(store, namespace.log.spec, lambda uri: store)
        self.assertEqual(fresh.head.load().version, head)

    def test_a_boundary_marker_that_was_seen_and_is_gone_stops_everything(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        namespace.log.open_producer("p")
        namespace.log.open_producer("p")
        store.objects[at(namespace, boundary_key(1))] = seal_json("boundary", namespace.uuid, {"n": 1, "upTo": 1})
        namespace.log.head.advance()
        del store.objects[at(namespace, boundary_key(1))]
        self.assertCode("MISSING_OBJECT", namespace.log.head.load)

    def test_unknown_fields_survive_every_kind_of_commit(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        namespace.log.open_producer("p")
        fields = load_json(store.objects[at(namespace, manifest_key(1))])
        fields["future"] = {"colour": [1, {"deep": None}]}
        fields["settings"] = {"brightness": 0.5}
        fields["producers"]["p"] += [0, "kept"]
        store.objects[at(namespace, manifest_key(1))] = seal_json("manifest", namespace.uuid, fields)
        namespace = open_namespace("memory:test", store=store)
        with namespace.producer("p") as p:
            p.append(slices("a"))
        namespace.checkpoint("c", namespace.consumer({"dp": 1}, 0, environment={}).cursor)
        namespace.end_log()
        newest = namespace.log.head.jump().fields
        self.assertEqual(newest["future"], {"colour": [1, {"deep": None}]})
        self.assertEqual(newest["settings"], {"brightness": 0.5})
        self.assertEqual(newest["producers"]["p"][6:], ["kept"])

    def test_an_upload_below_the_cutoff_is_made_again_under_a_new_name(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        p = namespace.producer("p")
        p.append(slices("a")).wait(20)
        uuid = namespace.uuid
        original = store.put
        raised: list[str] = []

        def put(key: str, body: Any) -> None:
            original(key, body)
            if "/batch/" in key and not raised:
                raised.append(key)
                head = load_json(store.objects[at(namespace, manifest_key(2))])
                head.update(version=3, orphanCutoff=3, commit={"id": "reclaimrecla", "by": "reclaim log", "time": 1})
                store.objects[at(namespace, manifest_key(3))] = seal_json("manifest", uuid, head)

        store.put = put  # type: ignore[method-assign]
        p.append(slices("b")).wait(20)
        p.close()
        newest = namespace.log.head.jump()
        self.assertEqual(newest.tail.batches[1].attempt, 1, "the second attempt is in the log")
        namespace.end_log()
        self.assertEqual(read_all(namespace), [b"a/0", b"b/0"])


class Producers(Code):
    def test_many_producers_carry_each_other_and_nothing_is_lost_or_repeated(self) -> None:
        store = MemoryStore()
        namespace_on(store)

        def write(id: str) -> None:
            with open_namespace("memory:test", store=store).producer(id) as p:
                for i in range(20):
                    p.append(slices(f"{id}-{i}"), resume_point=i)

        threads = [threading.Thread(target=write, args=(f"p{k}",)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        namespace = open_namespace("memory:test", store=store)
        namespace.end_log()
        found = [text.decode().split("/")[0] for text in read_all(namespace)]
        for k in range(6):
            self.assertEqual([f for f in found if f.startswith(f"p{k}-")], [f"p{k}-{i}" for i in range(20)])

    def test_a_batch_is_carried_by_another_producer_without_a_commit_of_its_own(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        carrier, follower = namespace.producer("carrier"), open_namespace("memory:test", store=store).producer("follower")
        carrier._publisher.is_carrying = True
        carrier.append(slices("c"))
        version = follower.append(slices("f")).wait(20)
        state = namespace.log.head.jump().producers["follower"]
        carrier.close()
        follower.close()
        by = load_json(store.objects[at(namespace, manifest_key(state.at))])["commit"]["by"]
        self.assertEqual((state.seq, by), (1, "carrier"))
        self.assertGreaterEqual(version, state.at)

    def test_lanes_give_the_same_order_whoever_is_first(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store, lanes=2)
        self.assertCode("INVALID_ARGUMENT", lambda: namespace.producer("p"))
        one = namespace.producer("lane-1")
        one.append(slices("one-0"))
        one.append(slices("one-1"))
        one.flush(20)
        self.assertEqual(namespace.log.head.jump().end, 0)
        self.assertCode("INVALID_ARGUMENT", namespace.end_log)
        with namespace.producer("lane-0") as zero:
            zero.append(slices("zero-0"))
            zero.append(slices("zero-1"))
        one.close()
        namespace.end_log()
        self.assertEqual(read_all(namespace), [b"zero-0/0", b"one-0/0", b"zero-1/0", b"one-1/0"])

    def test_bad_input_is_refused_before_anything_is_accepted(self) -> None:
        namespace = namespace_on(MemoryStore())
        self.assertCode("INVALID_ARGUMENT", lambda: namespace.producer("a/b"))
        with namespace.producer("p") as p:
            self.assertCode("INVALID_ARGUMENT", lambda: p.append(slices("a", 3)))
            self.assertCode("INVALID_ARGUMENT", lambda: p.append(["text", "text"]))
            self.assertCode("INVALID_ARGUMENT", lambda: p.append(slices("a"), resume_point={1: 2}))
            self.assertCode("INVALID_ARGUMENT", lambda: p.append(slices("a"), resume_point=float("nan")))
            self.assertCode("LIMIT", lambda: p.append(slices("a"), resume_point="x" * 1_048_576))
            self.assertEqual(p.next_seq, 0)

    def test_a_forked_process_cannot_write_as_its_parent(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        with namespace.producer("p") as p:  # no thread uploads yet, so the child could start one, under the names that the parent uses
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    signal.alarm(300)
                    self.assertCode("INVALID_ARGUMENT", lambda: p.append(slices("child")))
                    self.assertCode("INVALID_ARGUMENT", p.flush)
                    p.close()
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            p.append(slices("a"))
        namespace.end_log()
        self.assertEqual(read_all(namespace), [b"a/0"])

    def test_a_failure_that_no_append_told_is_told_by_close(self) -> None:
        for is_block in (True, False):
            store = MemoryStore()
            namespace = create_namespace("memory:test", rows=1, store=store)

            def put(key: str, body: Any) -> None:
                raise BatchWeaveError("STORE_FULL", "the disk is full", {"key": key})

            store.put = put  # type: ignore[method-assign]
            producer = namespace.producer("p")
            ticket = producer.append([b"lost"])
            self.assertCode("STORE_FULL", lambda: ticket.wait(10))
            self.assertCode("STORE_FULL", lambda: producer.__exit__(None) if is_block else producer.close())
            producer.close()  # it is told once

    def test_nobody_waits_for_a_batch_of_a_producer_that_was_stopped(self) -> None:
        store = MemoryStore()
        namespace = create_namespace("memory:test", rows=1, store=store)
        uploading, may_go_on = threading.Event(), threading.Event()

        def put(key: str, body: Any) -> None:
            uploading.set()
            may_go_on.wait(10)

        store.put = put  # type: ignore[method-assign]
        with self.assertRaises(KeyError), namespace.producer("p") as p:
            ticket = p.append([b"unfinished"])
            uploading.wait(10)
            raise KeyError("the user's own")
        self.assertCode("INVALID_ARGUMENT", lambda: ticket.wait(10))
        may_go_on.set()

    def test_a_closed_log_takes_nothing_more(self) -> None:
        namespace = namespace_on(MemoryStore())
        p = namespace.producer("p")
        p.append(slices("a")).wait(20)
        namespace.end_log()
        self.assertCode("CLOSED", lambda: p.append(slices("b")).wait(20))

    def test_nobody_opens_a_producer_on_a_closed_log_and_no_epoch_is_spent(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        with namespace.producer("p") as p:
            p.append(slices("a"))
        namespace.end_log()
        before = dict(store.objects)
        for id in ("p", "new"):
            self.assertCode("CLOSED", lambda id=id: namespace.producer(id))
        self.assertEqual(store.objects, before)

    def test_extents_lineage_and_metadata_are_stored_as_the_format_says(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store, rows=3)
        begun = int(time.time() * 1_000)
        with namespace.producer("p", extent_bytes_max=10) as p:
            p.append([b"x" * 8, b"y" * 8, b"z"], resume_point=[1], lineage=[{"source": "s", "id": "7", "tokens": 3}])
        self.assertEqual([e.cells for e in namespace.log.head.jump().tail.batches[0].extents], [1, 2])
        created = [int(n) for data in store.objects.values() for n in re.findall(rb'"created":([0-9]+)', data)]
        self.assertTrue(all(begun - 60_000 <= n <= time.time() * 1_000 for n in created), created)
        self.assertEqual(namespace.log.open_producer("p").resume_point, [1])
        namespace.end_log()
        with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
            self.assertEqual([bytes(s.slices[0].bytes) for s in consumer], [b"x" * 8, b"y" * 8, b"z"])


    def test_limits_are_those_of_typescript(self) -> None:
        source = Path(__file__).parents[2] / "src"
        for file, name, value in (
            ("format/batch.ts", "sliceBytesMax", SLICE_BYTES_MAX), ("format/descriptor.ts", "extentsMax", EXTENTS_MAX),
            ("log/stage.ts", "laneAheadMax", LANE_AHEAD_MAX), ("log/stage-checkpoint.ts", "checkpointsMax", CHECKPOINTS_MAX),
            ("log/stage-checkpoint.ts", "checkpointGroupsMax", GROUPS_MAX), ("log/stage-checkpoint.ts", "releasedMax", RELEASED_MAX),
        ):
            found = re.search(rf"const {name} = ([0-9a-fx_]+);", (source / file).read_text())
            assert found is not None, name
            self.assertEqual(int(found[1], 0), value, name)

    def test_what_a_user_attaches_is_stored_and_nothing_is_when_there_is_nothing(self) -> None:
        for user, expected in (({"a": 1}, True), (None, False)):
            store = MemoryStore()
            with namespace_on(store).producer("p") as p:
                p.append(slices("a"), user=user)
            bodies = [data for key, data in store.objects.items() if "/batch/" in key]
            self.assertEqual([b'"user":{"a":1}' in data for data in bodies], [expected])
            self.assertEqual([b'"user"' in data for data in bodies], [expected])

    def test_slices_of_one_length_are_sealed_and_the_descriptor_says_so_but_not_in_format_1(self) -> None:
        for format, length, expected in ((2, 100_000, 100_000 + SEAL_BYTES), (2, 8, None), (1, 100_000, None)):
            store = MemoryStore()
            namespace = namespace_on(store)
            namespace.log.spec.format = format
            with namespace.producer("p") as p:
                p.append([b"x" * length, b"y" * length])
            self.assertEqual(namespace.log.head.jump().tail.batches[0].stride, expected, (format, length))


class Checkpoints(Code):
    def test_registered_once_released_once_never_resurrected(self) -> None:
        store = MemoryStore()
        namespace = namespace_on(store)
        with namespace.producer("p") as p:
            for i in range(5):
                p.append(slices(f"{i}"))
        cursors = []
        with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
            for _ in range(4):
                cursors.append(next(consumer).next)
        namespace.checkpoint("a", cursors[0])
        version = namespace.info()["version"]
        self.assertEqual(namespace.checkpoint("a", cursors[0]).row, 1)
        self.assertEqual(namespace.info()["version"], version, "the same again commits nothing")
        self.assertCode("CHECKPOINT_CONFLICT", lambda: namespace.checkpoint("a", cursors[1]))
        namespace.checkpoint("b", cursors[1], keep_last=2)
        namespace.checkpoint("c", cursors[2], keep_last=2)
        self.assertEqual([c.id for c in namespace.list_checkpoints()], ["c", "b"])
        self.assertCode("CHECKPOINT_RELEASED", lambda: namespace.checkpoint("a", cursors[0]))
        namespace.release("b")
        namespace.release("b")
        self.assertCode("NO_CHECKPOINT", lambda: namespace.release("never"))
        self.assertCode("INVALID_ARGUMENT", lambda: namespace.checkpoint("d", cursors[3], keep_last=0))
        self.assertCode("WRONG_NAMESPACE", lambda: namespace.checkpoint("d", make_cursor("another", 1, 1)))

    def test_hazard_46_both_sides_of_a_lag_deadlock_fail_with_the_two_numbers(self) -> None:
        from batchweave.lifecycle.checkpoints import LagGate, watch_starvation

        store = MemoryStore()
        namespace = namespace_on(store)
        with namespace.producer("p") as p:
            for i in range(3):
                p.append(slices(f"{i}"))
        namespace.set_max_lag(3)
        error = self.assertCode("LAG_DEADLOCK", lambda: watch_starvation(namespace.log, 3, 11.0, "default"))
        self.assertIn("maxLag = 3", error.message)
        gate = LagGate(namespace.log, poll_delay=0.01)
        self.assertIn("maxLag = 3", self.assertCode("LAG_DEADLOCK", lambda: gate.wait(lambda: 0)).message)


if __name__ == "__main__":
    unittest.main()
