"""All partitions of which this broker has replicas, by committed metadata: a publisher of its state machine.

This module applies changes of the metadata: it creates logs, lets leaders begin their epochs, and deletes the logs of
removed replicas. Replicas are removed before others are added, so that a topic which was deleted and recreated under
its name finds its directory name free. A small change is applied at once, a large one in slices, with syncs in the
disk's thread, a few for all partitions (DB-97). A new replica is added only when no crash can remove it: until then it
answers no request, fetches nothing, and the controller is not notified of its directory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import NO_LEADER, UNKNOWN_EPOCH
from kraftbase.types import Offset
from kraftlog.replicas.partitions.damaged_replicas import Step, next_step
from kraftlog.replicas.partitions.leadership import LeadershipListener, Leaderships
from kraftlog.replicas.partitions.partition import Partition, Replication
from kraftlog.replicas.partitions.pending_changes import Changes, PartitionKey, PendingChanges, keys_of
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.findings import Finding
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.new_logs import check_is_new, expect_logs, would_be_new
from kraftlog.storage.set_aside import (
    set_copies_aside,
    set_damaged_aside,
    set_old_aside,
    set_stray_aside,
    set_strays_aside,
)
from kraftlog.storage.slices import SLICE_LINES, SLICE_PARTITIONS, SlicedWork, Steps, slices
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.replay.deltas import MetadataDelta
from statemachine.tables.table import Key
from statemachine.tables.topic_tables import PARTITIONS, TOPICS, holding

logger = structlog.get_logger(__name__)

SCANNED_REPLICAS: Final = 512
"""The most replicas of a snapshot of the metadata that are read in one turn of the loop."""


class TopicSettings(Protocol):
    """The settings of partitions by their topics' configs."""

    def log_config(self, topic: str) -> PartitionLogConfig:
        """Return the log settings of a topic's partitions."""
        ...

    def min_insync_replicas(self, topic: str) -> int:
        """Return a topic's `min.insync.replicas`."""
        ...


