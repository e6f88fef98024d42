"""The admin client's values about single partitions: ISRs, elections, reassignments, remote segments."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kraftbase.errors import ErrorCode


class ElectionType(IntEnum):
    """Kafka's types of election."""

    PREFERRED = 0
    """The first replica should lead again."""
    UNCLEAN = 1
    """Any replica may lead where no leader exists, though it may lack acknowledged records."""


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """The result for one partition of a request."""

    topic: str
    partition_id: int
    code: ErrorCode
    """NONE: it was done."""
    message: str
    """Why it was not done, and what to do; if it was done, what the caller should know, mostly nothing."""


# --- ISRs -------------------------------------------------------------------------------------------------------------


class IsrBroker(NamedTuple):
    """A broker that should be in an ISR."""

    broker_id: int
    broker_epoch: int = -1
    """-1: not known. Any other that is not its registration's is refused."""


@dataclass(frozen=True, slots=True)
class IsrAlteration:
    """The ISR that a leader wants for one of its partitions (KIP-497)."""

    topic_id: str
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    """The partition epoch that the leader knows: a partition that was changed since is left as it is."""
    isr: tuple[IsrBroker, ...]
    leader_recovery_state: int = 0
    """0 recovered, 1 recovering."""


@dataclass(frozen=True, slots=True)
class AlteredIsr:
    """A partition after an alteration; after a failed one, only ids, code and message count."""

    topic_id: str
    partition_id: int
    code: ErrorCode
    message: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int


# --- reassignments ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition that is moving to other replicas."""

    topic: str
    partition_id: int
    replicas: tuple[int, ...]
    """The target's replicas first, in its order, then those that will be removed."""
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListedReassignments:
    """Reassignments by topic and partition, as of the offset that the answering node had applied."""

    applied_end_offset: int
    reassignments: tuple[OngoingReassignment, ...]


# --- remote segments --------------------------------------------------------------------------------------------------


class LeaderEpochStart(NamedTuple):
    """Where a leader epoch begins in a segment."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A copy of a segment in remote storage (KIP-405)."""

    topic_id: str
    partition_id: int
    segment_id: str
    start_offset: int
    end_offset: int
    """The last offset in it: inclusive."""
    leader_epochs: tuple[LeaderEpochStart, ...]
    size_bytes: int
    state: int
    """0 copy started, 1 copy finished, 2 delete started."""
    broker_id: int
    """The broker that reported it last."""
    max_timestamp_ms: int
    event_timestamp_ms: int
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False


@dataclass(frozen=True, slots=True)
class ListedRemoteSegments:
    """Segments by start offset, as of the offset that the answering node had applied."""

    applied_end_offset: int
    segments: tuple[RemoteSegment, ...]
    size_bytes: int
    """Of the finished copies among them."""


@dataclass(frozen=True, slots=True)
class FoundRemoteSegment:
    """What was copied of one leader epoch, as of the offset that the answering node had applied."""

    applied_end_offset: int
    segment: RemoteSegment | None
    """None: no finished copy has the offset in that epoch, or none was asked for."""
    highest_offset: int | None
    """The highest offset of the epoch that was ever copied; None: none was."""
