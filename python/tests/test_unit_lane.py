"""A lane of units: each unit is in the log once, in whatever order, however often and by whomever it is written.

Method: units in an order by chance, written twice and more by holders that fence each other in the middle of a unit; the log read back.
"""
from __future__ import annotations

import random
import tempfile
import unittest

from batchweave import BatchWeaveError
from batchweave.format.sample_block import BlockSample
from batchweave.load.block_rule import Block, BlockRule
from batchweave.load.source_log import open_source_log
from batchweave.load.unit_lane import UnitLane, UnitState


def blocks_of(unit: int) -> list[Block]:
    rule = BlockRule("web", 3)
    found = [rule.add(BlockSample(f"{unit}:{n}", 1, b"%d" % n), None) for n in range(unit % 11)]
    return [block for block in found if block] + ([] if rule.is_empty else [rule.take()])


class UnitLaneTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="batchweave-units-")
        self.addCleanup(folder.cleanup)
        self.uri = f"file://{folder.name}"

    def lane(self, lane: int = 0, lanes: int = 1) -> UnitLane:
        return UnitLane(open_source_log(self.uri, "web", lanes, "p"), lane)

    def test_units_are_there_once_whoever_writes_them_again(self) -> None:
        chance = random.Random(11)
        units = list(range(12))
        lane = self.lane()
        for _ in range(2):
            chance.shuffle(units)
            for unit in units:
                if chance.random() < 0.2:
                    # Half a unit, and another holder: as if the actor had died.
                    half = blocks_of(unit)
                    if len(half) > 1 and not lane.units.has(unit) and unit not in lane.units.begun:
                        lane._append(half[0], lane.units.with_block(unit, 1, _check(half[:1]))).wait()
                    lane = self.lane()
                is_new = not lane.units.has(unit)
                self.assertEqual(lane.add(unit, blocks_of(unit)), is_new)
        lane.end(units)
        lane.close()
        open_source_log(self.uri, "web", None).finish()
        expected = [f"{unit}:{n}" for unit in range(12) for n in range(unit % 11)]
        found = _ids(self.uri)
        self.assertEqual(sorted(found), sorted(expected))
        for unit in range(12):
            own = [id for id in found if id.startswith(f"{unit}:")]
            self.assertEqual(own, [f"{unit}:{n}" for n in range(unit % 11)])  # rows of a unit in order
        self.assertTrue(self.lane().is_over)

    def test_a_unit_that_is_not_what_it_was_is_refused(self) -> None:
        lane = self.lane()
        lane.add(5, blocks_of(5))
        with self.assertRaises(BatchWeaveError) as caught:
            lane.add(5, blocks_of(6))
        self.assertIn("not the same every time", str(caught.exception))
        with self.assertRaises(BatchWeaveError):
            lane.end([0, 5])  # a unit that nobody wrote
        with self.assertRaises(BatchWeaveError):
            lane.end([])  # and one that this write does not have

    def test_a_lane_without_units_keeps_up_with_the_others(self) -> None:
        first, second = self.lane(0, 2), self.lane(1, 2)
        second.add(9, blocks_of(9))
        first.keep_up()
        first.producer.flush()
        manifest, _ = open_source_log(self.uri, "web", None).look()
        self.assertGreaterEqual(manifest.end, 2)
        first.close()
        second.close()

    def test_runs_of_units_stay_few(self) -> None:
        state = UnitState()
        for unit in [0, 4, 8, 20, 16, 12]:
            state = state.with_unit(unit, unit, 4)
        self.assertEqual(state.done, ((0, 20),))


def _check(blocks: list[Block]) -> int:
    from batchweave.load.unit_lane import check_of

    return check_of(blocks)


def _ids(uri: str) -> list[str]:
    from batchweave import open_namespace
    from batchweave.format.sample_block import decode_sample_table

    found = []
    for share in open_namespace(f"{uri}/web").consumer({"dp": 1}, 0, wait_timeout=60):
        table, payload = (piece.bytes for piece in share.slices)
        found += [entry.id for entry in decode_sample_table(table, len(payload), uri).samples]
    return found


if __name__ == "__main__":
    unittest.main()
