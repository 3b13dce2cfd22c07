"""Property: a producer stores exactly what it was given, in extents of the size it was told, under the newest base it knows; it acknowledges what a verified version
has and nothing else; whoever waits is woken by each thing it waits for, and ends with the producer.

Method: a producer whose publisher does nothing and whose uploads run at once, so that a test makes every move; metrics, pulses and gates that write down their calls.
"""
from __future__ import annotations

import dataclasses
import inspect
import os
import threading
import unittest
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError, create_namespace
from batchweave.format.batch import SLICE_BYTES_MAX, decode_metadata, decode_trailer
from batchweave.format.descriptor import EXTENTS_MAX
from batchweave.format.keys import batch_key
from batchweave.format.lineage import decode_lineage
from batchweave.format.producer_state import ProducerState
from batchweave.producer import batch_input
from batchweave.producer import producer as module
from batchweave.producer.batch_input import checked_json, flatten_slices, unchanging
from batchweave.producer.producer import Producer, Ticket
from batchweave.producer.publisher import Publisher
from memory_store import MemoryStore


class AtOnce:
    """A pool that runs what is submitted, unless it is told to keep it."""

    def __init__(self) -> None:
        self.kept: list[Any] | None = None
        self.calls: list[Any] = []

    def submit(self, call: Any) -> None:
        if self.kept is None:
            call()
        else:
            self.kept.append(call)

    def drop(self) -> None:
        self.calls.append("drop")

    def join(self, until: float) -> None:
        self.calls.append(("join", until))


class Bench(unittest.TestCase):
    def setUp(self) -> None:
        self.store = MemoryStore()
        self.metrics = mock.Mock()

    def producer(self, rows: int = 1, chunks: int = 1, is_heard: bool = False, lanes: int | None = None, id: str = "p", **settings: Any) -> Producer:
        self.namespace = create_namespace("memory:test", rows=rows, chunks=chunks, lanes=lanes, store=self.store)
        self.metrics = mock.Mock()
        with mock.patch.object(Publisher, "run", lambda self: None), mock.patch.object(Publisher, "leave", lambda self: None), mock.patch.object(
            module, "producer_metrics", mock.Mock(return_value=self.metrics if is_heard else None)
        ) as self.asked:
            found = self.namespace.producer(id, **settings)
            found._thread.join(60)
        self.pool = AtOnce()
        found._uploads = self.pool  # type: ignore[assignment]
        leave = mock.patch.object(found._publisher, "leave")
        self.left = leave.start()
        self.addCleanup(leave.stop)
        self.addCleanup(found._stop)
        return found

    def refused(self, call: Any, part: str, code: str = "INVALID_ARGUMENT") -> None:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertIn(part, caught.exception.message)

    def seen(self, producer: Producer, seq: int, version: int = 50, **changes: Any) -> Any:
        base = self.namespace.log.head.newest()
        state = ProducerState(producer.epoch, producer._holder.incarnation, seq, version)._replace(**changes.pop("state", {}))
        return dataclasses.replace(base, version=version, producers={"p": state}, **changes)

    def notified(self, producer: Producer, call: Any) -> int:
        with mock.patch.object(producer._changed, "notify_all") as told:
            call()
        return told.call_count


