"""Bugs of the replication of partitions: lags, ISRs, high watermarks, truncation, epochs, elections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import statemachine.replay.replay
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftlog.controller.operations import alter_partition, brokers
from kraftlog.controller.rules import partition_change
from kraftlog.replicas.partitions import delayed_fetch, reading
from kraftlog.replicas.partitions.leadership import Leaderships
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.replicas.partitions.reading import Located, Reader, ReadFrom
from kraftlog.replicas.replication import followed_partition, following, leading
from kraftlog.replicas.replication.fetch_session import PartitionKey
from kraftlog.replicas.replication.follower_progress import FollowerProgress
from kraftlog.replicas.replication.following import LogView, Phase
from kraftlog.replicas.replication.isr_changes import IsrChanges, LedPartition
from kraftlog.replicas.replication.leading import IsrChange, Leading
from kraftlog.replicas.replication.ports import Followable
from kraftlog.replicas.replication.replica_fetcher import ReplicaFetcher
from kraftlog.replicas.replication.replica_fetchers import ReplicaFetchers
from kraftlog.sim.engine.mutation import instead, mutation
from kraftlog.storage.directory_records import DirectoryRecords
from kraftlog.storage.durability import Durability
from kraftlog.storage.leader_epochs import EpochEnd, LeaderEpochs
from kraftlog.storage.missing_logs import MissingLogs
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.producer_history import ProducerHistory
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import PartitionChangeRecord, PartitionRecord

# --- KAFKA-4485 -------------------------------------------------------------------------------------------------------


@mutation("only a follower at the leader's end is caught up", "KAFKA-4485")
def caught_up_at_the_end_only() -> list[Any]:
    """A follower that is always one small batch behind a busy leader leaves the ISR."""

    def fetched(
        self: FollowerProgress, offset: int, log_start_offset: int, leader_end: int, now_ms: float,
        broker_epoch: int = UNKNOWN_EPOCH,
    ) -> None:  # fmt: skip
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        self.last_fetch_ms, self.log_end_offset = now_ms, offset
        self.log_start_offset, self.broker_epoch = log_start_offset, broker_epoch

    return [instead(FollowerProgress, "fetched", fetched)]


@mutation("a follower joins the ISR whatever its lag", "KAFKA-4485")
def joins_though_it_lags() -> list[Any]:
    """The follower has the high watermark, but the next check removes it again."""
    return [_without_reasons(leading.LAGGING)]


@mutation("followers out of the ISR do not hold the high watermark", "DB-20")
def runs_away_from_followers() -> list[Any]:
    """Followers out of the ISR never reach the high watermark of a busy leader."""
    return [instead(Leading, "_is_about_to_join", lambda *_: False)]


@mutation("no replica is removed from the ISR", "DB-15")
def nobody_leaves() -> list[Any]:
    """A follower that has stopped stays in the ISR."""
    return [instead(Leading, "_is_out_of_sync", lambda *_: False)]


# --- ISRs -------------------------------------------------------------------------------------------------------------


@mutation("a leader shrinks the ISR without the controller", "DB-10")
def shrinks_alone() -> list[Any]:
    """The leader no longer waits for a replica that the controller may elect."""

    def begin_change(self: Leading, isr: Sequence[int], own_broker_epoch: int) -> IsrChange:
        change = _begin_change(self, isr, own_broker_epoch)
        self.isr = tuple(replica for replica in self.isr if replica in isr)
        return change

    _begin_change = Leading.begin_change
    return [instead(Leading, "begin_change", begin_change)]


@mutation("a leader does not wait for joining replicas", "KIP-497")
def pending_is_not_waited_for() -> list[Any]:
    """Until the controller has answered, only the committed ISR counts."""
    return [instead(Leading, "maximal_isr", property(lambda self: frozenset(self.isr)))]


@mutation("a follower joins below the start of the leader's epoch", "KAFKA-7128")
def joins_below_epoch_start() -> list[Any]:
    """The follower may lack records that an earlier leader committed. As in Kafka, its lag is not checked."""
    return [_without_reasons(leading.BELOW_EPOCH_START, leading.LAGGING)]


@mutation("a follower joins below the high watermark", "DB-14")
def joins_below_high_watermark() -> list[Any]:
    """The follower may be elected without acknowledged records."""
    return [_without_reasons(leading.BELOW_HIGH_WATERMARK)]


@mutation("the high watermark moves while too few are in sync", "KIP-966")
def moves_below_min_isr() -> list[Any]:
    """A replica that has left the ISR lacks committed records, but may be elected."""
    raise_high_watermark = Partition.raise_high_watermark

    def careless(self: Partition) -> None:
        has_enough, self.has_enough_in_sync = self.has_enough_in_sync, True
        try:
            raise_high_watermark(self)
        finally:
            self.has_enough_in_sync = has_enough

    return [instead(Partition, "raise_high_watermark", careless)]


@mutation("an outdated answer to AlterPartition is applied", "DB-11")
def old_answer_taken() -> list[Any]:
    """The metadata has had newer states since."""

    def answered(
        self: IsrChanges, partition: LedPartition, change: IsrChange, result: admin_pb2.AlterPartitionResult
    ) -> bool:
        led = partition.leading
        if led is not None and result.isr:
            led.pending, led.isr, led.partition_epoch = None, tuple(result.isr), result.partition_epoch
            partition.isr_settled()
        return bool(result.error_code) and led is not None and led.pending is change

    return [instead(IsrChanges, "_is_to_be_asked_again", answered)]


@mutation("a fetch of an old broker epoch counts", "KIP-903")
def old_broker_epoch_counts() -> list[Any]:
    """The broker has restarted since, and may have lost what the fetch acknowledges."""

    def follower_fetched(
        self: Partition, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int
    ) -> None:
        registered = self._replication.brokers.registered_epoch(replica_id)
        present_epoch = UNKNOWN_EPOCH if registered is None else registered
        fetched(self, replica_id, present_epoch, offset, log_start_offset)

    fetched = Partition.follower_fetched
    return [instead(Partition, "follower_fetched", follower_fetched)]


# --- what counts ------------------------------------------------------------------------------------------------------


@mutation("a follower counts before it has flushed", "DB-24")
def counts_before_flush() -> list[Any]:
    """The follower's next fetch does not wait for its disk."""
    return [instead(ReplicaFetcher, "_flush", lambda self, followed, log: None)]


