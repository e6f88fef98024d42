"""The bootstrap checkpoint: the voters, by node ids and directory ids (KIP-853; rules RF-84 and SN-08).

A file beside the snapshots, with the name and the form of a snapshot that ends at offset 0: header, voters, footer. The
same bytes on every node.

Every voter has its own, because it must know the voters before it can have a log. It is never served and never deleted,
so a node that loads a snapshot still knows the voters. The snapshots of the log do not repeat the voters; a batch of
voters in a snapshot is skipped. A snapshot's id determines its bytes, and the voter set is not in the log as long as it
cannot change. Once a set in the log replaces this one (RF-81), a snapshot must contain it.
"""

from __future__ import annotations

from contextlib import closing
from secrets import token_hex
from typing import Final

from kraftbase.errors import CorruptSnapshot, StorageError
from kraftbase.files.files import FileSystem, join
from raft.core.voters import VoterSet
from snapshot.format import SnapshotHeader
from snapshot.names import BOOTSTRAP_ID, BOOTSTRAP_NAME
from snapshot.reader import SnapshotReader
from snapshot.writer import SnapshotWriter

_TIMESTAMP_MS: Final = 0


def write_bootstrap(
    files: FileSystem, directory: str, cluster_id: str, voters: VoterSet, *, token: str | None = None
) -> None:
    """Write the checkpoint, durably, and replace an old one; a crash leaves the old one or the new one.

    `directory` is the node's snapshot directory, made if it is missing; `token` is random hexadecimal digits. Raises
    StorageError, FlushFailed.
    """
    files.make_directories(directory)
    header = SnapshotHeader(_TIMESTAMP_MS, cluster_id)
    with SnapshotWriter(files, directory, BOOTSTRAP_ID, header, token or token_hex(8), voters) as writer:
        writer.freeze()


def read_bootstrap(files: FileSystem, directory: str, cluster_id: str | None = None) -> VoterSet | None:
    """Return the voters in the checkpoint in `directory`; None if there is none.

    Raises StorageError if it is damaged, or not of the cluster `cluster_id`. Then the node must not start: with the
    voters of its configuration, a voter whose disk was replaced would count as the one that voted before.
    """
    path = join(directory, BOOTSTRAP_NAME)
    if not files.exists(path):
        return None
    try:
        with closing(SnapshotReader(files, path)) as reader:
            reader.verify()
            voters = reader.voters()
            if voters is None:
                raise CorruptSnapshot(f"{path} names no voters")
            if cluster_id is not None and reader.header.cluster_id != cluster_id:
                raise CorruptSnapshot(f"{path} is of cluster {reader.header.cluster_id}, not of {cluster_id}")
    except CorruptSnapshot as error:
        raise StorageError(
            f"{error}. Nothing was changed. Copy the file of that name from another voter of this cluster: all have the"
            " same"
        ) from None
    return voters
