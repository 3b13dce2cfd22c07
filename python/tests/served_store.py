"""The client of `harness/store-server.ts`: a store in another process, over a local socket. One connection for each thread."""
from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any, Sequence

from batchweave.errors import BatchWeaveError
from batchweave.store.object_store import LIST_PAGE_MAX, join_body

_LENGTHS = struct.Struct(">II")


class ServedStore:
    def __init__(self, path: str, who: str) -> None:
        self.uri = f"served:{who}"
        self._path = path
        self._who = who
        self._local = threading.local()

    def create(self, key: str, body: Any) -> str:
        return str(self.ask("create", join_body(body), key=key)[0])

    def put(self, key: str, body: Any) -> None:
        self.ask("put", join_body(body), key=key)

    def get(self, key: str) -> bytes | None:
        is_there, data = self.ask("get", key=key)
        return data if is_there else None

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        is_there, data = self.ask("getRange", key=key, start=start, length=length)
        return data if is_there else None

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]:
        page, _ = self.ask("list", prefix=prefix, startAfter=start_after, limit=limit)
        return page["keys"], page["more"]

    def delete(self, keys: Sequence[str]) -> None:
        self.ask("delete", keys=list(keys))

    def ask(self, op: str, body: bytes = b"", **fields: Any) -> tuple[Any, bytes]:
        """One request and its answer."""
        link = getattr(self._local, "link", None)
        if link is None:
            link = self._local.link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            link.connect(self._path)
        text = json.dumps({"who": self._who, "op": op, **fields}).encode()
        link.sendall(_LENGTHS.pack(len(text), len(body)) + text + body)
        json_length, body_length = _LENGTHS.unpack(self._receive(link, _LENGTHS.size))
        answer = json.loads(self._receive(link, json_length))
        data = self._receive(link, body_length)
        if "error" in answer:
            raise BatchWeaveError(answer["error"], answer["message"], {})
        return answer["ok"], data

    @staticmethod
    def _receive(link: socket.socket, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = link.recv(length - len(data))
            if not part:
                raise SystemExit("the served store is gone")
            data += part
        return bytes(data)
