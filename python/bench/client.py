"""`python3 python/bench/client.py [read|memory|first|ingest|broadcast] [--uri URI] [--json]`: what the client costs beside the bare store.

read       throughput and p50/p95/p99 of a rank against range reads of the same bytes by the same client
memory     resident memory of a rank at several prefetch settings
first      from process start to the first batch on a namespace with a million steps
ingest     throughput of a Producer against bare puts of the same bytes by the same client
broadcast  bytes read per replica with and without broadcast over tp 2 x pp 2 (needs torch)

Without --uri everything is done in a temporary folder, which is removed.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from batchweave.env.ids import random_id
from batchweave.flow.threads import Pool
from batchweave.format.checksum import CRC_SOURCE, crc32
from batchweave.format.keys import batch_key, manifest_key
from batchweave.log.draft import Draft, Stamp, encode_manifest
from batchweave.log.log import Log
from batchweave.namespace import Namespace, create_namespace, open_namespace
from batchweave.store.object_store import Store, open_store

MEBI = 1024 * 1024
#: Reading is measured in pairs, bare and not, until so many seconds or pairs are over; what a machine does meanwhile changes by the second.
_PAIRS_S = 6.0
_PAIRS_MAX = 41
_INGEST_PAIRS = 12


def _fill(namespace: Namespace, batches: int, slice_bytes: int, id: str = "bench") -> None:
    body = os.urandom(slice_bytes)
    with namespace.producer(id) as p:
        for i in range(batches):
            p.append([i.to_bytes(4, "little") + body[4:]] * (namespace.rows * namespace.chunks), resume_point=i)


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    return {"p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99)}


def _timed_all(threads: int, calls: Sequence[Callable[[], Any]]) -> tuple[float, list[float]]:
    """All calls on so many threads; the time it took, and that of each."""
    durations: list[float] = []

    def one(call: Callable[[], Any]) -> None:
        begun = time.perf_counter()
        call()
        durations.append(time.perf_counter() - begun)

    pool = Pool(threads, "bench")
    begun = time.perf_counter()
    tasks = [pool.submit(lambda c=call: one(c)) for call in calls]  # type: ignore[misc]
    for task in tasks:
        task.result()
    spent = time.perf_counter() - begun
    pool.stop()
    return spent, durations


class _Turn(NamedTuple):
    """One way to read everything: wall time, that of each read, CPU time."""

    spent: float
    each: list[float]
    cpu: float


def _keep_range(kept: deque[Any], store: Store, key: str, length: int) -> None:
    kept.append(store.get_range(key, 0, length))


def _bare_calls(namespace: Namespace, slice_bytes: int, kept: int) -> list[Callable[[], Any]]:
    """Row 0 of every batch by plain range reads: no log, no slice table, no checksum. The last few results are kept."""
    manifest = namespace.log.head.jump()
    ahead: deque[Any] = deque(maxlen=kept)
    calls: list[Callable[[], Any]] = []
    for step in range(manifest.trim, manifest.end):
        place = namespace.log.locate(manifest, step)
        key = batch_key(place.descriptor, 0)
        calls.append(partial(_keep_range, ahead, place.store, key, slice_bytes))
    return calls


def _bare_reads(calls: Sequence[Callable[[], Any]], threads: int) -> _Turn:
    cpu = time.process_time()
    spent, each = _timed_all(threads, calls)
    return _Turn(spent, each, time.process_time() - cpu)


def _rank_reads(namespace: Namespace, threads: int, bytes_expected: int) -> _Turn:
    """A rank that knows nothing yet but has the same client, with its memory and connections, as the bare reads."""
    fresh = Namespace(namespace.uri, Log(namespace.log.place, namespace.log.spec, open_store))
    cpu, begun = time.process_time(), time.perf_counter()
    total, each = 0, []
    with fresh.consumer({"dp": namespace.rows}, 0, environment={}, policy="global-batch", reads_in_flight_max=threads) as rank:
        before = begun
        for share in rank:
            total += share.nbytes
            now = time.perf_counter()
            each.append(now - before)
            before = now
        spent = time.perf_counter() - begun
    if total != bytes_expected:
        raise SystemExit(f"the rank read {total} bytes, not {bytes_expected}")
    return _Turn(spent, each, time.process_time() - cpu)


def _forget(root: str) -> None:
    """Takes the files below a folder out of the system's cache, so that they are read from the disk."""
    for folder, _, names in os.walk(root):
        for name in names:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def _crc_us(size: int) -> float:
    """How long the checksum of so many bytes takes that are in the processor's cache: the least of many tries."""
    body = memoryview(bytearray(size))
    durations = []
    for _ in range(50):
        begun = time.perf_counter()
        crc32(body)
        durations.append(time.perf_counter() - begun)
    return round(1e6 * min(durations), 1)


