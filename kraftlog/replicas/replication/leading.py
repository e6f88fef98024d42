"""The state and the decisions of one partition's leader: followers, ISR and high watermark (KAFKA-4485, KIP-497).

Replicas with a small enough lag hold back the high watermark, and join the ISR when they have reached it. A replica
that is not caught up leaves the ISR (DB-05). Pure: the time, the log end offset and the controller's answers are
arguments. The owner sends the proposed changes, and raises the high watermark.

Both the ISR that the controller has committed and the one that this leader has proposed may be in force: the controller
may elect a leader by either. So acknowledgements wait for both of them, the `maximal_isr`. Consider follower 3, which
is about to join. Until the answer comes, the leader does not know whether 3 may be elected, and then records that 3
lacks would be lost. So 3 holds back the high watermark from the proposal on. A follower that is about to leave holds it
back until its removal is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from kraftlog.replicas.replication.follower_progress import NEVER_MS, FollowerProgress
from kraftpb.v1.metadata_pb2 import PartitionRecord

NOT_REGISTERED: Final = "not-registered"
FENCED: Final = "fenced"
SHUTTING_DOWN: Final = "shutting-down"
OLD_BROKER_EPOCH: Final = "old-broker-epoch"
NEVER_FETCHED: Final = "never-fetched"
LAGGING: Final = "lagging"
BELOW_HIGH_WATERMARK: Final = "below-high-watermark"
BELOW_EPOCH_START: Final = "below-epoch-start"
CHANGE_IN_FLIGHT: Final = "change-in-flight"


class Brokers(Protocol):
    """The states of brokers in the metadata."""

    def registered_epoch(self, broker_id: int) -> int | None:
        """Return a broker's registered epoch; None if it is not registered."""
        ...

    def is_fenced(self, broker_id: int) -> bool:
        """Whether a registered broker is fenced."""
        ...

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a registered broker is in its controlled shutdown."""
        ...


class IsrChange(NamedTuple):
    """A change of the ISR that is requested from the controller."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    """All members of the new ISR."""
    broker_epochs: tuple[int, ...]
    """The broker epoch of each member, from its last Fetch; -1 if unknown (KIP-903)."""


class ReplicaStatus(NamedTuple):
    """A replica as its leader sees it. Unknown offsets and times are -1."""

    broker_id: int
    log_start_offset: int
    log_end_offset: int
    lag_offsets: int
    lag_ms: int
    is_in_sync: bool
    is_pending: bool
    """Whether a requested ISR change lets the replica join or leave."""
    reasons: tuple[str, ...]
    """Why the replica is not in sync; empty if it is."""


class Leading:
    """The leader's state of one partition, in one leader epoch."""

    __slots__ = (
        "_broker_id",
        "_brokers",
        "_lag_max_ms",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "pending",
        "replicas",
    )

    def __init__(
        self, broker_id: int, record: PartitionRecord, brokers: Brokers, lag_max_ms: float, log_end_offset: int,
        now_ms: float, before: Leading | None = None,
    ) -> None:  # fmt: skip
        """Begin a leader epoch at `log_end_offset`. `before` is the state of an earlier epoch that this broker led.

        Followers in the ISR count as caught up now, the others as never (DB-06). Their known offsets are kept only from
        the immediately preceding epoch: after another leader's epoch they may have truncated their logs.
        """
        self._broker_id = broker_id
        self._brokers = brokers
        self._lag_max_ms = lag_max_ms
        self.leader_epoch: int = record.leader_epoch
        self.epoch_start_offset = log_end_offset
        """The offset at which this leader epoch begins."""
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """The ISR that the controller has committed."""
        self.partition_epoch: int = record.partition_epoch
        self.pending: IsrChange | None = None
        """The requested ISR change; None if none is pending."""
        self.followers: dict[int, FollowerProgress] = {}
        self._take_over(record)
        known_followers: dict[int, FollowerProgress] = {}
        if before is not None and before.leader_epoch + 1 == self.leader_epoch:
            known_followers = before.followers
        for follower_id in self.followers:
            is_in_sync = follower_id in self.isr
            known = known_followers.get(follower_id)
            if known is None:
                self.followers[follower_id] = FollowerProgress(now_ms if is_in_sync else NEVER_MS)
            else:
                known.led_again(log_end_offset, now_ms, is_in_sync=is_in_sync)
                self.followers[follower_id] = known

    # --- metadata -----------------------------------------------------------------------------------------------------

    def update(self, record: PartitionRecord) -> None:
        """Apply a record of the metadata of the same leader epoch; a newer one replaces the pending change (DB-12).

        A record that is older than the controller's last answer is ignored. New followers begin with an empty state;
        the state of removed followers is dropped (DB-63).
        """
        if record.partition_epoch > self.partition_epoch:
            self.pending = None
            self._take_over(record)
        elif record.partition_epoch == self.partition_epoch:
            # The controller's answer had the ISR of this record; the removal of replicas is only in the metadata.
            self._take_replicas(record)

    def _take_over(self, record: PartitionRecord) -> None:
        self.partition_epoch = record.partition_epoch
        self.isr = tuple(record.isr)
        self._take_replicas(record)

    def _take_replicas(self, record: PartitionRecord) -> None:
        self.replicas = tuple(record.replicas)
        others = [replica for replica in self.replicas if replica != self._broker_id]
        self.followers = {replica: self.followers.get(replica) or FollowerProgress() for replica in others}

    # --- followers ----------------------------------------------------------------------------------------------------

    def follower(self, replica_id: int, *, names_epoch: bool, name: object) -> FollowerProgress:
        """Return the state of the follower that fetches.

        Raises ApiError if broker `replica_id` is not one of the replicas: UNKNOWN_LEADER_EPOCH if its request names the
        leader's epoch, otherwise NOT_LEADER_OR_FOLLOWER (DB-07). A broker that knows the epoch must have newer metadata
        than this leader.
        """
        follower = self.followers.get(replica_id)
        if follower is None:
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has no replica of {name} in the metadata that this leader knows: try again",
            )
        return follower

    def check_broker_epoch(self, replica_id: int, broker_epoch: int, *, name: object) -> None:
        """Raise ApiError(NOT_LEADER_OR_FOLLOWER) if the Fetch is not from the broker's present registration (DB-61).

        A Fetch without a broker epoch is refused: any client that knows the broker's id could send it.
        """
        registered = self._brokers.registered_epoch(replica_id)
        if registered is not None and broker_epoch == UNKNOWN_EPOCH:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"a fetch of {name} names broker {replica_id} without its broker epoch: brokers send the epoch from"
                " version 15 on, and clients name no broker",
            )
        if registered is not None and broker_epoch < registered:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} fetches {name} with broker epoch {broker_epoch}, and is registered with"
                f" {registered}: it has restarted since",
            )

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR together with the members of the proposed one (DB-10)."""
        return frozenset(self.isr if self.pending is None else (*self.isr, *self.pending.isr))

    def high_watermark(self, own_end: int, log_end_offset: int, now_ms: float) -> int:
        """Return the largest possible high watermark (DB-20); the leader itself counts with `own_end`.

        -1 while an in-sync follower has not fetched yet.
        """
        smallest = own_end
        isr = self.isr if self.pending is None else self.maximal_isr
        for follower_id, follower in self.followers.items():
            if follower.log_end_offset < smallest and (
                follower_id in isr or self._is_about_to_join(follower_id, follower, log_end_offset, now_ms)
            ):
                smallest = follower.log_end_offset
        return smallest

    def _is_about_to_join(
        self, follower_id: int, follower: FollowerProgress, log_end_offset: int, now_ms: float
    ) -> bool:
        """Whether a follower outside the ISR holds back the high watermark: it is caught up, and eligible to join.

        Otherwise a busy leader's high watermark would stay ahead of the follower, which would never join.
        """
        caught_up = follower.is_caught_up(log_end_offset, now_ms, self._lag_max_ms)
        return caught_up and not any(self._why_ineligible(follower_id, follower))

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the live followers; -1 if one is unknown (DB-65)."""
        starts = [
            follower.log_start_offset
            for follower_id, follower in self.followers.items()
            if self._brokers.registered_epoch(follower_id) is not None and not self._brokers.is_fenced(follower_id)
        ]
        return min(starts, default=2**63 - 1)

    # --- changes of the ISR -------------------------------------------------------------------------------------------

    def isr_without_lagging(self, log_end_offset: int, now_ms: float) -> tuple[int, ...] | None:
        """Return the ISR without replicas that are not caught up; None if all are, or if a change is pending (DB-15).

        No replica joins by this, as in Kafka. Consider a follower with the leader's log end offset, which the
        controller has removed since it is unreachable. While nothing is produced it would still qualify, and would be
        proposed again and again.
        """
        if self.pending is not None:
            return None
        staying = tuple(replica for replica in self.isr if not self._is_out_of_sync(replica, log_end_offset, now_ms))
        return None if len(staying) == len(self.isr) else staying

    def wants_to_join(self, follower_id: int, high_watermark: int, log_end_offset: int, now_ms: float) -> bool:
        """Whether a follower that has just fetched should join the ISR (DB-14)."""
        if self.pending is not None or follower_id in self.isr:
            return False
        follower = self.followers[follower_id]
        return not any(self._why_not(follower_id, follower, high_watermark, log_end_offset, now_ms))

    def _is_out_of_sync(self, replica: int, log_end_offset: int, now_ms: float) -> bool:
        """Whether a member of the ISR must leave (DB-15); never true for the leader itself."""
        if replica == self._broker_id:
            return False
        follower = self.followers.get(replica)
        return follower is None or not follower.is_caught_up(log_end_offset, now_ms, self._lag_max_ms)

    def begin_change(self, isr: Sequence[int], own_broker_epoch: int) -> IsrChange:
        """Make an ISR change the pending one, and return it."""
        epochs = tuple(
            own_broker_epoch if replica == self._broker_id else self.followers[replica].broker_epoch for replica in isr
        )
        self.pending = IsrChange(self.leader_epoch, self.partition_epoch, tuple(isr), epochs)
        return self.pending

    def committed(self, change: IsrChange, isr: Sequence[int], partition_epoch: int) -> bool:
        """Apply the controller's answer to a change, which has the present state; return whether it was used (DB-11).

        A late answer is ignored if newer metadata was applied in between.
        """
        if self.pending is not change or partition_epoch < self.partition_epoch:
            return False
        self.pending = None
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        return True

    def refused(self, change: IsrChange) -> None:
        """Drop a pending change that the controller has refused: the committed ISR stays in force (DB-11)."""
        if self.pending is change:
            self.pending = None

    # --- reasons ------------------------------------------------------------------------------------------------------

    def _why_ineligible(self, follower_id: int, follower: FollowerProgress) -> Iterator[str]:
        """Yield the reasons for which the controller would refuse a follower in the ISR (DB-13)."""
        registered = self._brokers.registered_epoch(follower_id)
        if registered is None:
            yield NOT_REGISTERED
            return
        if self._brokers.is_fenced(follower_id):
            yield FENCED
        if self._brokers.is_shutting_down(follower_id):
            yield SHUTTING_DOWN
        if follower.broker_epoch not in (UNKNOWN_EPOCH, registered):
            yield OLD_BROKER_EPOCH

    def _why_not(
        self, follower_id: int, follower: FollowerProgress, high_watermark: int, log_end_offset: int, now_ms: float
    ) -> Iterator[str]:
        """Yield the reasons for which a follower outside the ISR does not join (DB-14).

        Kafka does not check the lag here. Consider `replica.lag.time.max.ms` 30,000 and a partition whose high
        watermark of 1,000 cannot advance, since too few replicas are in sync, while the leader's log has ended at 5,000
        for a minute. A follower that has reached 1,000 joins the ISR in Kafka, and is removed at the next check, 15 s
        later at most, again and again (DB-62).
        """
        if follower.log_end_offset == UNKNOWN_OFFSET:
            yield NEVER_FETCHED
        yield from self._why_ineligible(follower_id, follower)
        if not follower.is_caught_up(log_end_offset, now_ms, self._lag_max_ms):
            yield LAGGING
        if follower.log_end_offset < high_watermark:
            yield BELOW_HIGH_WATERMARK
        if follower.log_end_offset < self.epoch_start_offset:
            yield BELOW_EPOCH_START

    def why_out(self, replica: int, high_watermark: int, log_end_offset: int, now_ms: float) -> tuple[str, ...]:
        """Return why a follower is not in the ISR."""
        reasons = tuple(self._why_not(replica, self.followers[replica], high_watermark, log_end_offset, now_ms))
        return reasons if self.pending is None else (*reasons, CHANGE_IN_FLIGHT)

    def describe(
        self, log_start_offset: int, log_end_offset: int, high_watermark: int, now_ms: float
    ) -> list[ReplicaStatus]:
        """Describe every replica, in the order of the assignment."""
        return [
            ReplicaStatus(replica, log_start_offset, log_end_offset, 0, 0, True, False, ())
            if replica == self._broker_id
            else self._describe(replica, log_end_offset, high_watermark, now_ms)
            for replica in self.replicas
        ]

    def _describe(self, replica: int, log_end_offset: int, high_watermark: int, now_ms: float) -> ReplicaStatus:
        follower = self.followers[replica]
        is_in_sync = replica in self.isr
        is_pending = self.pending is not None and is_in_sync != (replica in self.pending.isr)
        reasons = () if is_in_sync else self.why_out(replica, high_watermark, log_end_offset, now_ms)
        # A follower with the leader's log end offset has no lag, although its next Fetch may be parked (DB-02).
        lag_ms = 0 if follower.log_end_offset >= log_end_offset else follower.lag_ms(now_ms)
        is_known = follower.log_end_offset != UNKNOWN_OFFSET
        return ReplicaStatus(
            replica, follower.log_start_offset, follower.log_end_offset,
            max(0, log_end_offset - follower.log_end_offset) if is_known else UNKNOWN_OFFSET,
            -1 if lag_ms == float("inf") else int(max(0, lag_ms)),
            is_in_sync, is_pending, reasons,
        )  # fmt: skip
