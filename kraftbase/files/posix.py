"""The real file system. Files are accessible to their owner only (0600, read-only ones 0400), directories too (0700).

A failed fsync is FlushFailed, never retried: the kernel may have dropped the pages that it could not write, and would
report success for the next attempt.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftbase.errors import FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import Space, parent_directory

FILE_MODE = 0o600
READ_ONLY_MODE = 0o400
DIRECTORY_MODE = 0o700
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def _errors_of(path: str, deed: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(error, path, deed) from error


def _translated(error: OSError, path: str, deed: str) -> StorageError:
    if error.errno in _NO_ROOM:
        return OutOfSpace(f"cannot {deed} {path}: {error.strerror}; make room on its file system")
    return StorageError(f"cannot {deed} {path}: {error.strerror}")


class PosixFile:
    """A file descriptor that remembers its path."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        """The path under which it was opened."""
        return self._path

    def size(self) -> int:
        """The size of the file, in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise _translated(error, self._path, "look at") from error

    def read_at(self, position: int, byte_count: int) -> bytes:
        """The bytes from `position`; fewer than `byte_count` only where the file ends."""
        try:
            data = os.pread(self._descriptor, byte_count, position)
            while 0 < len(data) < byte_count:
                more = os.pread(self._descriptor, byte_count - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise _translated(error, self._path, "read") from error

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`. Raises OutOfSpace; then a part may have been written."""
        try:
            written = os.pwrite(self._descriptor, data, position)
            while written < len(data):
                written += os.pwrite(self._descriptor, memoryview(data)[written:], position + written)
        except OSError as error:
            raise _translated(error, self._path, "write to") from error

    def reserve(self, size: int) -> None:
        """Allocate the file up to `size`: a write below it then needs no room, and its fdatasync has little work."""
        current = self.size()
        if size <= current:
            return
        try:
            os.posix_fallocate(self._descriptor, current, size - current)
        except OSError as error:
            self.truncate(current)
            raise _translated(error, self._path, f"reserve {size - current} bytes for") from error

    def truncate(self, size: int) -> None:
        """Make the file exactly `size` bytes long."""
        with _errors_of(self._path, "cut"):
            os.ftruncate(self._descriptor, size)

    def fdatasync(self) -> None:
        """Make the content durable. Raises FlushFailed."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise FlushFailed(f"fdatasync of {self._path} failed: {error.strerror}") from error

    def fsync(self) -> None:
        """Make the content and the size durable. Raises FlushFailed."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise FlushFailed(f"fsync of {self._path} failed: {error.strerror}") from error

    def make_read_only(self) -> None:
        """Make the file read-only for later opens; root may still write to it."""
        with _errors_of(self._path, "make read-only"):
            os.fchmod(self._descriptor, READ_ONLY_MODE)

    def close(self) -> None:
        """Close the descriptor; closing twice changes nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class PosixFileSystem:
    """Files of the operating system."""

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        """Open a file; with `create` it must not exist, without it must."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        try:
            return PosixFile(path, os.open(path, flags, FILE_MODE))
        except OSError as error:
            raise _translated(error, path, "create" if create else "open") from error

    def open_to_read(self, path: str) -> PosixFile:
        """Open a file for reading."""
        try:
            return PosixFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise _translated(error, path, "open") from error

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""
        try:
            os.stat(path)  # noqa: PTH116 (a start calls this thousands of times, and a Path costs more than the call)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _translated(error, path, "look for") from error
        return True

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 (as in `exists`)
        except OSError as error:
            raise _translated(error, path, "list") from error

    def make_directories(self, path: str) -> None:
        """Create the directory and its missing parents, durably."""
        if self.exists(path):
            return
        self.make_directories(parent_directory(path))
        with _errors_of(path, "make the directory"):
            Path(path).mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        self.fsync_directory(parent_directory(path))

    def make_directory(self, path: str) -> None:
        """Create a directory in an existing one. Its name is durable after `fsync_directory` of the existing one."""
        try:
            os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102 (as in `exists`)
        except OSError as error:
            raise _translated(error, path, "make the directory") from error

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename a file; it replaces any file of the new name."""
        with _errors_of(old_path, "rename"):
            Path(old_path).replace(new_path)

    def remove(self, path: str) -> None:
        """Remove a file's name."""
        with _errors_of(path, "remove"):
            Path(path).unlink()

    def rename_directory(self, old_path: str, new_path: str) -> None:
        """Rename a directory within its parent. Durable after `fsync_directory` of the parent."""
        if parent_directory(new_path) != parent_directory(old_path) or self.exists(new_path):
            raise StorageError(f"cannot rename {old_path}: {new_path} exists, or is in another directory")
        with _errors_of(old_path, "rename"):
            Path(old_path).rename(new_path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory. Durable after `fsync_directory` of its parent."""
        with _errors_of(path, "remove"):
            Path(path).rmdir()

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable. Raises FlushFailed."""
        with _errors_of(path, "open the directory"):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise FlushFailed(f"fsync of the directory {path} failed: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def space(self, path: str) -> Space:
        """The room on the file system that a directory is on; blocks reserved for root are not free."""
        with _errors_of(path, "read the free space of"):
            found = os.statvfs(path)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def try_lock(self, path: str) -> PosixFile | None:
        """Take the exclusive flock of a file, which is created if it is missing; None if another process holds it.

        The kernel releases it when the process ends, however it ends.
        """
        with _errors_of(path, "lock"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except OSError:
                os.close(descriptor)
                raise
        return PosixFile(path, descriptor)
