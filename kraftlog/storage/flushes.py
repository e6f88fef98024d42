"""A flush of one partition's log: it starts on the loop, runs in any thread, and finishes on the loop."""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.errors import FlushFailed, StorageError
from kraftbase.files.files import parent_directory
from kraftbase.locks import new_lock
from kraftlog.storage.epoch_file import NewEpochs
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.segment import Segment


class PendingFlush:
    """One flush: call `run` in any thread, then pass the object to the log's `finish_flush`."""

    def __init__(
        self, handles: FileHandles, directory: str, paths: Sequence[str], end_offset: int,
        segments: tuple[Segment, ...], *, has_new_names: bool, is_of_new_log: bool = False,
        epochs: NewEpochs | None = None,
    ) -> None:  # fmt: skip
        self.end_offset = end_offset
        """The log is durable up to this offset when `run` has returned; a truncation during the flush lowers it."""
        self.segments = segments
        """The closed segments that this flush covers, with their indexes; they need no other flush."""
        self.epochs = epochs
        """The new file of leader epochs, if this flush writes it."""
        self._handles = handles
        self._directory = directory
        self._files = [handles.pin(path) for path in (*paths, *([epochs.temporary_path] if epochs is not None else []))]
        self._is_needed = True
        self._renaming = new_lock()
        self._has_new_names = has_new_names or epochs is not None
        self.parent = parent_directory(directory) if is_of_new_log else None
        """The directory to sync for the name of a new log's own directory; None for other logs."""

    def run(self) -> None:
        """Make the files and their names durable. Raises FlushFailed, StorageError."""
        self.run_but_for_parent()
        self.sync_parent()

    def retire(self) -> None:
        """Ignore later errors, and rename no file: the log is deleted or damaged.

        Call this before another log can get the directory's name: otherwise the flush's thread could rename its file of
        epochs into the other log's directory. This method waits for a rename, but not for a sync.
        """
        with self._renaming:
            self._is_needed = False

    def sync_parent(self) -> None:
        """Make the name of a new log's directory durable. Raises FlushFailed, StorageError."""
        if self.parent is not None:
            self._handles.files.fsync_directory(self.parent)

    def run_but_for_parent(self) -> None:
        """Like `run`, but leave `parent` to the caller, who syncs it once for many logs.

        Raises FlushFailed, StorageError.
        """
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
        """Rename the file of epochs, whose content is durable; its name is durable once the directory is synced."""
        if self.epochs is not None:
            with self._renaming:
                if self._is_needed:
                    self.epochs.rename()

    def release(self) -> None:
        """Unpin the files of a flush that has ended."""
        if self.epochs is not None:
            self.epochs.close()
        for file in self._files:
            self._handles.unpin(file)
