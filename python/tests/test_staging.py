"""Property: what a commit may change, and what it says of each batch, opening, leaving, checkpoint and setting, holds at the very edge of each rule; the index that
it seals has every step once, at its place.

Method: drafts of small states, without a store, with values on both sides of every edge; the index against a model that counts.
"""
from __future__ import annotations

import dataclasses
import unittest
from typing import Any

from batchweave import BatchWeaveError
from batchweave.format.checksum import crc32
from batchweave.format.descriptor import Descriptor, Extent
from batchweave.format.index_node import Level, Reference, Run, decode_node, decode_segment
from batchweave.format.keys import LeavingIntent, OpeningIntent, index_key
from batchweave.format.manifest import Manifest, Mark, genesis
from batchweave.format.namespace_spec import NamespaceSpec, decode_namespace
from batchweave.format.producer_state import LastBatch, ProducerState
from batchweave.format.stored_json import seal_json
from batchweave.log import stage as module
from batchweave.log.draft import Draft, Stamp
from batchweave.log.stage import (
    Holder, SilentFinding, fenced, holds, is_lane, is_spent, lane_number, newest_first, seq_in_log, stage_batches, stage_checkpoint, stage_closing, stage_intents,
    stage_leaving, stage_max_lag, stage_opening, stage_release, stage_return,
)

UUID = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5"
ME, OTHER = "0123456789ab", "ba9876543210"
HOLDER = Holder("p", 2, ME)
REF = Reference(1, ME, 0, 7)


def spec_of(lanes: int | None = None, rows: int = 1, chunks: int = 1) -> NamespaceSpec:
    order = {"kind": "commit"} if lanes is None else {"kind": "lanes", "lanes": lanes}
    return decode_namespace(seal_json("namespace", UUID, {"grid": {"rows": rows, "chunks": chunks}, "order": order, "created": 1}), "namespace.json")


SPEC = spec_of()


def batch(seq: int, base: int = 5, producer: str = "p", epoch: int = 2, incarnation: str = ME, check: int = 7, attempt: int = 0, **more: Any) -> Descriptor:
    return Descriptor(producer, epoch, incarnation, seq, base, attempt, more.pop("extents", (Extent(1, 204, 100, check),)), **more)


def base_of(spec: NamespaceSpec = SPEC, **changes: Any) -> Manifest:
    return dataclasses.replace(genesis(spec), version=9, producers={"p": ProducerState(2, ME, 3, 4)}, **changes)


def draft_of(base: Manifest) -> Draft:
    return Draft(base, Stamp("v0u1t2s3r4q5", "me", 1, 0))


class Stages(unittest.TestCase):
    def refusal(self, call: Any) -> BatchWeaveError:
        with self.assertRaises(BatchWeaveError) as caught:
            call()
        return caught.exception


