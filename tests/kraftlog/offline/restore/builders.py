"""Configurations, snapshots, and looks at what `kraftlog restore` makes of them."""

from __future__ import annotations

from pathlib import Path

from kraftbase.files.posix import PosixFileSystem
from kraftlog.config.config import render_config
from raft.core.types import OffsetAndEpoch
from raft.storage.batch import batch_body
from snapshot.format import SnapshotHeader
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from tests.kraftlog.node_directories import CLUSTER_ID

FILES = PosixFileSystem()
NEW_ID = "AAAAAAAAQACAAAAAAAAAAQ"
"""Of the cluster that is made."""
NODE_DIRECTORY = {
    *(
        ".lock",
        "log",
        "log/log-start",
        "log/log-start-copy",
        "meta.properties",
        "quorum-state-0",
        "quorum-state-1",
        "snapshots",
    ),
}
"""What a directory holds that is made of a snapshot, apart from the snapshot."""


def write_config(path: Path, node_id: int = 1) -> Path:
    """A node's configuration, with its data in the same directory."""
    voters = [f"{number}@localhost:{9090 + number}" for number in (1, 2, 3)]
    base = {"node.id": node_id, "log.dir": f"node-{node_id}", "listeners": f"localhost:{9090 + node_id}"}
    path.write_text(render_config({**base, "controller.quorum.voters": voters}))
    return path


def names_below(path: Path) -> set[str]:
    """The paths of everything in a directory, relative to it."""
    return {str(entry.relative_to(path)) for entry in path.rglob("*")}


def read(path: Path) -> tuple[SnapshotHeader, list[tuple[int, bytes]]]:
    """A whole snapshot's header, and its batches without what the id decides."""
    with SnapshotReader(FILES, str(path)) as reader:
        reader.verify()
        return reader.header, [(batch.record_count, batch_body(batch)) for batch in reader.batches()]


def write_snapshot(directory: Path, snapshot_id: OffsetAndEpoch, content: list[tuple[int, bytes]]) -> Path:
    """A whole snapshot of these batches."""
    writer = SnapshotStore(FILES, str(directory)).create(snapshot_id, SnapshotHeader(5, CLUSTER_ID))
    assert writer is not None
    with writer:
        for count, body in content:
            writer.append(body, count)
        writer.freeze()
    return Path(writer.path)