class Accepting(Bench):
    def test_what_is_stored_is_what_was_given(self) -> None:
        producer = self.producer(2, 2, extent_bytes_max=8)
        with mock.patch.object(module.time, "time", lambda: 1_234.5678):
            ticket = producer.append([[b"abc", b"defgh"], (b"ijk", b"lmnopq")], resume_point={"at": 5}, content_type="x/y", user=[1], lineage=[{"source": "s", "id": "7", "tokens": 3}])
        descriptor = producer._entries[0].descriptor
        assert descriptor is not None
        self.assertEqual((ticket.seq, producer.next_seq, producer.pending_batches), (0, 1, 1))
        self.assertEqual([extent.cells for extent in descriptor.extents], [2, 1, 1])
        self.assertEqual((descriptor.base, descriptor.attempt, descriptor.stride), (1, 0, None))
        found = []
        for number, extent in enumerate(descriptor.extents):
            data = self.namespace.log.store.get(batch_key(descriptor, number)) or b""
            trailer = decode_trailer(data[-80:], "k", self.namespace.uuid)
            block = data[trailer.metadata_offset : extent.table]
            fields = {k: v for k, v in decode_metadata(block, "k", trailer).items() if k not in ("producer", "epoch", "incarnation", "seq")}
            found.append((trailer.first_cell, trailer.extent, data[: fields["lineage"]["offset"] if "lineage" in fields else trailer.metadata_offset], fields))
        lineage = found[2][3].pop("lineage")
        self.assertEqual(found, [
            (0, 0, b"abcdefgh", {}), (2, 1, b"ijk", {}), (3, 2, b"lmnopq", {"contentType": "x/y", "resumePoint": {"at": 5}, "user": [1], "created": 1_234_567}),
        ])
        self.assertEqual(decode_lineage(data[lineage["offset"] : lineage["offset"] + lineage["length"]], "k"), [{"source": "s", "id": "7", "tokens": 3}])
        producer.append([b"a", b"b", b"c", b"d"])
        plain = producer._entries[1]
        self.assertEqual((set(plain.metadata), plain.metadata["contentType"], plain.lineage, plain.bytes), ({"contentType", "created"}, "application/octet-stream", None, 4))

    def test_extents_are_as_large_as_was_said_and_a_slice_is_never_cut(self) -> None:
        for sizes, most, runs in (([3, 5, 1], 8, [2, 1]), ([3, 5, 1], 9, [3]), ([9, 1, 9], 4, [1, 1, 1]), ([0, 4, 0], 4, [3]), ([4, 4, 4], 4, [1, 1, 1]), ([1, 2, 2], 3, [2, 1])):
            self.store.objects.clear()
            producer = self.producer(3, extent_bytes_max=most)
            producer.append([bytes(size) for size in sizes])
            descriptor = producer._entries[0].descriptor
            assert descriptor is not None
            self.assertEqual([extent.cells for extent in descriptor.extents], runs, (sizes, most))
        self.store.objects.clear()
        producer = self.producer(EXTENTS_MAX + 1, extent_bytes_max=1)
        self.assertEqual(self.producer(EXTENTS_MAX + 1, id="q", extent_bytes_max=2**40)._extent_bytes_max, SLICE_BYTES_MAX)
        producer.append([b"a"] * EXTENTS_MAX + [b""])
        self.assertEqual(len(producer._entries[0].extents), EXTENTS_MAX)
        ticket = producer.append([b"a"] * (EXTENTS_MAX + 1))
        self.refused(lambda: ticket.wait(0), "A batch can have 1000 extents.", "LIMIT")

    def test_large_slices_of_one_length_are_sealed_where_the_format_knows_it(self) -> None:
        for format, length, stride in (2, 4_096, 4_104), (2, 4_095, None), (1, 4_096, None), (3, 4_096, 4_104):
            self.store.objects.clear()
            producer = self.producer(2)
            self.namespace.log.spec.format = format
            producer.append([bytes(length)] * 2)
            descriptor = producer._entries[0].descriptor
            assert descriptor is not None
            self.assertEqual(descriptor.stride, stride, (format, length))
            data = self.namespace.log.store.get(batch_key(descriptor, 0)) or b""
            self.assertEqual(decode_trailer(data[-80:], "k", self.namespace.uuid).metadata_offset, 2 * (stride or length))

    def test_an_upload_names_the_newest_base_and_each_attempt_anew_with_the_same_bytes(self) -> None:
        producer = self.producer(is_heard=True)
        producer.append([b"abc"])
        first = producer._entries[0].descriptor
        assert first is not None
        self.namespace.log.head.known = self.seen(producer, 0, 77)
        self.assertEqual(self.notified(producer, lambda: producer._upload_again([first])), 1)
        second = producer._entries[0].descriptor
        assert second is not None
        self.assertEqual((first.base, first.attempt, second.base, second.attempt, second.extents), (1, 0, 77, 1, first.extents))
        self.assertEqual(self.namespace.log.store.get(batch_key(first, 0)), self.namespace.log.store.get(batch_key(second, 0)))
        producer._upload_again([first, first._replace(seq=9)])
        self.assertIs(producer._entries[0].descriptor, second, "it was made again already")
        self.pool.kept = []
        producer._upload_again([second])
        self.assertEqual((producer._entries[0].descriptor, len(self.pool.kept), producer._publisher._outbox.pending()), (None, 1, []))
        self.namespace.log.head.known = None
        self.pool.kept.pop()()
        third = producer._entries[0].descriptor
        assert third is not None
        self.assertEqual((third.base, third.attempt), (0, 2))
        self.assertEqual([call.args[:2] for call in self.metrics.uploaded.mock_calls], [(0, 3)] * 3)
        self.assertTrue(all(0 <= call.args[2] < 600 for call in self.metrics.uploaded.mock_calls))

    def test_a_slice_that_the_caller_may_change_is_copied_and_one_that_cannot_be_fails_the_producer(self) -> None:
        producer = self.producer()
        buffer, fixed = bytearray(b"abc"), b"xyz"
        self.pool.kept = []
        producer.append([buffer])
        producer.append([fixed])
        buffer[:] = b"zzz"
        self.assertEqual(bytes(producer._entries[0].slices[0]), b"abc")
        self.assertIs(producer._entries[1].slices[0].obj, fixed)
        with mock.patch.object(module, "unchanging", side_effect=MemoryError("full")), self.assertRaises(MemoryError):
            producer.append([buffer])
        with self.assertRaises(MemoryError):
            producer.append([b"more"])
        self.assertEqual(len(self.pool.kept), 2)

    def test_the_gate_is_asked_with_what_is_pending_and_hurries_the_publisher(self) -> None:
        producer = self.producer(lag_poll_delay=7.0)
        self.assertEqual(producer._gate._poll_delay, 7.0)
        producer._gate = mock.Mock()
        producer.append([b"a"])
        pending, hurry = producer._gate.wait.call_args[0]
        self.assertEqual((pending(), producer._publisher.is_urgent), (1, False))
        self.assertEqual(self.notified(producer, hurry), 1)
        self.assertTrue(producer._publisher.is_urgent)
        self.assertEqual(self.notified(producer, producer._notify), 1)

    def test_what_fills_the_buffer_waits_and_the_first_batch_never_does(self) -> None:
        for settings, sizes, waits in (
            ({"buffered_bytes_max": 4}, [9, 1], [1]), ({"buffered_bytes_max": 10}, [9, 1], []), ({"buffered_bytes_max": 10}, [9, 2], [1]),
            ({"buffered_batches_max": 2}, [1, 1, 1], [2]), ({"buffered_batches_max": 1}, [1, 1], [1]),
        ):
            self.store.objects.clear()
            producer = self.producer(**settings)
            waited: list[int] = []

            def wait(timeout: float) -> None:
                self.assertTrue(producer._publisher.is_urgent and timeout == 1.0)
                waited.append(len(producer._entries))
                producer._settle(self.seen(producer, 1))

            with mock.patch.object(producer._changed, "wait", wait):
                for size in sizes:
                    producer.append([bytes(size)])
            self.assertEqual((waited, producer._buffered_bytes), (waits, sum(sizes[1 if waits else 0 :])), (settings, sizes))

    def test_what_it_tells_of_itself(self) -> None:
        producer = self.producer(is_heard=True)
        self.assertEqual(self.asked.mock_calls, [mock.call("memory:test", "p", None)])
        producer.append([b"abc"])
        producer.append([b"de"])
        self.assertEqual(producer._facts(), {"batches": 2, "inFlight": 2, "bytes": 5, "client": "python"})
        self.assertEqual(self.metrics.accepted.mock_calls, [mock.call(0, 3), mock.call(1, 2)])
        self.assertEqual((producer._thread.daemon, producer._thread.name), (True, "batchweave-p"))
        producer._settle(self.seen(producer, 1, 60))
        self.assertEqual(self.metrics.committed.mock_calls, [mock.call(0, 60)])
        producer.stop()
        self.assertEqual(self.metrics.ended.call_count, 1)
        self.store.objects.clear()
        self.producer(lanes=3, id="lane-2", is_heard=True)
        self.assertEqual(self.asked.mock_calls, [mock.call("memory:test", "lane-2", 2)])
        self.store.objects.clear()
        with mock.patch.object(module, "Pulse") as pulse:
            first = self.producer()
            self.assertIsNone(first._pulse)
            second = self.producer(id="q", pulse=True)
        log = self.namespace.log
        self.assertEqual(pulse.mock_calls, [mock.call(log.store, log.spec.uuid, "producer", "q", second._facts)])
        second.stop()
        second.join(3.0)
        self.assertEqual((pulse.return_value.stop.call_count, pulse.return_value.join.mock_calls), (1, [mock.call(3.0)]))
        self.assertEqual(self.pool.calls, ["drop", ("join", 3.0)])

    def test_what_is_not_said_is_what_the_guide_says(self) -> None:
        self.producer()
        found = {name: p.default for name, p in inspect.signature(Producer).parameters.items() if p.default is not p.empty}
        self.assertEqual(found, {
            "buffered_bytes_max": 268_435_456, "buffered_batches_max": 1_024, "uploads_in_flight_max": 8, "extent_bytes_max": 536_870_912, "lag_poll_delay": 1.0, "pulse": False,
        })


