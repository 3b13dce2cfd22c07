"""What a store must do for Python, against a real server: `python3 store_rules.py URI`. Run by test/stores/python.stores.ts, which starts the servers.

The six calls, one winner among many creates, then a namespace: Python producers commit, a rank reads, a checkpoint is registered. Leaves the
namespace under URI/ns for the other language to read. Prints one JSON line.
"""
from __future__ import annotations

import json
import sys
import threading

from batchweave import create_namespace
from batchweave.store.object_store import open_store


def check_calls(uri: str) -> None:
    s = open_store(f"{uri}/calls")
    assert s.get("a/b") is None and s.get_range("a/b", 0, 5) is None
    assert s.create("a/b", b"0123456789") == "created"
    assert s.create("a/b", b"x") == "exists"
    assert s.get("a/b") == b"0123456789"
    s.put("a/c", [b"par", b"ts"])
    assert s.get("a/c") == b"parts"
    assert bytes(s.get_range("a/b", 2, 3)) == b"234"
    assert bytes(s.get_range("a/b", 8, 30)) == b"89"
    assert bytes(s.get_range("a/b", 30, 3)) == b""
    assert s.create("a/empty", b"") == "created" and s.get("a/empty") == b""
    for i in range(12):
        s.put(f"m/{i:020d}.json", b"x")
    assert s.list("m/", f"m/{3:020d}.json", 3) == ([f"m/{i:020d}.json" for i in (4, 5, 6)], True)
    assert s.list("m/", f"m/{9:020d}.json") == ([f"m/{i:020d}.json" for i in (10, 11)], False)
    assert s.list("nothing/") == ([], False)
    s.delete(["a/b", "a/none"])
    assert s.get("a/b") is None
    assert s.create("a/b", b"again") == "created"


def check_race(uri: str, creators: int = 16) -> None:
    s = open_store(f"{uri}/race")
    verdicts: list[tuple[str, bytes]] = []

    def create(i: int) -> None:
        body = f"creator {i}".encode()
        verdicts.append((s.create("one", body), body))

    threads = [threading.Thread(target=create, args=(i,)) for i in range(creators)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [body for verdict, body in verdicts if verdict == "created"]
    assert len(verdicts) == creators and len(winners) == 1, verdicts
    assert s.get("one") == winners[0]


def check_namespace(uri: str) -> int:
    namespace = create_namespace(f"{uri}/ns", rows=2)  # probes the store first
    with namespace.producer("p") as p, namespace.producer("q") as q:
        for i in range(70):
            (p if i % 2 else q).append([f"{i}.{row} ".encode() * 5_000 for row in range(2)], resume_point=i)
    namespace.end_log()
    seen: list[bytes] = []
    for rank in range(2):
        with namespace.consumer({"dp": 2}, rank, environment={}, policy="global-batch") as consumer:
            for share in consumer:
                seen.append(bytes(share.slices[0].bytes))
                if share.iteration == 30 and rank == 0:
                    namespace.checkpoint("iter-30", share.next)
    assert sorted(seen) == sorted(f"{i}.{row} ".encode() * 5_000 for i in range(70) for row in range(2))
    assert [c.id for c in namespace.list_checkpoints()] == ["iter-30"]
    return namespace.log.head.jump().end


def main() -> None:
    uri = sys.argv[1]
    check_calls(uri)
    check_race(uri)
    print(json.dumps({"steps": check_namespace(uri)}))


if __name__ == "__main__":
    main()
