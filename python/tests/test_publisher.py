"""Properties: a producer that closes says so, and no producer waits for it; a backlog that a reclaim passed is uploaded again at once; a caller
that waits for a ticket is told soon; the pace goes with the store's round trips, as in TypeScript. Method: real producers on a store in memory, counted
in versions and uploads, not in seconds.
"""
from __future__ import annotations

import math
import re
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

from batchweave import create_namespace, open_namespace
from batchweave.format.keys import manifest_key
from batchweave.format.stored_json import seal_json
from batchweave.producer.pace import CarrierRhythm, CycleTime, pace_of, spread
from batchweave.producer.publisher import Publisher
from memory_store import MemoryStore


class Publishers(unittest.TestCase):
    def test_a_producer_that_closes_says_so_and_its_successor_is_alone(self) -> None:
        store = MemoryStore()
        create_namespace("memory:test", rows=1, chunks=1, store=store)
        for i in range(6):
            with open_namespace("memory:test", store=store).producer(f"short-{i}") as p:
                p.append([b"x"])
        head = open_namespace("memory:test", store=store).log.head.load()
        # Opened, wrote, left: nobody announced anything, nobody listed, nobody waited.
        self.assertEqual((head.version, head.end, head.active_producers), (18, 6, 1))
        self.assertTrue(all(state.has_left for state in head.producers.values()))
        self.assertEqual(head.commit["kind"], "leave")

    def test_what_a_follower_says_when_it_closes_is_carried(self) -> None:
        store = MemoryStore()
        create_namespace("memory:test", rows=1, chunks=1, store=store)
        carrier = open_namespace("memory:test", store=store).producer("carrier")
        follower = open_namespace("memory:test", store=store).producer("follower")
        carrier._publisher.is_carrying = True
        carrier.append([b"c"]).wait(20)
        follower.append([b"f"]).wait(20)
        follower.close()
        log = open_namespace("memory:test", store=store).log
        until = time.monotonic() + 20
        while not log.head.jump().producers["follower"].has_left and time.monotonic() < until:
            carrier.append([b"c"]).wait(20)
        state = log.head.jump().producers
        self.assertEqual([state[id].has_left for id in ("carrier", "follower")], [False, True])
        carrier.close()

    def test_a_backlog_that_a_reclaim_passed_is_uploaded_again_at_once(self) -> None:
        store = MemoryStore()
        create_namespace("memory:test", rows=1, chunks=1, store=store)
        log = open_namespace("memory:test", store=store).log
        begin = threading.Event()
        run = Publisher.run
        with unittest.mock.patch.object(Publisher, "run", lambda self: (begin.wait(30), run(self))):
            producer = open_namespace("memory:test", store=store).producer("backlog")
        for i in range(100):
            producer.append([b"%d" % i])
        while not all(entry.descriptor for entry in list(producer._entries.values())):
            time.sleep(0.001)
        # What a reclaimer commits: nothing uploaded before may be staged any more.
        reclaimed = {**log.head.load().fields, "version": 2, "orphanCutoff": 2, "commit": {"id": "reclaimrecla", "by": "x", "time": 1}}
        log.store.put(manifest_key(2), seal_json("manifest", log.spec.uuid, reclaimed))
        begin.set()
        producer.flush(60)
        head = log.head.jump()
        self.assertEqual(head.end, 100)
        # Uploads that end while a commit is under way are in the next one. It was a version for every batch.
        self.assertLess(head.version, 30)
        producer.close()


