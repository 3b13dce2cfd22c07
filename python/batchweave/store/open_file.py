"""A file that stays open for a few reads of it."""
from __future__ import annotations

import os
from typing import Callable

from ..errors import BatchWeaveError

_WILL_NEED = getattr(os, "POSIX_FADV_WILLNEED", None)


class OpenFile:
    """Made by FileStore.open. Whoever lets go of it last closes it."""

    __slots__ = ("_fd", "_take", "_explain")

    def __init__(self, fd: int, take: Callable[[int], memoryview], explain: Callable[[OSError], BatchWeaveError]) -> None:
        self._fd = fd
        self._take = take
        self._explain = explain

    def hint(self, start: int, length: int) -> None:
        """These bytes are read soon: the system fetches them meanwhile, if it will. Nobody waits for that."""
        if _WILL_NEED is None or length == 0:  # to the system that would be all that follows
            return
        try:
            os.posix_fadvise(self._fd, start, length, _WILL_NEED)
        except OSError:
            pass  # the read says what is wrong

    def read(self, start: int, length: int) -> memoryview:
        """Bytes [start, start + length), fewer where the object ends."""
        try:
            return read_fully(self._fd, self._take(length), start)
        except OSError as error:
            raise self._explain(error) from error

    def read_small(self, start: int, length: int) -> bytes:
        """The same for a few bytes, which nobody writes to."""
        try:
            data = os.pread(self._fd, length, start)
            return data if len(data) == length else bytes(self.read(start, length))
        except OSError as error:
            raise self._explain(error) from error

    def close(self) -> None:
        """No reads after this."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


def read_fully(fd: int, target: memoryview, start: int) -> memoryview:
    """Fills `target` from `start` on; gives as much of it as the file has."""
    length = len(target)
    got = 0
    while got < length:
        n = os.preadv(fd, [target[got:] if got else target], start + got)
        if n == 0:
            break
        got += n
    return target if got == length else target[:got]
