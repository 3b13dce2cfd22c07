"""Compares obstore and opendal as the one dependency for object stores: what they say after a conditional create, whether they
retry behind our back, and what they cost. Runs against s3-stub.mjs on loopback; needs node, obstore and opendal.

    PYTHONPATH=python python3 python/tools/compare_clients.py
"""
from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable


class Obstore:
    def __init__(self, endpoint: str) -> None:
        import obstore
        from obstore.store import S3Store

        self.o = obstore
        common: dict[str, Any] = dict(
            endpoint=endpoint, access_key_id="a", secret_access_key="b", region="us-east-1", virtual_hosted_style_request=False, unsigned_payload=True,
            client_options={"allow_http": True},
        )
        self.store = S3Store("bucket", retry_config={"max_retries": 0}, **common)

    def create(self, key: str, body: bytes) -> str:
        try:
            self.o.put(self.store, key, body, mode="create", use_multipart=False)
            return "ok"
        except Exception as error:
            return type(error).__name__

    def put(self, key: str, body: bytes) -> None:
        self.o.put(self.store, key, body, use_multipart=False)

    def range(self, key: str, start: int, length: int) -> Any:
        return memoryview(self.o.get_range(self.store, key, start=start, length=length))


class Opendal:
    def __init__(self, endpoint: str) -> None:
        import opendal

        self.op = opendal.Operator(
            "s3", bucket="bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b", region="us-east-1",
            disable_config_load="true", disable_ec2_metadata="true",
        )

    def create(self, key: str, body: bytes) -> str:
        try:
            self.op.write(key, body, if_not_exists=True)
            return "ok"
        except Exception as error:
            return type(error).__name__

    def put(self, key: str, body: bytes) -> None:
        self.op.write(key, body)

    def range(self, key: str, start: int, length: int) -> Any:
        return memoryview(self.op.read(key, offset=start, size=length))


class Bare:
    """http.client without signatures: what the stub can do."""

    def __init__(self, endpoint: str) -> None:
        self.host = endpoint.removeprefix("http://")
        self.local = threading.local()

    def _send(self, method: str, key: str, body: bytes | None, headers: dict[str, str]) -> Any:
        if not hasattr(self.local, "c"):
            self.local.c = http.client.HTTPConnection(self.host)
        self.local.c.request(method, f"/bucket/{key}", body, headers)
        return self.local.c.getresponse().read()

    def put(self, key: str, body: bytes) -> None:
        self._send("PUT", key, body, {})

    def range(self, key: str, start: int, length: int) -> Any:
        return self._send("GET", key, None, {"Range": f"bytes={start}-{start + length - 1}"})


def timed(threads: int, count: int, call: Callable[[int], Any]) -> tuple[float, list[float]]:
    durations: list[float] = []

    def work(number: int) -> None:
        for i in range(number, count, threads):
            begun = time.perf_counter()
            call(i)
            durations.append(time.perf_counter() - begun)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    begun = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - begun, sorted(durations)


def main() -> None:
    stub = subprocess.Popen(["node", str(Path(__file__).with_name("s3-stub.mjs"))], stdout=subprocess.PIPE, text=True)
    try:
        assert stub.stdout
        endpoint = f"http://127.0.0.1:{int(stub.stdout.readline())}"

        def puts() -> int:
            return int(urllib.request.urlopen(f"{endpoint}/_count").read())

        clients = {"obstore": Obstore(endpoint), "opendal": Opendal(endpoint), "bare": Bare(endpoint)}
        print("conditional create: what the client says, and how many requests it sent")
        for answer in ("first", "again", "status-409", "status-429", "status-500", "status-503", "drop"):
            row = [f"{answer:11s}"]
            for name in ("obstore", "opendal"):
                client: Any = clients[name]
                key = f"{name}-key" if answer in ("first", "again") else f"{answer}-{name}"
                before = puts()
                row.append(f"{name} {client.create(key, b'x'):24s} {puts() - before} sent")
            print("  ".join(row))
        for size, count in ((65_536, 600), (1_048_576, 200), (8_388_608, 40)):
            for name, client in clients.items():
                body = bytes(size)
                spent, _ = timed(8, count, lambda i, c=client, n=name: c.put(f"{n}/{size}/{i % 16}", body))  # type: ignore[misc]
                read, d = timed(8, count, lambda i, c=client, n=name: c.range(f"{n}/{size}/{i % 16}", 0, size))  # type: ignore[misc]
                print(
                    f"{size:8d} B  {name:8s} put {count * size / spent / 1e6:7.0f} MB/s  range {count * size / read / 1e6:7.0f} MB/s  "
                    f"p50 {1e3 * d[len(d) // 2]:6.2f} ms  p99 {1e3 * d[int(len(d) * 0.99)]:6.2f} ms"
                )
        for module in ("obstore", "opendal"):
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
            print(f"import {module}: {time.perf_counter() - begun:.2f} s with the interpreter")
    finally:
        stub.terminate()
        stub.wait()


if __name__ == "__main__":
    main()