class Batches(Stages):
    def test_a_newer_holder_is_named_by_its_epoch_if_it_is_known(self) -> None:
        for state, text, found in (ProducerState(5, OTHER, 0, 1), "epoch 5,", 5), (None, "epoch unknown,", None):
            said = fenced(HOLDER, state)
            self.assertIn(f"({text} this one holds 2)", said.message)
            self.assertEqual(said.details, {"producer": "p", "epoch": 2, "foundEpoch": found})
        for state, expected in (ProducerState(2, ME, 0, 1), True), (ProducerState(3, ME, 0, 1), False), (ProducerState(2, OTHER, 0, 1), False), (None, False):
            self.assertEqual(holds(state, 2, ME), expected)
        for holder in (HOLDER._replace(epoch=1), HOLDER._replace(incarnation=OTHER), HOLDER._replace(producer="q")):
            self.assertEqual(self.refusal(lambda: stage_batches(draft_of(base_of()), SPEC, holder, [])).code, "FENCED")

    def test_uploads_below_the_cutoff_are_expired_and_those_behind_them_wait(self) -> None:
        for bases, expected in (
            ([5, 5], ["staged", "staged"]), ([4, 5, 4], ["expired", "blocked", "expired"]), ([5, 4, 5, 6], ["staged", "expired", "blocked", "blocked"]),
        ):
            draft = draft_of(base_of(orphan_cutoff=5))
            self.assertEqual(stage_batches(draft, SPEC, HOLDER, [batch(3 + i, base) for i, base in enumerate(bases)]), expected)
            self.assertEqual(draft.end, expected.count("staged"))

    def test_a_batch_that_is_in_is_told_so_and_must_be_the_same(self) -> None:
        last = LastBatch(5, 0, 0, 204, 7, 2, ME)
        state = ProducerState(2, ME, 3, 4, last)
        draft = draft_of(dataclasses.replace(base_of(), producers={"p": state}))
        self.assertEqual(stage_batches(draft, SPEC, HOLDER, [batch(1), batch(2), batch(3)]), ["in", "in", "staged"])
        self.assertEqual(draft.producers["p"], ProducerState(2, ME, 4, 10, LastBatch(5, 0, 0, 204, 7, 2, ME)))
        said = self.refusal(lambda: stage_batches(draft_of(dataclasses.replace(base_of(), producers={"p": state})), SPEC, HOLDER, [batch(2, check=8)]))
        self.assertEqual((said.code, said.details), ("SEQUENCE_CONFLICT", {"seq": 2, "expected": 7, "found": 8}))
        # What another incarnation made, what is further back, or came from a table, cannot be compared.
        for held, other in (
            (state, batch(1, check=8)), (state, batch(2, check=8, epoch=1)), (state, batch(2, check=8, incarnation=OTHER)), (state._replace(last=REF), batch(2, check=8)),
            (state._replace(last=None), batch(2, check=8)),
        ):
            module._assert_same_content(held, other)
        said = self.refusal(lambda: stage_batches(draft_of(base_of()), SPEC, HOLDER, [batch(4)]))
        self.assertEqual((said.code, said.details), ("SEQUENCE_CONFLICT", {"expected": 3, "found": 4}))

    def test_the_last_extent_is_where_a_resume_point_is(self) -> None:
        extents = (Extent(1, 204, 100, 7), Extent(1, 305, 200, 8))
        draft = draft_of(base_of())
        stage_batches(draft, SPEC, HOLDER, [batch(3, 6, attempt=2, extents=extents)])
        self.assertEqual(draft.producers["p"].last, LastBatch(6, 2, 1, 305, 8, 2, ME))

    def test_a_closed_log_refuses_what_is_not_in(self) -> None:
        draft = draft_of(base_of(closed=True))
        self.assertEqual(stage_batches(draft, SPEC, HOLDER, [batch(2)]), ["in"])
        said = self.refusal(lambda: stage_batches(draft, SPEC, HOLDER, [batch(3)]))
        self.assertEqual((said.code, said.details), ("CLOSED", {"end": 0}))
        spec = spec_of(2)
        state = {"lane-1": ProducerState(2, ME, 3, 4)}
        for end, seq, is_in in (4, 1, True), (3, 1, False), (4, 2, False), (6, 2, True):
            tail = Run(0, [batch(i) for i in range(end)])
            draft = draft_of(dataclasses.replace(base_of(spec, closed=True), producers=state, tail=tail))
            holder = Holder("lane-1", 2, ME)
            if is_in:
                self.assertEqual(stage_batches(draft, spec, holder, [batch(seq, producer="lane-1")]), ["in"])
            else:
                self.assertEqual(self.refusal(lambda: stage_batches(draft, spec, holder, [batch(seq, producer="lane-1")])).code, "CLOSED")

    def test_lanes_are_so_far_ahead_at_most_and_what_waits_follows_the_missing_step(self) -> None:
        spec = spec_of(2)
        for seq, expected in (63, "staged"), (64, "ahead"), (65, "ahead"):
            base = dataclasses.replace(base_of(spec), producers={"lane-0": ProducerState(2, ME, seq, 4), "lane-1": ProducerState(2, ME, seq - 1, 4)})
            draft = draft_of(base)
            self.assertEqual(stage_batches(draft, spec, Holder("lane-0", 2, ME), [batch(seq, producer="lane-0")]), [expected], seq)
            self.assertEqual(list(draft.waiting), [2 * seq] if expected == "staged" else [])
            last = draft_of(base)
            self.assertEqual(stage_batches(last, spec, Holder("lane-1", 2, ME), [batch(seq - 1, producer="lane-1")]), ["staged" if 2 * seq - 1 < 128 else "ahead"])
        waiting = {1: batch(0, producer="lane-1"), 3: batch(1, producer="lane-1")}
        draft = draft_of(dataclasses.replace(base_of(spec, waiting=waiting), producers={"lane-0": ProducerState(2, ME, 0, 4)}))
        self.assertEqual(stage_batches(draft, spec, Holder("lane-0", 2, ME), [batch(0, producer="lane-0")]), ["staged"])
        self.assertEqual((draft.end, list(draft.waiting)), (2, [3]))
        self.assertEqual(stage_batches(draft, spec, Holder("lane-0", 2, ME), [batch(1, producer="lane-0")]), ["staged"])
        self.assertEqual((draft.end, draft.waiting, list(waiting)), (4, {}, [1, 3]))

    def test_which_lane_a_name_is_and_how_many_batches_of_it_a_closed_log_has(self) -> None:
        for name, expected in ("lane-0", True), ("lane-2", True), ("lane-3", False), ("lane-01", False), ("lane-", False), ("x", False), ("lane-10", False):
            self.assertEqual(is_lane(name, 3), expected)
        self.assertEqual([lane_number(f"lane-{k}", 11) for k in (0, 7, 10)], [0, 7, 10])
        said = self.refusal(lambda: lane_number("lane-3", 3))
        self.assertIn("use lane-0 to lane-2, not", said.message)
        spec = spec_of(3)
        for first in 0, 2:
            spec.first_own_step = first
            for end in range(first, first + 9):
                state: Any = dataclasses.replace(base_of(), tail=Run(end, []), closed=True)
                for k in range(3):
                    count = sum(step % 3 == (first + k) % 3 for step in range(first, end))
                    for seq in range(5):
                        self.assertEqual(seq_in_log(spec, state, f"lane-{k}", seq), min(seq, count), (first, end, k, seq))
                self.assertEqual(seq_in_log(spec, state, "x", 5), 5)
                self.assertEqual(seq_in_log(SPEC, state, "lane-0", 5), 5)
                self.assertEqual(seq_in_log(spec, dataclasses.replace(state, closed=False), "lane-0", 5), 5)


