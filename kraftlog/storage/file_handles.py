"""A bounded cache of open files for many segments: those that were used most recently."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kraftbase.files.files import File, FileSystem

OPEN_FILES_MAX: Final = 256
"""The most files of segments that a broker keeps open, unless more are pinned."""


class FileHandles:
    """Open files by path, for one thread.

    A pinned file, for a flush in another thread or for a reader, is not closed. Pins belong to the file, not to its
    path: after a rename or removal the holder of the pin keeps the same open file, while `get` opens the file that now
    has the path.
    """

    def __init__(self, files: FileSystem, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.files = files
        self._max = open_files_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._pins: dict[File, int] = {}
        self._retired: set[File] = set()  # dropped while they were pinned

    def __len__(self) -> int:
        """The number of open files."""
        return len(self._open)

    def get(self, path: str) -> File:
        """Return the open file; open it if needed. Use it at once: a later call may close it. Raises StorageError."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._keep(path, self.files.open(path))

    def create(self, path: str) -> File:
        """Create a file; it replaces a file of that name, such as a crash leaves. Raises StorageError."""
        self.drop(path)
        if self.files.exists(path):
            self.files.remove(path)
        return self._keep(path, self.files.open(path, create=True))

    def pin(self, path: str) -> File:
        """Return the file, which stays open until `unpin`."""
        file = self.get(path)
        self._pins[file] = self._pins.get(file, 0) + 1
        return file

    def unpin(self, file: File) -> None:
        """Release one pin of a file; a dropped file is closed with its last pin."""
        self._pins[file] -= 1
        if not self._pins[file]:
            del self._pins[file]
            if file in self._retired:
                self._retired.remove(file)
                file.close()

    def drop(self, path: str) -> None:
        """Close a file that is about to be renamed or removed, if it is open; a pinned one after its last `unpin`."""
        file = self._open.pop(path, None)
        if file is None:
            return
        if file in self._pins:
            self._retired.add(file)
        else:
            file.close()

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename a file, which replaces a file of the new name; later reads by either path see the change."""
        self.drop(old_path)
        self.drop(new_path)
        self.files.rename(old_path, new_path)

    def remove(self, path: str) -> None:
        """Close and remove a file, if it exists."""
        self.drop(path)
        if self.files.exists(path):
            self.files.remove(path)

    def close(self) -> None:
        """Close all files; none may be pinned by a flush."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _keep(self, path: str, file: File) -> File:
        self._open[path] = file
        if len(self._open) > self._max:
            for other, candidate in self._open.items():
                if other != path and candidate not in self._pins:
                    self.drop(other)
                    break
        return file
