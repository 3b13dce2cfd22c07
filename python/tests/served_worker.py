"""One process of a served simulation (sim/served): a producer or a rank that tells the oracle everything it believes.

    PYTHONPATH=python python3 python/tests/served_worker.py SOCKET NAME ROLE SETTINGS

What it says is judged where the store is. It may be killed or stopped at any instant.
"""
from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import traceback
import zlib
from typing import Any

from batchweave import open_namespace
from batchweave.errors import BatchWeaveError
from batchweave.format.manifest import Manifest
from batchweave.log.head import Head
from batchweave.namespace import Namespace
from batchweave.store.object_store import RetryingStore
from served_store import ServedStore

#: What a process may die of while the store is bad; it simply comes back.
_PASSING = ("CONTENDED", "STORE_UNAVAILABLE", "CORRUPT", "UPLOAD_EXPIRED")
_MASK = 0xFFFFFFFF


def _mix(value: int) -> int:
    h = value & _MASK
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK
    return h ^ (h >> 16)


def slice_bytes(producer: str, counter: int, variant: str, cell: int, length: int) -> bytes:
    """As `sliceBytes` of sim/actors/batch-content.ts: a readable head, then filling that depends on all of it."""
    out = bytearray("|".join([producer, str(counter), variant, str(cell), str(length), ""]).encode())
    state = _mix(cell + 1)
    for byte in out:
        state = ((state ^ byte) * 0x01000193) & _MASK
    while len(out) < length:
        state = (state * 1664525 + 1013904223) & _MASK
        out.append(state >> 24)
    return bytes(out)


class Witness:
    """Tells the oracle."""

    def __init__(self, store: ServedStore) -> None:
        self._store = store

    def tell(self, op: str, **fields: Any) -> Any:
        return self._store.ask(op, **fields)[0]

    def watch(self, head: Head) -> None:
        """Whatever the head adopts for verified is compared with the true chain, whether or not anybody comes to harm by it."""
        adopt = head._adopt
        told = 0

        def watched(manifest: Manifest) -> Manifest:
            nonlocal told
            known = adopt(manifest)
            if known.version > told:
                told = known.version
                self.tell("verified", version=known.version, commit=known.commit["id"])
            return known

        head._adopt = watched  # type: ignore[method-assign]


def produce(namespace: Namespace, witness: Witness, name: str, settings: dict[str, Any]) -> None:
    rng = random.Random(f"{settings['seed']}/{name}")
    while session(namespace, witness, name, settings, rng):
        time.sleep(0.3 * rng.random())


def session(namespace: Namespace, witness: Witness, name: str, settings: dict[str, Any], rng: random.Random) -> bool:
    """From opening to closing. True: open again."""
    id = settings["id"]
    producer = None
    try:
        producer = namespace.producer(
            id, buffered_batches_max=rng.choice([1, 4, 64]), extent_bytes_max=rng.choice([100, 1_000_000, 1_000_000])
        )
        witness.tell("opened", id=id, epoch=producer.epoch, seq=producer.next_seq, resumePoint=producer.resume_point)
        counter = (producer.resume_point or {}).get("next", 0)
        tickets: list[Any] = []

        def acknowledge() -> None:
            while tickets and tickets[0].version is not None:
                ticket = tickets.pop(0)
                witness.tell("acknowledged", id=id, counter=ticket.seq, epoch=producer.epoch, version=ticket.version)

        while witness.tell("append", id=id, counter=counter):
            lengths = [rng.randrange(3_000) if rng.random() < 0.05 else 24 + rng.randrange(40) for _ in range(namespace.rows * namespace.chunks)]
            slices = [slice_bytes(id, counter, name, cell, length) for cell, length in enumerate(lengths)]
            tickets.append(producer.append(slices, resume_point={"next": counter + 1}))
            counter += 1
            if rng.random() < 0.1:
                producer.flush()
            acknowledge()
            if rng.random() < settings["reopenRate"]:
                producer.close()
                acknowledge()
                assert not tickets, "close() returned, and batches are not acknowledged"
                return True
            time.sleep(rng.expovariate(1 / settings["gap"]))
        producer.close()
        acknowledge()
        assert not tickets, "close() returned, and batches are not acknowledged"
        return False
    except BatchWeaveError as error:
        if producer is not None:
            producer.stop()
        if error.code == "FENCED":
            if producer is not None:
                witness.tell("fenced", id=id, epoch=producer.epoch)
            return bool(settings["isStubborn"]) and bool(witness.tell("isGoingOn"))
        if error.code == "CLOSED":
            witness.tell("closed")
            return False
        if error.code not in _PASSING:
            raise
        witness.tell("passing", code=error.code)
        return True


def consume(namespace: Namespace, witness: Witness, settings: dict[str, Any]) -> None:
    rank = settings["rank"]
    start = settings["start"]
    while True:
        try:
            consumer = namespace.consumer(
                settings["mesh"], rank, start, {}, group="py", rows_per_rank=settings["rowsPerRank"], layout=settings["layout"],
                poll_delay=0.02, poll_delay_max=0.2, wait_timeout=120.0,
            )
            with consumer:
                for share in consumer:
                    cells = [[s.step, s.row, s.chunk, zlib.crc32(s.bytes)] for s in share.slices]
                    save = witness.tell("share", rank=rank, iteration=share.iteration, nextRow=share.next["row"], cells=cells)
                    start = share.next
                    if save:
                        namespace.checkpoint(save["id"], save["cursor"], group="py", keep_last=settings["keepLast"])
                        witness.tell("checkpointed", id=save["id"])
            witness.tell("ended", rank=rank, leftoverRows=consumer.leftover_rows)
            return
        except BatchWeaveError as error:
            if error.code == "RECLAIMED":
                witness.tell("reclaimed", rank=rank)
            elif error.code not in _PASSING and error.code != "CHECKPOINT_RELEASED":
                raise
            witness.tell("passing", code=error.code)


def main() -> None:
    path, name, role, settings = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    served = ServedStore(path, name)
    witness = Witness(served)

    def failed(error: BaseException) -> None:
        witness.tell("failed", what="".join(traceback.format_exception(error))[-3_000:])
        os._exit(1)

    threading.excepthook = lambda args: failed(args.exc_value or RuntimeError("a thread failed"))
    # As users' stores are wrapped, with less patience between tries.
    store = RetryingStore(served, first_delay=0.01, delay_max=0.2)
    try:
        while True:
            try:
                namespace = open_namespace("served:", store=store)
                break
            except BatchWeaveError as error:
                if error.code not in _PASSING:
                    raise
        witness.watch(namespace.log.head)
        if role == "producer":
            produce(namespace, witness, name, settings)
        else:
            consume(namespace, witness, settings)
    except Exception as error:
        failed(error)


if __name__ == "__main__":
    main()