def bench_read(root: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A rank of dp 2 reads its row of every batch, and the same rows are read bare, in turns: files from the disk, as data is that is larger
    than memory, and then from the system's cache."""
    folder = unquote(urlsplit(root).path) if root.startswith("file:") else None
    results = []
    for slice_bytes, batches in ((64 * 1024, 2_000), (MEBI, 800), (8 * MEBI, 120)):
        if args.slice_bytes not in (None, slice_bytes):
            continue
        name = f"read-{slice_bytes}"
        namespace = create_namespace(f"{root}/{name}", rows=2, chunks=1)
        if namespace.log.head.jump().end == 0:
            _fill(namespace, batches, slice_bytes)
            namespace.end_log()
        if folder is None:
            results.append(_bench_read(namespace, slice_bytes, batches, args, "server", lambda: None))
            continue
        if hasattr(os, "posix_fadvise"):
            results.append(_bench_read(namespace, slice_bytes, batches, args, "disk", partial(_forget, f"{folder}/{name}")))
        results.append(_bench_read(namespace, slice_bytes, batches, args, "cache", lambda: None))
    return results


def _bench_read(
    namespace: Namespace, slice_bytes: int, batches: int, args: argparse.Namespace, source: str, prepare: Callable[[], None],
) -> dict[str, Any]:
    """The first turn of each is not counted, since memory is new then. The ratio is the median of those of the pairs; its quartiles say how
    far to trust it. `ratio_after_first` leaves out what either side waited for its first share; `ratio_to_alone` is against one bare read after another."""
    calls = _bare_calls(namespace, slice_bytes, args.threads)
    total = slice_bytes * batches

    def rank_turn() -> _Turn:
        prepare()
        return _rank_reads(namespace, args.threads, total)

    def bare_turn(threads: int) -> _Turn:
        prepare()
        return _bare_reads(calls, threads)

    pairs: list[tuple[_Turn, _Turn]] = []
    begun = time.perf_counter()
    while len(pairs) <= args.turns or (len(pairs) <= _PAIRS_MAX and time.perf_counter() - begun < _PAIRS_S):
        if len(pairs) % 2:
            bare = bare_turn(args.threads)
            pairs.append((rank_turn(), bare))
        else:
            pairs.append((rank_turn(), bare_turn(args.threads)))
    pairs = sorted(pairs[1:], key=lambda pair: pair[1].spent / pair[0].spent)
    ratios = [bare.spent / own.spent for own, bare in pairs]
    own, bare = pairs[len(pairs) // 2]
    after_first = sorted((bare.spent - bare.each[0]) / (own.spent - own.each[0]) for own, bare in pairs)[len(pairs) // 2]
    alone = bare_turn(1)
    return {
        "bench": "read", "from": source, "slice_bytes": slice_bytes, "batches": batches, "crc": CRC_SOURCE, "crc_us": _crc_us(slice_bytes),
        "rank_MBps": round(total / own.spent / 1e6), "bare_MBps": round(total / bare.spent / 1e6), "ratio": round(ratios[len(pairs) // 2], 2),
        "pairs": len(pairs), "quartiles": [round(ratios[len(pairs) * q // 4], 2) for q in (1, 3)], "first_ms": round(1e3 * own.each[0], 1),
        "ratio_after_first": round(after_first, 2), "ratio_to_alone": round(alone.spent / own.spent, 2),
        "us_per_share": round(1e6 * own.spent / batches, 1), "bare_us": round(1e6 * bare.spent / batches, 1),
        "bare_alone_us": round(1e6 * alone.spent / batches, 1),
        "cpu_us_per_share": round(1e6 * own.cpu / batches), "bare_cpu_us": round(1e6 * bare.cpu / batches),
        "wait": _percentiles(own.each), "bare_read": _percentiles(bare.each),
    }


def bench_memory(root: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Each setting in a process of its own, which reads everything and holds nothing."""
    namespace = create_namespace(f"{root}/memory", rows=2, chunks=1)
    if namespace.log.head.jump().end == 0:
        _fill(namespace, 200, 2 * MEBI)
        namespace.end_log()
    script = (
        "import sys, time\nfrom batchweave import open_namespace\n"
        "rss = lambda: 4096 * int(open('/proc/self/statm').read().split()[1])\n"
        "namespace = open_namespace(sys.argv[1])\nbase = most = rss()\n"
        "consumer = namespace.consumer({'dp': 1}, 0, environment={}, prefetch_bytes_max=int(sys.argv[2]),"
        " prefetch_iterations_max=1000)\n"
        "for share in consumer: time.sleep(0.005); most = max(most, rss())\n"
        "print(most - base)"
    )
    results = []
    for limit in (8 * MEBI, 64 * MEBI, 256 * MEBI):
        done = subprocess.run([sys.executable, "-c", script, namespace.uri, str(limit)], capture_output=True, text=True, check=True)
        grown = int(done.stdout)
        results.append({"bench": "memory", "prefetch_bytes_max": limit, "grown_bytes": grown, "ratio": round(grown / limit, 2)})
    return results


def _million(root: str, steps: int) -> str:
    """A namespace of so many steps whose batches are all one object: only index and manifest are of that size."""
    uri = f"{root}/million"
    namespace = create_namespace(uri, rows=1, chunks=1, durability="process-crash") if uri.startswith("file:") else create_namespace(uri, 1)
    log = namespace.log
    if log.head.jump().end >= steps:
        return uri
    _fill(namespace, 1, 4096)
    while (base := log.head.jump()).end < steps:
        descriptor = namespace.log.locate(base, 0).descriptor
        draft = Draft(base, Stamp(random_id(), "bench", int(time.time() * 1e3), 0))
        for _ in range(min(64 * 1024, steps - base.end)):
            draft.push(descriptor)
        following = draft.finish()
        for key, data in draft.sealed:
            log.store.put(key, data)
        log.store.create(manifest_key(following.version), encode_manifest(following))
    namespace.end_log()
    return uri


def bench_first(root: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Process start to first batch, in the middle of a long log and at its end."""
    uri = _million(root, args.steps)
    size = len(encode_manifest(open_namespace(uri).log.head.newest()))
    results = []
    for step in (0, args.steps // 2, args.steps - 1):
        durations = []
        for _ in range(5):
            begun = time.perf_counter()
            command = [sys.executable, "-m", "batchweave", "consume", uri, "--rank", "0", "--from", f"step:{step}", "--iterations", "1"]
            subprocess.run(command, check=True, capture_output=True)
            durations.append(time.perf_counter() - begun)
        results.append({"bench": "first", "steps": args.steps, "step": step, "manifest_bytes": size, "s": round(sorted(durations)[2], 3)})
    return results


def _empty(uri: str) -> None:
    """Gives back what is stored. Deleting files would slow down whoever creates files next, for a minute: they are cut to nothing."""
    if not uri.startswith("file:"):
        store = open_store(uri)
        while keys := store.list("")[0]:
            store.delete(keys)
        return
    for folder, _, names in os.walk(unquote(urlsplit(uri).path)):
        for name in names:
            os.truncate(os.path.join(folder, name), 0)


def _ingest_turns(uri: str, slice_bytes: int, batches: int) -> list[Callable[[], float]]:
    """Bare puts of so many objects, and a Producer that writes and commits as many batches of that size; each tells how long it took."""
    body = os.urandom(slice_bytes)

    def bare() -> float:
        store = create_namespace(f"{uri}-bare", rows=4, chunks=1).log.store
        # Spread over as many prefixes as batches are: on files those are folders, which must be made and synced.
        keys = [f"batch/{i % 256:02x}/{0:020d}/bare-{i}.0.tgb" for i in range(batches)]
        return _timed_all(8, [partial(store.put, key, [body] * 4) for key in keys])[0]

    def producer() -> float:
        with create_namespace(f"{uri}-producer", rows=4, chunks=1).producer("bench") as p:
            begun = time.perf_counter()
            for i in range(batches):
                p.append([body] * 4, resume_point=i)
            p.flush()
            return time.perf_counter() - begun

    return [bare, producer]


def bench_ingest(root: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Batches of four slices. Bare: the same objects by the same client on as many threads, without any commit. In pairs, each first in turn."""
    results = []
    for slice_bytes, batches in ((256 * 1024, 200), (2 * MEBI, 50)):
        pairs: list[tuple[float, float]] = []
        for turn in range(1 + max(_INGEST_PAIRS, args.turns)):
            uri = f"{root}/ingest-{random_id()}"
            bare, producer = _ingest_turns(uri, slice_bytes, batches)
            if turn % 2:
                pairs.append((bare(), producer()))
            else:
                spent = producer()
                pairs.append((bare(), spent))
            for name in ("bare", "producer"):
                _empty(f"{uri}-{name}")
        size = 4 * slice_bytes * batches / 1e6
        pairs = sorted(pairs[1:], key=lambda pair: pair[0] / pair[1])
        ratios = [bare_s / spent for bare_s, spent in pairs]
        bare_s, spent = pairs[len(pairs) // 2]
        results.append({
            "bench": "ingest", "batch_bytes": 4 * slice_bytes, "batches": batches, "crc": CRC_SOURCE,
            "producer_MBps": round(size / spent), "bare_MBps": round(size / bare_s), "ratio": round(ratios[len(pairs) // 2], 2),
            "pairs": len(pairs), "quartiles": [round(ratios[len(pairs) * q // 4], 2) for q in (1, 3)],
        })
    return results


def bench_broadcast(root: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Eight gloo ranks: dp 2, tp 2, pp 2."""
    from batchweave.format.tensors import Tensor, encode_safetensors

    namespace = create_namespace(f"{root}/broadcast", rows=2, chunks=1)
    if namespace.log.head.jump().end == 0:
        tensor = encode_safetensors({"input_ids": Tensor("I32", (1, 65_536), os.urandom(4 * 65_536))})
        with namespace.producer("bench") as p:
            for _ in range(50):
                p.append([tensor] * 2)
        namespace.end_log()
    worker = Path(__file__).parents[1] / "tests" / "broadcast_worker.py"
    done = subprocess.run([sys.executable, str(worker), namespace.uri], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2_000:])
    found = json.loads(done.stdout.splitlines()[-1])
    return [{"bench": "broadcast", "bytes_per_replica_alone": found["alone"], "bytes_per_replica_broadcast": found["broadcast"], "same_batches": found["same"]}]


BENCHES: dict[str, Callable[[str, argparse.Namespace], list[dict[str, Any]]]] = {
    "read": bench_read,
    "memory": bench_memory,
    "first": bench_first,
    "ingest": bench_ingest,
    "broadcast": bench_broadcast,
}


def main() -> None:
    """Runs the benches that were named, or all."""
    parser = argparse.ArgumentParser(prog="python3 python/bench/client.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", choices=[*BENCHES, []], default=[])
    parser.add_argument("--uri", help="where to make the namespaces (default: a temporary folder)")
    parser.add_argument("--threads", type=int, default=8, help="reads in flight")
    parser.add_argument("--turns", type=int, default=3, help="at the least")
    parser.add_argument("--slice-bytes", type=int, help="read: only this size of the three")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="one JSON line per result")
    args = parser.parse_args()
    folder = None if args.uri else tempfile.mkdtemp(prefix="batchweave-bench-")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    try:
        for name in args.benches or BENCHES:
            for result in BENCHES[name](args.uri or Path(folder or "").as_uri(), args):
                print(json.dumps(result) if args.json else "  ".join(f"{k} {v}" for k, v in result.items()), flush=True)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
