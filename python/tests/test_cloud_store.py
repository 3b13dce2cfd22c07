"""Property: object stores behind obstore keep the rules of the six calls; a conditional create is sent once and never guessed.

Method: the stub of python/tools on loopback, which answers as it is told; needs node and obstore.
"""
from __future__ import annotations

import http.server
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request
from pathlib import Path
from unittest import mock

from batchweave import BatchWeaveError, create_namespace, open_namespace
from batchweave.store.object_store import open_store

STUB = Path(__file__).parents[1] / "tools" / "s3-stub.mjs"
HAS_ALL = importlib.util.find_spec("obstore") is not None and shutil.which("node") is not None


class WithoutThePackage(unittest.TestCase):
    @unittest.skipIf(importlib.util.find_spec("obstore") is not None, "obstore is installed")
    def test_says_which_package_is_missing(self) -> None:
        with self.assertRaises(BatchWeaveError) as caught:
            open_store("s3://bucket/x")
        self.assertEqual(caught.exception.code, "MISSING_PACKAGE")
        self.assertIn("pip install obstore", caught.exception.message)


@unittest.skipUnless(HAS_ALL, "obstore or node is not installed")
class OnAStub(unittest.TestCase):
    def setUp(self) -> None:
        stub = subprocess.Popen(["node", str(STUB)], stdout=subprocess.PIPE, text=True)
        assert stub.stdout
        self.endpoint = f"http://127.0.0.1:{int(stub.stdout.readline())}"
        self.addCleanup(stub.stdout.close)
        self.addCleanup(stub.wait)
        self.addCleanup(stub.terminate)
        env = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        patch = mock.patch.dict(os.environ, env)
        patch.start()
        self.addCleanup(patch.stop)
        self.store = open_store("s3://bucket/runs/7b")

    def puts(self) -> int:
        with urllib.request.urlopen(f"{self.endpoint}/_count") as answer:
            return int(answer.read())

    def test_the_six_calls(self) -> None:
        s = self.store
        self.assertIsNone(s.get("a/b"))
        self.assertIsNone(s.get_range("a/b", 0, 5))
        self.assertEqual(s.create("a/b", b"0123456789"), "created")
        self.assertEqual(s.create("a/b", b"x"), "exists")
        s.put("a/c", [b"par", b"ts"])
        self.assertEqual(s.get("a/c"), b"parts")
        self.assertEqual(bytes(s.get_range("a/b", 2, 3)), b"234")
        self.assertEqual(bytes(s.get_range("a/b", 8, 30)), b"89")
        self.assertEqual(bytes(s.get_range("a/b", 30, 3)), b"")
        self.assertEqual(s.get_range("a/b", 3, 0), b"")
        for i in range(30):
            s.put(f"m/{i:020d}.json", b"x")
        self.assertEqual(s.list("m/", f"m/{9:020d}.json", 3), ([f"m/{i:020d}.json" for i in (10, 11, 12)], True))
        self.assertEqual(s.list("m/", f"m/{27:020d}.json"), ([f"m/{i:020d}.json" for i in (28, 29)], False))
        self.assertEqual(s.list("nothing/"), ([], False))
        s.delete(["a/b", "a/none"])
        self.assertIsNone(s.get("a/b"))

    def test_a_create_is_sent_once_and_every_doubt_is_unknown(self) -> None:
        for status in (409, 429, 500, 503):
            before = self.puts()
            self.assertEqual(self.store.create(f"status-{status}", b"x"), "unknown", status)
            self.assertEqual(self.puts() - before, 1, status)
        before = self.puts()
        self.assertEqual(self.store.create("drop", b"x"), "unknown", "applied, and the answer lost")
        self.assertEqual(self.puts() - before, 1)
        with self.assertRaises(BatchWeaveError) as caught:
            self.store.create("status-403", b"x")
        self.assertEqual(caught.exception.code, "STORE_DENIED")

    def test_a_server_without_conditional_creates_is_unsafe(self) -> None:
        with self.assertRaisesRegex(BatchWeaveError, "UNSAFE_STORE.*does not implement this request; use a store that knows"):
            self.store.create("status-501", b"x")

    def test_a_page_of_a_proxy_is_told_from_an_object(self) -> None:
        class Portal(http.server.BaseHTTPRequestHandler):
            status, has_length = 200, True

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                page = b"<!DOCTYPE html><html>Please sign in</html>"
                self.send_response(self.status)
                if self.has_length:
                    self.send_header("content-length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            do_PUT = do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            self.addCleanup(server.shutdown)
            endpoint = f"http://127.0.0.1:{server.server_port}"
            with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": endpoint}):
                store = open_store("s3://bucket/x")
                said = f"STORE_UNAVAILABLE.*{endpoint} answered %s with %s where.*check the endpoint and proxies"
                with self.assertRaisesRegex(BatchWeaveError, said % (200, "an HTML page")):
                    open_namespace("s3://bucket/run")
                with self.assertRaisesRegex(BatchWeaveError, said % (200, "something else")):
                    store.get_range("a", 0, 5)
                with self.assertRaisesRegex(BatchWeaveError, said % (200, "something else")):
                    store.put("a", b"x")
                self.assertEqual(store.create("a", b"x"), "unknown")
                Portal.has_length = False
                with self.assertRaisesRegex(BatchWeaveError, said % (200, "something else")):
                    store.get("a")
                # Whose word it is counts, not what it says; and no page is printed.
                Portal.has_length = True
                for status, code in ((403, "STORE_DENIED"), (407, "STORE_DENIED"), (503, "STORE_UNAVAILABLE")):
                    Portal.status = status
                    for call in (lambda: store.get("a"), lambda: store.put("a", b"x")):
                        with self.assertRaisesRegex(BatchWeaveError, f"{code}.*answered {status} with an HTML page") as caught:
                            call()
                        self.assertNotIn("sign in", caught.exception.message)
                Portal.status = 302
                with self.assertRaisesRegex(BatchWeaveError, "a redirect that leads nowhere; check the endpoint and proxies"):
                    store.get("a")
                Portal.has_length = False
                Portal.status = 502
                with self.assertRaisesRegex(BatchWeaveError, said % (502, "an HTML page")):
                    store.get("a")

    def test_failures_say_what_to_check(self) -> None:
        def failure(uri: str, **env: str) -> BatchWeaveError:
            with mock.patch.dict(os.environ, env), self.assertRaises(BatchWeaveError) as caught:
                open_store(uri).get("a")
            return caught.exception

        gone = failure("s3://bucket/x", AWS_ENDPOINT_URL="http://127.0.0.1:1")
        self.assertEqual((gone.code, "cannot be reached at http://127.0.0.1:1" in gone.message), ("STORE_UNAVAILABLE", True))
        self.assertEqual(failure("s3://b/x").code, "INVALID_ARGUMENT")
        with self.assertRaisesRegex(BatchWeaveError, "INVALID_ARGUMENT.*'colour' is not valid"):
            open_store("s3://bucket/x", colour="red")

        for endpoint in ("localhost:9000", "http://", "http://127.0.0.1:99999", "http://127.0.0.1:9 "):
            wrong = failure("s3://bucket/x", AWS_ENDPOINT_URL=endpoint)
            self.assertEqual((wrong.code, "is not a URL" in wrong.message), ("INVALID_ARGUMENT", True))

        def answered(status: int, code: str) -> BatchWeaveError:
            class Answering(http.server.BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write(f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

                def log_message(self, *_: object) -> None:
                    pass

            with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
                thread = threading.Thread(target=server.handle_request)
                thread.start()
                found = failure("s3://bucket/x", AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.server_port}")
                thread.join()
            return found

        self.assertEqual(answered(404, "NoSuchBucket").code, "INVALID_ARGUMENT")
        self.assertEqual(answered(400, "ExpiredToken").code, "STORE_DENIED")
        self.assertEqual(answered(301, "PermanentRedirect").code, "INVALID_ARGUMENT")
        denied = answered(403, "InvalidAccessKeyId")
        self.assertEqual(denied.code, "STORE_DENIED")
        self.assertIn("it was denied (InvalidAccessKeyId); check AWS_ACCESS_KEY_ID", denied.message)

    def test_a_profile_is_used_or_it_is_said_what_reads_it(self) -> None:
        env = {"AWS_PROFILE": "research", "AWS_ENDPOINT_URL": self.endpoint}
        with mock.patch.dict(os.environ, env), mock.patch.dict(sys.modules, {"boto3": None}):
            open_store("s3://bucket/x").get("a")  # AWS_ACCESS_KEY_ID is set, and goes before
            with self.assertRaisesRegex(BatchWeaveError, "MISSING_PACKAGE.*'other'.*pip install boto3.*export-credentials --profile other"):
                open_store("s3://bucket/x", profile="other")
            del os.environ["AWS_ACCESS_KEY_ID"]
            with self.assertRaisesRegex(BatchWeaveError, "MISSING_PACKAGE.*'research'"):
                open_store("s3://bucket/x")
        if importlib.util.find_spec("boto3") is None:
            return
        seen = []

        class Listening(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.headers["authorization"])
                self.send_response(404)
                self.end_headers()
                self.wfile.write(b"<Error><Code>NoSuchKey</Code></Error>")

            def log_message(self, *_: object) -> None:
                pass

        with tempfile.TemporaryDirectory() as folder, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listening) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            self.addCleanup(server.shutdown)
            Path(folder, "c").write_text("[research]\naws_access_key_id = OFPROFILE\naws_secret_access_key = x\nregion = eu-north-1\n")
            env |= {"AWS_SHARED_CREDENTIALS_FILE": f"{folder}/c", "AWS_CONFIG_FILE": f"{folder}/c", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}
            with mock.patch.dict(os.environ, env):
                del os.environ["AWS_ACCESS_KEY_ID"]
                self.assertIsNone(open_store("s3://bucket/x").get("a"))
                with self.assertRaisesRegex(BatchWeaveError, "INVALID_ARGUMENT.*config profile .nobody. could not be found"):
                    open_store("s3://bucket/x", profile="nobody")
        self.assertRegex(seen[0], "Credential=OFPROFILE/.*/eu-north-1/s3")

    def test_a_namespace_is_written_and_read(self) -> None:
        namespace = create_namespace("s3://bucket/run", rows=2)
        with namespace.producer("p") as p:
            for i in range(70):
                p.append([f"{i}.0".encode(), f"{i}.1".encode()], resume_point=i)
        namespace.end_log()
        with namespace.consumer({"dp": 2}, 1, environment={}) as consumer:
            self.assertEqual([bytes(s.slices[0].bytes) for s in consumer], [f"{i}.1".encode() for i in range(70)])


if __name__ == "__main__":
    unittest.main()
