"""The data directory of a node that ran for a while and was stopped, made with the program's own parts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import UUID

from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.election_state import ElectionState
from raft.core.types import ReplicaKey
from raft.listener import CommittedBatch
from raft.storage.directory import LOG_NAME, METADATA_DATABASE_NAME, SNAPSHOTS_NAME, DataDirectory
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.store import SnapshotStore
from statemachine.store.snapshot_worker import take_snapshot
from statemachine.store.store import MetadataStore
from tests.kraftlog.analytics.logs import small_log
from tests.snapshot.builders import overwrite

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
SMALL_SEGMENTS = LogConfig(segment_bytes=1200, preallocate_bytes=512, reserve_bytes=256)


def make_node_directory(path: Path) -> Path:
    """A voter's directory: identity, two saves of the quorum state, three or more segments, an applied database."""
    files = PosixFileSystem()
    DataDirectory.format(files, str(path), cluster_id=CLUSTER_ID, node_id=NodeId(1), directory_id=UUID(int=2**100 + 1))
    batches = small_log().batches
    with closing(QuorumStateStore(files, str(path))) as quorum_state:
        quorum_state.load()
        for epoch in (1, batches[-1].epoch):
            key = ReplicaKey(NodeId(1), UUID(int=2**100 + 1))
            quorum_state.save(ElectionState(epoch=Epoch(epoch), leader_id=None, voted_key=key))
    log = SegmentedLog.open(files, str(path / LOG_NAME), config=SMALL_SEGMENTS, minimum_durable_offset=Offset(0))
    for batch in batches:
        log.append([batch])
        log.flush()
    log.write_marker()
    log.close()
    with closing(MetadataStore.open(path / METADATA_DATABASE_NAME, CLUSTER_ID)) as store:
        store.apply([CommittedBatch(batch) for batch in batches])
    return path


def make_node_with_snapshot(path: Path) -> Path:
    """That directory, with a snapshot of the database."""
    make_node_directory(path)
    take_snapshot(path / METADATA_DATABASE_NAME, SnapshotStore(PosixFileSystem(), str(path / SNAPSHOTS_NAME)))
    return path


def only_snapshot(path: Path) -> Path:
    """The file of the only snapshot in a node's directory."""
    (snapshot,) = (path / SNAPSHOTS_NAME).iterdir()
    return snapshot


def segments(path: Path) -> list[Path]:
    """The segment files of a node's directory, in order."""
    return sorted((path / LOG_NAME).glob("*.log"))


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below `path`, with its bytes and the time of its last change; and every directory, with its time."""
    return {
        str(entry.relative_to(path)): (entry.read_bytes() if entry.is_file() else b"", entry.stat().st_mtime_ns)
        for entry in [path, *sorted(path.rglob("*"))]
    }


def flip(path: Path, position: int) -> None:
    """Flip all bits of one byte of a file; from the end if `position` is negative."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    overwrite(path, data)
