"""Moves a stopped broker's directories to the cluster that was restored with its report.

The broker's copy of the metadata becomes the restored cluster's, so that its first start opens each log with the
configs of its topic; the old copy is kept under another name. The broker's own `meta.properties` is written last: until
then the broker starts in neither cluster, and the move can be done again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import UUID

from kraftbase.errors import ConfigurationError, DirectoryError, ErrorCode
from kraftbase.files.files import FileSystem, join, write_new_file
from kraftlog.broker.adopted_incarnation import adopted_incarnation, leave_adopted_incarnation
from kraftlog.offline.adoption.broker_disks import StoppedBroker, read_broker
from kraftlog.offline.adoption.broker_report import BrokerReport, ReportedLog
from kraftlog.storage.formats.checkpoints import encode_meta as encode_log_meta
from kraftlog.storage.formats.names import META_NAME as LOG_META_NAME
from kraftlog.storage.registered_epoch import registered_epoch
from kraftpb.v1.metadata_pb2 import PartitionRecord, RegisterBrokerRecord
from raft.storage.directory import META_NAME, METADATA_DATABASE_NAME, encode_meta
from snapshot.reader import SnapshotReader
from statemachine.store.image import load_image
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.cluster_tables import BROKERS
from statemachine.tables.database import DamagedDatabase, install, open_database, open_reader, remove, sync
from statemachine.tables.topic_tables import PARTITIONS
from statemachine.words.adopted_brokers import LEFT_OUT, adopted_as, is_awaited

NEW_DATABASE_SUFFIX: Final = ".adopting"
OLD_DATABASE_SUFFIX: Final = ".before-adoption"


class Fate(StrEnum):
    """The outcome for a log."""

    IN_SYNC = "in sync"
    """The log has all kept records of the partition; one such replica leads."""
    FOLLOWS = "follows"
    """The log is truncated where it diverges from the leader's, and fetches the rest from the leader."""
    STRAY = "stray"
    """The cluster has no such replica: the log is kept under another name."""


@dataclass(frozen=True, slots=True)
class Move:
    """What a move would do."""

    report: BrokerReport
    new_cluster_id: str
    fates: tuple[tuple[ReportedLog, Fate], ...]
    is_done: bool
    """Whether the broker already belongs to the restored cluster."""


def planned_move(broker: StoppedBroker, restored: SnapshotReader, new_path: Path) -> Move:
    """What moving the broker to the cluster of `restored` would do; `restored` is whole.

    The metadata of the snapshot is left in a new database at `new_path`. Raises ConfigurationError if the cluster was
    restored without this broker's report, or with a report that does not match its disks; DirectoryError for a log
    directory of a third cluster.
    """
    new_id = restored.header.cluster_id
    for directory in broker.log_directories:
        if directory.cluster_id not in (broker.identity.cluster_id, new_id):
            raise DirectoryError(
                f"{directory.path} is of cluster {directory.cluster_id}, and the broker is of"
                f" {broker.identity.cluster_id}; name its own log directories",
                ErrorCode.INCONSISTENT_CLUSTER_ID,
            )
    report = read_broker(broker)
    with closing(open_database(new_path, new_id).conn) as metadata:
        load_image(restored, MetadataTables(metadata, name=str(new_path)))
        found = BROKERS.get(metadata, (report.broker_id,))
        if broker.identity.cluster_id == new_id and _has_come(broker, found, report):
            _check_is_of_restored(restored, found, report)
            return Move(report, new_id, (), is_done=True)
        if found is None or found.incarnation_id != adopted_as(report.disk_id):
            raise ConfigurationError(
                f"cluster {new_id} was restored without the present state of broker {report.broker_id}, and would"
                " truncate records that no other broker has. Make a report of this broker, and restore again with"
                f" it and with the reports of all other brokers. {broker.path} is unchanged"
            )
        return Move(report, new_id, tuple(_fates(metadata, report)), is_done=False)


