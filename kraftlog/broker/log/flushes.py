"""A flush of one partition's log: what is started on the loop, runs in any thread, and is finished on the loop."""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.files.files import join, write_new_file
from kraftlog.broker.log.file_handles import FileHandles
from kraftlog.broker.log.formats.names import LEADER_EPOCHS_NAME
from kraftlog.broker.log.segment import Segment


class PendingFlush:
    """`run` does the work, in any thread; then it is passed to the log's `finish_flush`."""

    def __init__(
        self, handles: FileHandles, directory: str, paths: Sequence[str], end_offset: int,
        segments: tuple[Segment, ...], epochs: bytes | None, *, has_new_names: bool,
    ) -> None:  # fmt: skip
        self.end_offset = end_offset
        """The log is durable up to here when `run` has returned; a truncation in the meantime lowers it."""
        self.segments = segments
        """Closed segments that are flushed, with their indexes, for good."""
        self._handles = handles
        self._directory = directory
        self._paths = paths
        self._files = [handles.pin(path) for path in paths]
        self._epochs = epochs
        self._has_new_names = has_new_names

    def run(self) -> None:
        """Make it durable. Raises FlushFailed, StorageError."""
        for file in self._files:
            file.fdatasync()
        if self._epochs is not None:
            write_new_file(self._handles.files, join(self._directory, LEADER_EPOCHS_NAME), self._epochs)
        elif self._has_new_names:
            self._handles.files.fsync_directory(self._directory)

    def release(self) -> None:
        """It has run, and its files may be closed."""
        for path in self._paths:
            self._handles.unpin(path)
