"""Takes a snapshot of a node's metadata database, while the node continues to commit to it.

`python -m statemachine.store.snapshot_worker DATABASE DIRECTORY TOKEN` runs in its own process, so that the node's
event loop shares no interpreter with it; it prints the result as one line of JSON. The token, hexadecimal digits, is in
the name of the file that it writes, so that the parent can remove the file of a killed process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from kraftbase.errors import CorruptSnapshot, KraftlogError, StorageError
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Epoch, Offset
from raft.core.types import OffsetAndEpoch
from snapshot.store import SnapshotStore
from statemachine.store.image import snapshot_point, write_image
from statemachine.store.private_copy import open_copy
from statemachine.store.scrub import CORRUPT_EXIT_CODE, CorruptDatabase, check_rows, corruption_as_error


class TakenSnapshot(NamedTuple):
    """A snapshot of the state that was applied when it was requested."""

    snapshot_id: OffsetAndEpoch
    path: str
    size_bytes: int
    is_new: bool
    """False: it was taken before, and no record was applied since."""


def take_snapshot(database: Path, snapshots: SnapshotStore) -> TakenSnapshot:
    """Write a snapshot of the committed database; deleting older ones is the node's business.

    A damaged snapshot of the same id is replaced. Readers and the writer of the database continue, and nothing holds
    its write-ahead log once the database is copied: writing a large snapshot may take minutes. Raises StorageError if
    there is nothing to take, the database cannot be read or copied, or the snapshot cannot be written, CorruptDatabase
    if the database is not what was applied; then there is no new snapshot.
    """
    with corruption_as_error("what a snapshot is made of"), closing(open_copy(database)) as connection:
        point = snapshot_point(connection)
        if point is None:
            raise StorageError(f"nothing is applied to {database} yet, so there is nothing to take a snapshot of")
        writer = snapshots.create(*point)
        if writer is None and not _is_whole(snapshots, point.snapshot_id):
            snapshots.delete(point.snapshot_id)
            writer = snapshots.create(*point)
        if writer is not None:
            with writer:
                check_rows(connection)  # rows that were not applied must not spread
                write_image(connection, writer)
                writer.freeze()
    with snapshots.open(point.snapshot_id) as reader:
        return TakenSnapshot(point.snapshot_id, reader.path, reader.size_bytes, writer is not None)


def _is_whole(snapshots: SnapshotStore, snapshot_id: OffsetAndEpoch) -> bool:
    try:
        with snapshots.open(snapshot_id) as reader:
            reader.verify()
    except CorruptSnapshot:
        return False
    return True


def encode_taken(taken: TakenSnapshot) -> str:
    """What the process prints."""
    point = taken.snapshot_id
    return json.dumps(
        {
            "endOffset": point.offset,
            "epoch": point.epoch,
            "path": taken.path,
            "sizeBytes": taken.size_bytes,
            "isNew": taken.is_new,
        }
    )


def decode_taken(line: str | bytes) -> TakenSnapshot:
    """What the process printed."""
    said: dict[str, Any] = json.loads(line)
    point = OffsetAndEpoch(epoch=Epoch(said["epoch"]), offset=Offset(said["endOffset"]))
    return TakenSnapshot(point, said["path"], said["sizeBytes"], said["isNew"])


def main(arguments: Sequence[str]) -> int:
    """The process: exit code 0 and a line of JSON; else the reason on standard error, and 3 if it is corruption."""
    database, directory, token = arguments
    try:
        taken = take_snapshot(Path(database), SnapshotStore(PosixFileSystem(), directory, token=lambda: token))
    except CorruptDatabase as error:
        sys.stderr.write(f"{error}\n")
        return CORRUPT_EXIT_CODE
    except KraftlogError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(encode_taken(taken) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