@mutation("a follower counts before it has appended", "DB-01")
def counts_before_append() -> list[Any]:
    """Records sent to a follower count as received."""

    def count(wanted: ReadFrom, reader: Reader, located: Located) -> Located:
        log = wanted.partition.log
        if located.error is None and located.diverging is None and log is not None:
            wanted = wanted._replace(offset=log.log_end_offset)
        return count_follower(wanted, reader, located)

    count_follower = reading.count_follower
    return [instead(delayed_fetch, "count_follower", count)]


@mutation("a leader counts what it has not flushed", "DB-20")
def leader_counts_before_flush() -> list[Any]:
    """The leader's own log end counts, even if the topic requires a flush."""
    return [instead(PartitionLog, "recovery_point", property(lambda self: self.log_end_offset))]


@mutation("a follower keeps fetching from a former leader", "DB-38")
def follows_the_former_leader() -> list[Any]:
    """The follower stays with the leader that it followed first."""
    follow = ReplicaFetchers.follow

    def faithful(self: ReplicaFetchers, partition: Followable) -> None:
        if PartitionKey(partition.topic_id, partition.name.partition_id) not in self._sources:
            follow(self, partition)

    return [instead(ReplicaFetchers, "follow", faithful)]


# --- truncation -------------------------------------------------------------------------------------------------------


@mutation("a follower truncates its log to its high watermark", "KIP-101, first scenario")
def cut_to_high_watermark() -> list[Any]:
    """The follower's high watermark lags behind the leader's, so truncated records may be committed.

    Then it is elected.
    """
    return [instead(followed_partition, "first_phase", lambda log: Phase.TRUNCATING)]


@mutation("a divergence of logs is not detected", "KIP-101, second scenario")
def divergence_not_found() -> list[Any]:
    """A follower appends to records that another leader has written."""
    return [instead(reading, "_diverging", lambda log, wanted: None)]


@mutation("an epoch that a leader lacks ends where the next begins", "KIP-279")
def unknown_epoch_ends_at_the_next() -> list[Any]:
    """After fast leader changes a follower keeps records of an epoch that no other replica has."""
    end_offset_for = LeaderEpochs.end_offset_for

    def careless(self: LeaderEpochs, epoch: int, log_end_offset: int) -> EpochEnd:
        found = end_offset_for(self, epoch, log_end_offset)
        return found if found.epoch == UNKNOWN_EPOCH else found._replace(epoch=epoch)

    return [instead(LeaderEpochs, "end_offset_for", careless)]


@mutation("a follower truncates more than it must", "DB-31")
def cuts_below_high_watermark() -> list[Any]:
    """Where logs diverge, the follower drops the whole previous epoch, too."""

    def offset(leader: EpochEnd, log: LogView) -> int:
        entries = log.epochs.entries()
        return min(truncation_offset(leader, log), entries[-2][1] if len(entries) > 1 else log.log_start_offset)

    truncation_offset = following.truncation_offset
    return [instead(following, "truncation_offset", offset)]


@mutation("a start does not know the epochs of flushed records", "DB-68")
def epochs_not_written() -> list[Any]:
    """The file of epochs is not written before a flush is acknowledged."""

    def none(self: Durability) -> None:
        self._epochs.saved(self._epochs.entries())
        self._epochs_are_saved_below = None

    return [instead(Durability, "_new_epochs", none)]


