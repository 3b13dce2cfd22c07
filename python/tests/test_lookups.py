"""Property: a step leads to its batch through tail, segments, nodes and ancestors, or to a sentence about why it does not; checkpoints of runs, the lag of producers
and the pins of forks are exactly what the state says.

Method: indexes and states written out by hand, on both sides of each edge, with clocks that only waiting moves.
"""
from __future__ import annotations

import dataclasses
import unittest
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.format.checksum import crc32
from batchweave.format.cursor import make_cursor
from batchweave.format.descriptor import Descriptor, Extent
from batchweave.format.index_node import Level, Reference, Run
from batchweave.format.keys import NAMESPACE_KEY, index_key
from batchweave.format.manifest import Mark, genesis
from batchweave.format.namespace_spec import Fork, Origin, StepRange, decode_namespace
from batchweave.format.stored_json import seal_json
from batchweave.lifecycle import checkpoints as module
from batchweave.lifecycle.checkpoints import (
    Checkpoint, Lag, LagGate, _numbered, _stage_release_all, _stage_replacement, commit_max_lag, find_checkpoint, lag_deadlock, live_checkpoints, measure_lag,
    register_checkpoint, watch_starvation,
)
from batchweave.lifecycle.pins import _confirm, _open_ancestor, confirm_pins
from batchweave.log.draft import Draft, Stamp
from batchweave.log.step_index import StepIndex
from memory_store import MemoryStore
from small_world import World, Writer

UUID, OTHER = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5", "00000000-58a4-4d0c-9a3e-2b7c90d1e4f5"
ME = "0123456789ab"


class Cases(unittest.TestCase):
    def refused(self, call: Any, code: str, part: str = "") -> BatchWeaveError:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception.message)
        self.assertIn(part, caught.exception.message)
        return caught.exception