class Followers(Protocol):
    """Makes replicas follow their leaders. Both methods are idempotent."""

    def follow(self, partition: Partition) -> None:
        """Follow the leader of the partition's leader epoch, which is new, or whose log has just come online."""
        ...

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching: this broker is about to lead, the partition has no leader, or the replica is removed."""
        ...


class NoReplication:
    """The `Followers` of a broker that does not replicate."""

    def follow(self, partition: Partition) -> None:
        """Do nothing."""

    def unfollow(self, partition: Partition) -> None:
        """Do nothing."""


def reraise(error: BaseException) -> None:
    """Raise an error in the callback in which it occurred."""
    raise error


class Partitions:
    """This broker's replicas, by topic id and number and by name and number. For one thread."""

    def __init__(
        self,
        logs: LogManager,
        settings: TopicSettings,
        replication: Replication,
        *,
        followers: Followers,
        listeners: Sequence[LeadershipListener],
        on_placed: Callable[[Partition, UUID], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_placed` is called with a replica's directory, to report it to the controller; LOST if it is in none.
        `on_failed` is called with an error that prevents a change from being applied."""
        self.broker_id = replication.broker_id
        self.replication = replication
        self._followers = followers
        self._leaderships = Leaderships(listeners)
        self._logs = logs
        self._settings = settings
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._metadata: sqlite3.Connection | None = None
        self._on_placed = on_placed
        self._pending = PendingChanges(replication.broker_id)
        self._work = SlicedWork(logs.runtime, on_failed)
        self._after_these: list[Callable[[], None]] = []
        """Called when the changes in progress are applied."""
        self._after_next: list[Callable[[], None]] = []
        """Called when the pending changes are applied."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_id.values())

    def with_id(self, topic_id: bytes, index: int) -> Partition | None:
        """Return this broker's replica of a partition by its topic's id, or None."""
        return self._by_id.get((topic_id, index))

    def named(self, topic: str, index: int) -> Partition | None:
        """Return this broker's replica of a partition by its topic's name, or None."""
        return self._by_name.get((topic, index))

    # --- metadata -----------------------------------------------------------------------------------------------------

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Replace all replicas by those in a snapshot of the metadata, as at startup (DB-86).

        Logs of replicas that are removed are deleted; unknown logs are set aside.
        """
        self._metadata = metadata
        self._pending.replace(*self._assigned(metadata, None))
        self._begin()

    def _assigned(
        self, metadata: sqlite3.Connection, after: Key | None
    ) -> tuple[dict[PartitionKey, PartitionRecord], Key | None]:
        """Return some of this broker's replicas, after a key, and the key to continue from; None at the end."""
        page = PARTITIONS.scan(metadata, holding(self.broker_id), after, SCANNED_REPLICAS)
        return keys_of(record for _, record in page.found), page.end

    def _scan_rest(self, changes: Changes) -> Steps:
        """Read the remaining replicas of a snapshot from the present state; later changes are pending as well."""
        while changes.scanned_to is not None and self._metadata is not None and not self._pending.is_whole:
            changes.scanned(*self._assigned(self._metadata, changes.scanned_to))
            yield None

    def on_delta(self, delta: MetadataDelta) -> None:
        """Apply a change of the metadata, after the changes in progress."""
        self._pending.add(delta)
        self._begin()

    def when_level(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the present metadata is applied, at once if it is already.

        It does not wait for later changes, which may arrive faster than they are applied, for hours.
        """
        if self._work.is_idle:
            callback()
        else:
            (self._after_next if self._pending else self._after_these).append(callback)

    def stop(self) -> None:
        """Stop applying changes, and end all leaderships for the listeners."""
        self._work.stop()
        self._after_these.clear()
        self._after_next.clear()
        self._leaderships.stop()

    # --- applying changes ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._work.is_idle:
            changes = self._pending.take()
            self._work.start(self._execute_all(changes), is_small=changes.is_small)

    def _execute_all(self, changes: Changes) -> Steps:
        """Apply these changes, and those that arrive in between."""
        while True:
            yield from self._scan_rest(changes)
            if changes.scanned_to is None:
                yield from self._execute(changes)
                while self._after_these:
                    self._after_these.pop(0)()
            if not self._pending:
                return
            changes = self._pending.take()
            self._after_these += self._after_next
            self._after_next.clear()

    def _execute(self, changes: Changes) -> Steps:
        if changes.is_whole:
            for keys in slices([key for key in self._by_id if key not in changes.arriving], SLICE_LINES):
                changes.leaving |= {key: self._topic_name(key[0]) is not None for key in keys}
                yield None
        yield from self._remove_all(changes.leaving)
        if changes.is_whole:
            yield from self._set_strays_aside(changes.arriving)
        yield from self._expect_new_logs(changes)
        for some in slices(list(changes.arriving.values()), SLICE_PARTITIONS):
            for record in some:
                self._set(record, changes.topic_names)
            yield None
        self._logs.forget_expected()
        yield from self._on_configs(changes)
        if changes.are_brokers_changed:
            # A follower outside the ISR that is now fenced no longer holds back the high watermark (DB-13).
            for found in slices(list(self), SLICE_LINES):
                for partition in found:
                    partition.raise_high_watermark()
                yield None

    def _set_strays_aside(self, records: Mapping[PartitionKey, PartitionRecord]) -> Steps:
        mine: dict[TopicPartition, UUID] = {}
        for some in slices(list(records.values()), SLICE_LINES):
            for record in some:
                name = self._topic_name(record.topic_id)
                if name is not None:
                    mine[TopicPartition(name, record.partition_id)] = UUID(bytes=record.topic_id)
            yield None
        yield from set_strays_aside(self._logs, mine.get)

    def _expect_new_logs(self, changes: Changes) -> Steps:
        """Record the logs that are about to be created in the inventories."""
        wanted: dict[TopicPartition, tuple[UUID, UUID]] = {}
        for some in slices([key for key in changes.arriving if key not in self._by_id], SLICE_LINES):
            for key in some:
                record = changes.arriving[key]
                topic = changes.topic_names.get(record.topic_id) or self._topic_name(record.topic_id)
                if topic is None:
                    continue
                name, topic_id = TopicPartition(topic, record.partition_id), UUID(bytes=record.topic_id)
                wanted_id = UUID(bytes=self._directory_in(record))
                if would_be_new(self._logs, name, topic_id, wanted_id):
                    wanted[name] = (topic_id, wanted_id)
            yield None
        if len(wanted) > 1:
            yield from expect_logs(self._logs, wanted)

    def _on_configs(self, changes: Changes) -> Steps:
        topics = changes.configured_topics
        if changes.is_broker_configured or topics:
            found = [partition for partition in self if changes.is_broker_configured or partition.name.topic in topics]
            for some in slices(found, SLICE_LINES):
                self._configure(some)
                yield None

    def _configure(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            partition.update(partition.record, self._settings.min_insync_replicas(partition.name.topic))
            if partition.log is not None:
                partition.log.config = self._settings.log_config(partition.name.topic)
                partition.raise_high_watermark()

    # --- replicas -----------------------------------------------------------------------------------------------------

    def _set(self, record: PartitionRecord, new_topics: Mapping[bytes, str]) -> None:
        key = (record.topic_id, record.partition_id)
        partition = self._by_id.get(key)
        if partition is None:
            topic = new_topics.get(record.topic_id) or self._topic_name(record.topic_id)
            if topic is None:
                return  # the applied metadata has removed the topic again; the next change has that
            name = TopicPartition(topic, record.partition_id)
            partition = Partition(name, record, self.replication, self._settings.min_insync_replicas(topic))
            self._by_id[key] = self._by_name[name] = partition
            self._open(partition)
            epoch_before = UNKNOWN_EPOCH
        elif record.partition_epoch <= partition.record.partition_epoch:
            return
        else:
            epoch_before = partition.leader_epoch
        had_log = partition.log is not None
        # The setting is updated with the record: a shrunk ISR counts with the setting under which it has shrunk.
        partition.update(record, self._settings.min_insync_replicas(partition.name.topic))
        self._report_state(partition)
        if partition.leader_epoch != epoch_before or (partition.log is not None) != had_log:
            self._take_role(partition)
        else:
            partition.lead()
        self._leaderships.look_at(partition)
        partition.raise_high_watermark()
        partition.notify_all()

    def _take_role(self, partition: Partition) -> None:
        """Lead or follow in the leader epoch of the metadata, after ending the earlier role."""
        if partition.is_leader:
            self._followers.unfollow(partition)
            partition.lead()
            return
        partition.stop_leading()
        if partition.log is None or partition.record.leader == NO_LEADER:
            self._followers.unfollow(partition)
        else:
            self._followers.follow(partition)

    def _topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, also of one without replicas here so far; None if it does not exist."""
        topic = None if self._metadata is None else TOPICS.get(self._metadata, (topic_id,))
        return None if topic is None else topic.name

    def _open(self, partition: Partition) -> None:
        """Find or create the partition's log; if that fails, the partition is offline."""
        topic_id = UUID(bytes=partition.topic_id)
        config = self._settings.log_config(partition.name.topic)
        wanted_id = UUID(bytes=self._assigned_directory(partition))
        try:
            set_copies_aside(self._logs, partition.name, topic_id, wanted_id)
            if partition.record.leader in (NO_LEADER, self.broker_id):  # otherwise it is truncated to the leader's log
                set_old_aside(self._logs, partition.name, wanted_id)
            finding = self._logs.assess(partition.name, topic_id)
            if finding is Finding.STRAY:
                set_stray_aside(self._logs, partition.name)
                finding = self._logs.assess(partition.name, topic_id)  # another directory may have the right log
            found = self._logs.directory_of(partition.name)
            self._check_is_not_offline(partition, None if found is None else found.directory_id.bytes)
            if finding is Finding.NEW:
                check_is_new(self._logs, partition.name, topic_id, wanted_id)
                partition.log = self._logs.create_log(partition.name, topic_id, config, wanted_id)
            else:
                partition.log = self._logs.log_of(partition.name)
                partition.log.config = config
        except ApiError as error:
            if str(error) != partition.offline_reason and not self._logs.is_damaged(partition.name):  # else logged
                logger.error("a partition is offline", partition=str(partition), reason=str(error))
            partition.close(error)

    def _report_state(self, partition: Partition) -> None:
        """Take the next step for a damaged log, or report the log's directory to the controller.

        One report is not enough. Consider a controller that receives a report of damage after the log was copied again.
        """
        self._mend(partition)
        directory = self._logs.directory_of(partition.name)
        if directory is not None and partition.log is not None:
            self._on_placed(partition, directory.directory_id)

    def _mend(self, partition: Partition) -> None:
        """Take the next step for a replica with a damaged log: let others take over, and copy it again if safe."""
        directory = self._logs.directory_of(partition.name)
        if not self._logs.is_damaged(partition.name) or (directory is not None and directory.offline_reason):
            return
        step = next_step(
            partition.record,
            self.broker_id,
            self._assigned_directory(partition),
            was_damaged_at_start=self._logs.was_damaged_at_start(partition.name),
        )
        match step:
            case Step.LEAVE:
                self._on_placed(partition, UUID(bytes=LOST_DIRECTORY))
            case Step.STAND_DOWN:
                self._on_placed(partition, UUID(bytes=DAMAGED_DIRECTORY))
            case Step.ACCEPT_LOSS:
                self._accept_loss(partition)
            case Step.GIVE_UP_RECORDS:
                for home in [directory] if directory is not None else self._logs.online[:1]:
                    self._on_placed(partition, home.directory_id)
            case Step.COPY_ANEW:
                self._begin_copy(partition)

    def _begin_copy(self, partition: Partition) -> None:
        """Set a damaged log aside, and create an empty one, into which the leader's is copied."""
        topic_id, config = UUID(bytes=partition.topic_id), self._settings.log_config(partition.name.topic)
        try:
            set_damaged_aside(self._logs, partition.name)
            partition.log = self._logs.create_log(partition.name, topic_id, config)
        except ApiError as error:
            if str(error) != partition.offline_reason:
                logger.error("a damaged log cannot be copied again", partition=str(partition), reason=str(error))
            partition.close(error)

    def _accept_loss(self, partition: Partition) -> None:
        """Lead with the remaining records of a damaged log: this broker was elected uncleanly."""
        topic_id, config = UUID(bytes=partition.topic_id), self._settings.log_config(partition.name.topic)
        try:
            partition.log = self._logs.accept_loss(partition.name, topic_id, config)
        except ApiError as error:
            logger.error("a damaged log cannot be repaired", partition=str(partition), reason=str(error))

    def _check_is_not_offline(self, partition: Partition, found_id: bytes | None) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the log may be in a directory that is offline (KIP-858).

        `found_id` is the directory that has a log; None if none has. Consider the only replica of a partition, whose
        disk fails. With an empty log in another directory it would lead, and all acknowledged records would be lost,
        although the disk may come back. The same holds for an old copy from before a move to that disk.
        """
        online = self._logs.online
        if len(online) == len(self._logs.directories) and not self._logs.failed:
            return
        assigned = self._assigned_directory(partition)
        known = {LOST_DIRECTORY, DAMAGED_DIRECTORY, *(directory.directory_id.bytes for directory in online)}
        if found_id is not None or not partition.record.partition_epoch:
            known.add(UNASSIGNED_DIRECTORY)  # the log is new, or it was found
        if assigned not in known and assigned != found_id:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {partition} may be in a log directory that is offline: repair the directory, and restart"
                " the broker",
            )

    def _assigned_directory(self, partition: Partition) -> bytes:
        """Return the id of this broker's directory for the replica in the metadata."""
        return self._directory_in(partition.record)

    def _directory_in(self, record: PartitionRecord) -> bytes:
        for replica, directory_id in zip(record.replicas, record.directories, strict=False):
            if replica == self.broker_id:
                return directory_id
        return MIGRATING_DIRECTORY

    def _remove_all(self, leaving: Mapping[PartitionKey, bool]) -> Steps:
        """Remove replicas, then delete their logs, also damaged ones."""
        retired: dict[TopicPartition, list[LogDirectory]] = {}
        for keys in slices(list(leaving), SLICE_PARTITIONS):
            for key in keys:
                partition = self._by_id.pop(key, None)
                if partition is None:
                    continue
                self._by_name.pop(partition.name, None)
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leaving[key] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                gone = ApiError(code, f"{partition} is no longer on this broker: ask for the metadata again")
                self._followers.unfollow(partition)
                partition.stop_leading()
                retired[partition.name] = self._logs.retire_log(partition.name, gone)
                partition.close(gone)
                self._leaderships.look_at(partition)
            yield None
        if retired:
            yield from self._logs.delete_logs(retired)

    def check_logs(self) -> None:
        """Take partitions with failed logs offline, and notify their watchers.

        Also create logs for which there was no room, and flush again after a flush that failed for lack of room.
        """
        for partition in self:
            if partition.log is None:
                if self._logs.directory_of(partition.name) is None:
                    self._open(partition)
                    self._report_state(partition)
                    if partition.log is not None:
                        self._take_role(partition)
                        self._leaderships.look_at(partition)
                        partition.raise_high_watermark()
                continue
            try:
                self._logs.log_of(partition.name)
            except ApiError as error:
                self._followers.unfollow(partition)
                partition.close(error)
                self._leaderships.look_at(partition)
                self._mend(partition)
            else:
                self._flush_tail(partition)

    def _flush_tail(self, partition: Partition) -> None:
        """Flush the end of a leader's log with `flush.before.ack`, whose flush may have failed on a full disk.

        Otherwise only the next append would flush it, and readers might wait for its records for ever.
        """
        log = partition.log
        if (
            log is not None and partition.is_leader and log.config.flush_before_ack
            and log.recovery_point < log.log_end_offset
        ):  # fmt: skip
            log.acknowledge(log.log_end_offset, lambda error: partition.raise_high_watermark())

    def check_isrs(self) -> None:
        """Request the removal of replicas that are not caught up from ISRs (DB-15).

        The caller does this every half of `replica.lag.time.max.ms`.
        """
        for partition in self:
            partition.check_isr()
