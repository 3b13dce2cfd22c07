"""A producer or a rank for `npm run chaos -- --recreate`: works on whatever namespace it finds until that is deleted, then on the next.

    PYTHONPATH=python python3 python/tests/recreate_worker.py KIND URI FOLDER NAME

Prints `evicted` when its namespace was deleted under it. It never ends by itself: that is a failure.
"""
from __future__ import annotations

import sys
import time
from pathlib import Path

from batchweave import BatchWeaveError, open_namespace
from batchweave.namespace import Namespace


def produce(namespace: Namespace, folder: Path, name: str) -> None:
    with namespace.producer(name) as producer, open(folder / f"{name}.acknowledged", "a", buffering=1) as acknowledged:
        pending: list[tuple[int, object]] = []
        counter = producer.next_seq
        while True:
            texts = [f"{namespace.uuid} {name} {counter} {cell}".encode() for cell in range(namespace.rows * namespace.chunks)]
            pending.append((counter, producer.append(texts, resume_point={"next": counter + 1})))
            counter += 1
            while len(pending) > 4:
                made, ticket = pending.pop(0)
                ticket.wait(60)  # type: ignore[attr-defined]
                acknowledged.write(f"{namespace.uuid} {name} {made}\n")
            time.sleep(0.02)


def read(namespace: Namespace, _: Path, name: str) -> None:
    with namespace.consumer({"dp": 1}, 0, environment={}) as consumer:
        for share in consumer:
            for piece in share.slices:
                if not bytes(piece.bytes).startswith(namespace.uuid.encode()):
                    raise SystemExit(f"{name}: step {piece.step} of {namespace.uuid} holds {bytes(piece.bytes)[:80]!r}")
            if share.iteration % 5 == 4:
                namespace.checkpoint(f"iter-{share.iteration}", share.next, group=name, keep_last=1)


def main() -> None:
    kind, uri, folder, name = sys.argv[1:]
    while True:
        try:
            namespace = open_namespace(uri)
        except BatchWeaveError as error:
            if error.code not in ("NO_NAMESPACE", "DELETED"):
                raise
            time.sleep(0.05)
            continue
        try:
            {"producer": produce, "rank": read}[kind](namespace, Path(folder), name)
        except BatchWeaveError as error:
            # A rank that has no checkpoint yet may be overtaken by the trim.
            if error.code != "DELETED" and (kind, error.code) != ("rank", "RECLAIMED"):
                raise
            if error.code == "DELETED":
                print("evicted", flush=True)


if __name__ == "__main__":
    main()
