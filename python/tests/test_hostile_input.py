"""Property: what a hostile store, folder or argument holds is refused with a code and a sentence, in bounded time and memory, and no secret and no
control character reaches the output. The same table as test/hostile-input.test.ts, and the same answers.

Method: a table that names each case; folders and local servers prepared for it. What stored objects may hold is in the conformance
family "hostile", which both languages run. The cases on a server need obstore.
"""
from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable

import batchweave
from batchweave.format.stored_json import seal_json

TRICK = "\u001b]0;owned\u0007\u009b2J\u202e"
RAW = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u202a-\u202e]")
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAHOSTILEHOSTILE00",
    "AWS_SECRET_ACCESS_KEY": "sEcReT/KeY0123456789",
    "AWS_SESSION_TOKEN": "tOkEn0123456789",
}


def rewrite(path: Path, **change: Any) -> None:
    """Changes a stored JSON object and seals it again."""
    fields = json.loads(path.read_bytes())
    kind, namespace = fields["kind"], fields["namespace"]
    path.write_bytes(seal_json(kind, namespace, {**fields, **change}))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def move_and_link(path: Path) -> None:
    moved = path.with_name(path.name + ".moved")
    path.rename(moved)
    path.symlink_to(moved)


def doubled(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"closed":false', b'"closed":false,"closed":false'))


#: Name, what is done to (namespace.json, newest manifest), code, what the sentence says.
FOLDERS: list[tuple[str, Callable[[Path, Path], Any], str, str]] = [
    ("a pipe in place of a manifest", lambda _, m: pipe(m), "UNSAFE_STORE", "is a pipe or a socket"),
    ("a pipe in place of namespace.json", lambda n, _: pipe(n), "UNSAFE_STORE", "is a pipe or a socket"),
    ("a link in place of namespace.json", lambda n, _: move_and_link(n), "NO_NAMESPACE", "There is no namespace"),
    ("a link in place of a folder", lambda _, m: move_and_link(m.parent), "UNSAFE_STORE", "is a link or a pipe where a folder must be"),
    ("a manifest of gigabytes", lambda _, m: os.truncate(m, 6 * 2**30), "LIMIT", "has 6442450944 bytes"),
    ("a namespace.json of gigabytes", lambda n, _: os.truncate(n, 6 * 2**30), "LIMIT", "not what its name says"),
    ("10^9 rows", lambda n, _: rewrite(n, grid={"rows": 10**9, "chunks": 1}), "CORRUPT", "too large"),
    (
        "steps.end near 2^53",
        lambda _, m: rewrite(m, tail={"start": 2**53 - 64, "batches": []}, steps={"trim": 0, "end": 2**53 - 64}),
        "CORRUPT",
        "",
    ),
    ("a name twice", lambda _, m: doubled(m), "CORRUPT", "is corrupt"),
    ("a reference that leads out of the folder", lambda _, m: rewrite(m, tables=[[1, "../../../etc", 0, 1]]), "CORRUPT", "is not an id"),
    ("an HTML page in place of a manifest", lambda _, m: m.write_bytes(b"<html>Sign in</html>" * 9), "CORRUPT", "checksum"),
]

URIS = [
    "s3://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/x",
    "s3://AKIAEXAMPLE:wJalr/XUtn/FEMI@bucket/x",
    "s3://AKIAEXAMPLE:wJalrXUtnFEMI/bucket",
    "s3://bucket/x?secret=wJalrXUtnFEMI",
    "gs://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/x",
    "az://AKIAEXAMPLE:wJalrXUtnFEMI@container/x",
    "ftp://AKIAEXAMPLE:wJalrXUtnFEMI@host/x",
    "//AKIAEXAMPLE:wJalrXUtnFEMI@bucket/x",
    "file://AKIAEXAMPLE:wJalrXUtnFEMI@host/x",
]


class HostileFolders(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="batchweave-hostile-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.namespace = batchweave.create_namespace(self.folder.as_uri(), rows=1)
        with self.namespace.producer("p") as producer:
            producer.append([b"first"])
            producer.append([b"second"])
        self.manifest = sorted(self.folder.rglob("manifest/*.json"))[-1]

    def command(self, *args: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(Path(batchweave.__file__).parent.parent), "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run([sys.executable, "-m", "batchweave", *args], capture_output=True, env=env, timeout=240)
        return (done.stdout + done.stderr).decode()

    def test_a_terminals_escapes_are_never_printed_raw(self) -> None:
        rewrite(self.manifest, commit={"id": "v0u1t2s3r4q5", "by": TRICK, "time": 1})
        outputs = [self.command("info", self.folder.as_uri()), self.command("info", self.folder.as_uri(), "--json")]
        rewrite(self.folder / "namespace.json", order={"kind": TRICK})
        outputs += [self.command("info", self.folder.as_uri()), self.command("info", self.folder.as_uri(), "--json")]
        for output in outputs:
            self.assertIn("owned", output)
            self.assertIsNone(RAW.search(output), output)

    def test_a_key_in_a_uri_is_never_repeated(self) -> None:
        for uri in URIS:
            with self.subTest(uri), self.assertRaises(batchweave.BatchWeaveError) as caught:
                batchweave.open_namespace(uri)
            self.assertNotRegex(f"{caught.exception} {caught.exception.details}", "wJalr|XUtn|FEMI")


def _folder_case(prepare: Callable[[Path, Path], Any], code: str, says: str) -> Callable[[HostileFolders], None]:
    def test(self: HostileFolders) -> None:
        prepare(self.folder / "namespace.json", self.manifest)
        with self.assertRaises(batchweave.BatchWeaveError) as caught:
            namespace = batchweave.open_namespace(self.folder.as_uri())
            next(iter(namespace.consumer({"dp": 1}, 0, start={"step": 1}, wait_timeout=1.0)))
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        self.assertIn(says, caught.exception.message)

    return test


for _name, _prepare, _code, _says in FOLDERS:
    setattr(HostileFolders, "test_" + re.sub(r"\W+", "_", _name), _folder_case(_prepare, _code, _says))


class Handler(BaseHTTPRequestHandler):
    answer: Callable[["Handler"], None]
    asked: list[str] = []

    def do_GET(self) -> None:
        type(self).answer(self)

    do_PUT = do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        pass

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


@unittest.skipUnless(importlib.util.find_spec("obstore"), "obstore is not installed: no cloud stores from Python")
class HostileServers(unittest.TestCase):
    def serve(self, answer: Callable[[Handler], None]) -> int:
        kind = type("Answering", (Handler,), {"answer": staticmethod(answer)})
        server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server.server_address[1]

    def failure(self, answer: Callable[[Handler], None]) -> batchweave.BatchWeaveError:
        variables = {**SECRETS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.serve(answer)}", "AWS_REGION": "us-east-1"}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            from batchweave.store.cloud_store import open_cloud_store

            with self.assertRaises(batchweave.BatchWeaveError) as caught:
                open_cloud_store("s3://hostile-bucket/x").get("namespace.json")
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        for secret in SECRETS.values():
            self.assertNotIn(secret, f"{caught.exception} {caught.exception.details}")
        self.assertNotRegex(str(caught.exception), "Signature=[0-9a-f]{8}")
        return caught.exception

    def test_a_403_that_echoes_the_requests_headers(self) -> None:
        error = self.failure(lambda h: h.send(403, f"denied: {dict(h.headers)}".encode()))
        self.assertEqual(error.code, "STORE_DENIED")

    def test_a_400_that_echoes_them_as_the_stores_own_error(self) -> None:
        def answer(h: Handler) -> None:
            echo = re.sub("[<>&]", " ", " ".join(h.headers.values()))
            h.send(400, f"<Error><Code>Bad</Code><Message>{echo}</Message></Error>".encode())

        self.assertTrue(self.failure(answer).code.startswith("STORE_"))

    def test_an_endless_200(self) -> None:
        def answer(h: Handler) -> None:
            h.send_response(200)
            for name, value in {"etag": '"a"', "last-modified": "Mon, 16 Nov 2026 00:00:00 GMT", "content-length": str(2**40)}.items():
                h.send_header(name, value)
            h.end_headers()
            try:
                while True:
                    h.wfile.write(bytes(1 << 20))
            except OSError:
                pass  # the client has had enough

        self.assertEqual(self.failure(answer).code, "LIMIT")

    def test_an_html_page_of_a_proxy(self) -> None:
        page = b"<!doctype html><html>Sign in</html>"
        error = self.failure(lambda h: h.send(200, page, content_type="text/html", last_modified="Mon, 16 Nov 2026 00:00:00 GMT"))
        self.assertEqual(error.code, "STORE_UNAVAILABLE")
        self.assertIn("HTML page", error.message)

    def test_a_307_to_another_host_gets_no_token(self) -> None:
        asked: list[str] = []

        def note(h: Handler) -> None:
            asked.append(str(dict(h.headers)))
            h.send(404, b"")

        other = self.serve(note)
        self.failure(lambda h: h.send(307, b"", location=f"http://localhost:{other}/x"))
        self.assertEqual(asked, [])


if __name__ == "__main__":
    unittest.main()
