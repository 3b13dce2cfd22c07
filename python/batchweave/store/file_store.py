"""A folder as a store, with the standard library alone; the same layout and the same rules as the TypeScript file store.

An object is written whole to a temporary file, synced, and only then given its name: with link(2), which fails if the name
is taken, for a conditional create; with rename(2) for a put. Both are atomic across processes, so no reader sees part of an
object and exactly one of any number of creators wins. A crash before the name leaves an invisible temporary file.
"""
from __future__ import annotations

import errno
import itertools
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence, TypeVar

from ..env.ids import random_id
from ..errors import BatchWeaveError, invalid
from .object_store import LIST_PAGE_MAX, WHOLE_BYTES_MAX, Body, assert_key, too_large

T = TypeVar("T")

TEMP_DIRECTORY = ".tmp~"
_FOREIGN_AGE_MAX_S = 24 * 60 * 60
_VANISHED_MAX = 32
_IOV_MAX = 1_024
#: Larger ranges get memory only as far as the file reaches.
_TRUSTED_BYTES_MAX = 16 * 1024 * 1024
# Not blocking: to open a pipe for reading would wait for a writer. Of a file it means nothing.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Errnos of open(2) that say that there is no object: no file, part of the path is one, a symbolic link.
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_SEGMENT = re.compile(r"[A-Za-z0-9._=-]+", re.ASCII)

#: Errnos of link(2) that say for certain that no link was made. Any other says nothing.
_REFUSALS = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR,
    errno.ENAMETOOLONG, errno.EMLINK, errno.EXDEV, errno.ELOOP,
}
_ERRORS = {
    errno.ESPIPE: ("UNSAFE_STORE", "it is a pipe or a socket, not a file", "let nothing but BatchWeave write below the root, and remove it"),
    errno.ENXIO: ("UNSAFE_STORE", "it is a pipe or a socket, not a file", "let nothing but BatchWeave write below the root, and remove it"),
    errno.ENOSPC: ("STORE_FULL", "the disk is full", "free space (or inodes) on that file system, then try again"),
    errno.EDQUOT: ("STORE_FULL", "the disk quota is used up", "raise the quota or free space, then try again"),
    errno.EFBIG: ("STORE_FULL", "the file would be larger than this process may write", "raise `ulimit -f`, then try again"),
    errno.EACCES: (
        "STORE_DENIED",
        "permission denied",
        "give this user read, write and search permission on the folder and everything in it",
    ),
    errno.EPERM: (
        "STORE_DENIED",
        "operation not permitted",
        "give this user permission on the folder, and check that its file system supports hard links",
    ),
    errno.EROFS: ("STORE_DENIED", "the file system is read-only", "mount it read-write or choose another folder"),
    errno.EMFILE: (
        "STORE_UNAVAILABLE",
        "this process has too many open files",
        "raise `ulimit -n` or lower the concurrency",
    ),
    errno.ENFILE: ("STORE_UNAVAILABLE", "this machine has too many open files", "raise fs.file-max"),
    errno.ENOENT: (
        "STORE_UNAVAILABLE",
        "its folder or temporary file was removed meanwhile",
        "let nothing but BatchWeave delete below the root, then try again",
    ),
    errno.ENOTDIR: (
        "INVALID_ARGUMENT",
        "part of the path is a file, not a folder",
        "choose a key that does not go through another object",
    ),
    errno.EISDIR: (
        "INVALID_ARGUMENT",
        "there is a folder under this name",
        "choose a key that is not the folder of another object",
    ),
    errno.ENAMETOOLONG: (
        "INVALID_ARGUMENT",
        "a name is longer than the file system allows",
        "keep every segment of a key within 255 bytes",
    ),
}


def file_error(error: OSError, doing: str, path: str) -> BatchWeaveError:
    """What happened, to what, what to do."""
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    code, what, remedy = _ERRORS.get(
        error.errno or 0,
        ("STORE_UNAVAILABLE", f"the file system answered {name}", "check the disk or mount, then try again"),
    )
    return BatchWeaveError(code, f"Cannot {doing} {path}: {what}; {remedy}.", {"path": path, "errno": name})


