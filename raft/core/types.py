"""The basic values of the protocol: identifiers, offsets, epochs and small compounds of them.

Offsets are end-exclusive everywhere: a log end offset is the offset that the next record will get, and a high
watermark is the first offset that is not committed. A variable that holds an inclusive offset says so in its
name (`last_offset`, `last_contained_offset`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftbase.types import DirectoryId, Epoch, NodeId, Offset


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OffsetAndEpoch:
    """A point in the log. Compared by epoch first, then offset: plain `<` is Raft's up-to-date rule (RF-14).

    The constructor accepts keywords only: the order of the fields is that of the comparison, not that of the name.
    """

    epoch: Epoch
    offset: Offset


class ReplicaKey(NamedTuple):
    """The identity of a replica: its node id and the id of the directory that holds its log (KIP-853).

    `directory_id` is None where it is not known: in the entry of a static voter, or for a peer that did not send it.
    """

    node_id: NodeId
    directory_id: DirectoryId | None = None

    def __str__(self) -> str:
        return str(self.node_id) if self.directory_id is None else f"{self.node_id}/{self.directory_id}"


class LeaderAndEpoch(NamedTuple):
    """The leader as a replica knows it. `leader_id` is None while the epoch's leader is not known."""

    leader_id: NodeId | None
    epoch: Epoch


class StateDigest(NamedTuple):
    """The digest of a state machine that has applied everything below `end_offset`; each covers all before it."""

    end_offset: Offset
    digest: bytes
    """16 bytes."""


class CommittedGap(NamedTuple):
    """The committed records that a leader's log lacks, as its answer shows to a replica."""

    agreed_offset: Offset
    """The two logs agree at most up to here."""
    committed_offset: Offset
    """The replica knows everything below as committed: by its high watermark, or because it has applied it."""


class RefusedLeader(NamedTuple):
    """A leader that lacks committed records (LEADER_LACKS_COMMITTED), as known to a replica that does not follow it."""

    leader: LeaderAndEpoch
    gap: CommittedGap
    answers: int
    """How many of its answers have shown the gap."""


UNKNOWN_UNTIL_OFFSET: Final = Offset(2**63 - 1)
"""Above every log end: a replica that recovers up to here must become level with a leader's log."""


class RecoveringLog(NamedTuple):
    """A log that lost durable data to damage: the replica neither votes nor counts until it has it back."""

    until_offset: Offset
    """Everything below may have been acknowledged and must be fetched again; UNKNOWN_UNTIL_OFFSET if not known."""
    epoch: Epoch
    """The epoch that the replica was in when the damage was found."""
    reason: str
    """A description of the damage, for operators."""
    has_forgotten: bool = False
    """The directory is new: it does not show in which epochs its node took part (`raft.core.newcomers`)."""
    may_found: bool = False
    """It may help to found a quorum: voters with empty logs may elect one of themselves."""

    @property
    def known_until_offset(self) -> Offset | None:
        """`until_offset`, for operators; None if it is unknown."""
        return None if self.until_offset == UNKNOWN_UNTIL_OFFSET else self.until_offset


@dataclass(frozen=True, slots=True)
class Batch:
    """One encoded batch: the unit of replication, storage and delivery. The bytes are equal on every replica.

    The fields repeat the header in `data`, so that it is parsed once. A Batch from foreign bytes is made only after a
    check of length, CRC and header (`raft.storage.batch.decode_batches`).
    """

    base_offset: Offset
    last_offset: Offset
    """Inclusive: the offset of the last record."""
    epoch: Epoch
    is_control: bool
    data: bytes
    """Header and body."""

    @property
    def end_offset(self) -> Offset:
        """The offset after the last record."""
        return Offset(self.last_offset + 1)

    @property
    def record_count(self) -> int:
        """How many records the batch holds."""
        return self.last_offset - self.base_offset + 1