class Steps(Cases):
    def setUp(self) -> None:
        self.store = MemoryStore()
        self.refs = 0
        fields = {"grid": {"rows": 1, "chunks": 1}, "order": {"kind": "commit"}, "created": 1}
        self.spec = decode_namespace(seal_json("namespace", UUID, fields), NAMESPACE_KEY)

    def batch(self, step: int, origin: int | None = None) -> Descriptor:
        return Descriptor("p", 1, ME, step, 5, 0, (Extent(1, 2, 3, 4),), origin)

    def put(self, kind: str, fields: dict[str, Any], store: Any = None, namespace: str = UUID) -> Reference:
        data = seal_json(kind, namespace, fields)
        self.refs += 1
        ref = Reference(1, ME, self.refs, crc32(data))
        (store or self.store).put(index_key(ref), data)
        return ref

    def segment(self, start: int, store: Any = None, namespace: str = UUID, origin: int | None = None) -> Reference:
        return self.put("segment", Run(start, [self.batch(start + i, origin) for i in range(64)]).stored(), store, namespace)

    def manifest(self, levels: list[Level], tail: Run, **changes: Any) -> Any:
        return dataclasses.replace(genesis(self.spec), version=9, index=levels, tail=tail, **changes)

    def test_a_step_is_in_the_tail_in_a_segment_or_under_a_node(self) -> None:
        node = self.put("node", {"level": 1, "start": 0, "refs": [0, *(list(self.segment(64 * i)) for i in range(1, 3)), *[0] * 61]})
        top = self.put("node", {"level": 2, "start": 0, "refs": [list(node), *[0] * 63]})
        levels = [Level(64, [self.segment(4_096), self.segment(4_160)]), Level(1, []), Level(0, [top])]
        manifest = self.manifest(levels, Run(4_224, [self.batch(4_224), self.batch(4_225)]), trim=64)
        index = StepIndex(self.store, self.spec, lambda uri: self.store)
        for step in (4_225, 4_224, 4_223, 4_160, 4_159, 4_096, 64, 127, 128, 191, 130, 4_097):
            place = index.locate(manifest, step)
            self.assertEqual((place.descriptor.seq, place.namespace), (step, UUID))
        self.store.requests.clear()
        index.locate(manifest, 4_100)
        self.assertEqual(self.store.requests, [], "what was used last is kept")
        plain = [Level(0, [self.segment(0)]), Level(0, [])]
        self.assertEqual(index.locate(self.manifest(plain, Run(64, [])), 5).descriptor.seq, 5)
        self.refused(lambda: StepIndex(self.store, self.spec, lambda uri: self.store).locate(self.manifest(plain, Run(200, [])), 70), "CORRUPT", "Step 70 is in no index object")
        self.refused(lambda: index.locate(dataclasses.replace(manifest, trim=0), 200), "CORRUPT", "Step 200 is in no index object")

    def test_an_index_object_that_is_at_another_place_gives_no_batch(self) -> None:
        for level, start, is_right in (1, 0, True), (2, 0, False), (1, 4_096, False):
            node = self.put("node", {"level": level, "start": start, "refs": [list(self.segment(0)), *[0] * 63]})
            manifest = self.manifest([Level(64, []), Level(0, [node])], Run(4_096, []))
            index = StepIndex(self.store, self.spec, lambda uri: self.store)
            if is_right:
                self.assertEqual(index.locate(manifest, 5).descriptor.seq, 5)
            else:
                self.refused(lambda: index.locate(manifest, 5), "CORRUPT", "it does not cover step 5")
        for start, is_right in (64, True), (0, False), (128, False):
            manifest = self.manifest([Level(1, [self.segment(start)])], Run(200, []))
            index = StepIndex(self.store, self.spec, lambda uri: self.store)
            if is_right:
                self.assertEqual(index.locate(manifest, 70).descriptor.seq, 70)
            else:
                self.refused(lambda: index.locate(manifest, 70), "CORRUPT", "it does not cover step 70")
        ref = self.segment(64)
        for changed, code in (ref._replace(check=5), "CORRUPT"), (ref._replace(k=999), "MISSING_OBJECT"):
            manifest = self.manifest([Level(1, [changed])], Run(200, []))
            self.refused(lambda: StepIndex(self.store, self.spec, lambda uri: self.store).locate(manifest, 70), code)

    def test_a_step_that_is_not_there_is_gone_or_to_come(self) -> None:
        index = StepIndex(self.store, self.spec, lambda uri: self.store)
        tail = Run(3, [self.batch(3), self.batch(4)])
        for trim, closed, step, code, part in (
            (3, False, 2, "RECLAIMED", "Step 2 was reclaimed, and nothing brings it back: the log holds steps 3 to 4; ask for one of those."),
            (5, False, 2, "RECLAIMED", "the log holds no step now."), (3, False, 5, "INVALID_ARGUMENT", "Step 5 is not published yet: the last step is 4, and the log is open."),
            (3, True, 5, "INVALID_ARGUMENT", "Step 5 does not exist: the log is closed and the last step is 4."), (4, False, 3, "RECLAIMED", "holds steps 4 to 4;"),
        ):
            said = self.refused(lambda: index.locate(self.manifest([], tail, trim=trim, closed=closed), step), code, part)
            self.assertEqual(said.details, {"step": step, "trim": trim, "end": 5})
        self.refused(lambda: index.locate(self.manifest([], Run(0, [])), 0), "INVALID_ARGUMENT", "nothing is published yet")
        for step in (3, 4):
            self.assertEqual(index.locate(self.manifest([], tail, trim=3), step).descriptor.seq, step)
        bare = self.manifest([], Run(3, [self.batch(3)._replace(extents=())]))
        self.assertEqual(self.refused(lambda: index.locate(bare, 3), "CORRUPT", "step 3 is promised").details["step"], 3)

    def test_a_batch_of_a_namespace_that_is_no_fork_has_no_origin(self) -> None:
        manifest = self.manifest([], Run(0, [self.batch(0, 0)]))
        self.refused(lambda: StepIndex(self.store, self.spec, lambda uri: self.store).locate(manifest, 0), "CORRUPT", "names origin 0")

    def test_inherited_steps_are_the_ancestors_and_its_ancestors(self) -> None:
        old = MemoryStore(uri="memory:old")
        life = f"life/{OTHER}/"

        class Prefixed:
            def put(self, key: str, data: bytes) -> None:
                old.put(life + key, data)

        tail = Run(64, [self.batch(64), self.batch(65, 0), self.batch(66, 1)])
        root = self.put("root", {"index": [[0, [list(self.segment(0, Prefixed(), OTHER))]]], "tail": tail.stored()}, Prefixed(), OTHER)
        origins = [
            Origin(OTHER, "memory:old", 2, root, [StepRange(0, 10, 3), StepRange(10, 5, 62)], [1]), Origin("11111111-58a4-4d0c-9a3e-2b7c90d1e4f5", "memory:older", 1, root, [], []),
        ]
        self.spec.fork = Fork(origins, Run(20, []), 0, [], [])
        opened: list[str] = []
        index = StepIndex(self.store, self.spec, lambda uri: (opened.append(uri), old)[1])
        own = self.segment(0)
        manifest = self.manifest([Level(0, [own])], Run(64, [self.batch(90, 1), self.batch(91)]))
        for step, seq, namespace in ((0, 3, OTHER), (9, 12, OTHER), (10, 62, OTHER), (12, 64, OTHER), (13, 65, "11111111-58a4-4d0c-9a3e-2b7c90d1e4f5"), (15, 15, UUID), (63, 63, UUID), (65, 91, UUID)):
            place = index.locate(manifest, step)
            self.assertEqual((place.descriptor.seq, place.namespace), (seq, namespace), step)
        self.assertEqual(index.locate(manifest, 64).namespace, "11111111-58a4-4d0c-9a3e-2b7c90d1e4f5")
        self.assertEqual(sorted(opened), ["memory:old", "memory:older"], "each once")
        self.refused(lambda: index.locate(manifest, 14), "CORRUPT", "names origin -1")
        origins[0].ranges[1] = StepRange(10, 9, 62)
        self.refused(lambda: index.locate(manifest, 15), "CORRUPT", "it does not reach step 67")
        self.refused(lambda: index.locate(self.manifest([], Run(64, [self.batch(64, 2)])), 64), "CORRUPT", "names origin 2")
        self.assertEqual(index._origin(0)[1].uri.rstrip("/"), f"memory:old/{life}".rstrip("/"))
        self.assertIs(index._origin(1)[1], old, "of format 1 everything is beside namespace.json")


