"""A file system in memory that loses unsynced data in a crash, for tests and the simulator.

The model: a file is its durable content and the changes made since its last sync, in order. A directory is its durable
names and the changes to them since its last sync, in order; the same holds for the names of the directories in it.
`crash` keeps the durable part and, if asked to, some of the rest; everything that was open before is unusable after it.

Faults: `space_limit` makes writes fail for lack of space, `failing_syncs` makes syncs of those paths fail,
`failing_reads` makes reads of those paths fail, `damage` changes bytes, and `before_operation` is called before every
operation that changes something, and may raise to stop there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kraftbase.errors import FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import SECTOR_BYTES, Space, parent_directory
from kraftbase.files.memory_content import Content, Directory, Resize, Write

_UNLIMITED_BYTES = 1 << 50


@dataclass(slots=True, eq=False)
class _NameChange:
    """A directory was created (no old path), renamed, or removed (no new path), and its parent was not synced since."""

    parent: str
    new_path: str | None
    old_path: str | None
    removed: Directory | None = None


class DurableFile:
    """The durable bytes of a file, for reading only, and where they have changed since the last call."""

    __slots__ = ("_content",)

    def __init__(self, content: Content) -> None:
        self._content = content

    @property
    def data(self) -> bytearray:
        """The bytes; the file's own, not a copy."""
        return self._content.durable

    def is_same(self, other: DurableFile) -> bool:
        """Whether both are the same file, under any names."""
        return self._content is other._content

    def take_changed_from(self) -> int:
        """The position from which bytes may differ from those at the last call."""
        changed_from, self._content.durable_changed_from = self._content.durable_changed_from, len(self.data)
        return changed_from


