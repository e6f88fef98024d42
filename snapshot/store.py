"""The snapshots of one node: a directory of files, and no other state (SN-01).

A reader can still read an open snapshot after its deletion: the file is renamed first, and its bytes are removed later
(SN-42).
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex

from kraftbase.files.files import FileSystem, join
from raft.core.types import OffsetAndEpoch
from snapshot.format import SnapshotHeader
from snapshot.incoming import IncomingSnapshot
from snapshot.names import DELETED_SUFFIX, is_leftover, parse_snapshot_name, snapshot_name
from snapshot.reader import SnapshotReader
from snapshot.writer import SnapshotWriter


class SnapshotStore:
    """The snapshots in a directory. Any number of processes may read them; one at a time may change them."""

    def __init__(self, files: FileSystem, directory: str, *, token: Callable[[], str] = lambda: token_hex(8)) -> None:
        """The directory is created if it is missing. `token` returns random lower-case hexadecimal digits."""
        self._files = files
        self._token = token
        self.directory = directory
        files.make_directories(directory)

    def ids(self) -> tuple[OffsetAndEpoch, ...]:
        """Every snapshot's id, the oldest first. Lists the directory."""
        names = self._files.list_directory(self.directory)
        return tuple(sorted(found for name in names if (found := parse_snapshot_name(name)) is not None))

    def latest(self) -> OffsetAndEpoch | None:
        """The id of the newest snapshot, None if there is none."""
        return max(self.ids(), default=None)

    def path_of(self, snapshot_id: OffsetAndEpoch) -> str:
        """The path of the snapshot with that id, if it exists."""
        return join(self.directory, snapshot_name(snapshot_id))

    def create(self, snapshot_id: OffsetAndEpoch, header: SnapshotHeader) -> SnapshotWriter | None:
        """Begin the snapshot with that id; None if it exists already. Raises OutOfSpace or StorageError."""
        if self._files.exists(self.path_of(snapshot_id)):
            return None
        return SnapshotWriter(self._files, self.directory, snapshot_id, header, self._token())

    def receive(self, snapshot_id: OffsetAndEpoch, cluster_id: str) -> IncomingSnapshot | None:
        """Begin the download of the snapshot with that id (SN-12); None if it exists already.

        It must be of the cluster `cluster_id`. Raises OutOfSpace or StorageError.
        """
        if self._files.exists(self.path_of(snapshot_id)):
            return None
        return IncomingSnapshot(self._files, self.directory, snapshot_id, cluster_id, self._token())

    def open(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        """Open a snapshot. Raises StorageError if there is none, CorruptSnapshot if it has no header."""
        return SnapshotReader(self._files, self.path_of(snapshot_id))

    def open_whole(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        """Open and verify a snapshot, for the caller to close.

        Raises StorageError if there is none, CorruptSnapshot if anything in it is damaged or missing.
        """
        reader = self.open(snapshot_id)
        try:
            reader.verify()
        except BaseException:
            reader.close()
            raise
        return reader

    def delete(self, snapshot_id: OffsetAndEpoch) -> None:
        """Delete a snapshot, durably. Its bytes stay until `remove_deleted`. Raises StorageError if there is none."""
        path = self.path_of(snapshot_id)
        self._files.rename(path, path + DELETED_SUFFIX)
        self._files.fsync_directory(self.directory)

    def delete_all(self) -> None:
        """Delete every snapshot: they were made from a state that cannot be trusted."""
        for snapshot_id in self.ids():
            self.delete(snapshot_id)

    def remove_deleted(self) -> None:
        """Remove the bytes of deleted snapshots; no reader may still be using them."""
        self._remove(lambda name: name.endswith(DELETED_SUFFIX))

    def clean_up(self) -> None:
        """Remove unfinished and deleted snapshots. For the start, before anything reads or writes them (SN-44).

        Then the names of the other files are durable. Raises StorageError, FlushFailed.
        """
        self._remove(lambda _: True)
        # Consider a process that was killed just after it had named its snapshot at 300, and a log that is damaged at
        # its start. The next process reads the snapshot, and lets the log begin at 300. After a power cut at that
        # moment, the disk might hold that log, and no snapshot.
        self._files.fsync_directory(self.directory)

    def _remove(self, wanted: Callable[[str], bool]) -> None:
        for name in self._files.list_directory(self.directory):
            if is_leftover(name) and wanted(name):
                self._files.remove(join(self.directory, name))
