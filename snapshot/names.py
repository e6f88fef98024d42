"""The names of snapshots: their ids, and their files' names (rule SN-02).

A snapshot's id is the point in the log where it ends: its end offset (exclusive), and the epoch of the last record
below it. The file's name is `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`.
"""

from __future__ import annotations

import re
from typing import Final

from kraftbase.errors import StorageError
from kraftbase.types import Epoch, Offset
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import OffsetAndEpoch

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".part"
"""The suffix of a snapshot that is being written. Its name has a random part, too: two writers never share a file. A
file that a crash leaves under such a name is ignored.
"""
DELETED_SUFFIX: Final = ".deleted"
"""The suffix of a deleted snapshot, whose bytes are removed when no reader can still be using them."""

BOOTSTRAP_ID: Final = LOG_BEGINNING
BOOTSTRAP_NAME: Final = "00000000000000000000-0000000000.checkpoint"
"""The bootstrap checkpoint: named like an empty snapshot, it holds the voters, and is never served (RF-84)."""

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_UNFINISHED_NAME: Final = re.compile(r"[0-9]{20}-[0-9]{10}(-[0-9a-f]+\.checkpoint\.part|\.checkpoint\.deleted)")
_EXAMPLE: Final = "00000000000000000500-0000000003.checkpoint"
_OFFSET_MAX: Final = 2**63 - 1
_EPOCH_MAX: Final = 2**31 - 1


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """The name of the file that holds the snapshot with that id."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def part_name(snapshot_id: OffsetAndEpoch, token: str) -> str:
    """The name of the file while it is being written; `token` is random lower-case hexadecimal digits."""
    return f"{snapshot_name(snapshot_id).removesuffix(SUFFIX)}-{token}{SUFFIX}{PART_SUFFIX}"


def is_leftover(name: str) -> bool:
    """Whether it is the name of an unfinished or deleted snapshot."""
    return _UNFINISHED_NAME.fullmatch(name) is not None


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """The id in a file's name; None if it is not a finished snapshot's. The bootstrap checkpoint counts as none."""
    match = _NAME.fullmatch(name)
    if match is None or name == BOOTSTRAP_NAME:
        return None
    offset, epoch = int(match[1]), int(match[2])
    if offset > _OFFSET_MAX or epoch > _EPOCH_MAX:
        return None
    return OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset))


def id_of(path: str) -> OffsetAndEpoch:
    """The id of the snapshot at `path`. Raises StorageError if the name is not a finished snapshot's."""
    name = path.rpartition("/")[2]
    if name == BOOTSTRAP_NAME:
        return BOOTSTRAP_ID
    found = parse_snapshot_name(name)
    if found is None:
        raise StorageError(
            f"{path} is not named like a snapshot, such as {_EXAMPLE}; give it the name that it was made under"
        )
    return found
