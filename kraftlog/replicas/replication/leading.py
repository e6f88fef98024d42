"""What the leader of one partition knows and decides: its followers, the ISR, the high watermark (KAFKA-4485, KIP-497).

Replicas whose lag is small enough hold the high watermark back, and join the ISR when they have it; who is not caught
up leaves (DB-05). Pure: time, the log's end and what the controller has said are arguments. It changes nothing but
itself; its owner sends what it proposes, and raises the high watermark.

The ISR that the controller has committed, and the one that this leader has proposed and not heard of yet, may both be
in force: the controller may elect a leader by either. So acknowledgements wait for the larger one, `maximal_isr`.
Consider followers 2 and 3, of which 3 is to join. Until the answer is there, nobody knows whether 3 may be elected, and
what it lacks would be lost: it holds the high watermark back from the proposal on. One that is to leave holds it back
until the controller has agreed.
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
    """What the metadata says of brokers."""

    def registered_epoch(self, broker_id: int) -> int | None:
        """The epoch of a broker's registration; None if it is not registered."""
        ...

    def is_fenced(self, broker_id: int) -> bool:
        """Whether a registered broker is fenced."""
        ...

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a registered broker is in its controlled shutdown."""
        ...


class IsrChange(NamedTuple):
    """A change of the ISR that the controller is asked for."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    """All members that there are to be."""
    broker_epochs: tuple[int, ...]
    """Of the members, by the fetches that they joined with; -1 if that is not known (KIP-903)."""


class ReplicaStatus(NamedTuple):
    """A replica as its leader sees it. Offsets and times are -1 if they are not known."""

    broker_id: int
    log_start_offset: int
    log_end_offset: int
    lag_offsets: int
    lag_ms: int
    is_in_sync: bool
    is_pending: bool
    """Whether the controller is asked to let it join or leave."""
    reasons: tuple[str, ...]
    """Why it is not in sync; empty if it is."""


class Leading:
    """One partition, in one epoch of this leader."""

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
        """The epoch begins at the log's end. `before` is what it has led until now, if it led at all.

        Those in the ISR count as caught up now, the others as never (DB-06). What it knew of them holds if it led in
        the epoch just before: else another leader may have had them cut their logs meanwhile.
        """
        self._broker_id = broker_id
        self._brokers = brokers
        self._lag_max_ms = lag_max_ms
        self.leader_epoch: int = record.leader_epoch
        self.epoch_start_offset = log_end_offset
        """Where this leader's epoch begins in its log."""
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """What the controller has committed."""
        self.partition_epoch: int = record.partition_epoch
        self.pending: IsrChange | None = None
        """What the controller is asked for."""
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

    # --- what the metadata says ---------------------------------------------------------------------------------------

    def update(self, record: PartitionRecord) -> None:
        """The metadata says something newer of the same epoch: it always replaces what is pending (DB-12).

        An older state than the controller has answered with is not looked at. New followers have an empty state, and
        nothing is known of those that are none any more (DB-63).
        """
        if record.partition_epoch > self.partition_epoch:
            self.pending = None
            self._take_over(record)
        elif record.partition_epoch == self.partition_epoch:
            # The controller's answer has said the ISR. That replicas have gone with it, only the metadata says.
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
        """The follower that fetches.

        Raises ApiError if it is not one of the replicas: UNKNOWN_LEADER_EPOCH if its request names the leader's epoch,
        so that it knows newer metadata, else NOT_LEADER_OR_FOLLOWER (DB-07).
        """
        follower = self.followers.get(replica_id)
        if follower is None:
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has no replica of {name} in the metadata that this leader knows: try again",
            )
        return follower

    def check_broker_epoch(self, replica_id: int, broker_epoch: int, *, name: object) -> None:
        """Raise ApiError(NOT_LEADER_OR_FOLLOWER) unless the broker that fetches is the one that is registered (DB-61).

        Without an epoch it may be anybody, who knows no more than the broker's id.
        """
        registered = self._brokers.registered_epoch(replica_id)
        if registered is not None and broker_epoch == UNKNOWN_EPOCH:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"a fetch of {name} names broker {replica_id}, but not the epoch of its registration: brokers send that"
                " from version 15 on, and clients name no broker",
            )
        if registered is not None and broker_epoch < registered:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} fetches {name} with broker epoch {broker_epoch}, and is registered with"
                f" {registered}: it has started again since",
            )

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR with what is to join it (DB-10)."""
        return frozenset(self.isr if self.pending is None else (*self.isr, *self.pending.isr))

    def high_watermark(self, own_end: int, log_end_offset: int, now_ms: float) -> int:
        """The largest offset that may be the high watermark (DB-20). The leader itself has everything below `own_end`.

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
        """Whether a follower outside holds the high watermark back: it is caught up, and the controller would take it.

        Otherwise a busy leader's high watermark would run away from it, and it would never join.
        """
        caught_up = follower.is_caught_up(log_end_offset, now_ms, self._lag_max_ms)
        return caught_up and not any(self._why_ineligible(follower_id, follower))

    @property
    def low_watermark(self) -> int:
        """The smallest log start of the followers that are alive; -1 if one has not said it (DB-65)."""
        starts = [
            follower.log_start_offset
            for follower_id, follower in self.followers.items()
            if self._brokers.registered_epoch(follower_id) is not None and not self._brokers.is_fenced(follower_id)
        ]
        return min(starts, default=2**63 - 1)

    # --- changes of the ISR -------------------------------------------------------------------------------------------

    def isr_without_lagging(self, log_end_offset: int, now_ms: float) -> tuple[int, ...] | None:
        """The ISR without those that are not caught up; None if all are, or while a change is under way (DB-15).

        Nobody joins by this, as in Kafka. Consider a follower that has the leader's end, and that the controller has
        taken out as it cannot be reached: while nothing is produced it would have the end still, and be asked back.
        """
        if self.pending is not None:
            return None
        staying = tuple(replica for replica in self.isr if not self._is_out_of_sync(replica, log_end_offset, now_ms))
        return None if len(staying) == len(self.isr) else staying

    def wants_to_join(self, follower_id: int, high_watermark: int, log_end_offset: int, now_ms: float) -> bool:
        """Whether a follower that has just fetched should be in the ISR, and is not (DB-14)."""
        if self.pending is not None or follower_id in self.isr:
            return False
        follower = self.followers[follower_id]
        return not any(self._why_not(follower_id, follower, high_watermark, log_end_offset, now_ms))

    def _is_out_of_sync(self, replica: int, log_end_offset: int, now_ms: float) -> bool:
        """Whether a member of the ISR must leave (DB-15). The leader itself never must."""
        if replica == self._broker_id:
            return False
        follower = self.followers.get(replica)
        return follower is None or not follower.is_caught_up(log_end_offset, now_ms, self._lag_max_ms)

    def begin_change(self, isr: Sequence[int], own_broker_epoch: int) -> IsrChange:
        """The change is asked for from now on."""
        epochs = tuple(
            own_broker_epoch if replica == self._broker_id else self.followers[replica].broker_epoch for replica in isr
        )
        self.pending = IsrChange(self.leader_epoch, self.partition_epoch, tuple(isr), epochs)
        return self.pending

    def committed(self, change: IsrChange, isr: Sequence[int], partition_epoch: int) -> bool:
        """The controller has answered a change with the present state; returns whether that counts (DB-11).

        It does not if the metadata has said something since: an answer that was long on its way says less than that.
        """
        if self.pending is not change or partition_epoch < self.partition_epoch:
            return False
        self.pending = None
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        return True

    def refused(self, change: IsrChange) -> None:
        """The controller has not made the change, and will not: what is committed is in force (DB-11)."""
        if self.pending is change:
            self.pending = None

    # --- why not ------------------------------------------------------------------------------------------------------

    def _why_ineligible(self, follower_id: int, follower: FollowerProgress) -> Iterator[str]:
        """Why the controller would not take a follower into the ISR (DB-13)."""
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
        """Why a follower outside the ISR does not join (DB-14).

        Kafka does not look at the lag here. Consider `replica.lag.time.max.ms` 30,000 and a follower that has the high
        watermark 1,000 of a partition that cannot advance, as too few are in sync, while the leader has had 5,000 for a
        minute. Kafka takes it in, and throws it out at the next check, 15 s later at most, again and again (DB-62).
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
        """Why a follower is not in the ISR."""
        reasons = tuple(self._why_not(replica, self.followers[replica], high_watermark, log_end_offset, now_ms))
        return reasons if self.pending is None else (*reasons, CHANGE_IN_FLIGHT)

    def describe(
        self, log_start_offset: int, log_end_offset: int, high_watermark: int, now_ms: float
    ) -> list[ReplicaStatus]:
        """Every replica, in the order of the assignment."""
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
        # Who has the leader's end lags by nothing, although its next fetch may be parked for a while (DB-02).
        lag_ms = 0 if follower.log_end_offset >= log_end_offset else follower.lag_ms(now_ms)
        is_known = follower.log_end_offset != UNKNOWN_OFFSET
        return ReplicaStatus(
            replica, follower.log_start_offset, follower.log_end_offset,
            max(0, log_end_offset - follower.log_end_offset) if is_known else UNKNOWN_OFFSET,
            -1 if lag_ms == float("inf") else int(max(0, lag_ms)),
            is_in_sync, is_pending, reasons,
        )  # fmt: skip