class FileStore:
    """See the head of this file."""

    #: On this machine: a second read of a late one would only take turns with the first.
    is_near = True

    def __init__(self, root: str, durability: str = "power-loss") -> None:
        if durability not in ("power-loss", "process-crash"):
            raise invalid(f'durability "{durability}" is unknown; use "power-loss" or "process-crash"')
        self._root = root.rstrip("/") or "/"
        self.uri = Path(self._root).as_uri()
        self._durable = durability == "power-loss"
        self._known: set[str] = set()
        #: Folders of the root that are none of a link: looked at once.
        self._folders: set[str] = set()
        self._temps: Iterator[str] | None = None
        self._pid = 0
        self._lock = threading.Lock()
        try:
            if not os.path.isdir(self._root) and os.path.lexists(self._root):
                raise invalid(f"{self._root} is not a folder; name a folder to keep objects in", path=self._root)
            _sweep(f"{self._root}/{TEMP_DIRECTORY}")
        except OSError as error:
            raise file_error(error, "open", self._root) from error

    def create(self, key: str, body: Body) -> str:
        """Conditional create: "created", "exists" or "unknown". Raises only when certainly nothing was written."""
        path = self._path(key)
        temp = None
        try:
            temp = self._write_temp(body)
            # The commit point: before this the object does not exist, after it it does. What fails later is no plain failure.
            outcome = self._link(temp, path)
        except OSError as error:
            raise file_error(error, "create", path) from error
        finally:
            if temp:
                _unlink(temp)
        if outcome != "unknown":
            try:
                # Also a name that was there: its creator, an earlier try of this very create perhaps, may not have synced it.
                self._sync_directory(os.path.dirname(path))
            except OSError:
                return "unknown"
        return outcome

    def put(self, key: str, body: Body) -> None:
        """Unconditional write of an object whose key no other writer uses for other bytes."""
        path = self._path(key)
        temp = None
        try:
            temp = self._write_temp(body)
            source = temp
            self._in_directory(path, source, lambda: os.rename(source, path))
            temp = None
            self._sync_directory(os.path.dirname(path))
        except OSError as error:
            raise file_error(error, "write", path) from error
        finally:
            if temp:
                _unlink(temp)

    def sync(self, key: str) -> None:
        """Returns when an object that was read under this key survives power loss: its writer may not have synced its name yet."""
        path = self._path(key)
        try:
            self._sync_directory(os.path.dirname(path))
        except OSError as error:
            raise file_error(error, "sync", path) from error

    def get(self, key: str) -> bytes | None:
        """The whole object, or None."""
        data = self._read(key, 0, None)
        return None if data is None else bytes(data)

    def get_range(self, key: str, start: int, length: int) -> memoryview | None:
        """Bytes [start, start + length), fewer where the object ends; writable memory, so that tensors can map it."""
        if start < 0 or length < 0:
            raise invalid(f"The range {start}+{length} of {key} is not two whole numbers.", key=key)
        return self._read(key, start, length)

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]:
        """One page of keys in byte order, and whether there are more."""
        folder = prefix[: prefix.rfind("/") + 1]
        if folder and not all(_is_segment(s) for s in folder[:-1].split("/")):
            return [], False
        self._assert_folder(folder)
        try:
            keys = list(itertools.islice(self._walk(folder, prefix, start_after), limit + 1))
        except OSError as error:
            raise file_error(error, "list", f"{self._root}/{prefix}") from error
        return keys[:limit], len(keys) > limit

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes; absent keys are fine. Folders that became empty go too."""
        folders = set()
        for key in keys:
            path = self._path(key)
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                pass
            except OSError as error:
                raise file_error(error, "delete", path) from error
            folders.add(os.path.dirname(path))
        try:
            for folder in {self._prune(folder) for folder in folders}:
                self._sync_names(folder)
        except OSError as error:
            raise file_error(error, "delete from", self._root) from error

    def _path(self, key: str) -> str:
        assert_key(key)
        self._assert_folder(key)
        return f"{self._root}/{key}"

    def _assert_folder(self, key: str) -> None:
        """A link in the place of one of a namespace's folders would show another folder's objects, or none at all."""
        segments = key.split("/")[:-1]
        # A namespace's folders are in the root, or in the folder of its life.
        for depth in range(1, min(len(segments), 3 if segments[:1] == ["life"] else 1) + 1):
            self._look_at_folder("/".join(segments[:depth]))

    def _look_at_folder(self, folder: str) -> None:
        if folder in self._folders:
            return
        path = f"{self._root}/{folder}"
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return  # there is none yet, or the call that uses it says what is wrong
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise BatchWeaveError(
                "UNSAFE_STORE",
                f"Cannot use {path}: it is a link or a pipe where a folder must be; put the folder itself there.",
                {"path": path},
            )
        self._folders.add(folder)

    def _read(self, key: str, start: int, length: int | None) -> memoryview | None:
        path = self._path(key)
        try:
            try:
                fd = os.open(path, _READ_FLAGS)
            except OSError as error:
                if error.errno in _ABSENT:
                    return None
                raise
            try:
                if length is None or length > _TRUSTED_BYTES_MAX:
                    left = max(0, os.fstat(fd).st_size - start)
                    if length is None and left > WHOLE_BYTES_MAX:
                        raise too_large(path, left)
                    length = left if length is None else min(length, left)
                if length == 0:
                    os.pread(fd, 1, 0)  # or a folder would pass for an empty object
                return _read_fully(fd, length, start)
            except IsADirectoryError:
                return None
            finally:
                os.close(fd)
        except OSError as error:
            raise file_error(error, "read", path) from error

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[str]:
        """Keys in byte order of the whole key; a directory sorts as its name with the slash."""
        names: list[str] = []
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if not _is_segment(entry.name) or not (is_folder or entry.is_file(follow_symlinks=False)):
                        continue
                    name = f"{entry.name}/" if is_folder else entry.name
                    key = folder + name
                    if not key.startswith(prefix) and not (is_folder and prefix.startswith(key)):
                        continue
                    if key <= start_after and not (is_folder and start_after.startswith(key)):
                        continue
                    names.append(name)
        except (FileNotFoundError, NotADirectoryError):
            return
        names.sort()
        for name in names:
            if name.endswith("/"):
                yield from self._walk(folder + name, prefix, start_after)
            else:
                yield folder + name

    def _next_temp(self) -> str:
        with self._lock:
            # A forked child must not use its parent's names.
            if self._temps is None or self._pid != os.getpid():
                self._pid = os.getpid()
                instance = random_id()
                scope = _pid_scope() or f"x{instance}"
                stem = f"{self._root}/{TEMP_DIRECTORY}/{scope}.{self._pid}.{instance}"
                self._temps = (f"{stem}.{n}" for n in itertools.count())
            return next(self._temps)

    def _write_temp(self, body: Body) -> str:
        """Writes and syncs the bytes under a temporary name. Leaves nothing when it raises."""
        path = self._next_temp()
        fd = self._in_directory(
            path, None, lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        )
        try:
            try:
                _write_fully(fd, body if isinstance(body, (list, tuple)) else [body])
                if self._durable:
                    _fdatasync(fd)
            finally:
                os.close(fd)
        except BaseException:
            _unlink(path)
            raise
        return path

    def _link(self, temp: str, path: str) -> str:
        """link(2), with what its answers do not say. Raises only when no link was made."""
        try:
            self._in_directory(path, temp, lambda: os.link(temp, path))
            return "created"
        except OSError as error:
            if error.errno in _REFUSALS:
                raise
            # Over NFS a repeated request can be answered EEXIST though the first one made the link: the link count tells.
            try:
                if os.lstat(temp).st_nlink > 1:
                    return "created"
            except OSError:
                pass
            if error.errno != errno.EEXIST:
                return "unknown"
        try:
            is_file = stat.S_ISREG(os.lstat(path).st_mode)
        except OSError:
            is_file = True
        if is_file:
            return "exists"
        raise invalid(
            f"Cannot create {path}: there is something other than a file under this name; choose a key that is not the "
            "folder of another object.",
            path=path,
        )

    def _in_directory(self, path: str, temp: str | None, make: Callable[[], T]) -> T:
        """Makes a name in the directory of `path`; makes the directory if it is missing or was pruned under us."""
        for tries in itertools.count():
            try:
                return make()
            except FileNotFoundError:
                if tries == _VANISHED_MAX:
                    raise
                if temp is not None:
                    os.lstat(temp)  # or is it the temporary file that is gone?
                self._forget(os.path.dirname(path))
                os.makedirs(os.path.dirname(path), exist_ok=True)
        raise AssertionError

    def _sync_directory(self, folder: str) -> None:
        """The names in `folder`, and those of the folders up to the root, survive power loss."""
        if not self._durable:
            return
        _fsync_directory(folder)
        synced = []
        while folder not in self._known:
            parent = os.path.dirname(folder)
            try:
                _fsync_directory(parent)
            except PermissionError:
                if folder != self._root:
                    raise
            synced.append(folder)
            if folder == self._root or parent == folder:
                break
            folder = parent
        # Only now: what failed half-way must be done again, and another thread must not rely on what is still under way.
        self._known.update(synced)

    def _sync_names(self, folder: str) -> None:
        if self._durable:
            _fsync_directory(folder)

    def _forget(self, folder: str) -> None:
        while True:
            self._known.discard(folder)
            if folder == self._root or folder == os.path.dirname(folder):
                return
            folder = os.path.dirname(folder)

    def _prune(self, folder: str) -> str:
        while folder != self._root:
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                return folder
            self._known.discard(folder)
            folder = os.path.dirname(folder)
        return folder


def _is_segment(name: str) -> bool:
    return bool(_SEGMENT.fullmatch(name)) and name not in (".", "..")


def _read_fully(fd: int, length: int, start: int) -> memoryview:
    """Bytes [start, start + length), as far as the file has them."""
    target = memoryview(bytearray(length))
    got = 0
    while got < length and (n := os.preadv(fd, [target[got:]], start + got)) > 0:
        got += n
    return target[:got]


def _write_fully(fd: int, parts: Sequence[Any]) -> None:
    views = [view for view in (memoryview(part).cast("B") for part in parts) if len(view)]
    while views:
        n = os.writev(fd, views[:_IOV_MAX])
        while views and n >= len(views[0]):
            n -= len(views[0])
            views.pop(0)
        if n:
            views[0] = views[0][n:]


def _fdatasync(fd: int) -> None:
    getattr(os, "fdatasync", os.fsync)(fd)


def _fsync_directory(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        # A file system without directory sync keeps what it can.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(fd)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # a leftover is invisible, and a later sweep removes it


def _pid_scope() -> str | None:
    """Which processes this one can tell dead from alive: those of the same boot and pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        match = re.search(r"\d+", os.readlink("/proc/self/ns/pid"))
        return f"{boot}_{match[0]}" if boot and match else None
    except OSError:
        return None


def _sweep(folder: str) -> None:
    """Removes what dead processes left behind, and anything older than a day."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    scope = _pid_scope()
    for name in names:
        parts = name.split(".")
        path = f"{folder}/{name}"
        owner_dead = len(parts) > 1 and scope is not None and parts[0] == scope and _is_dead(parts[1])
        try:
            if owner_dead or os.lstat(path).st_mtime < time.time() - _FOREIGN_AGE_MAX_S:
                os.unlink(path)
        except OSError:
            pass


def _is_dead(pid: str) -> bool:
    if not pid.isdigit() or int(pid) <= 0:
        return False
    try:
        os.kill(int(pid), 0)
        return False
    except ProcessLookupError:
        return True
    except OSError:
        return False