def _has_come(broker: StoppedBroker, registered: RegisterBrokerRecord | None, report: BrokerReport) -> bool:
    """Whether a broker with the restored cluster's id was moved to it, or was already part of it."""
    if registered is None or not is_awaited(registered.incarnation_id):
        return registered is not None
    if registered.incarnation_id == LEFT_OUT:
        return False
    if any(registered_epoch(broker.files, of.path) >= registered.broker_epoch for of in broker.log_directories):
        return True  # it may have more records than its report by now
    adopted = adopted_incarnation(broker.files, broker.path)
    return adopted is not None and adopted.bytes == registered.incarnation_id == adopted_as(report.disk_id)


# Consider an operator who names the snapshot from which the cluster was restored, instead of a snapshot of the restored
# cluster. The broker is registered in it with its own id, so it seems to have been moved.
def _check_is_of_restored(
    restored: SnapshotReader, registered: RegisterBrokerRecord | None, report: BrokerReport
) -> None:
    """Raise ConfigurationError for a snapshot that is older than the metadata that the broker has seen."""
    is_awaited_there = registered is not None and is_awaited(registered.incarnation_id)
    end_offset = restored.snapshot_id.offset
    if not is_awaited_there and end_offset < report.metadata_end_offset:
        raise ConfigurationError(
            f"{restored.path} ends at offset {end_offset}, and broker {report.broker_id} has seen the metadata up"
            f" to {report.metadata_end_offset}: the snapshot is not of the restored cluster, or is older than the"
            " restore. Name a snapshot that `kraftlog snapshot save` takes of the running restored cluster. Nothing"
            " was changed"
        )


def _fates(metadata: sqlite3.Connection, report: BrokerReport) -> Iterator[tuple[ReportedLog, Fate]]:
    for log in report.logs:
        partition = PARTITIONS.get(metadata, (log.topic_id.bytes, log.partition_id))
        yield log, _fate(partition, report.broker_id)


def _fate(partition: PartitionRecord | None, broker_id: int) -> Fate:
    if partition is None or broker_id not in partition.replicas:
        return Fate.STRAY
    return Fate.IN_SYNC if broker_id in partition.isr else Fate.FOLLOWS


def new_database_path(broker: StoppedBroker) -> Path:
    """Where `planned_move` may write the metadata for `execute_move`: an empty directory on the same file system."""
    path = Path(broker.path) / (METADATA_DATABASE_NAME + NEW_DATABASE_SUFFIX)
    remove(path)
    return path


def execute_move(broker: StoppedBroker, move: Move, new_path: Path) -> None:
    """Move the broker; `new_path` has the metadata. Raises StorageError, FlushFailed; the move can be repeated after
    either.
    """
    path = Path(broker.path) / METADATA_DATABASE_NAME
    _keep(path, new_path)
    install(new_path, path)
    files: FileSystem = broker.files
    for directory in broker.log_directories:
        content = encode_log_meta(move.new_cluster_id, broker.identity.node_id, directory.directory_id)
        write_new_file(files, join(directory.path, LOG_META_NAME), content)
    leave_adopted_incarnation(files, broker.path, UUID(bytes=adopted_as(move.report.disk_id)))
    identity = replace(broker.identity, cluster_id=move.new_cluster_id)
    write_new_file(files, join(broker.path, META_NAME), encode_meta(identity))


def _keep(path: Path, new_path: Path) -> None:
    """Rename the database with the earlier metadata, durably: it identifies the topics of stray logs."""
    if not path.exists() or _is_moved(path, new_path):
        return
    kept = path.with_name(path.name + OLD_DATABASE_SUFFIX)
    remove(kept)
    path.replace(kept)
    sync(path.parent)


def _is_moved(path: Path, new_path: Path) -> bool:
    """Whether the new database is already in its place, since an earlier move was interrupted. If it is not, all of the
    old database is in one file afterwards, which one rename moves. Consider a broker that was killed: until its next
    start most of its metadata is in SQLite's write-ahead log beside the database.
    """
    try:
        with closing(open_reader(path)) as old, closing(open_reader(new_path)) as new:
            is_moved = _end_offset(old) >= _end_offset(new)
    except DamagedDatabase:
        return False  # kept unchanged
    if not is_moved:
        with closing(sqlite3.connect(path, isolation_level=None)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return is_moved


def _end_offset(metadata: sqlite3.Connection) -> int:
    return int(metadata.execute("SELECT end_offset FROM applied").fetchone()[0])
