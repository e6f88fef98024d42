"""Bugs of the replication of partitions between brokers: lags, ISRs, high watermarks, truncation, epochs, elections."""

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


@mutation("only who has the leader's end is caught up", "KAFKA-4485")
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
    """It has the high watermark, and is thrown out by the next check."""
    return [_without_reasons(leading.LAGGING)]


@mutation("followers out of the ISR do not hold the high watermark", "DB-20")
def runs_away_from_followers() -> list[Any]:
    """On a busy leader they never reach it."""
    return [instead(Leading, "_is_about_to_join", lambda *_: False)]


@mutation("nobody is asked to leave the ISR", "DB-15")
def nobody_leaves() -> list[Any]:
    """A follower that has stopped stays in it."""
    return [instead(Leading, "_is_out_of_sync", lambda *_: False)]


# --- ISRs -------------------------------------------------------------------------------------------------------------


@mutation("a leader shrinks the ISR without the controller", "DB-10")
def shrinks_alone() -> list[Any]:
    """It waits no more for a replica that the controller may elect."""

    def begin_change(self: Leading, isr: Sequence[int], own_broker_epoch: int) -> IsrChange:
        change = _begin_change(self, isr, own_broker_epoch)
        self.isr = tuple(replica for replica in self.isr if replica in isr)
        return change

    _begin_change = Leading.begin_change
    return [instead(Leading, "begin_change", begin_change)]


@mutation("a leader does not wait for who is about to join", "KIP-497")
def pending_is_not_waited_for() -> list[Any]:
    """Until the answer is there only the committed ISR counts."""
    return [instead(Leading, "maximal_isr", property(lambda self: frozenset(self.isr)))]


@mutation("a follower joins below the start of the leader's epoch", "KAFKA-7128")
def joins_below_epoch_start() -> list[Any]:
    """What an earlier leader has committed may be what it lacks. As in Kafka, its lag is not looked at."""
    return [_without_reasons(leading.BELOW_EPOCH_START, leading.LAGGING)]


@mutation("a follower joins below the high watermark", "DB-14")
def joins_below_high_watermark() -> list[Any]:
    """It may be elected without what was acknowledged."""
    return [_without_reasons(leading.BELOW_HIGH_WATERMARK)]


@mutation("the high watermark moves while too few are in sync", "KIP-966")
def moves_below_min_isr() -> list[Any]:
    """A replica that has left the ISR then lacks what is committed, and may be elected."""
    raise_high_watermark = Partition.raise_high_watermark

    def careless(self: Partition) -> None:
        has_enough, self.has_enough_in_sync = self.has_enough_in_sync, True
        try:
            raise_high_watermark(self)
        finally:
            self.has_enough_in_sync = has_enough

    return [instead(Partition, "raise_high_watermark", careless)]


@mutation("an old answer to AlterPartition is taken", "DB-11")
def old_answer_taken() -> list[Any]:
    """The metadata has said more since."""

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
    """The broker has started again since, and may have lost what it says that it has."""

    def follower_fetched(
        self: Partition, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int
    ) -> None:
        registered = self._replication.brokers.registered_epoch(replica_id)
        present_epoch = UNKNOWN_EPOCH if registered is None else registered
        fetched(self, replica_id, present_epoch, offset, log_start_offset)

    fetched = Partition.follower_fetched
    return [instead(Partition, "follower_fetched", follower_fetched)]


# --- what a follower has ----------------------------------------------------------------------------------------------


@mutation("a follower counts before it has flushed", "DB-24")
def counts_before_flush() -> list[Any]:
    """Its next fetch does not wait for its disk."""
    return [instead(ReplicaFetcher, "_flush", lambda self, followed, log: None)]


@mutation("a follower counts before it has appended", "DB-01")
def counts_before_append() -> list[Any]:
    """What it is sent is taken for what it has."""

    def count(wanted: ReadFrom, reader: Reader, located: Located) -> Located:
        log = wanted.partition.log
        if located.error is None and located.diverging is None and log is not None:
            wanted = wanted._replace(offset=log.log_end_offset)
        return count_follower(wanted, reader, located)

    count_follower = reading.count_follower
    return [instead(delayed_fetch, "count_follower", count)]


@mutation("a leader counts what it has not flushed", "DB-20")
def leader_counts_before_flush() -> list[Any]:
    """Its own end is the log's, whatever the topic asks for."""
    return [instead(PartitionLog, "recovery_point", property(lambda self: self.log_end_offset))]


@mutation("a follower goes on fetching from a leader that was", "DB-38")
def follows_the_former_leader() -> list[Any]:
    """It follows whom it has followed first."""
    follow = ReplicaFetchers.follow

    def faithful(self: ReplicaFetchers, partition: Followable) -> None:
        if PartitionKey(partition.topic_id, partition.name.partition_id) not in self._sources:
            follow(self, partition)

    return [instead(ReplicaFetchers, "follow", faithful)]


# --- truncation -------------------------------------------------------------------------------------------------------