class Producers(Stages):
    def test_a_producer_comes_back_from_a_table_and_keeps_its_resume_point(self) -> None:
        state = ProducerState(2, ME, 3, 4)
        for has_point, last in (True, REF), (False, None):
            draft = draft_of(dataclasses.replace(base_of(), producers={}))
            self.assertTrue(stage_return(draft, HOLDER, SilentFinding(state, REF, has_point)))
            self.assertEqual(draft.producers["p"], ProducerState(2, ME, 3, 10, last))
            self.assertFalse(stage_return(draft, HOLDER, SilentFinding(state, REF, has_point)), "it is there")
        draft = draft_of(dataclasses.replace(base_of(), producers={}))
        self.assertFalse(stage_return(draft, HOLDER, None))
        self.assertFalse(stage_return(draft, HOLDER._replace(epoch=1), SilentFinding(state, REF, True)))
        self.assertEqual(draft.producers, {})

    def test_an_opening_is_the_next_epoch_with_what_is_known(self) -> None:
        last = LastBatch(5, 0, 0, 204, 7, 2, ME)
        held = ProducerState(4, ME, 3, 4, last, 4, ("future",))
        for inline, silent, expected in (
            (held, None, ProducerState(5, OTHER, 3, 10, last, 0, ("future",))),
            (None, SilentFinding(held, REF, True), ProducerState(5, OTHER, 3, 10, REF, 0, ("future",))),
            (None, SilentFinding(held, REF, False), ProducerState(5, OTHER, 3, 10, None, 0, ("future",))),
            (None, None, ProducerState(1, OTHER, 0, 10, None)),
        ):
            draft = draft_of(dataclasses.replace(base_of(), producers={"p": inline} if inline else {}))
            self.assertFalse(stage_opening(draft, "p", OTHER, silent))
            self.assertEqual(draft.producers, {"p": expected})
            self.assertTrue(stage_opening(draft, "p", OTHER, silent), "it is open")
            self.assertEqual(draft.producers, {"p": expected})

    def test_a_leaving_is_written_down_once_by_its_holder(self) -> None:
        draft = draft_of(base_of())
        for wrong in (HOLDER._replace(epoch=3), HOLDER._replace(incarnation=OTHER), HOLDER._replace(producer="q")):
            self.assertFalse(stage_leaving(draft, wrong))
        self.assertEqual((stage_leaving(draft, HOLDER), stage_leaving(draft, HOLDER)), (True, False))
        self.assertEqual(draft.producers["p"], ProducerState(2, ME, 3, 10, None, 2))

    def test_a_closing_leaves_nothing_behind_unless_it_is_told_to(self) -> None:
        draft = draft_of(base_of(waiting={3: batch(0), 2: batch(1)}))
        said = self.refusal(lambda: stage_closing(draft))
        self.assertTrue(said.message.startswith("2 committed batches wait above the missing step 0 (the first is step 2)."))
        self.assertEqual(said.details, {"missing": 0, "waiting": 2})
        self.assertFalse(draft.closed)
        self.assertEqual((stage_closing(draft, True), draft.closed, draft.waiting, stage_closing(draft)), (False, True, {}, True))
        draft = draft_of(base_of())
        self.assertEqual((stage_closing(draft), draft.closed), (False, True))