class Acknowledging(Bench):
    def test_only_what_this_incarnation_has_in_a_verified_version_is_acknowledged(self) -> None:
        producer = self.producer()
        tickets = [producer.append([b"abc"]) for _ in range(3)]
        with mock.patch.object(self.namespace.log.head, "keep") as kept:
            for manifest in (
                dataclasses.replace(self.seen(producer, 3), producers={}), self.seen(producer, 3, state={"epoch": 9}), self.seen(producer, 3, state={"incarnation": "ba9876543210"}),
                self.seen(producer, 0),
            ):
                self.assertEqual(self.notified(producer, lambda: producer._settle(manifest)), 0)
            self.assertEqual((kept.called, producer.pending_batches), (False, 3))
            self.assertEqual(self.notified(producer, lambda: producer._settle(self.seen(producer, 2, 60))), 1)
            self.assertEqual((kept.call_count, list(producer._entries), producer._buffered_bytes), (1, [2], 3))
        self.assertEqual([ticket.version for ticket in tickets], [60, 60, None])
        self.assertEqual([ticket.wait(0) for ticket in tickets[:2]], [60, 60])
        self.refused(lambda: tickets[2].wait(0), "Batch 2 was not committed within 0 s.", "WAIT_TIMEOUT")

    def test_a_ticket_tells_once_that_somebody_waits(self) -> None:
        told: list[int] = []
        ticket = Ticket(4, lambda: told.append(1))
        for _ in range(2):
            self.refused(lambda: ticket.wait(0.0), "Batch 4", "WAIT_TIMEOUT")
        self.assertEqual((told, ticket._is_awaited), ([1], True))
        ticket._settle(None, KeyError("why"))
        with self.assertRaises(KeyError):
            ticket.wait()

    def test_what_its_publisher_sees(self) -> None:
        producer = self.producer()
        outbox = producer._publisher._outbox
        self.assertEqual((outbox.pending(), outbox.is_waiting(), outbox.is_all_uploaded(), outbox.is_awaited(), outbox.is_ended), ([], False, True, False, False))
        tickets = [producer.append([b"a"]) for _ in range(2)]
        self.assertTrue(outbox.is_all_uploaded())
        self.pool.kept = []
        tickets.append(producer.append([b"b"]))
        self.pool.kept.clear()
        self.assertEqual(([d.seq for d in outbox.pending()], outbox.is_waiting(), outbox.is_all_uploaded(), outbox.is_awaited()), ([0, 1], True, False, False))
        self.refused(lambda: tickets[2].wait(0), "Batch 2", "WAIT_TIMEOUT")
        self.assertFalse(outbox.is_awaited(), "it is not uploaded yet")
        self.refused(lambda: tickets[1].wait(0), "Batch 1", "WAIT_TIMEOUT")
        self.assertTrue(outbox.is_awaited())
        outbox.settle(self.seen(producer, 2))
        self.assertEqual((outbox.pending(), outbox.is_waiting()), ([], True))
        producer.stop()
        self.assertTrue(outbox.is_ended)

    def test_the_first_failure_is_every_waiters_and_every_callers(self) -> None:
        producer = self.producer()
        ticket = producer.append([b"a"])
        self.assertEqual(self.notified(producer, lambda: producer._fail(KeyError("first"))), 1)
        producer._fail(ValueError("second"))
        for call in (lambda: ticket.wait(0), lambda: producer.append([b"b"]), producer.flush, producer.close):
            with self.assertRaises(KeyError):
                call()
        self.assertFalse(self.left.called, "a farewell of the dead")
        other = self.producer(id="q")
        other.stop()
        other._fail(KeyError("after its end"))
        self.assertIsNone(other._failure)
        self.refused(lambda: other.append([b"a"]), "Producer q is closed.")
        empty = self.producer(id="t")
        empty._fail(KeyError("before the first"))
        with self.assertRaises(KeyError):
            empty.flush()
        full = self.producer(id="u", buffered_batches_max=1)
        full.append([b"a"])
        with mock.patch.object(full._changed, "wait", lambda _: full._fail(KeyError("while it waited"))), self.assertRaises(KeyError):
            full.append([b"b"])
        self.assertEqual(full.next_seq, 1)
        third = self.producer(id="r")
        with mock.patch.object(third._publisher, "run", side_effect=KeyError("published")):
            third._run()
        self.assertIsInstance(third._failure, KeyError)
        fourth = self.producer(id="s")
        with mock.patch.object(self.namespace.log.store, "put", side_effect=KeyError("uploaded")):
            fourth.append([b"a"])
        self.assertIsInstance(fourth._failure, KeyError)