@mutation("a follower cuts its log to its high watermark", "KIP-101, first scenario")
def cut_to_high_watermark() -> list[Any]:
    """It is behind the leader's, so what is cut may be committed; then the follower is elected."""
    return [instead(followed_partition, "first_phase", lambda log: Phase.TRUNCATING)]


@mutation("logs that part are not found out", "KIP-101, second scenario")
def divergence_not_found() -> list[Any]:
    """A follower appends to what another leader has written."""
    return [instead(reading, "_diverging", lambda log, wanted: None)]


@mutation("an epoch that a leader lacks ends where the next begins", "KIP-279")
def unknown_epoch_ends_at_the_next() -> list[Any]:
    """After fast changes of the leader a follower keeps records of an epoch that nobody else has."""
    end_offset_for = LeaderEpochs.end_offset_for

    def careless(self: LeaderEpochs, epoch: int, log_end_offset: int) -> EpochEnd:
        found = end_offset_for(self, epoch, log_end_offset)
        return found if found.epoch == UNKNOWN_EPOCH else found._replace(epoch=epoch)

    return [instead(LeaderEpochs, "end_offset_for", careless)]


@mutation("a follower cuts more than it must", "DB-31")
def cuts_below_high_watermark() -> list[Any]:
    """Where logs part, it drops the whole epoch before, too."""

    def offset(leader: EpochEnd, log: LogView) -> int:
        entries = log.epochs.entries()
        return min(truncation_offset(leader, log), entries[-2][1] if len(entries) > 1 else log.log_start_offset)

    truncation_offset = following.truncation_offset
    return [instead(following, "truncation_offset", offset)]


@mutation("a start does not know the epochs of what is flushed", "DB-68")
def epochs_not_written() -> list[Any]:
    """The file of epochs is not written before a flush is acknowledged."""

    def none(self: Durability) -> None:
        self._epochs.saved(self._epochs.entries())
        self._epochs_are_saved_below = None

    return [instead(Durability, "_new_epochs", none)]


@mutation("a cut leaves epochs of what was cut", "DB-42")
def epochs_stay_after_cut() -> list[Any]:
    """The log says that it has an epoch that it does not have."""
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
    """It does not wait until the new replicas have the records."""

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
    """A batch that is sent again to it is appended again."""
    append_as_follower = PartitionLog.append_as_follower

    def forgetful(self: PartitionLog, *arguments: Any) -> int:
        end_offset = append_as_follower(self, *arguments)
        self.producers.states.load((), 0)
        return end_offset

    return [instead(PartitionLog, "append_as_follower", forgetful)]


@mutation("a start takes markers above the high watermark for committed", "DB-72")
def markers_taken_for_committed() -> list[Any]:
    """A snapshot has the transactions that are open; those that have ended are not looked for."""
    return [instead(ProducerHistory, "_restore_ended", lambda *_: None)]


def _without_reasons(*reasons: str) -> Any:
    why_not: Callable[..., Any] = Leading._why_not
    return instead(Leading, "_why_not", lambda *arguments: (why for why in why_not(*arguments) if why not in reasons))


# --- an older disk ----------------------------------------------------------------------------------------------------


@mutation("the controller takes an older disk for the last one", "CT-38")
def older_disk_not_seen() -> list[Any]:
    """As the last member of an ISR, or the last known leader, it leads, and others cut what was acknowledged since."""
    return [instead(brokers, "_older_log_dirs", lambda *_: [])]


@mutation("a directory that was not there for a start is taken for an older copy", "CT-38")
def directory_not_remembered() -> list[Any]:
    """Its replicas are neither in sync nor eligible when it is back, and nobody leads."""
    return [instead(brokers, "_unfenced_log_dirs", lambda *_: [])]


# --- what a start finds -----------------------------------------------------------------------------------------------


@mutation("a log in a directory that is not there is taken for a new one", "DB-89")
def missing_log_taken_for_new() -> list[Any]:
    """The replica says that it is in another directory, and begins anew; the directory is of no use when it is back."""
    return [instead(MissingLogs, "check", lambda *_: None)]


@mutation("a deleted log stays in the inventory", "DB-89")
def deleted_log_stays_in_inventory() -> list[Any]:
    """When the replica is assigned again, a new log is taken for a damaged one."""
    return [instead(DirectoryRecords, "about_to_go", lambda self, partitions, is_synced=True: None)]


# --- what listeners hear ----------------------------------------------------------------------------------------------


@mutation("a listener does not hear that a broker leads on in a later epoch", "our own")
def leads_on_unheard() -> list[Any]:
    """A coordinator would go on with what it knew in the epoch before."""
    look_at = Leaderships.look_at

    def look(self: Leaderships, partition: Partition) -> None:
        if (partition.leading is None) == (partition in self._told):
            look_at(self, partition)

    return [instead(Leaderships, "look_at", look)]


@mutation("a listener does not hear of the end of a leadership whose log has failed", "our own")
def failed_log_unheard() -> list[Any]:
    """A coordinator would answer from a log that is offline, beside the one of the next leader."""
    look_at = Leaderships.look_at

    def look(self: Leaderships, partition: Partition) -> None:
        if partition.log is not None:
            look_at(self, partition)

    return [instead(Leaderships, "look_at", look)]