class Pace(unittest.TestCase):
    def test_the_numbers_are_those_of_typescript(self) -> None:
        text = (Path(__file__).parents[2] / "src/cadence/cooperative/pace.ts").read_text()
        found = {m[1]: [float(n.replace("_", "")) for n in m[2].split(", ")] for m in re.finditer(r"(\w+): times\(r, ([\d_., ]+)\)", text)}
        names = {
            "announce": "announceMs", "urgent_announce": "urgentAnnounceMs", "patience": "patienceMs", "look": "lookMs", "window": "windowMs",
            "interval_min": "intervalMsMin", "idle_max": "idleMsMax", "alone_interval": "aloneIntervalMs", "farewell": "farewellMs",
        }
        for round_trip in (0.0001, 0.003, 0.02, 0.05, 0.2):
            pace = pace_of(round_trip)._asdict()
            for name, other in names.items():
                factor, floor, ceiling = found[other]
                self.assertAlmostEqual(pace[name] * 1e3, min(ceiling, max(floor, factor * round_trip * 1e3)), msg=name)

    def test_the_pace_of_a_store_of_20_ms(self) -> None:
        for found, expected in zip(pace_of(0.02), (0.04, 0.014, 0.4, 2.8, 0.014, 0.14, 0.028, 0.054, 0.28, 0.054, 0.8)):
            self.assertAlmostEqual(found, expected)
        self.assertEqual(pace_of(0.0), (0.005, 0.002, 0.15, 0.25, 0.005, 0.01, 0.025, 0.025, 0.05, 0.02, 0.5))
        self.assertEqual(pace_of(9.0), (0.15, 0.05, 1.5, 10, 0.05, 0.5, 0.1, 0.2, 1, 0.2, 3))

    def test_a_rhythm_is_known_from_the_second_version_on_and_two_at_once_say_nothing(self) -> None:
        rhythm, pace = CarrierRhythm(), pace_of(0.1)
        rhythm.see(1, 10.0)
        self.assertAlmostEqual(rhythm.interval(pace), 0.2)
        self.assertAlmostEqual(rhythm.expected_at(10.0, 0.1, pace), 10.2 + 0.12)
        rhythm.see(2, 10.5)
        self.assertAlmostEqual(rhythm.interval(pace), 0.5)
        rhythm.see(3, 10.5)
        self.assertAlmostEqual(rhythm.interval(pace), 0.5)

    def test_a_look_is_expected_right_after_the_commit_of_a_carrier_that_keeps_its_pace(self) -> None:
        rhythm = CarrierRhythm()
        for version in range(1, 11):
            rhythm.see(version, 0.5 * version)
        self.assertAlmostEqual(rhythm.expected_at(5.12, 0.1, pace_of(0.1)), 5.62)

    def test_before_anything_was_seen_half_an_interval_is_expected_and_never_more_than_one_and_two_round_trips(self) -> None:
        rhythm, pace = CarrierRhythm(), pace_of(0.1)
        self.assertAlmostEqual(rhythm.interval(pace), 0.2)
        self.assertAlmostEqual(rhythm.expected_at(7, 0.1, pace), 7 + 0.05 + 0.1 + 0.12)
        rhythm.see(3, 1)
        self.assertAlmostEqual(rhythm.interval(pace), 0.2)
        rhythm.see(5, 2)
        self.assertAlmostEqual(rhythm.interval(pace), 0.5)
        rhythm.see(5, 9)
        rhythm.see(4, 9)
        self.assertAlmostEqual(rhythm.interval(pace), 0.5)
        rhythm.see(6, 2.3)
        self.assertAlmostEqual(rhythm.interval(pace), 0.4)
        rhythm.see(7, 99)
        self.assertAlmostEqual(rhythm.interval(pace), 0.8)
        rhythm.see(8, 99)
        self.assertAlmostEqual(rhythm.interval(pace), 0.8)
        # The clock of the carrier is far ahead: the phase still holds.
        self.assertAlmostEqual(rhythm.expected_at(7, 0.1, pace), 7.92)

    def test_a_carriers_interval_follows_its_cycles_and_idle_ones_double_it_up_to_a_limit(self) -> None:
        cycles, pace = CycleTime(), pace_of(0.1)
        self.assertAlmostEqual(cycles.interval(pace, True, 0), 0.2)
        cycles.learn(1)
        self.assertAlmostEqual(cycles.interval(pace, False, 0), 1.25)
        self.assertAlmostEqual(cycles.interval(pace, True, 0), 0.2)
        cycles.learn(2)
        self.assertAlmostEqual(cycles.interval(pace, False, 0), 1.25 * 1.1)
        cycles.learn(0.1)
        self.assertAlmostEqual(cycles.interval(pace, False, 0), 1.25 * 0.6)
        self.assertAlmostEqual(cycles.interval(pace, True, 1), 0.4)
        self.assertAlmostEqual(cycles.interval(pace, True, 2), 0.8)
        self.assertAlmostEqual(cycles.interval(pace, True, 3), 1)

    def test_turns_are_spread_over_the_span_and_who_is_alone_goes_at_once(self) -> None:
        self.assertEqual([spread(0.5, 3, crowd) for crowd in (0, 1)], [0, 0])
        self.assertAlmostEqual(spread(0, 3, 2), 0)
        self.assertAlmostEqual(spread(1, 3, 2), 3)
        self.assertAlmostEqual(spread(0.5, 3, 3), 3 * math.log(2) / math.log(3))


if __name__ == "__main__":
    unittest.main()
