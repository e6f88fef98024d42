"""A node's snapshots with a store, a runtime that the test drives, and a record of their notifications."""

from __future__ import annotations

from pathlib import Path

from kraftbase.errors import ErrorCode
from kraftbase.files.files import FileSystem
from kraftbase.files.posix import PosixFileSystem
from raft.core.types import OffsetAndEpoch
from raft.shell.node_snapshots import NodeSnapshots
from snapshot.store import SnapshotStore
from tests.raft.by_hand import HandRuntime
from tests.snapshot.builders import DIRECTORY, HEADER_OF_TESTS, an_id, put, snapshot_bytes

Answer = tuple[ErrorCode, int, bytes]

NOT_FOUND: Answer = (ErrorCode.SNAPSHOT_NOT_FOUND, 0, b"")
OUT_OF_RANGE: Answer = (ErrorCode.POSITION_OUT_OF_RANGE, 0, b"")
ALL = 1_000_000


class Desk:
    """The snapshots of a node that does nothing else, and their notifications."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files
        self._tokens = iter(range(1_000))
        self.store = SnapshotStore(files, DIRECTORY, token=lambda: f"{next(self._tokens):08x}")
        self.runtime = HandRuntime()
        self.told: list[str] = []
        self.fatal: list[BaseException] = []

    def open(self) -> NodeSnapshots:
        return NodeSnapshots(
            self.store,
            HEADER_OF_TESTS.cluster_id,
            self.runtime,
            on_changed=lambda: self.told.append("changed"),
            on_damaged=lambda: self.told.append("damaged"),
            on_fatal=self.fatal.append,
        )

    def names(self) -> list[str]:
        """All names in the directory."""
        return self.files.list_directory(DIRECTORY)

    def part_names(self) -> list[str]:
        """Of snapshots that are being fetched."""
        return [name for name in self.names() if name.endswith(".part")]

    def damage(self, snapshot_id: OffsetAndEpoch, position: int = -10) -> None:
        """Store a snapshot with one changed byte."""
        data = bytearray(snapshot_bytes(snapshot_id))
        data[position] ^= 0xFF
        put(self.files, bytes(data), snapshot_id)

    def descriptors(self) -> set[str]:
        """The files that this process has open in the directory; none for the file system in memory."""
        if not isinstance(self.files, PosixFileSystem):
            return set()
        base = Path.cwd().resolve() / DIRECTORY
        targets = []
        for link in Path("/proc/self/fd").iterdir():
            try:
                targets.append(link.readlink())
            except OSError:  # the one that lists them
                continue
        return {target.name.removesuffix(" (deleted)") for target in targets if target.is_relative_to(base)}


def read(
    snapshots: NodeSnapshots, snapshot_id: OffsetAndEpoch, position: int = 0, max_bytes: int = ALL
) -> list[Answer]:
    """Ask for a piece; the answer is in the list once it has arrived."""
    answers: list[Answer] = []
    snapshots.read(snapshot_id, position, max_bytes, lambda *answer: answers.append(answer))
    return answers


class Fetch:
    """Gives pieces to `NodeSnapshots.append` and keeps its reports."""

    def __init__(self, desk: Desk, snapshots: NodeSnapshots) -> None:
        self.desk = desk
        self.snapshots = snapshots
        self.told: list[int | str] = []

    def append(self, fetch_id: int, data: bytes, snapshot_id: OffsetAndEpoch | None = None) -> None:
        self.snapshots.append(fetch_id, snapshot_id or an_id(), data, self.told.append, self.refused)
        self.desk.runtime.run()

    def freeze(self, fetch_id: int) -> None:
        self.snapshots.freeze(fetch_id, lambda: self.told.append("received"), self.refused)
        self.desk.runtime.run()

    def refused(self) -> None:
        self.told.append("refused")