class Carried(Stages):
    def test_batches_are_carried_in_order_as_far_as_they_follow_each_other(self) -> None:
        for seqs, carried, end in ([3, 4, 5], 3, 3), ([5, 4, 3], 3, 3), ([3, 5], 1, 1), ([4], 0, 0), ([1, 2, 3], 1, 1), ([3, 3, 4], 2, 2):
            draft = draft_of(base_of())
            self.assertEqual(stage_intents(draft, SPEC, [batch(seq) for seq in seqs], [], {}), carried, seqs)
            self.assertEqual((draft.end, draft.producers["p"].seq), (end, 3 + carried))
        draft = draft_of(base_of())
        stage_intents(draft, SPEC, [batch(3, attempt=0), batch(3, attempt=1)], [], {})
        self.assertEqual(draft._tail.batches[0].attempt, 1, "of two uploads the newer")

    def test_what_is_not_its_holders_or_not_well_formed_is_left(self) -> None:
        pairs = spec_of(rows=2, chunks=2)
        whole = Extent(4, 4 * 24 + 80 + 100, 100, 7)
        for spec, base, intents, carried in (
            (SPEC, base_of(), [batch(3, epoch=1)], 0), (SPEC, base_of(), [batch(3, incarnation=OTHER)], 0), (SPEC, base_of(), [batch(3, producer="q")], 0),
            (SPEC, base_of(closed=True), [batch(3)], 0), (SPEC, base_of(orphan_cutoff=6), [batch(3), batch(4)], 0), (SPEC, base_of(orphan_cutoff=5), [batch(3)], 1),
            (pairs, base_of(pairs), [batch(3, extents=(whole,))], 1), (pairs, base_of(pairs), [batch(3, extents=(whole._replace(cells=3, size=252),))], 0),
            (pairs, base_of(pairs), [batch(3, extents=(whole._replace(size=277),))], 0), (pairs, base_of(pairs), [batch(3, extents=(whole._replace(table=101),))], 0),
            (pairs, base_of(pairs), [batch(3, extents=(Extent(4, 179, 3, 7),))], 1), (pairs, base_of(pairs), [batch(3, extents=(whole,), stride=25)], 1), (pairs, base_of(pairs), [batch(3, extents=(whole,), stride=26)], 0),
            (pairs, base_of(pairs), [batch(3, extents=(Extent(2, 228, 100, 7), Extent(2, 228, 100, 7)))], 1),
        ):
            draft = draft_of(base)
            self.assertEqual(stage_intents(draft, spec, intents, [], {}), carried, intents)
            self.assertEqual(draft.end, carried)
        lanes = spec_of(2)
        draft = draft_of(base_of(lanes))
        self.assertEqual(stage_intents(draft, lanes, [batch(3)], [], {}), 0, "no lane: its owner is told")

    def test_an_opening_is_carried_only_while_its_epoch_is_the_one_that_was_seen(self) -> None:
        known, silent = ProducerState(2, ME, 3, 4), {"s": SilentFinding(ProducerState(4, ME, 1, 1), REF, True)}
        for producer, before, base, found, expected in (
            ("p", 2, base_of(), {}, 3), ("p", 1, base_of(), {}, None), ("p", 3, base_of(), {}, None), ("n", 0, base_of(), {}, 1), ("n", 1, base_of(), {}, None),
            ("n", 0, base_of(tables=[REF]), {}, None), ("s", 4, base_of(tables=[REF]), silent, 5), ("s", 0, base_of(tables=[REF]), silent, None),
            ("p", 2, base_of(closed=True), {}, None), ("p", 2, base_of(tables=[REF]), {}, 3), ("p", 2, base_of(tables=[REF]), {"p": SilentFinding(ProducerState(9, ME, 9, 1), REF, True)}, 3),
        ):
            draft = draft_of(base)
            carried = stage_intents(draft, SPEC, [], [OpeningIntent(producer, before, OTHER)], found)
            self.assertEqual(carried, int(expected is not None), (producer, before))
            opened = draft.producers.get(producer)
            self.assertEqual(opened.epoch if carried and opened else None, expected)
            self.assertEqual(draft.producers["p"] == known, not (carried and producer == "p"))
        draft = draft_of(base_of())
        self.assertEqual(stage_intents(draft, SPEC, [batch(3)], [OpeningIntent("n", 0, OTHER)], {}, [LeavingIntent(*HOLDER), LeavingIntent("x", 1, ME)]), 3)
        self.assertTrue(draft.producers["p"].has_left)

    def test_an_intent_is_spent_when_the_state_has_passed_it(self) -> None:
        state = {"p": ProducerState(2, ME, 3, 4)}
        gone = {"p": ProducerState(2, ME, 3, 4, left=2)}
        for intent, producers, expected in (
            (OpeningIntent("p", 1, OTHER), state, True), (OpeningIntent("p", 2, OTHER), state, False), (OpeningIntent("q", 0, OTHER), state, False),
            (LeavingIntent("p", 1, ME), state, True), (LeavingIntent("p", 2, ME), state, False), (LeavingIntent("p", 2, ME), gone, True),
            (LeavingIntent("q", 0, ME), state, False), ([batch(1), batch(2)], state, True), ([batch(2), batch(3)], state, False), ([batch(5, epoch=1)], state, True),
            ([batch(2, incarnation=OTHER)], state, False), ([batch(2, producer="q")], state, False), ([batch(2, epoch=3)], state, False),
        ):
            self.assertEqual(is_spent(intent, producers), expected, intent)