class Runs(Cases):
    """Checkpoints of one run after another."""

    def draft(self, live: dict[str, Mark], released: list[str] | None = None) -> Draft:
        base = dataclasses.replace(World().log.head.newest(), version=20, checkpoints={"g": {"live": live, "released": released or []}})
        return Draft(base, Stamp(ME, "me", 1, 0))

    def test_numbers_of_runs(self) -> None:
        for name, id, expected in (
            ("a", "a", 1), ("a.run2", "a", 2), ("a.run10", "a", 10), ("a.run99999", "a", 99_999), ("a.run100000", "a", 0), ("a.run0", "a", 0), ("a.run02", "a", 0), ("b.run2", "a", 0), ("ab", "a", 0),
            ("a.run", "a", 0), ("x" * 55 + ".run2", "x" * 60, 2), ("x" * 54 + ".run2", "x" * 60, 0), ("a.run2.run3", "a.run2", 3), ("a.run2.run3", "a", 0),
        ):
            self.assertEqual(_numbered(name, id), expected, (name, id))

    def test_a_later_run_replaces_what_an_earlier_one_left_and_no_more(self) -> None:
        def replace(live: dict[str, Mark], row: int, iteration: int, since: int, released: list[str] | None = None) -> tuple[str, list[str]]:
            draft = self.draft(live, released)
            name = _stage_replacement(draft, "g", "a", row, iteration, since)
            return name, list(draft.checkpoints["g"]["live"])

        for live, row, iteration, since, released, expected in (
            ({}, 4, 2, 5, [], ("a", [])), ({"a": Mark(4, 2, 3)}, 4, 2, 5, [], ("a", ["a"])), ({"a": Mark(4, 2, 3)}, 5, 2, 5, [], ("a.run2", [])), ({"a": Mark(4, 2, 3)}, 4, 3, 5, [], ("a.run2", [])),
            ({"a": Mark(4, 2, 5)}, 5, 2, 5, [], ("a.run2", [])), ({"a": Mark(4, 2, 6)}, 5, 2, 5, [], ("a", ["a"])), ({"a.run2": Mark(4, 2, 3)}, 5, 2, 5, ["a"], ("a.run3", [])),
            ({"a.run2": Mark(4, 2, 6)}, 5, 2, 5, ["a"], ("a", ["a.run2"])), ({"a.run2": Mark(4, 2, 6)}, 5, 2, 5, [], ("a.run2", ["a.run2"])), ({}, 5, 2, 5, ["a", "a.run7"], ("a.run8", [])),
            ({"z": Mark(9, 3, 6)}, 5, 2, 5, ["a"], ("a", ["z"])), ({"z": Mark(9, 2, 6)}, 5, 2, 5, ["a"], ("a.run2", ["z"])), ({"z": Mark(9, 3, 5)}, 5, 2, 5, ["a"], ("a.run2", ["z"])),
            ({"a": Mark(4, 2, 3), "a.run2": Mark(6, 2, 4)}, 6, 2, 5, [], ("a.run2", ["a", "a.run2"])), ({"a": Mark(4, 2, 3), "a.run2": Mark(6, 2, 4)}, 7, 2, 5, [], ("a.run3", [])),
        ):
            self.assertEqual(replace(live, row, iteration, since, released), expected, (live, row, iteration, released))
        draft = self.draft({"x" * 64: Mark(4, 2, 3)})
        self.assertEqual(_stage_replacement(draft, "g", "x" * 64, 5, 2, 5), "x" * 55 + ".run2")
        draft = self.draft({"x" * 55 + ".run99999": Mark(4, 2, 3)})
        self.refused(lambda: _stage_replacement(draft, "g", "x" * 64, 5, 2, 5), "INVALID_ARGUMENT", "Checkpoint id")

    def test_a_release_takes_all_of_an_id(self) -> None:
        draft = self.draft({"a": Mark(1, 1, 1), "a.run2": Mark(1, 1, 1), "b": Mark(1, 1, 1)}, ["c"])
        self.assertEqual((_stage_release_all(draft, "g", "a"), list(draft.checkpoints["g"]["live"])), (False, ["b"]))
        self.assertEqual((_stage_release_all(draft, "g", "a"), _stage_release_all(draft, "g", "c")), (True, True))
        self.refused(lambda: _stage_release_all(draft, "g", "z"), "NO_CHECKPOINT")
        self.refused(lambda: _stage_release_all(draft, "h", "z"), "NO_CHECKPOINT")

    def test_where_a_checkpoint_is(self) -> None:
        live = {"a": Mark(4, 1, 1), "a.run3": Mark(6, 2, 3), "a.run2": Mark(5, 2, 2), "b.run2": Mark(9, 3, 3), "b.run4": Mark(8, 3, 3)}
        manifest = self.draft(live).base
        for id, expected in ("a", (4, 1)), ("a.run3", (6, 2)), ("b", (8, 3)):
            self.assertEqual(find_checkpoint(manifest, id, "g"), expected)
        self.assertEqual(live_checkpoints(manifest, 2)[0], Checkpoint("g", "b.run2", 9, 4, 3, 3))
        many = self.draft({f"c{i}": Mark(1, 1, 1) for i in range(10)}).base
        for found, group, part in (manifest, "g", "It has a, a.run3, a.run2, b.run2, b.run4;"), (manifest, "h", "The group has none;"), (many, "g", "It has c2, c3, c4, c5, c6, c7, c8, c9;"):
            said = self.refused(lambda: find_checkpoint(found, "z", group), "NO_CHECKPOINT", part)
            self.assertEqual(said.details, {"id": "z", "group": group, "live": list(found.checkpoints.get(group, {"live": {}})["live"])})
        self.refused(lambda: find_checkpoint(manifest, 5, "g"), "NO_CHECKPOINT")

    def test_what_can_be_registered(self) -> None:
        world = World()
        Writer(world.log, "p").write(3)
        uuid = world.log.spec.uuid
        found = register_checkpoint(world.log, "c", make_cursor(uuid, 2, 7), keep_last=1)
        self.assertEqual(found[:5], ("default", "c", 2, 2, 7))
        self.assertEqual(world.log.head.jump().commit["by"], "checkpoint c")
        self.assertEqual(register_checkpoint(world.log, "c", make_cursor(uuid, 1, 3), "other")[:4], ("other", "c", 1, 1))
        since = world.log.head.jump().version
        self.assertEqual(register_checkpoint(world.log, "c", make_cursor(uuid, 3, 8), since=since).id, "c.run2")
        self.refused(lambda: register_checkpoint(world.log, "c", make_cursor(uuid, 2, 8), "other"), "CHECKPOINT_CONFLICT")
        for keep in (0, -1, True, 1.5, "1"):
            self.refused(lambda: register_checkpoint(world.log, "d", make_cursor(uuid, 2, 7), keep_last=keep), "INVALID_ARGUMENT", "keep_last")  # type: ignore[arg-type]
        said = self.refused(lambda: register_checkpoint(world.log, "d", make_cursor(OTHER, 2, 7)), "WRONG_NAMESPACE")
        self.assertEqual(said.details, {"found": OTHER, "expected": uuid})
        for lag in (0, -1, True, 1.5):
            self.refused(lambda: commit_max_lag(world.log, lag), "INVALID_ARGUMENT", "max_lag")  # type: ignore[arg-type]
        commit_max_lag(world.log, 1)
        self.assertEqual(world.log.head.jump().max_lag, 1)


