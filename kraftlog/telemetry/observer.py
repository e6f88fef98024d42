"""The port for those who watch a broker: its registry, the debug log of its decisions, the simulator's judges, tests.

A broker decides seldom, but for one thing: each Fetch that waits is parked and completed. So these two have calls of
their own, which make nothing, and everything else is a `Decision`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol
from uuid import UUID

from kraftbase.partition import TopicPartition


class FetchEnd(Enum):
    """Why a parked Fetch completes."""

    ENOUGH = "there are enough bytes"
    PARTITION_CHANGED = "a partition has changed its leader, or has an error"
    TIME_OR_CLIENT = "its time is over, or its client sends nothing more"
    READS_DONE = "all its reads have ended"
    READS_CANCELLED = "its reads take too long, its client sends nothing more, or its memory is wanted"


@dataclass(frozen=True, slots=True)
class BrokerStateEntered:
    """The broker goes on to another state of its life."""

    left: str
    entered: str


@dataclass(frozen=True, slots=True)
class RegistrationAsked:
    """The controller is asked to register the broker."""

    incarnation_id: UUID
    previous_broker_epoch: int | None
    """That of the last clean shutdown; None if it was none, or the broker has registered since."""


@dataclass(frozen=True, slots=True)
class RegistrationRefused:
    """A registration was refused, or not answered in time."""

    incarnation_id: UUID
    error: str
    reason: str
    is_final: bool
    """Whether the broker ends; else it asks again."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller has accepted a registration."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class RegistrationLost:
    """The controller does not know the registration any more: the broker registers again."""

    broker_epoch: int
    error: str


@dataclass(frozen=True, slots=True)
class FencingChanged:
    """The controller has fenced the broker, or unfenced it."""

    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The broker asks the controller to let it go, for so long at most."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ShutdownAllowed:
    """Others lead the broker's partitions: it may end."""


@dataclass(frozen=True, slots=True)
class ShutdownTimedOut:
    """The controller has not let the broker go in time: it ends all the same."""


@dataclass(frozen=True, slots=True)
class LogsClosed:
    """The log directories are closed."""

    is_clean: bool
    """Whether all are, with the mark of a clean shutdown in each."""


@dataclass(frozen=True, slots=True)
class CleanShutdownMarked:
    """The broker's own directory names an epoch for the next start: all was closed well."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class DirectoryLost:
    """A log directory is not used any more."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeadershipBegun:
    """The broker leads a partition in an epoch that is new to it."""

    partition: TopicPartition
    leader_epoch: int
    start_offset: int
    """Where the epoch begins in its log."""


@dataclass(frozen=True, slots=True)
class LeadershipRefused:
    """The metadata says that the broker leads a partition, and it cannot."""

    partition: TopicPartition
    leader_epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeadershipEnded:
    """The broker has led a partition, and does not any more."""

    partition: TopicPartition
    leader_epoch: int
    """Of its own leadership."""


@dataclass(frozen=True, slots=True)
class ReplicaStaysOut:
    """A replica that has just fetched does not join the ISR. Only told to an observer that `wants_details`."""

    partition: TopicPartition
    replica: int
    reasons: tuple[str, ...]
    """As DescribeReplicas says them."""


@dataclass(frozen=True, slots=True)
class IsrChangeAsked:
    """The controller is asked for another ISR."""

    partition: str
    isr: tuple[int, ...]
    wanted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The controller has made a change that it was asked for."""

    partition: str
    isr: tuple[int, ...]
    """Before."""
    changed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrChangeRefused:
    """The controller has not made a change."""

    partition: str
    wanted: tuple[int, ...]
    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """A follower's log ends earlier now, as its leader's has something else there."""

    partition: TopicPartition
    leader_epoch: int
    from_offset: int
    """Where it ended."""
    to_offset: int
    """Where it ends."""
    high_watermark: int
    """Before."""
    is_unclean: bool
    """Whether the leader was elected uncleanly: then what is committed may go, too."""
    reason: str


@dataclass(frozen=True, slots=True)
class LogStartedOver:
    """A follower's log is empty now, and begins elsewhere."""

    partition: TopicPartition
    leader_epoch: int
    from_offset: int
    """Where it ended."""
    to_offset: int
    """Where it begins."""
    high_watermark: int
    """Before."""
    reason: str


Decision = (
    BrokerStateEntered
    | RegistrationAsked
    | RegistrationRefused
    | Registered
    | RegistrationLost
    | FencingChanged
    | ShutdownAsked
    | ShutdownAllowed
    | ShutdownTimedOut
    | LogsClosed
    | CleanShutdownMarked
    | DirectoryLost
    | LeadershipBegun
    | LeadershipRefused
    | LeadershipEnded
    | ReplicaStaysOut
    | IsrChangeAsked
    | IsrChanged
    | IsrChangeRefused
    | LogTruncated
    | LogStartedOver
)


class BrokerObserver(Protocol):
    """It is told of what a broker decides, on the broker's own thread. It must not call back, and must not raise, but
    for what is to end the broker."""

    @property
    def wants_details(self) -> bool:
        """Whether it is to be told what takes work to find out."""
        ...

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """A Fetch waits: there are so many bytes for it. `replica_id` is -1 for a consumer."""
        ...

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """A consumer's Fetch is parked until so many reads have ended."""
        ...

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """A Fetch that was parked is answered, or given up; so many bytes were there for it, or have come later."""
        ...

    def decided(self, decision: Decision) -> None:
        """The broker has decided something, or has learnt what others have."""
        ...


class Observers:
    """Two as one."""

    def __init__(self, first: BrokerObserver, second: BrokerObserver) -> None:
        self._both = (first, second)
        self.wants_details = first.wants_details or second.wants_details

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """Tell both."""
        for observer in self._both:
            observer.fetch_parked(replica_id, byte_count, min_bytes, max_wait_ms)

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """Tell both."""
        for observer in self._both:
            observer.fetch_reads_later(read_count, max_wait_ms)

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """Tell both."""
        for observer in self._both:
            observer.fetch_completed(replica_id, byte_count, why)

    def decided(self, decision: Decision) -> None:
        """Tell both."""
        for observer in self._both:
            observer.decided(decision)
