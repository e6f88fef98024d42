"""The snapshots and the quorum state on a disk that would survive a crash."""

from __future__ import annotations

from functools import lru_cache

from kraftbase.errors import KraftlogError
from kraftbase.files.files import join
from kraftbase.files.memory import MemoryFileSystem
from raft.core.election_state import ElectionState
from raft.core.types import OffsetAndEpoch
from raft.storage.quorum_state import COPY_NAMES, decode_copy
from snapshot.names import parse_snapshot_name, snapshot_name
from snapshot.reader import SnapshotReader


class DurableSnapshots:
    """The snapshots on a disk that would survive a crash in which everything unsynced is lost."""

    def __init__(self) -> None:
        self.found: dict[OffsetAndEpoch, bytes] = {}
        """The content of each file with a snapshot's name."""
        self.new: list[OffsetAndEpoch] = []
        """The snapshots that are new or changed since the previous refresh."""

    def refresh(self, files: MemoryFileSystem, directory: str) -> None:
        """Read the files again."""
        named = files.durable_files(directory) if files.exists(directory) else {}
        before, self.found = self.found, {}
        for name in sorted(named):
            snapshot_id = parse_snapshot_name(name)
            if snapshot_id is not None:
                self.found[snapshot_id] = bytes(named[name].data)
        self.new = [found for found, data in self.found.items() if before.get(found) != data]


def snapshot_fault(snapshot_id: OffsetAndEpoch, data: bytes) -> str | None:
    """Return the error in a snapshot; None if it is intact."""
    files = MemoryFileSystem()
    name = snapshot_name(snapshot_id)
    file = files.open(name, create=True)
    file.write_at(0, data)
    try:
        with SnapshotReader(files, name) as reader:
            reader.verify()
    except KraftlogError as error:
        return str(error)
    return None


def durable_election_state(files: MemoryFileSystem, directory: str) -> ElectionState | None:
    """Return the quorum state that a crash with loss of everything unsynced would leave; None if there is none."""
    named = files.durable_files(directory)
    copies = [_decoded(bytes(named[name].data), join(directory, name)) for name in COPY_NAMES if name in named]
    whole = [copy for copy in copies if copy is not None]
    return max(whole, key=lambda copy: copy[0])[1] if whole else None


_decoded = lru_cache(maxsize=256)(decode_copy)
"""The copies are decoded whenever anything on a disk has changed, but seldom differ themselves."""
