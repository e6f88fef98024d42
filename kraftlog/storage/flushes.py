"""A flush of one partition's log: what is started on the loop, runs in any thread, and is finished on the loop."""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.errors import FlushFailed, StorageError
from kraftbase.files.files import parent_directory
from kraftbase.locks import new_lock
from kraftlog.storage.epoch_file import NewEpochs
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.segment import Segment


class PendingFlush:
    """`run` does the work, in any thread; then it is passed to the log's `finish_flush`."""

    def __init__(
        self, handles: FileHandles, directory: str, paths: Sequence[str], end_offset: int,
        segments: tuple[Segment, ...], *, has_new_names: bool, is_of_new_log: bool = False,
        epochs: NewEpochs | None = None,
    ) -> None:  # fmt: skip
        self.end_offset = end_offset
        """The log is durable up to here when `run` has returned; a truncation in the meantime lowers it."""
        self.segments = segments
        """Closed segments that are flushed, with their indexes, for good."""
        self.epochs = epochs
        """The file of leader epochs, if it is written again."""
        self._handles = handles
        self._directory = directory
        self._files = [handles.pin(path) for path in (*paths, *([epochs.temporary_path] if epochs is not None else []))]
        self._is_needed = True
        self._renaming = new_lock()
        self._has_new_names = has_new_names or epochs is not None
        self.parent = parent_directory(directory) if is_of_new_log else None
        """The directory in which the name of the log's own directory is to be made durable, too."""

    def run(self) -> None:
        """Make it durable. Raises FlushFailed, StorageError."""
        self.run_but_for_parent()
        self.sync_parent()

    def retire(self) -> None:
        """The log is deleted or damaged: whatever goes wrong does not matter, and no file gets another name.

        To be called before another log may have the directory's name: consider the thread, which is about to give the
        file of epochs its name by a path that is the other log's then. It waits for no sync.
        """
        with self._renaming:
            self._is_needed = False

    def sync_parent(self) -> None:
        """Make the name of a new log's directory durable. Raises FlushFailed, StorageError."""
        if self.parent is not None:
            self._handles.files.fsync_directory(self.parent)

    def run_but_for_parent(self) -> None:
        """As `run`, but `parent` is for the caller to sync: once for many logs. Raises FlushFailed, StorageError."""
        try:
            for file in self._files:
                file.fdatasync()
            self._rename_epochs()
            if self._has_new_names:
                self._handles.files.fsync_directory(self._directory)
        except (StorageError, FlushFailed):
            if self._is_needed:
                raise

    def _rename_epochs(self) -> None:
        """What is in the file is durable; its name is when the directory is synced."""
        if self.epochs is not None:
            with self._renaming:
                if self._is_needed:
                    self.epochs.rename()

    def release(self) -> None:
        """It has run, and its files may be closed."""
        if self.epochs is not None:
            self.epochs.close()
        for file in self._files:
            self._handles.unpin(file)