class Ending(Bench):
    def test_a_flush_hurries_and_waits_for_what_was_accepted_before(self) -> None:
        producer = self.producer()
        producer.flush()
        producer.append([b"a"])
        waits: list[Any] = []

        def wait(timeout: float) -> None:
            waits.append((producer._publisher.is_urgent, timeout))
            if len(waits) == 2:
                producer.append([b"later"])
                producer._settle(self.seen(producer, 1))

        with mock.patch.object(producer._changed, "wait", wait):
            self.assertEqual(self.notified(producer, producer.flush), 4)
        self.assertEqual((waits, producer.pending_batches), ([(True, 1.0)] * 2, 1))
        clock = [5.0]
        with mock.patch.object(module.time, "monotonic", lambda: clock[0]), mock.patch.object(producer._changed, "wait", lambda _: clock.__setitem__(0, clock[0] + 1)):
            self.refused(lambda: producer.flush(3.0), "Producer p was not flushed within 3.0 s.", "WAIT_TIMEOUT")
        self.assertEqual(clock, [8.0])

    def test_a_close_flushes_stops_and_says_farewell_once(self) -> None:
        producer = self.producer()
        with mock.patch.object(producer, "flush") as flushed:
            self.assertEqual(self.notified(producer, producer.close), 1)
            producer.close()
        self.assertEqual((flushed.call_count, producer._is_closed, producer._is_stopped, self.left.call_count, self.pool.calls), (1, True, True, 1, ["drop"]))
        with self.producer(id="q") as other:
            pass
        self.assertEqual((other._is_stopped, self.left.call_count), (True, 1))
        with self.assertRaises(KeyError), self.producer(id="r") as third:
            ticket = third.append([b"a"])
            raise KeyError("the user's own")
        self.refused(lambda: ticket.wait(0), "Producer r was stopped before this batch was seen in the log.")
        fourth = self.producer(id="s")
        known = fourth.append([b"a"])
        known._settle(3)
        fourth._stop()
        self.assertEqual(known.wait(0), 3)

    def test_a_producer_waits_for_its_threads_so_long_and_leaves_only_if_they_ended(self) -> None:
        for is_alive in True, False:
            producer = self.producer(id="p" if is_alive else "q")
            producer._thread = mock.Mock(is_alive=lambda: is_alive)
            producer._pulse = mock.Mock()
            with mock.patch.object(module, "join_threads") as joined, mock.patch.object(module.time, "monotonic", lambda: 100.0), mock.patch.object(module, "JOIN_S", 5.0):
                producer._stop()
            self.assertEqual((joined.mock_calls, producer._pulse.join.mock_calls), ([mock.call([producer._thread], 105.0)], [mock.call(105.0)]))
            self.assertEqual(self.left.called, not is_alive)
            with mock.patch.object(module, "join_threads") as joined:
                producer.join(9.0)
            plain = self.producer(id="x" if is_alive else "y")
            plain.join(9.0)
            self.assertEqual(self.pool.calls, [("join", 9.0)])
            self.assertEqual((joined.mock_calls, producer._pulse.join.mock_calls[-1]), ([mock.call([producer._thread], 9.0)], mock.call(9.0)))

    def test_a_forked_process_can_do_nothing_with_its_parents_producer(self) -> None:
        producer = self.producer()
        producer._pid = -1
        for call in (lambda: producer.append([b"a"]), producer.flush):
            self.refused(call, "was forked from")
        producer.close()
        producer._stop()
        self.assertEqual((producer._is_stopped, self.pool.calls), (False, []))
        producer._pid = os.getpid()


