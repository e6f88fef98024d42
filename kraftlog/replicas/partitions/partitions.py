"""All partitions of which this broker has replicas, as committed metadata says: a publisher of its state machine.

A change of the metadata is carried out here: logs are made, leaders enter their epochs, logs of replicas that are not
here any more are deleted. What leaves comes before what arrives: a topic that was deleted and made again under
its name has its directory by then. A small change is carried out at once, a large one in slices, and what must be
durable becomes so in the disk's thread, with a few syncs for all partitions (DB-97). A replica that is new is here when
no crash can take it: until then it answers nobody, and its leader's followers, or the controller, do not hear of it.
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
"""How many replicas of a whole state are read in one turn of the loop, at most."""


class TopicSettings(Protocol):
    """What the configs of topics make of their logs."""

    def log_config(self, topic: str) -> PartitionLogConfig:
        """The settings of the logs of a topic's partitions."""
        ...

    def min_insync_replicas(self, topic: str) -> int:
        """How many replicas of a partition must be in sync for acks=all."""
        ...


class Followers(Protocol):
    """Has replicas follow their leaders. Both may be called again for what is so already."""

    def follow(self, partition: Partition) -> None:
        """Another broker leads in the partition's epoch, which is a new one, or the log has just come online."""
        ...

    def unfollow(self, partition: Partition) -> None:
        """Nothing is appended to its log any more: this broker is about to lead it, nobody leads, or it goes."""
        ...


class NobodyFollows:
    """Of a broker that does not replicate."""

    def follow(self, partition: Partition) -> None:
        """Do nothing."""

    def unfollow(self, partition: Partition) -> None:
        """Do nothing."""


def reraise(error: BaseException) -> None:
    """Raise it in the callback that it was met in."""
    raise error