class Lags(Cases):
    def setUp(self) -> None:
        self.world = World()
        Writer(self.world.log, "p").write(8)
        self.log = self.world.log
        self.base = self.log.head.jump()

    def state(self, max_lag: int | None = 5, marks: dict[str, list[tuple[int, int]]] | None = None, **changes: Any) -> Any:
        groups = {g: {"live": {f"c{i}": Mark(row, 1, v) for i, (row, v) in enumerate(rows)}, "released": []} for g, rows in (marks or {}).items()}
        return dataclasses.replace(self.base, settings={} if max_lag is None else {"maxLag": max_lag}, checkpoints=groups, **changes)

    def test_the_slowest_group_counts_by_its_newest_checkpoint(self) -> None:
        for marks, rows, expected in (
            ({}, 1, Lag(8, 0, None, 0, None)), ({"g": [(3, 1)]}, 1, Lag(5, 3, "g", 1, None)), ({"g": [(3, 1), (6, 2)]}, 1, Lag(2, 6, "g", 1, 3)), ({"g": [(6, 1), (3, 2)]}, 1, Lag(5, 3, "g", 1, 3)),
            ({"g": [(6, 1)], "h": [(4, 1), (5, 2)], "i": []}, 1, Lag(3, 5, "h", 2, 1)), ({"g": [(7, 1)]}, 2, Lag(5, 3, "g", 1, None)), ({"g": [(1, 1), (2, 2), (7, 3)]}, 1, Lag(1, 7, "g", 1, 5)),
        ):
            self.assertEqual(measure_lag(self.state(marks=marks), rows), expected, marks)
        self.assertEqual(measure_lag(self.state(trim=3), 1), Lag(5, 3, None, 0, None))

    def test_a_deadlock_is_told_with_its_numbers(self) -> None:
        for lag, since, interval in (
            (Lag(5, 3, "g", 1, 4), "the newest checkpoint of group g is at step 3", "4 steps (as between the last two of group g)"),
            (Lag(8, 0, None, 0, None), "no checkpoint is live (the log begins at step 0)", "longer than that, or no rank registers any"),
        ):
            said = lag_deadlock("This rank", self.state(), lag, 12.6)
            self.assertEqual(said.message, f"This rank waited 13 s: producers may be maxLag = 5 steps ahead of the newest checkpoint and the log ends at step 8, while {since}, so no batch and no "
                             f"checkpoint can come. The checkpoint interval is {interval}. Set maxLag above the checkpoint interval, or register checkpoints more often.")
            self.assertEqual(said.details, {"maxLag": 5, "lag": lag.steps, "group": lag.group, "end": 8})

    def gate(self, states: list[Any], pending: int = 0, **settings: Any) -> tuple[list[Any], LagGate]:
        """Lets the gate wait on a log whose newest versions come one after another."""
        left, clock, calls = list(states), [100.0], []
        gate = LagGate(self.log, **settings)

        def jump() -> Any:
            calls.append("jump")
            if len(left) > 1:
                left.pop(0)
            return left[0]

        def sleep(seconds: float) -> None:
            calls.append(seconds)
            clock[0] += seconds

        with mock.patch.object(self.log.head, "newest", lambda: left[0]), mock.patch.object(self.log.head, "jump", jump), mock.patch.object(
            module, "time", mock.Mock(monotonic=lambda: clock[0], sleep=sleep)
        ):
            try:
                gate.wait(lambda: pending, lambda: calls.append("told"))
            except BatchWeaveError as error:
                calls.append((error.code, round(clock[0] - 100, 6)))
        return calls, gate

    def test_a_producer_waits_while_it_is_too_far_ahead(self) -> None:
        free, near, at = self.state(None), self.state(9), self.state(8)
        self.assertEqual(self.gate([free])[0], [])
        self.assertEqual(self.gate([near, near])[0], ["jump"])
        self.assertEqual(self.gate([near, near], 1)[0][:3], ["jump", "told", 1.0])
        self.assertEqual(self.gate([at, at, near], poll_delay=0.5)[0], ["jump", "told", 0.5, "jump"])
        self.assertEqual(self.gate([at, free])[0], ["jump"])
        self.assertEqual(self.gate([at, self.state(8, closed=True)])[0], ["jump"])
        self.assertEqual(self.gate([at, self.state(8, starving=8)])[0], ["jump", "told", ("LAG_DEADLOCK", 0.0)])
        self.assertEqual(self.gate([at, at, self.state(8, starving=7), near])[0], ["jump", "told", 1.0, "jump", 1.0, "jump"])

    def test_a_producer_gives_up_when_no_checkpoint_moves_for_long(self) -> None:
        at = self.state(2, {"g": [(3, 1)]})
        calls, _ = self.gate([at], wait_max=3.0)
        self.assertEqual(calls, ["jump", "told", 1.0, "jump", 1.0, "jump", 1.0, "jump", ("LAG_DEADLOCK", 3.0)])
        calls, _ = self.gate([at, at, at, self.state(2, {"g": [(3, 1), (4, 2)]})], wait_max=3.0)
        self.assertEqual(calls[-1], ("LAG_DEADLOCK", 5.0), "it moved after two seconds")
        gate = LagGate(self.log)
        self.assertEqual((gate._poll_delay, gate._wait_max), (1.0, 21_600.0))

    def test_a_look_serves_all_batches_of_a_second(self) -> None:
        near = self.state(9)
        _, gate = self.gate([near])
        calls: list[str] = []
        for now, expected in (100.5, []), (101.0, ["jump"]), (101.5, ["jump"]), (102.0, ["jump", "jump"]):
            with mock.patch.object(self.log.head, "newest", lambda: near), mock.patch.object(self.log.head, "jump", lambda: calls.append("jump") or near), mock.patch.object(
                module, "time", mock.Mock(monotonic=lambda: now)
            ):
                gate.wait(lambda: 0)
            self.assertEqual(calls, expected, now)

    def test_a_rank_starves_only_if_nothing_can_come(self) -> None:
        marks = {"g": [(3, 1)]}
        for state, step, waited, group, is_stuck in (
            (self.state(5, marks), 8, 10.0, "g", True), (self.state(5, marks), 8, 9.9, "g", False), (self.state(6, marks), 8, 10.0, "g", False), (self.state(None, marks), 8, 10.0, "g", False),
            (self.state(5, marks), 7, 10.0, "g", False), (self.state(5, marks, closed=True), 8, 10.0, "g", False), (self.state(5, marks), 8, 10.0, "h", True),
            (self.state(5, {**marks, "h": [(4, 1)]}), 8, 10.0, "h", False), (self.state(5, {**marks, "h": [(4, 1)]}), 8, 10.0, "g", True), (self.state(5), 9, 10.0, "g", True),
        ):
            made: list[Any] = []

            def commit(by: str, kind: str, stage: Any) -> Any:
                draft = Draft(state, Stamp(ME, "me", 1, 0))
                made.append((by, kind, *stage(draft, None), draft.starving))
                return state, made[-1][3]

            with mock.patch.object(self.log.head, "newest", lambda: state), mock.patch.object(self.log, "commit", commit):
                if is_stuck:
                    self.refused(lambda: watch_starvation(self.log, step, waited, group), "LAG_DEADLOCK", "This rank waited")
                    self.assertEqual(made, [("report starvation", "starvation", False, True, 8)])
                else:
                    watch_starvation(self.log, step, waited, group)
                    self.assertEqual(made, [])
        known, newer = self.state(5, marks), self.state(5, marks, starving=8)
        for base, expected in (newer, (True, True)), (self.state(9, marks), (True, False)):
            with mock.patch.object(self.log.head, "newest", lambda: known), mock.patch.object(self.log, "commit", lambda by, kind, stage: (base, stage(Draft(base, Stamp(ME, "m", 1, 0)), None)[1])):
                if expected[1]:
                    self.refused(lambda: watch_starvation(self.log, 8, 10.0, "g"), "LAG_DEADLOCK")
                else:
                    watch_starvation(self.log, 8, 10.0, "g")


