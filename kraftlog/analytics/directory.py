"""The directory of an export while one exporter works on it.

Opening the directory takes a lock, refuses a directory that is not an export's, and removes the files that a killed
export left behind: temporary files, and files that no manifest lists. Only the holder of the lock may do that.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType
from typing import Final

from kraftbase.errors import DirectoryError
from kraftlog.analytics.files import TEMPORARY_PREFIX, ExportFiles, Lock, storage_errors
from kraftlog.analytics.manifest import (
    LOG_DIRECTORY,
    MANIFEST_DIRECTORY,
    Manifest,
    check_files,
    latest_manifest,
    publish_manifest,
)

LOCK_NAME: Final = "_lock"

_OWN_NAMES: Final = {
    "": re.compile(f"{LOCK_NAME}|{LOG_DIRECTORY}|{MANIFEST_DIRECTORY}"),
    LOG_DIRECTORY: re.compile(r"(\d{20}-\d{20}-\d+|" + TEMPORARY_PREFIX + r"\d{20}-\d+)\.parquet"),
    MANIFEST_DIRECTORY: re.compile("(" + TEMPORARY_PREFIX + r")?\d{20}\.json"),
}
"""The names that each directory of an export may contain."""


class ExportDirectory:
    """An export that this process may change. Use it as a context manager: leaving it releases the lock."""

    def __init__(self, files: ExportFiles, path: Path) -> None:
        """Open the directory, or make it.

        Raises DirectoryError if it is locked or not an export's, CorruptLog if files of the export are missing or of
        another size.
        """
        self.files = files
        self.path = path
        if path.exists() and not path.is_dir():
            raise DirectoryError(f"{path} is not a directory; name one that is empty or holds an export")
        _refuse_foreign(path, "")
        files.make_directory(path)
        lock = files.try_lock(path / LOCK_NAME)
        if lock is None:
            raise DirectoryError(f"another export writes to {path}; let it finish, or export to another directory")
        self._lock: Lock = lock
        try:
            _refuse_foreign(path, LOG_DIRECTORY)
            _refuse_foreign(path, MANIFEST_DIRECTORY)
            files.make_directory(path / LOG_DIRECTORY)
            files.make_directory(path / MANIFEST_DIRECTORY)
            self.manifest = latest_manifest(path)
            if self.manifest is not None:
                check_files(path, self.manifest)
            self._sweep()
        except BaseException:
            lock.close()
            raise

    def publish(self, manifest: Manifest) -> None:
        """Make `manifest` the current one. Raises DirectoryError if its version exists."""
        publish_manifest(self.files, self.path, manifest)
        self.manifest = manifest

    def __enter__(self) -> ExportDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def _sweep(self) -> None:
        listed = set() if self.manifest is None else {Path(file.name).name for file in self.manifest.files}
        for name in _names(self.path / LOG_DIRECTORY):
            if name not in listed:
                self.files.remove(self.path / LOG_DIRECTORY / name)
        for name in _names(self.path / MANIFEST_DIRECTORY):
            if name.startswith(TEMPORARY_PREFIX):
                self.files.remove(self.path / MANIFEST_DIRECTORY / name)


def _refuse_foreign(directory: Path, part: str) -> None:
    path = directory / part
    foreign = next((name for name in _names(path) if not _OWN_NAMES[part].fullmatch(name)), None)
    if foreign is not None:
        raise DirectoryError(
            f"{path} holds {foreign!r}, which is not part of an export; name an empty"
            " directory, or the directory of an export"
        )


def _names(path: Path) -> list[str]:
    with storage_errors(path, "list"):
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