class Input(Bench):
    def test_slices_are_bytes_of_any_shape_in_the_number_of_the_grid(self) -> None:
        import array

        found = flatten_slices([[b"a", bytearray(b"b")], (memoryview(b"c"), array.array("I", [1]))], 2, 2)
        self.assertEqual([view.nbytes for view in found], [1, 1, 1, 4])
        for slices, part in (([b"a"], "has 4 slices (2 rows x 2 chunks), not 1."), ([b"a"] * 5, "not 5."), ([b"a", "b", b"c", b"d"], "Slice 1 is not bytes."), ([b"a"] * 3 + [5], "Slice 3 is not bytes.")):
            self.refused(lambda: flatten_slices(slices, 2, 2), part)
        with mock.patch.object(batch_input, "SLICE_BYTES_MAX", 3):
            flatten_slices([b"abc"], 1, 1)
            self.refused(lambda: flatten_slices([b"abcd"], 1, 1), "A slice has 4 bytes; at most 3", "LIMIT")
        own = b"abc"
        self.assertIs(unchanging(memoryview(own)).obj, own)
        self.assertIsNot(unchanging(memoryview(own)[1:]).obj, None)

    def test_json_is_read_back_as_it_was_given_and_is_small(self) -> None:
        for good in ({"a": [1, None, True, "x", 1.5]}, 5, "x", []):
            self.assertEqual(checked_json(good, "It"), good)
        for bad, part in (((1, 2), "would not read back"), ({1: 2}, "would not read back"), ({"a"}, "is not JSON"), (float("nan"), "is not JSON")):
            self.refused(lambda: checked_json(bad, "It"), part)
        self.assertEqual(len(checked_json("x" * 1_048_574, "It")), 1_048_574)
        self.refused(lambda: checked_json("x" * 1_048_575, "It"), "It has 1048577 bytes; at most 1048576 are allowed.", "LIMIT")


class Threads(unittest.TestCase):
    def test_uploads_run_side_by_side_up_to_what_was_said(self) -> None:
        namespace = create_namespace("memory:test", rows=1, store=MemoryStore())
        with mock.patch.object(module, "Pool", wraps=module.Pool) as pool, namespace.producer("p", uploads_in_flight_max=3) as producer:
            producer.append([b"a"]).wait(60)
            self.assertIn(producer._thread, threading.enumerate())
        self.assertEqual(pool.mock_calls[0], mock.call(3, "upload"))


if __name__ == "__main__":
    unittest.main()
