"""The file system that storage needs: the FileSystem and File protocols.

The promises are weak on purpose, so that code written against them is correct on any disk:

- Written bytes are visible to readers at once, and survive a crash only after a `fdatasync` or `fsync` that was called
  after the write has returned. Until then a crash may keep any part of them. The rest reads as before the write, or as
  zeros where no bytes were: writing the same bytes again risks nothing.
- A name made by `open`, changed by `rename` or removed by `remove` survives a crash only after `fsync_directory`.
- Bytes that were never written read as zeros, whatever else a crash lost.

Paths are text, their parts separated by slashes. Errors: OutOfSpace when there is no room, FlushFailed when an fsync
failed, StorageError for everything else; they name the path.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

SECTOR_BYTES = 512
"""The smallest unit that a disk writes whole or not at all."""

TEMPORARY_SUFFIX = ".tmp"
"""The suffix of a file that is being written. After a crash such a file is ignored."""


class File(Protocol):
    """An open file, read and written at positions. For one thread only, except for `fdatasync`."""

    @property
    def path(self) -> str:
        """The path under which it was opened."""
        ...

    def size(self) -> int:
        """The size of the file, in bytes."""
        ...

    def read_at(self, position: int, byte_count: int) -> bytes:
        """The bytes from `position`; fewer than `byte_count` only where the file ends."""
        ...

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`; a gap before it reads as zeros.

        Raises OutOfSpace when there is no room. A part of `data` may then have been written.
        """
        ...

    def reserve(self, size: int) -> None:
        """Make the file at least `size` bytes long so that writes below `size` find room. New bytes are zeros.

        Raises OutOfSpace when there is no room; the file is then as it was.
        """
        ...

    def truncate(self, size: int) -> None:
        """Make the file exactly `size` bytes long. Truncated bytes are zeros if it grows again."""
        ...

    def fdatasync(self) -> None:
        """Make the content durable, and the size as far as reading the content requires. Raises FlushFailed.

        May run in another thread while this one reads and writes; it covers everything written before the call.
        """
        ...

    def fsync(self) -> None:
        """Make the content and everything about the file but its name durable. Raises FlushFailed."""
        ...

    def make_read_only(self) -> None:
        """Make the file read-only for later opens; through files that are open already it can still be written."""
        ...

    def close(self) -> None:
        """Close the file. Makes nothing durable."""
        ...


class Space(NamedTuple):
    """The room on a file system, in bytes."""

    free_bytes: int
    """What this process may still write."""
    total_bytes: int


class Lock(Protocol):
    """A lock that is held until it is closed or the process ends."""

    def close(self) -> None:
        """Release the lock."""
        ...


class FileSystem(Protocol):
    """Files by path."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. With `create` it must not exist, without it must."""
        ...

    def open_to_read(self, path: str) -> File:
        """Open an existing file for reading; a change through it raises StorageError."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def make_directories(self, path: str) -> None:
        """Create the directory and its missing parents. Their names are durable when it returns."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory in an existing one. Its name is durable after `fsync_directory` of the existing one."""
        ...

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename a file within its directory; it replaces any file of the new name, atomically for readers."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file's name. Open files stay usable."""
        ...

    def rename_directory(self, old_path: str, new_path: str) -> None:
        """Rename a directory within its parent, with its content; the new name must be free.

        The name is durable after `fsync_directory` of the parent. Open files stay usable.
        """
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory, which must be empty. Durable after `fsync_directory` of its parent."""
        ...

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable. Raises FlushFailed."""
        ...

    def space(self, path: str) -> Space:
        """The room on the file system that a directory is on."""
        ...

    def try_lock(self, path: str) -> Lock | None:
        """Take the lock of that name, exclusively over all processes; None if another holds it. Creates the file."""
        ...


def read_whole(files: FileSystem, path: str) -> bytes:
    """All bytes of a file."""
    file = files.open_to_read(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def write_new_file(files: FileSystem, path: str, data: bytes) -> None:
    """Create the file with this content, atomically and durably; it replaces an existing one.

    Writes to a temporary name, syncs, renames, syncs the directory: a crash leaves the old file or the new one.
    """
    write_temporary(files, path, data)
    files.rename(path + TEMPORARY_SUFFIX, path)
    files.fsync_directory(parent_directory(path))


def write_temporary(files: FileSystem, path: str, data: bytes) -> None:
    """Create a file with this content, durably, under the temporary name of `path`; it replaces one left by a crash."""
    temporary_path = path + TEMPORARY_SUFFIX
    if files.exists(temporary_path):
        files.remove(temporary_path)
    file = files.open(temporary_path, create=True)
    try:
        file.write_at(0, data)
        file.fsync()
    finally:
        file.close()


def join(directory: str, name: str) -> str:
    """The path of `name` in `directory`."""
    return f"{directory.rstrip('/')}/{name}" if directory else name


def parent_directory(path: str) -> str:
    """The directory that holds the name of `path`."""
    directory, slash, _ = path.rstrip("/").rpartition("/")
    return directory or slash or "."
