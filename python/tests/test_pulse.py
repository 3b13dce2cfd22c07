"""Property: a rank tells of itself by pulses as FORMAT.md 24 says, byte for byte as the TypeScript does, and a store that refuses or fails is not its trouble.
Method: consumers and pulses over a store in memory that fails on request."""
from __future__ import annotations

import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

from batchweave import create_namespace
from batchweave.errors import BatchWeaveError
from batchweave.format.pulse import PULSE_BYTES_MAX, PulseName, encode_pulse, parse_pulse_key
from batchweave.format.stored_json import open_json
from batchweave.consumer.consumer import Consumer
from batchweave.consumer.mesh import resolve_mesh
from batchweave.load import Source, stream
from batchweave.load.loader import Loader
from batchweave.namespace import Namespace
from batchweave.pulse.pulse import Pulse
from memory_store import MemoryStore
from small_world import World, Writer

UUID = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5"
NAME = PulseName("rank", "default-3", 1_760_000_000_000, 10_000, "0123456789ab")


class RefusingStore(MemoryStore):
    code = ""
    tries = 0

    def put(self, key: str, body: Any) -> None:
        if self.code and key.startswith("pulse/"):
            self.tries += 1
            raise BatchWeaveError(self.code, "no")
        super().put(key, body)


def pulses(store: MemoryStore) -> list[str]:
    return [key for key in store.objects if "pulse/" in key]


class PulseTest(unittest.TestCase):
    def test_the_bytes_are_those_of_the_other_language(self) -> None:
        data = encode_pulse(UUID, NAME, "node-1", 77, 1_759_999_999_000, {"step": 5, "client": "python"}, "m.1")
        self.assertEqual(
            data.decode(),
            '{"format":1,"kind":"pulse","namespace":"6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5","role":"rank","name":"default-3",'
            '"at":1760000000000,"every":10000,"host":"node-1","pid":77,"machine":"m.1","started":1759999999000,"facts":{"step":5,"client":"python"},'
            '"crc32":"6ee22988"}\n',
        )
        self.assertEqual(NAME.key, "pulse/rank/default-3-1760000000000-10000-0123456789ab")
        self.assertEqual(parse_pulse_key(NAME.key), NAME)
        for key in ("pulse/rank/r-01-5-0123456789ab", "pulse/Rank/r-1-5-0123456789ab", f"pulse/rank/r-{'9' * 16}-5-0123456789ab"):
            self.assertIsNone(parse_pulse_key(key))

    def test_facts_that_do_not_fit_are_cut(self) -> None:
        data = encode_pulse(UUID, NAME, "h" * 300, 1, 0, {"step": 5, **{f"k{i}": "x" * 100 for i in range(100)}})
        self.assertLessEqual(len(data), PULSE_BYTES_MAX)
        fields = open_json(data, "pulse", "pulse", UUID)
        self.assertTrue(fields["cut"])
        self.assertEqual(fields["facts"]["step"], 5)

    def test_a_producer_is_seen_while_it_is_open_and_leaves_nothing(self) -> None:
        world = World()
        log = world.open()
        with Namespace("memory:test", log).producer("p", pulse=True) as producer:
            producer.append([b"x"] * (log.spec.rows * log.spec.chunks))
            until = time.monotonic() + 30
            while not pulses(world.store) and time.monotonic() < until:
                time.sleep(0.01)
            self.assertIn("pulse/producer/p-", pulses(world.store)[0])
        self.assertEqual(pulses(world.store), [])

    def test_a_loader_is_seen_beside_its_training_log_and_leaves_nothing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            create_namespace(f"file://{folder}/log", rows=1)
            seen: list[str] = []

            def look(n: int) -> Any:
                until = time.monotonic() + 30
                while not seen and time.monotonic() < until:
                    seen.extend(str(path) for path in Path(folder).glob("log/life/*/pulse/loader/*-*"))
                    time.sleep(0.01)
                return {"tokens": [n]}

            source = Source("looked", stream(lambda: range(3)), transforms=[look], lanes=1)
            Loader(source, f"file://{folder}/log.sources", workers=0, pulse=True).run()
            self.assertTrue(seen)
            self.assertEqual(list(Path(folder).glob("log/life/*/pulse/loader/*")), [])

    def test_a_rank_is_seen_while_it_reads_and_leaves_nothing(self) -> None:
        world = World()
        Writer(world.log, "p").write(3)
        with Consumer(world.open(), resolve_mesh({"dp": 1}, 0, {}), pulse=True) as consumer:
            next(consumer)
            until = time.monotonic() + 5
            while not pulses(world.store) and time.monotonic() < until:
                time.sleep(0.02)
            (key,) = pulses(world.store)
            facts = open_json(world.store.objects[key], key, "pulse")["facts"]
            self.assertEqual((facts["rank"], facts["step"], facts["group"], facts["client"]), (0, 1, "default", "python"))
        self.assertEqual(pulses(world.store), [])

    def test_a_successor_removes_what_its_predecessor_left(self) -> None:
        store = MemoryStore()
        left = NAME._replace(at=int(time.time() * 1_000) - 60_000)
        other = left._replace(name="default-4")
        for one in (left, other):
            store.put(one.key, encode_pulse(UUID, one, "h", 1, 0, {}))
        pulse = Pulse(store, UUID, "rank", "default-3", dict, peers=1_000)
        try:
            self.assertEqual(pulse.beat(), 5_000_000)
            self.assertNotIn(left.key, store.objects)
            self.assertIn(other.key, store.objects)
            self.assertEqual(len(store.objects), 2)
        finally:
            pulse.stop()
            pulse.join(time.monotonic() + 1)
        self.assertEqual(list(store.objects), [other.key])

    def test_who_may_only_read_tries_once_and_reads_on(self) -> None:
        store = RefusingStore()
        store.code = "STORE_DENIED"
        pulse = Pulse(store, UUID, "rank", "default-0", dict)
        pulse._thread.join(5)
        self.assertFalse(pulse._thread.is_alive())
        self.assertEqual((store.tries, pulse.failed, pulse.written), (1, 1, 0))


if __name__ == "__main__":
    unittest.main()