class Checkpoints(Stages):
    def setUp(self) -> None:
        self.live = {"a": Mark(4, 1, 3), "b": Mark(2, 2, 5), "c": Mark(6, 3, 5)}
        self.base = base_of(checkpoints={"g": {"live": self.live, "released": ["old"], "future": 1}}, trim=1, tail=Run(0, [batch(i) for i in range(4)]))

    def test_the_newest_is_the_one_registered_last(self) -> None:
        marks = {**self.live, "d": Mark(6, 0, 5)}
        self.assertEqual([id for id, _ in newest_first(marks)], ["d", "c", "b", "a"])

    def test_an_id_is_used_once_and_the_same_again_is_nothing_new(self) -> None:
        draft = draft_of(self.base)
        self.assertTrue(stage_checkpoint(draft, 2, "g", "a", 4, 1))
        for row, iteration in (5, 1), (4, 2):
            said = self.refusal(lambda: stage_checkpoint(draft, 2, "g", "a", row, iteration))
            self.assertEqual((said.code, said.details), ("CHECKPOINT_CONFLICT", {"group": "g", "id": "a", "found": [4, 1], "wanted": [row, iteration]}))
        self.assertEqual(self.refusal(lambda: stage_checkpoint(draft, 2, "g", "old", 4, 1)).code, "CHECKPOINT_RELEASED")
        self.assertFalse(stage_checkpoint(draft, 2, "g", "n", 8, 9))
        self.assertEqual(draft.checkpoints["g"], {"live": {**self.live, "n": Mark(8, 9, 10)}, "released": ["old"], "future": 1})
        self.assertFalse(stage_checkpoint(draft, 2, "h", "n", 2, 0))
        self.assertEqual(draft.checkpoints["h"], {"live": {"n": Mark(2, 0, 10)}, "released": []})

    def test_rows_from_the_trim_to_the_end_can_be_kept(self) -> None:
        for row in (2, 8):
            self.assertFalse(stage_checkpoint(draft_of(self.base), 2, "g", "n", row, 1))
        said = self.refusal(lambda: stage_checkpoint(draft_of(self.base), 2, "g", "n", 1, 1))
        self.assertEqual((said.code, said.details), ("RECLAIMED", {"group": "g", "id": "n", "row": 1, "trim": 1}))
        self.assertIn("is at row 1 (step 0), and the oldest row left is 2 (step 1)", said.message)
        said = self.refusal(lambda: stage_checkpoint(draft_of(self.base), 2, "g", "n", 9, 1))
        self.assertIn("is at row 9, and the log ends at row 8.", said.message)

    def test_of_a_group_so_many_are_kept_as_it_says(self) -> None:
        for keep, live, released in (1, ["n"], ["old", "c", "b", "a"]), (3, ["b", "c", "n"], ["old", "a"]), (4, ["a", "b", "c", "n"], ["old"]), (None, ["a", "b", "c", "n"], ["old"]):
            draft = draft_of(self.base)
            stage_checkpoint(draft, 2, "g", "n", 8, 1, keep)
            self.assertEqual((list(draft.checkpoints["g"]["live"]), draft.checkpoints["g"]["released"]), (live, released))

    def test_limits_of_checkpoints_groups_and_released_ids(self) -> None:
        self.assertEqual((module.CHECKPOINTS_MAX, module.GROUPS_MAX, module.RELEASED_MAX, module.LANE_AHEAD_MAX), (1_024, 64, 256, 64))
        many = {f"c{i}": Mark(4, i, 1) for i in range(1_020)}
        draft = draft_of(dataclasses.replace(self.base, checkpoints={**self.base.checkpoints, "h": {"live": many, "released": []}}))
        self.assertFalse(stage_checkpoint(draft, 2, "g", "n", 8, 1))
        self.assertEqual(self.refusal(lambda: stage_checkpoint(draft, 2, "g", "m", 8, 1)).details, {"checkpointsMax": 1_024})
        released = {"live": {"a": Mark(4, 1, 3)}, "released": [f"r{i}" for i in range(256)]}
        draft = draft_of(dataclasses.replace(self.base, checkpoints={"g": released}))
        self.assertFalse(stage_release(draft, "g", "a"))
        self.assertEqual(draft.checkpoints["g"]["released"], [*(f"r{i}" for i in range(1, 256)), "a"])
        self.assertEqual(len(released["released"]), 256, "the base stays as it is")
        for count, idle, is_full in (63, None, False), (64, None, True), (64, 5, False):
            groups = {f"g{i}": {"live": {} if i == idle else {"a": Mark(4, 1, 3)}, "released": []} for i in range(count)}
            draft = draft_of(dataclasses.replace(self.base, checkpoints=groups))
            self.assertTrue(stage_checkpoint(draft, 2, "g1", "a", 4, 1))
            if is_full:
                self.assertEqual(self.refusal(lambda: stage_checkpoint(draft, 2, "new", "n", 8, 1)).details, {"groupsMax": 64})
            else:
                stage_checkpoint(draft, 2, "new", "n", 8, 1)
                self.assertEqual((len(draft.checkpoints), "g5" in draft.checkpoints), (64, idle is None))

    def test_a_release_is_done_once_and_what_was_never_there_is_told_with_what_is(self) -> None:
        draft = draft_of(self.base)
        self.assertFalse(stage_release(draft, "g", "b"))
        self.assertTrue(stage_release(draft, "g", "b"))
        self.assertEqual(draft.checkpoints["g"], {"live": {"a": self.live["a"], "c": self.live["c"]}, "released": ["old", "b"], "future": 1})
        for group, text in ("g", "Live are: a, c."), ("h", "It has none at all."):
            said = self.refusal(lambda: stage_release(draft, group, "x"))
            self.assertEqual((said.code, said.message), ("NO_CHECKPOINT", f"Group {group} has no checkpoint x. {text}"))

    def test_the_limit_of_producers_is_set_changed_and_removed(self) -> None:
        draft = draft_of(base_of(settings={"future": 1}))
        for value, done, settings in (None, True, {"future": 1}), (5, False, {"maxLag": 5, "future": 1}), (5, True, {"maxLag": 5, "future": 1}), (None, False, {"future": 1}):
            self.assertEqual((stage_max_lag(draft, value), draft.settings), (done, settings))