class MemoryFileSystem:
    """Files in memory, with crashes and faults. See the module for the model."""

    def __init__(self) -> None:
        self.space_limit: int | None = None
        """The most bytes that all files together may have; None: no limit."""
        self.failing_syncs: set[str] = set()
        """Paths of files and directories whose syncs raise FlushFailed, and make nothing durable."""
        self.failing_reads: set[str] = set()
        """Paths of files whose reads raise StorageError, as for a bad sector."""
        self.before_operation: Callable[[str, str], None] | None = None
        """Called with the operation's name and path before every change and sync."""
        self._directories: dict[str, Directory] = {".": Directory(), "/": Directory()}
        self._unsynced_names: list[_NameChange] = []
        self._locks: dict[str, MemoryLock] = {}
        self._life = 0
        self.durable_version = 0
        """Changes whenever something durable may have changed."""

    def crash(
        self, *, kept_unsynced_bytes: int = 0, random: Random | None = None, sector_bytes: int = SECTOR_BYTES
    ) -> None:
        """Lose unsynced data, and invalidate everything that is open.

        `kept_unsynced_bytes` of the bytes written to files stay, in the order of writing within each file. With
        `random`, each unsynced sector and resize is kept or lost at random; of a directory's changes a prefix is kept.
        """
        self.durable_version += 1
        self._life += 1
        self._locks.clear()
        self._lose_names(random)
        for directory in self._directories.values():
            directory.crash(random)
            for content in directory.current.values():
                kept_unsynced_bytes = content.crash(kept_unsynced_bytes, random, sector_bytes)

    def _lose_names(self, random: Random | None) -> None:
        """Undo changes to the names of directories that were not synced, the last one first.

        With `random` a number of the first ones in each parent stays: a journal keeps their order.
        """
        lost: list[_NameChange] = []
        for parent in {change.parent: None for change in self._unsynced_names}:
            changes = [change for change in self._unsynced_names if change.parent == parent]
            kept = random.randint(0, len(changes)) if random is not None else 0
            lost += changes[kept:]
        for change in [change for change in reversed(self._unsynced_names) if change in lost]:
            if change.old_path is None and change.new_path is not None:
                inside = f"{change.new_path}/"
                for path in [path for path in self._directories if path == change.new_path or path.startswith(inside)]:
                    del self._directories[path]
            elif change.new_path is None and change.old_path is not None and change.removed is not None:
                self._directories[change.old_path] = change.removed
            elif change.new_path is not None and change.old_path is not None:
                self._move_directory(change.new_path, change.old_path)
        self._unsynced_names.clear()

    def end_process(self) -> None:
        """End the process that has files open; nothing is lost, and nothing more becomes durable."""
        self._life += 1
        self._locks.clear()

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Change bytes of a file, on the disk and for readers; `data` lies within the durable bytes."""
        directory, name = self._locate(path)
        content = directory.current[name]
        self.durable_version += 1
        content.durable_changed_from = min(content.durable_changed_from, position)
        for image in (content.durable, content.current):
            image[position : position + len(data)] = data

    def durable_files(self, path: str) -> dict[str, DurableFile]:
        """The files of a directory as a crash that loses all unsynced data would leave them."""
        return {name: DurableFile(content) for name, content in self._directories[path].durable.items()}

    def used_bytes(self) -> int:
        """How many bytes all files together have."""
        return sum(len(content.current) for names in self._directories.values() for content in names.current.values())

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """Open a file; with `create` it must not exist, without it must."""
        if create:
            self._create(path)
        content = self._content_of(path)
        if content.is_read_only:
            raise StorageError(f"cannot open {path}: it is read-only")
        return MemoryFile(self, path, content, self._life)

    def open_to_read(self, path: str) -> MemoryFile:
        """Open a file for reading."""
        return MemoryFile(self, path, self._content_of(path), self._life, is_writable=False)

    def _create(self, path: str) -> None:
        directory, name = self._locate(path)
        self._begin("create", path)
        if name in directory.current or path in self._directories:
            raise StorageError(f"cannot create {path}: it exists")
        directory.change({name: Content()})

    def _content_of(self, path: str) -> Content:
        directory, name = self._locate(path)
        if name not in directory.current:
            raise StorageError(f"cannot open {path}: there is no such file")
        return directory.current[name]

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""
        if path in self._directories:
            return True
        directory = self._directories.get(parent_directory(path))
        return directory is not None and _name(path) in directory.current

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        if path not in self._directories:
            raise StorageError(f"cannot list {path}: there is no such directory")
        inner = [_name(other) for other in self._directories if other != path and parent_directory(other) == path]
        return sorted([*self._directories[path].current, *(name for name in inner if name)])

    def make_directories(self, path: str) -> None:
        """Create the directory and its missing parents, durably."""
        if path in self._directories:
            return
        if self.exists(path):
            raise StorageError(f"cannot make the directory {path}: there is a file of that name")
        self.make_directories(parent_directory(path))
        self._begin("make_directories", path)
        self._directories[path] = Directory()
        self._unsynced_names = [change for change in self._unsynced_names if change.parent != parent_directory(path)]

    def make_directory(self, path: str) -> None:
        """Create a directory in an existing one. Its name is durable after `fsync_directory` of the existing one."""
        if self.exists(path):
            raise StorageError(f"cannot make the directory {path}: it exists")
        if parent_directory(path) not in self._directories:
            raise StorageError(f"cannot make the directory {path}: there is no such directory to make it in")
        self._begin("make_directory", path)
        self._directories[path] = Directory()
        self._unsynced_names.append(_NameChange(parent_directory(path), path, None))

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename a file within its directory; it replaces any file of the new name."""
        directory, old_name = self._locate(old_path)
        if parent_directory(new_path) != parent_directory(old_path) or old_name not in directory.current:
            raise StorageError(f"cannot rename {old_path}: it is not there, or {new_path} is in another directory")
        self._begin("rename", old_path)
        directory.change({_name(new_path): directory.current[old_name], old_name: None})

    def remove(self, path: str) -> None:
        """Remove a file's name."""
        directory, name = self._locate(path)
        if name not in directory.current:
            raise StorageError(f"cannot remove {path}: there is no such file")
        self._begin("remove", path)
        directory.change({name: None})

    def rename_directory(self, old_path: str, new_path: str) -> None:
        """Rename a directory within its parent. Durable after `fsync_directory` of the parent."""
        if parent_directory(new_path) != parent_directory(old_path) or self.exists(new_path):
            raise StorageError(f"cannot rename {old_path}: {new_path} exists, or is in another directory")
        if old_path not in self._directories:
            raise StorageError(f"cannot rename {old_path}: there is no such directory")
        self._begin("rename_directory", old_path)
        self._move_directory(old_path, new_path)
        self._unsynced_names.append(_NameChange(parent_directory(old_path), new_path, old_path))

    def _move_directory(self, old_path: str, new_path: str) -> None:
        self.durable_version += 1
        for path in [path for path in self._directories if f"{path}/".startswith(f"{old_path}/")]:
            self._directories[new_path + path[len(old_path) :]] = self._directories.pop(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory. Durable after `fsync_directory` of its parent."""
        if path not in self._directories or self.list_directory(path):
            raise StorageError(f"cannot remove {path}: there is no such directory, or it is not empty")
        self._begin("remove_directory", path)
        self.durable_version += 1
        removed = self._directories.pop(path)
        self._unsynced_names.append(_NameChange(parent_directory(path), None, path, removed))

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable. Raises FlushFailed."""
        if path not in self._directories:
            raise StorageError(f"cannot open the directory {path}: there is none")
        self._begin_sync("fsync_directory", path)
        self.durable_version += 1
        self._directories[path].sync()
        self._unsynced_names = [change for change in self._unsynced_names if change.parent != path]

    def space(self, path: str) -> Space:
        """The room below `space_limit`; a lot without one."""
        if path not in self._directories:
            raise StorageError(f"cannot read the free space of {path}: there is no such directory")
        total = _UNLIMITED_BYTES if self.space_limit is None else self.space_limit
        return Space(max(0, total - self.used_bytes()), total)

    def try_lock(self, path: str) -> MemoryLock | None:
        """Take the lock of that name; None if another holds it."""
        if path in self._locks:
            return None
        directory, name = self._locate(path)
        self._begin("try_lock", path)
        if name not in directory.current:
            directory.change({name: Content()})
        lock = self._locks[path] = MemoryLock(self._locks, path)
        return lock

    def _locate(self, path: str) -> tuple[Directory, str]:
        directory = self._directories.get(parent_directory(path))
        if directory is None or not _name(path):
            raise StorageError(f"cannot open {path}: there is no such directory")
        return directory, _name(path)

    def _begin(self, operation: str, path: str) -> None:
        if self.before_operation is not None:
            self.before_operation(operation, path)

    def _begin_sync(self, operation: str, path: str) -> None:
        self._begin(operation, path)
        if path in self.failing_syncs:
            raise FlushFailed(f"{operation} of {path} failed: injected")

    def _room(self) -> int | None:
        return None if self.space_limit is None else max(0, self.space_limit - self.used_bytes())


class MemoryFile:
    """An open file of a MemoryFileSystem; unusable after its crash."""

    def __init__(
        self, files: MemoryFileSystem, path: str, content: Content, life: int, *, is_writable: bool = True
    ) -> None:
        self._files = files
        self._path = path
        self._content = content
        self._life = life
        self._is_writable = is_writable

    @property
    def path(self) -> str:
        """The path under which it was opened."""
        return self._path

    def size(self) -> int:
        """The size of the file, in bytes."""
        return len(self._alive().current)

    def read_at(self, position: int, byte_count: int) -> bytes:
        """The bytes from `position`; fewer than `byte_count` only where the file ends."""
        if self._path in self._files.failing_reads:
            raise StorageError(f"cannot read {self._path}: input/output error: injected")
        return bytes(self._alive().current[position : position + byte_count])

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`. Raises OutOfSpace; then the part that had room is written."""
        content = self._begin("write_at")
        room = self._files._room()
        fitting = len(data) if room is None else max(0, min(len(data), len(content.current) + room - position))
        if fitting or not data:
            content.change(Write(position, bytes(data[:fitting])))
        if fitting < len(data):
            raise OutOfSpace(f"cannot write to {self._path}: no space left; make room on its file system")

    def reserve(self, size: int) -> None:
        """Make the file at least `size` bytes long. Raises OutOfSpace, then nothing changed."""
        content = self._begin("reserve")
        wanted = size - len(content.current)
        room = self._files._room()
        if room is not None and wanted > room:
            raise OutOfSpace(f"cannot reserve {wanted} bytes for {self._path}: no space left")
        if wanted > 0:
            content.change(Resize(size))

    def truncate(self, size: int) -> None:
        """Make the file exactly `size` bytes long."""
        self._begin("truncate").change(Resize(size))

    def fdatasync(self) -> None:
        """Make the content durable. Raises FlushFailed."""
        self._sync("fdatasync")

    def fsync(self) -> None:
        """Make the content and the size durable. Raises FlushFailed."""
        self._sync("fsync")

    def make_read_only(self) -> None:
        """Make the file read-only for later opens."""
        self._begin("make_read_only").is_read_only = True

    def close(self) -> None:
        """Close the file; closing twice changes nothing."""
        self._life = -1

    def _sync(self, operation: str) -> None:
        content = self._alive()
        self._files._begin_sync(operation, self._path)
        self._files.durable_version += 1
        content.sync()

    def _begin(self, operation: str) -> Content:
        content = self._alive()
        if not self._is_writable:
            raise StorageError(f"cannot change {self._path}: it was opened for reading")
        self._files._begin(operation, self._path)
        return content

    def _alive(self) -> Content:
        if self._life != self._files._life:
            raise StorageError(f"cannot use {self._path}: it was closed, or a crash came in between")
        return self._content


class MemoryLock:
    """A lock of a MemoryFileSystem."""

    def __init__(self, held: dict[str, MemoryLock], path: str) -> None:
        self._held = held
        self._path = path

    def close(self) -> None:
        """Release the lock."""
        if self._held.get(self._path) is self:
            del self._held[self._path]


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