@mutation("a truncation leaves epochs of truncated records", "DB-42")
def epochs_stay_after_cut() -> list[Any]:
    """The log reports an epoch that it does not have."""
    return [instead(LeaderEpochs, "truncate_end", lambda self, end_offset: None)]


# --- leaders ----------------------------------------------------------------------------------------------------------


@mutation("an unclean leader keeps its epoch", "KAFKA-1211")
def unclean_leader_keeps_epoch() -> list[Any]:
    """Two leaders have written in one epoch."""
    changed_partition = statemachine.replay.replay.changed_partition

    def forgetful(before: PartitionRecord, change: PartitionChangeRecord) -> PartitionRecord:
        after = changed_partition(before, change)
        if after.leader_recovery_state and not before.leader_recovery_state:
            after.leader_epoch = before.leader_epoch
        return after

    return [
        instead(statemachine.replay.replay, "changed_partition", forgetful),
        instead(alter_partition, "changed_partition", forgetful),
    ]


@mutation("a reassignment drops the last copy in sync", "CT-54")
def drops_last_copy() -> list[Any]:
    """The reassignment does not wait until the new replicas have the records."""

    def complete(plan: Any) -> None:
        staying = [broker_id for broker_id in plan.replicas if broker_id not in plan.removing_replicas]
        if staying and (plan.removing_replicas or plan.adding_replicas):
            plan.replicas = staying
            plan.isr = [broker_id for broker_id in plan.isr if broker_id in staying] or staying[:1]
            plan.removing_replicas = []
            plan.adding_replicas = []

    return [instead(partition_change, "_complete_reassignment", complete)]


@mutation("a new leader does not know the producers", "KIP-98")
def producers_not_followed() -> list[Any]:
    """The new leader appends a batch again that is sent to it again."""
    append_as_follower = PartitionLog.append_as_follower

    def forgetful(self: PartitionLog, *arguments: Any) -> int:
        end_offset = append_as_follower(self, *arguments)
        self.producers.states.load((), 0)
        return end_offset

    return [instead(PartitionLog, "append_as_follower", forgetful)]


@mutation("a start counts markers above the high watermark as committed", "DB-72")
def markers_taken_for_committed() -> list[Any]:
    """A snapshot has the open transactions. Those that ended above the high watermark are not restored."""
    return [instead(ProducerHistory, "_restore_ended", lambda *_: None)]


def _without_reasons(*reasons: str) -> Any:
    why_not: Callable[..., Any] = Leading._why_not
    return instead(Leading, "_why_not", lambda *arguments: (why for why in why_not(*arguments) if why not in reasons))


# --- an older disk ----------------------------------------------------------------------------------------------------


@mutation("the controller accepts an older disk as the last one", "CT-38")
def older_disk_not_seen() -> list[Any]:
    """As the last member of an ISR or the last known leader, the older copy leads, and other replicas truncate."""
    return [instead(brokers, "_older_log_dirs", lambda *_: [])]


@mutation("a directory that missed a start counts as an older copy", "CT-38")
def directory_not_remembered() -> list[Any]:
    """When the directory is back, its replicas are neither in sync nor eligible, and no replica leads."""
    return [instead(brokers, "_unfenced_log_dirs", lambda *_: [])]


# --- log directories --------------------------------------------------------------------------------------------------


@mutation("a log in a missing directory counts as a new one", "DB-89")
def missing_log_taken_for_new() -> list[Any]:
    """The replica reports another directory and starts with an empty log.

    The missing directory is useless when it is back.
    """
    return [instead(MissingLogs, "check", lambda *_: None)]


@mutation("a deleted log stays in the inventory", "DB-89")
def deleted_log_stays_in_inventory() -> list[Any]:
    """When the replica is assigned again, its new log counts as damaged."""
    return [instead(DirectoryRecords, "about_to_go", lambda self, partitions, is_synced=True: None)]


# --- listeners --------------------------------------------------------------------------------------------------------


@mutation("a listener does not learn of a leader's later epoch", "our own")
def leads_on_unheard() -> list[Any]:
    """A coordinator would continue with its state of the previous epoch."""
    look_at = Leaderships.look_at

    def look(self: Leaderships, partition: Partition) -> None:
        if (partition.leading is None) == (partition in self._known):
            look_at(self, partition)

    return [instead(Leaderships, "look_at", look)]


@mutation("a listener does not learn of a leadership's end by a failed log", "our own")
def failed_log_unheard() -> list[Any]:
    """A coordinator would answer from an offline log, while the next leader answers, too."""
    look_at = Leaderships.look_at

    def look(self: Leaderships, partition: Partition) -> None:
        if partition.log is not None:
            look_at(self, partition)

    return [instead(Leaderships, "look_at", look)]