class Pins(Cases):
    def setUp(self) -> None:
        self.world = World()
        self.log = self.world.log
        Writer(self.log, "p").write(2)

    def pinned(self, confirmed: bool | None) -> Any:
        pin = {"fork": OTHER, "uri": "x", "created": 1, "confirmed": confirmed, "from": 0, "to": 1, "root": [1, ME, 0, 7]}
        return dataclasses.replace(self.log.head.newest(), pins={} if confirmed is None else {OTHER: pin})

    def confirm(self, before: Any, after: Any = None, error: Any = None) -> list[Any]:
        made: list[Any] = []

        def commit(by: str, kind: str, stage: Any) -> Any:
            draft = Draft(after or before, Stamp(ME, "me", 1, 0))
            done, is_held = stage(draft, None)
            made.append((by, kind, done, is_held, draft.pins.get(OTHER, {}).get("confirmed")))
            if error:
                raise error
            return after, is_held

        with mock.patch.object(self.log.head, "jump", lambda: before), mock.patch.object(self.log, "commit", commit):
            _confirm(OTHER, self.log, "memory:x")
        return made

    def test_a_pin_is_confirmed_once_and_one_that_is_gone_is_told(self) -> None:
        self.assertEqual(self.confirm(self.pinned(True)), [])
        self.assertEqual(self.confirm(self.pinned(False)), [("confirm fork", "pin", False, True, True)])
        self.assertEqual(self.confirm(self.pinned(False), self.pinned(True)), [("confirm fork", "pin", True, True, True)])
        said = self.refused(lambda: self.confirm(self.pinned(None)), "RECLAIMED", "memory:x holds no pin for the fork")
        self.assertEqual(said.details, {"fork": OTHER, "uri": "memory:x"})
        denied, full = (BatchWeaveError(code, "no", {}) for code in ("STORE_DENIED", "STORE_FULL"))
        self.confirm(self.pinned(False), error=denied)
        self.refused(lambda: self.confirm(self.pinned(False), error=full), "STORE_FULL")
        self.refused(lambda: self.confirm(self.pinned(None), error=denied), "STORE_DENIED")

    def test_only_a_fork_that_still_shares_has_pins_and_its_ancestor_must_be_the_one(self) -> None:
        spec = self.log.spec
        opened: list[str] = []

        def open_store(uri: str) -> Any:
            opened.append(uri)
            return self.world.store

        confirm_pins(spec, 0, open_store)
        spec.fork = Fork([Origin(spec.uuid, "memory:a", 2, Reference(1, ME, 0, 7), [], [])], Run(5, []), 0, [], [])
        spec.first_own_step = 5
        for trim, is_opened in (5, False), (6, False), (4, True):
            opened.clear()
            with mock.patch("batchweave.lifecycle.pins._confirm") as confirmed:
                confirm_pins(spec, trim, open_store)
            self.assertEqual((opened, confirmed.call_count), (["memory:a"] if is_opened else [], int(is_opened)))
        self.assertEqual(_open_ancestor("memory:a", spec.uuid, open_store).spec.uuid, spec.uuid)
        said = self.refused(lambda: _open_ancestor("memory:a", OTHER, open_store), "WRONG_NAMESPACE")
        self.assertEqual(said.details, {"uri": "memory:a", "found": spec.uuid, "expected": OTHER})
        self.refused(lambda: _open_ancestor("memory:a", OTHER, lambda uri: MemoryStore()), "NO_NAMESPACE")


if __name__ == "__main__":
    unittest.main()