class Drafts(Stages):
    def test_what_a_version_takes_over_and_what_it_changes(self) -> None:
        base = base_of(starving=2, boundary_hint=4, tail=Run(0, [batch(0), batch(1)]))
        for kind, hint in (None, 3), ("carrier", 5):
            draft = Draft(base, Stamp("v0u1t2s3r4q5", "me", 77, hint, kind))
            made = draft.finish()
            self.assertEqual(made.commit, {"id": "v0u1t2s3r4q5", "by": "me", "time": 77, **({"kind": kind} if kind else {})})
            self.assertEqual((made.version, made.boundary_hint, made.starving, draft.sealed), (10, max(hint, 4), 2, []))
        draft = draft_of(base)
        draft.push(batch(2))
        self.assertEqual((draft.end, draft.finish().starving, len(base.tail.batches)), (3, None, 2))

    def test_the_index_has_every_step_once_and_drops_what_was_trimmed(self) -> None:
        def step(base: Manifest, count: int, trim: int = 0) -> tuple[Manifest, Draft]:
            draft = draft_of(base)
            draft.trim = max(trim, base.trim)
            for i in range(count):
                draft.push(batch(base.end + i))
            return draft.finish(), draft

        first, draft = step(base_of(), 63)
        self.assertEqual((first.index, len(first.tail.batches), draft.sealed), ([], 63, []))
        second, draft = step(first, 1)
        self.assertEqual((second.tail, [(level.start, len(level.refs)) for level in second.index]), (Run(64, []), [(0, 1)]))
        key, data = draft.sealed[0]
        ref = Reference(10, "v0u1t2s3r4q5", 0, crc32(data))
        self.assertEqual((second.index, key), ([Level(0, [ref])], index_key(ref)))
        run = decode_segment(data, key, UUID)
        self.assertEqual((run.start, [d.seq for d in run.batches]), (0, list(range(64))))
        third, draft = step(second, 62 * 64 + 10)
        self.assertEqual((len(draft.sealed), third.tail.start, third.tail.end), (62, 63 * 64, 63 * 64 + 10))
        self.assertEqual([ref.k for ref in third.index[0].refs[1:]], list(range(62)))
        trimmed, _ = step(third, 0, 130)
        self.assertEqual(trimmed.index, [Level(2, third.index[0].refs[2:])])
        full, draft = step(trimmed, 54 + 64 + 1)
        kinds = [key for key, _ in draft.sealed]
        self.assertEqual(len(kinds), 3)
        node = decode_node(draft.sealed[1][1], kinds[1], UUID)
        self.assertEqual((node.level, node.start, node.refs[:2], node.refs[2:63]), (1, 0, [None, None], trimmed.index[0].refs))
        self.assertEqual(node.refs[63], Reference(13, "v0u1t2s3r4q5", 0, crc32(draft.sealed[0][1])))
        self.assertEqual([(level.start, len(level.refs)) for level in full.index], [(64, 1), (0, 1)])
        self.assertEqual((full.tail.start, full.end), (65 * 64, 65 * 64 + 1))
        for trim, expected in (64 * 64 - 1, [(64, 1), (0, 1)]), (64 * 64, [(64, 1), (1, 0)]), (64 * 65, [(65, 0), (1, 0)]), (10**9, [(65, 0), (1, 0)]):
            made, _ = step(full, 0, trim)
            self.assertEqual([(level.start, len(level.refs)) for level in made.index], expected, trim)
        self.assertEqual(len(third.index[0].refs), 63, "a base stays as it is")


if __name__ == "__main__":
    unittest.main()