class Partitions:
    """By topic id and number, and by name and number. For one thread."""

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
        """`on_placed` is called with the directory that a replica is in, which the controller is to be told; LOST if in
        none. `on_failed` is called with what keeps a change from being carried out."""
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
        """Called when the changes are carried out that are under way."""
        self._after_next: list[Callable[[], None]] = []
        """Called when those are that wait."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_id.values())

    def with_id(self, topic_id: bytes, index: int) -> Partition | None:
        """The replica of a partition here, by its topic's id."""
        return self._by_id.get((topic_id, index))

    def named(self, topic: str, index: int) -> Partition | None:
        """The replica of a partition here, by its topic's name."""
        return self._by_name.get((topic, index))

    # --- what the metadata says ---------------------------------------------------------------------------------------

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Have exactly the replicas that a whole state says, as on a start; other logs are deleted (DB-86)."""
        self._metadata = metadata
        self._pending.replace(*self._assigned(metadata, None))
        self._begin()

    def _assigned(
        self, metadata: sqlite3.Connection, after: Key | None
    ) -> tuple[dict[PartitionKey, PartitionRecord], Key | None]:
        """Some of the replicas that are here, of partitions above a key, and the key to go on from; None at the end."""
        page = PARTITIONS.scan(metadata, holding(self.broker_id), after, SCANNED_REPLICAS)
        return keys_of(record for _, record in page.found), page.end

    def _scan_rest(self, changes: Changes) -> Steps:
        """Find the other replicas of a whole state, as it is by now: the changes since come as well, and are later."""
        while changes.scanned_to is not None and self._metadata is not None and not self._pending.is_whole:
            changes.scanned(*self._assigned(self._metadata, changes.scanned_to))
            yield None

    def on_delta(self, delta: MetadataDelta) -> None:
        """Carry the changes out."""
        self._pending.add(delta)
        self._begin()

    def when_level(self, callback: Callable[[], None]) -> None:
        """Call back when all that the metadata says now is carried out; at once if it is.

        Nobody waits for what comes later: it may come faster than it is carried out, for hours.
        """
        if self._work.is_idle:
            callback()
        else:
            (self._after_next if self._pending else self._after_these).append(callback)

    def stop(self) -> None:
        """Carry nothing more out; listeners are told that nothing is led."""
        self._work.stop()
        self._after_these.clear()
        self._after_next.clear()
        self._leaderships.stop()

    # --- carrying it out ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._work.is_idle:
            changes = self._pending.take()
            self._work.start(self._carry_out_all(changes), is_small=changes.is_small)

    def _carry_out_all(self, changes: Changes) -> Steps:
        """These changes, and those that come meanwhile."""
        while True:
            yield from self._scan_rest(changes)
            if changes.scanned_to is None:
                yield from self._carry_out(changes)
                while self._after_these:
                    self._after_these.pop(0)()
            if not self._pending:
                return
            changes = self._pending.take()
            self._after_these += self._after_next
            self._after_next.clear()

    def _carry_out(self, changes: Changes) -> Steps:
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
            # A follower outside the ISR that is fenced now holds no high watermark back any more (DB-13).
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
        """Have the inventories expect the logs that are about to be made."""
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
            found = [one for one in self if changes.is_broker_configured or one.name.topic in topics]
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
                return  # removed again by what is applied already, of which the next change tells
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
        # The setting may change with it: an ISR that has shrunk counts with the setting that it has shrunk under.
        partition.update(record, self._settings.min_insync_replicas(partition.name.topic))
        self._settle(partition)
        if partition.leader_epoch != epoch_before or (partition.log is not None) != had_log:
            self._take_role(partition)
        else:
            partition.lead()
        self._leaderships.look_at(partition)
        partition.raise_high_watermark()
        partition.notify_all()

    def _take_role(self, partition: Partition) -> None:
        """Lead or follow in the epoch that the metadata says; what was before ends first."""
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
        """The name of a topic that this broker may have had nothing of so far."""
        topic = None if self._metadata is None else TOPICS.get(self._metadata, (topic_id,))
        return None if topic is None else topic.name

    def _open(self, partition: Partition) -> None:
        """Find the partition's log, or make it; without one it is offline."""
        topic_id = UUID(bytes=partition.topic_id)
        config = self._settings.log_config(partition.name.topic)
        wanted_id = UUID(bytes=self._assigned_directory(partition))
        try:
            set_copies_aside(self._logs, partition.name, topic_id, wanted_id)
            if partition.record.leader in (NO_LEADER, self.broker_id):  # else it is cut to what the leader has
                set_old_aside(self._logs, partition.name, wanted_id)
            finding = self._logs.assess(partition.name, topic_id)
            if finding is Finding.STRAY:
                set_stray_aside(self._logs, partition.name)
                finding = self._logs.assess(partition.name, topic_id)  # another directory may have had its log
            found = self._logs.directory_of(partition.name)
            self._check_is_not_offline(partition, None if found is None else found.directory_id.bytes)
            if finding is Finding.NEW:
                check_is_new(self._logs, partition.name, topic_id, wanted_id)
                partition.log = self._logs.create_log(partition.name, topic_id, config, wanted_id)
            else:
                partition.log = self._logs.log_of(partition.name)
                partition.log.config = config
        except ApiError as error:
            if str(error) != partition.offline_reason and not self._logs.is_damaged(partition.name):  # else said
                logger.error("a partition is offline", partition=str(partition), reason=str(error))
            partition.close(error)

    def _settle(self, partition: Partition) -> None:
        """Do something about a log that is damaged, or tell the controller where the log is.

        That is needed not just once. Consider a controller that hears of damage when the log has been copied anew.
        """
        self._mend(partition)
        directory = self._logs.directory_of(partition.name)
        if directory is not None and partition.log is not None:
            self._on_placed(partition, directory.directory_id)

    def _mend(self, partition: Partition) -> None:
        """Have others serve in the place of a replica whose log is damaged, and copy it anew if that is safe."""
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
        """Begin with an empty log, into which the leader's is copied."""
        topic_id, config = UUID(bytes=partition.topic_id), self._settings.log_config(partition.name.topic)
        try:
            set_damaged_aside(self._logs, partition.name)
            partition.log = self._logs.create_log(partition.name, topic_id, config)
        except ApiError as error:
            if str(error) != partition.offline_reason:
                logger.error("a damaged log is not copied anew", partition=str(partition), reason=str(error))
            partition.close(error)

    def _accept_loss(self, partition: Partition) -> None:
        """Lead with what the log has, as this broker was elected uncleanly."""
        topic_id, config = UUID(bytes=partition.topic_id), self._settings.log_config(partition.name.topic)
        try:
            partition.log = self._logs.accept_loss(partition.name, topic_id, config)
        except ApiError as error:
            logger.error("a damaged log is not used", partition=str(partition), reason=str(error))

    def _check_is_not_offline(self, partition: Partition, found_id: bytes | None) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the log may be in a directory that is offline (KIP-858).

        `found_id` is the directory that has one; None if none is made yet. Consider the only replica of a partition,
        whose disk fails. An empty log in another directory would lead, and all that was acknowledged would be gone,
        although the disk may come back. So would an old copy, from before the partition was moved to that disk.
        """
        online = self._logs.online
        if len(online) == len(self._logs.directories) and not self._logs.failed:
            return
        assigned = self._assigned_directory(partition)
        known = {LOST_DIRECTORY, DAMAGED_DIRECTORY, *(of.directory_id.bytes for of in online)}
        if found_id is not None or not partition.record.partition_epoch:
            known.add(UNASSIGNED_DIRECTORY)  # it is new, and no directory has anything of it, or it is here
        if assigned not in known and assigned != found_id:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {partition} may be in a log directory that is offline: repair that, and restart",
            )

    def _assigned_directory(self, partition: Partition) -> bytes:
        """The id of the directory of this broker that the metadata has for it."""
        return self._directory_in(partition.record)

    def _directory_in(self, record: PartitionRecord) -> bytes:
        for replica, directory_id in zip(record.replicas, record.directories, strict=False):
            if replica == self.broker_id:
                return directory_id
        return MIGRATING_DIRECTORY

    def _remove_all(self, leaving: Mapping[PartitionKey, bool]) -> Steps:
        """Have replicas be here no longer, then delete their logs: also those that are damaged."""
        retired: dict[TopicPartition, list[LogDirectory]] = {}
        for keys in slices(list(leaving), SLICE_PARTITIONS):
            for key in keys:
                partition = self._by_id.pop(key, None)
                if partition is None:
                    continue
                self._by_name.pop(partition.name, None)
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leaving[key] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                gone = ApiError(code, f"{partition} is not on this broker any more: ask for the metadata again")
                self._followers.unfollow(partition)
                partition.stop_leading()
                retired[partition.name] = self._logs.retire_log(partition.name, gone)
                partition.close(gone)
                self._leaderships.look_at(partition)
            yield None
        if retired:
            yield from self._logs.delete_logs(retired)

    def check_logs(self) -> None:
        """Take those partitions offline whose log has failed, and tell who waits for them.

        A log for which there was no room is made if there is room now, and what could not be flushed is flushed.
        """
        for partition in self:
            if partition.log is None:
                if self._logs.directory_of(partition.name) is None:
                    self._open(partition)
                    self._settle(partition)
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
        """Flush the end of a log that counts once it is flushed, and whose flush has failed on a full disk.

        Otherwise the next append would, and readers might wait for it for ever.
        """
        log = partition.log
        if (
            log is not None and partition.is_leader and log.config.flush_before_ack
            and log.recovery_point < log.log_end_offset
        ):  # fmt: skip
            log.acknowledge(log.log_end_offset, lambda error: partition.raise_high_watermark())

    def check_isrs(self) -> None:
        """Have those leave an ISR that are not caught up; due every half of `replica.lag.time.max.ms` (DB-15)."""
        for partition in self:
            partition.check_isr()
