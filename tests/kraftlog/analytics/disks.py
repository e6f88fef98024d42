"""Disks that fail: the power goes at a given operation, or the room is used up."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import BinaryIO

from kraftlog.analytics.files import Lock, PosixFiles


class PowerCut(BaseException):
    """The process is gone. Whatever it still tries does nothing."""


class CutFiles(PosixFiles):
    """A real disk on which the power goes just before operation number `cut_at`, and what was not synced with it.

    Then files that were not flushed are empty, names that were not synced are gone, and removed names are back. With
    `keeps_everything` only the process dies and the disk keeps what was done.
    """

    def __init__(self, stash: Path, cut_at: int | None, *, keeps_everything: bool = False) -> None:
        self.operations: list[str] = []
        self._stash = stash
        self._cut_at = cut_at
        self._keeps_everything = keeps_everything
        self._is_dead = False
        self._unflushed: set[Path] = set()
        self._unsynced_names: dict[Path, None] = {}
        self._unsynced_removals: dict[Path, Path] = {}

    def make_directory(self, path: Path) -> None:
        if self.may("make_directory"):
            super().make_directory(path)

    def create(self, path: Path) -> BinaryIO:
        if not self.may("create"):
            return io.BytesIO()
        self._unsynced_names[path] = None
        self._unflushed.add(path)
        return _File(self, path)

    def flush(self, file: BinaryIO) -> None:
        if self.may("flush"):
            super().flush(file)
            self._unflushed.discard(Path(file.name))

    def link(self, path: Path, name: Path) -> bool:
        if not self.may("link"):
            return False
        self._unsynced_names[name] = None
        if path in self._unflushed:
            self._unflushed.add(name)
        return super().link(path, name)

    def remove(self, path: Path) -> None:
        if not self.may("remove"):
            return
        if path.exists() and path not in self._unsynced_names:
            self._unsynced_removals[path] = self._stash / str(len(self.operations))
            os.link(path, self._unsynced_removals[path])
        self._unsynced_names.pop(path, None)
        super().remove(path)

    def flush_directory(self, path: Path) -> None:
        if not self.may("flush_directory"):
            return
        super().flush_directory(path)
        self._unsynced_names = {name: None for name in self._unsynced_names if name.parent != path}
        self._unsynced_removals = {name: kept for name, kept in self._unsynced_removals.items() if name.parent != path}

    def try_lock(self, path: Path) -> Lock | None:
        return super().try_lock(path) if self.may("try_lock") else None

    def may(self, operation: str) -> bool:
        """Count an operation. False if the power is gone already; raises PowerCut if it goes now."""
        if self._is_dead:
            return False
        if len(self.operations) == self._cut_at:
            self._is_dead = True
            if not self._keeps_everything:
                self._lose()
            raise PowerCut(operation)
        self.operations.append(operation)
        return True

    def _lose(self) -> None:
        for path in self._unflushed:
            if path.exists():
                os.truncate(path, 0)
        for path in self._unsynced_names:
            path.unlink(missing_ok=True)
        for path, kept in self._unsynced_removals.items():
            os.link(kept, path)


class _File(io.FileIO):
    def __init__(self, files: CutFiles, path: Path) -> None:
        super().__init__(path, "xb")
        self._files = files

    def write(self, data) -> int:
        return super().write(data) if self._files.may("write") else len(data)


class FullDisk(PosixFiles):
    """A real disk with room for a number of bytes in each file."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max

    def create(self, path: Path) -> BinaryIO:
        return _SmallFile(path, self._bytes_max)


class _SmallFile(io.FileIO):
    def __init__(self, path: Path, bytes_max: int) -> None:
        super().__init__(path, "xb")
        self._bytes_max = bytes_max

    def write(self, data) -> int:
        if self.tell() + len(data) > self._bytes_max:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)
