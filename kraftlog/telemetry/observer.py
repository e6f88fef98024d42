"""The port for observers of a broker: its registry, the debug log of its decisions, the simulator's rules, tests.

Most decisions of a broker are rare, but each waiting Fetch is parked and completed. So these two have calls of their
own, which allocate no object; every other decision is a `Decision`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol
from uuid import UUID

from kraftbase.partition import TopicPartition


class FetchEnd(Enum):
    """Why a parked Fetch completes."""

    ENOUGH = "enough bytes are available"
    PARTITION_CHANGED = "a partition has changed its leader, or has an error"
    TIME_OR_CLIENT = "its time is over, or its client is gone"
    READS_DONE = "all its later reads have ended"
    READS_CANCELLED = "its later reads take too long, its client is gone, or its memory is needed"


@dataclass(frozen=True, slots=True)
class BrokerStateEntered:
    """The broker has entered another state of its life cycle."""

    left: str
    entered: str


@dataclass(frozen=True, slots=True)
class RegistrationAsked:
    """The broker has requested its registration from the controller."""

    incarnation_id: UUID
    previous_broker_epoch: int | None
    """The broker epoch at the last clean shutdown; None if there was none, or the broker has registered since."""


@dataclass(frozen=True, slots=True)
class RegistrationRefused:
    """A registration was refused, or not answered in time."""

    incarnation_id: UUID
    error: str
    reason: str
    is_final: bool
    """Whether the broker ends; otherwise it tries again."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller has accepted a registration."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class RegistrationLost:
    """The controller no longer knows the registration: the broker registers again."""

    broker_epoch: int
    error: str


@dataclass(frozen=True, slots=True)
class FencingChanged:
    """The controller has fenced the broker, or unfenced it."""

    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The broker has requested a controlled shutdown, and waits for it at most this long."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ShutdownAllowed:
    """The controller has allowed the shutdown: other brokers lead the broker's partitions."""


@dataclass(frozen=True, slots=True)
class ShutdownTimedOut:
    """The controller has not allowed the shutdown in time: the broker ends all the same."""


@dataclass(frozen=True, slots=True)
class LogsClosed:
    """The log directories are closed."""

    is_clean: bool
    """Whether all were closed cleanly, with the mark of a clean shutdown in each."""


@dataclass(frozen=True, slots=True)
class CleanShutdownMarked:
    """The broker's own directory has the broker epoch for the next startup: everything was closed cleanly."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class DirectoryLost:
    """A log directory has gone offline."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeadershipBegun:
    """The broker leads a partition in a new leader epoch."""

    partition: TopicPartition
    leader_epoch: int
    start_offset: int
    """The offset at which the leader epoch begins."""


@dataclass(frozen=True, slots=True)
class LeadershipRefused:
    """By the metadata the broker leads a partition, but it cannot."""

    partition: TopicPartition
    leader_epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeadershipEnded:
    """The broker no longer leads a partition."""

    partition: TopicPartition
    leader_epoch: int
    """The epoch of the ended leadership."""


@dataclass(frozen=True, slots=True)
class ReplicaStaysOut:
    """A replica that has just fetched does not join the ISR. Only for an observer that `wants_details`."""

    partition: TopicPartition
    replica: int
    reasons: tuple[str, ...]
    """The same words as in DescribeReplicas."""


@dataclass(frozen=True, slots=True)
class IsrChangeAsked:
    """The leader has requested an ISR change from the controller."""

    partition: str
    isr: tuple[int, ...]
    wanted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The controller has made a requested ISR change."""

    partition: str
    isr: tuple[int, ...]
    """The ISR before the change."""
    changed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrChangeRefused:
    """The controller has refused an ISR change."""

    partition: str
    wanted: tuple[int, ...]
    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """A follower's log was truncated, since it diverges from the leader's."""

    partition: TopicPartition
    leader_epoch: int
    from_offset: int
    """The log end offset before."""
    to_offset: int
    """The log end offset after."""
    high_watermark: int
    """The high watermark before."""
    is_unclean: bool
    """Whether the leader was elected uncleanly: then committed records may be lost, too."""
    reason: str


@dataclass(frozen=True, slots=True)
class LogStartedOver:
    """A follower's log has started over, empty, at another offset."""

    partition: TopicPartition
    leader_epoch: int
    from_offset: int
    """The log end offset before."""
    to_offset: int
    """The offset at which the log starts over."""
    high_watermark: int
    """The high watermark before."""
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
    """Receives a broker's decisions, on the broker's thread. It must not call the broker, and must not raise, except
    an error that must end the broker."""

    @property
    def wants_details(self) -> bool:
        """Whether it wants decisions that take extra work to determine."""
        ...

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """Note a parked Fetch, with `byte_count` bytes available. `replica_id` is -1 for a consumer."""
        ...

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """Note that a consumer's Fetch is parked until `read_count` later reads have ended."""
        ...

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """Note that a parked Fetch is answered or abandoned; `byte_count` bytes were available, or were read later."""
        ...

    def decided(self, decision: Decision) -> None:
        """Note a decision of this broker, or of others about it."""
        ...


class Observers:
    """Two observers as one."""

    def __init__(self, first: BrokerObserver, second: BrokerObserver) -> None:
        self._both = (first, second)
        self.wants_details = first.wants_details or second.wants_details

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """Notify both."""
        for observer in self._both:
            observer.fetch_parked(replica_id, byte_count, min_bytes, max_wait_ms)

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """Notify both."""
        for observer in self._both:
            observer.fetch_reads_later(read_count, max_wait_ms)

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """Notify both."""
        for observer in self._both:
            observer.fetch_completed(replica_id, byte_count, why)

    def decided(self, decision: Decision) -> None:
        """Notify both."""
        for observer in self._both:
            observer.decided(decision)
