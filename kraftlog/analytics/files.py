"""The disk as an export uses it: a port of few operations, and its implementation for a real file system.

A file appears under its final name whole and durable, or not at all, and never replaces another file: it is written
under a temporary name, synced, and then linked. This depends on the order, so `publish` has all three steps.

Errors: OutOfSpace if the disk has no room, FlushFailed if an fsync failed, StorageError, which names the path, for
everything else.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from kraftbase.errors import DirectoryError, FlushFailed, OutOfSpace, StorageError

TEMPORARY_PREFIX: Final = "_tmp-"
"""Names that start so are not finished. Spark and pyarrow skip every name with an underscore in front."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Lock(Protocol):
    """A lock that is held until it is closed or the process ends."""

    def close(self) -> None:
        """Release the lock."""
        ...


class ExportFiles(Protocol):
    """The operations that change an export's directory. Nothing else changes it."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it that are missing. Their names are durable when it returns."""
        ...

    def create(self, path: Path) -> BinaryIO:
        """A new file to write to. There must be none of that name."""
        ...

    def flush(self, file: BinaryIO) -> None:
        """Make what was written to the file durable, but not its name."""
        ...

    def link(self, path: Path, name: Path) -> bool:
        """Give a file a second name at once; False, and no change, if the name is taken."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a name. One that does not exist is no error."""
        ...

    def flush_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def try_lock(self, path: Path) -> Lock | None:
        """Hold the lock of that name, exclusively over all processes; None if another holds it."""
        ...


class PosixFiles:
    """The real file system. The umask sets the modes of files, so that other users may read the export."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it that are missing, durably."""
        with storage_errors(path, "make"):
            if path.is_dir():
                return
            self.make_directory(path.parent)
            path.mkdir(exist_ok=True)
        self.flush_directory(path.parent)

    def create(self, path: Path) -> BinaryIO:
        """A new file to write to."""
        with storage_errors(path, "create"):
            return path.open("xb")

    def flush(self, file: BinaryIO) -> None:
        """Make what was written to the file durable. After a FlushFailed it is unknown what is on the disk."""
        file.flush()
        _fsync(file.fileno(), file.name)

    def link(self, path: Path, name: Path) -> bool:
        """Give a file a second name; False if it is taken."""
        with storage_errors(name, "create"):
            try:
                name.hardlink_to(path)
            except FileExistsError:
                return False
            return True

    def remove(self, path: Path) -> None:
        """Remove a name."""
        with storage_errors(path, "remove"):
            path.unlink(missing_ok=True)

    def flush_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with storage_errors(path, "open"):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _fsync(descriptor, str(path))
        finally:
            os.close(descriptor)

    def try_lock(self, path: Path) -> Lock | None:
        """Hold the lock of that name; None if another process, or another export of this one, holds it."""
        with storage_errors(path, "lock"):
            file = path.open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                return None
            return file


def publish(files: ExportFiles, temporary_path: Path, path: Path) -> None:
    """Give a written and flushed temporary file its final name in the same directory, durably.

    Raises DirectoryError if the name is taken: only another export can have done that. Its file stays as it is.
    """
    if not files.link(temporary_path, path):
        files.remove(temporary_path)
        raise DirectoryError(
            f"{path} exists: another export writes to the same directory; let it finish, then run again"
        )
    files.flush_directory(path.parent)
    files.remove(temporary_path)


def write_and_publish(files: ExportFiles, path: Path, data: bytes) -> None:
    """Write a new file that appears whole and durable. Raises DirectoryError if the name is taken."""
    temporary_path = path.with_name(TEMPORARY_PREFIX + path.name)
    file = files.create(temporary_path)
    try:
        with storage_errors(temporary_path, "write"):
            file.write(data)
            files.flush(file)
    finally:
        with suppress(OSError):
            file.close()
    publish(files, temporary_path, path)


@contextmanager
def storage_errors(path: Path, deed: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the path; OutOfSpace when there is no room."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            raise OutOfSpace(f"cannot {deed} {path}: {reason}; make room and run it again") from error
        raise StorageError(f"cannot {deed} {path}: {reason}") from error


def _fsync(descriptor: int, path: str) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise FlushFailed(f"fsync of {path} failed: {error.strerror}") from error
