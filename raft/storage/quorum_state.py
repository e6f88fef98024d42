"""The quorum state: the epoch, its leader and the vote, as two checksummed copies (docs/formats/quorum-state.md).

Both copies hold the same state, under one sequence number. `save` writes one, syncs it, writes the other, syncs it, and
only then returns. So after a crash at any step one copy is whole, and it holds the state of the last save that returned
or of the interrupted one; and damage to one copy loses nothing. If states alternated between the files, damage to the
newer one would restore an older vote, undetected.

A vote cannot be guessed: with two bad copies the node does not start (RF-06).
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from kraftbase.checks import check
from kraftbase.checksum import crc32c
from kraftbase.errors import StorageError
from kraftbase.files.files import File, FileSystem, join, read_whole, write_new_file
from kraftbase.sentinels import NO_LEADER, ZERO_DIRECTORY_ID
from kraftbase.types import Epoch, NodeId
from raft.core.election_state import ElectionState
from raft.core.types import ReplicaKey
from raft.storage.advice import REPLACE_THE_DISK

COPY_NAMES = ("quorum-state-0", "quorum-state-1")

COPY = Struct(">I4sHHQiii16s")
"""CRC, magic, version, zero, sequence, epoch, leader id, voted id, voted directory id."""
_COVERED_COPY = Struct(">4sHHQiii16s")
MAGIC = b"KLqs"
VERSION = 1

NO_VOTE = -1

_ADVICE = f"The vote of this replica may be lost, so it must not vote again: it does not start. {REPLACE_THE_DISK}"


class QuorumStateStore:
    """Loads and saves the quorum state of one directory. Call `load` first."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._paths = tuple(join(directory, name) for name in COPY_NAMES)
        self._open_files: list[File] = []
        self._sequence = 0
        self._is_loaded = False

    def load(self) -> ElectionState | None:
        """The last saved state; None if none was ever saved.

        Rewrites a copy that is missing, damaged or older. Raises StorageError when no copy can be trusted, or one has
        an unknown version.
        """
        self.close()
        is_missing = [not self._files.exists(path) for path in self._paths]
        self._is_loaded = True
        if all(is_missing):
            return None
        copies = [
            None if missing else decode_copy(read_whole(self._files, path), path)
            for path, missing in zip(self._paths, is_missing, strict=True)
        ]
        whole = [copy for copy in copies if copy is not None]
        if not whole:
            self._is_loaded = False
            damage = [
                f"{path} is {'missing' if missing else 'damaged'}"
                for path, missing in zip(self._paths, is_missing, strict=True)
            ]
            raise StorageError(f"{' and '.join(damage)}. {_ADVICE}")
        self._sequence, state = max(whole, key=lambda copy: copy[0])
        for index, copy in enumerate(copies):
            if copy != (self._sequence, state):
                write_new_file(self._files, self._paths[index], encode_copy(self._sequence, state))
        return state

    def save(self, state: ElectionState) -> None:
        """Save `state`, durably. Raises FlushFailed."""
        check(self._is_loaded, "the quorum state is loaded before it is saved")
        data = encode_copy(self._sequence + 1, state)
        if self._sequence == 0:
            for path in self._paths:
                write_new_file(self._files, path, data)
        else:
            if not self._open_files:
                self._open_files = [self._files.open(path) for path in self._paths]
            for file in self._open_files:
                file.write_at(0, data)
                file.fdatasync()
        self._sequence += 1

    def close(self) -> None:
        """Close the files."""
        for file in self._open_files:
            file.close()
        self._open_files.clear()


def encode_copy(sequence: int, state: ElectionState) -> bytes:
    """The bytes of a copy."""
    voted = state.voted_key
    voted_id = NO_VOTE if voted is None else voted.node_id
    directory_id = ZERO_DIRECTORY_ID if voted is None or voted.directory_id is None else voted.directory_id
    leader_id = NO_LEADER if state.leader_id is None else state.leader_id
    check(
        state.epoch >= 0 and (state.leader_id is None or leader_id >= 0) and (voted is None or voted_id >= 0),
        "epochs and node ids are not negative",
        state=state,
    )
    covered = _COVERED_COPY.pack(MAGIC, VERSION, 0, sequence, state.epoch, leader_id, voted_id, directory_id.bytes)
    return crc32c(covered).to_bytes(4, "big") + covered


def decode_copy(data: bytes, path: str) -> tuple[int, ElectionState] | None:
    """The sequence number and state of a copy; None if it is damaged.

    Raises StorageError for an unknown version (RF-96).
    """
    if len(data) != COPY.size:
        return None
    crc, magic, version, zero, sequence, epoch, leader_id, voted_id, directory_id = COPY.unpack(data)
    if crc32c(data[4:]) != crc or magic != MAGIC:
        return None
    if version != VERSION or zero:
        raise StorageError(
            f"{path} has version {version} and flags {zero:#x}; this program knows version {VERSION} without flags:"
            " use the program that wrote it"
        )
    if sequence < 1 or epoch < 0 or leader_id < NO_LEADER or voted_id < NO_VOTE:
        return None
    voted_directory_id = UUID(bytes=directory_id)
    voted_key = None
    if voted_id != NO_VOTE:
        known_id = None if voted_directory_id == ZERO_DIRECTORY_ID else voted_directory_id
        voted_key = ReplicaKey(NodeId(voted_id), known_id)
    return sequence, ElectionState(
        epoch=Epoch(epoch), leader_id=None if leader_id == NO_LEADER else NodeId(leader_id), voted_key=voted_key
    )
