"""Reports, and the directories of a broker that was killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from uuid import UUID

from kraftbase.files.files import FileSystem
from kraftbase.files.posix import PosixFileSystem
from kraftbase.partition import TopicPartition
from kraftbase.types import NodeId
from kraftlog.offline.adoption.broker_disks import read_broker, stopped_broker
from kraftlog.offline.adoption.broker_report import BrokerReport, ReportedLog
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.log_manager import LogManager
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from raft.listener import CommittedBatch
from raft.storage.directory import DataDirectory
from snapshot.store import SnapshotStore
from statemachine.store.snapshot_worker import take_snapshot
from statemachine.store.store import MetadataStore
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_LATEST
from tests.kraftlog.storage.builders import StepRuntime, append, batch
from tests.statemachine.builders import CLUSTER_ID, an_id
from tests.statemachine.builders import batch as batch_of

FILES = PosixFileSystem()
NAMES: Mapping[int, str] = {1: "clicks", 2: "late", 3: "other"}
"""By number, the names of topics."""


def log(
    end_offset: int, epoch: int, *, directory: int = 901, latest: int | None = None, number: int = 1,
    partition_id: int = 0, is_damaged: bool = False,
) -> ReportedLog:  # fmt: skip
    """A log of the topic with that number."""
    return ReportedLog(
        topic=NAMES[number], partition_id=partition_id, topic_id=UUID(bytes=an_id(number)),
        directory_id=UUID(bytes=an_id(directory)), log_start_offset=0, log_end_offset=end_offset, last_epoch=epoch,
        latest_epoch=epoch if latest is None else latest, is_damaged=is_damaged,
    )  # fmt: skip


def report(
    broker_id: int, *logs: ReportedLog, end_offset: int = 50, epoch: int = 3, cluster_id: str = CLUSTER_ID
) -> BrokerReport:
    """Of a broker with one log directory."""
    return BrokerReport(
        broker_id=broker_id, cluster_id=cluster_id, metadata_end_offset=end_offset, metadata_epoch=epoch,
        directory_ids=(UUID(bytes=an_id(900 + broker_id)),), logs=logs,
    )  # fmt: skip


def make_broker(
    path: Path,
    logs: Mapping[int, Sequence[int]],
    *,
    broker_id: int = 1,
    is_clean: bool = False,
    config: PartitionLogConfig = PartitionLogConfig(),
    files: FileSystem = FILES,
) -> Path:
    """The directory of a broker that ran. `logs`: by the number of a topic, the epochs of its batches of 10 records."""
    DataDirectory.format(
        files, str(path), cluster_id=CLUSTER_ID, node_id=NodeId(broker_id),
        directory_id=UUID(bytes=an_id(900 + broker_id)),
    )  # fmt: skip
    manager = opened(path, broker_id, config, files)
    for number, epochs in logs.items():
        made = manager.create_log(TopicPartition(NAMES[number], 0), UUID(bytes=an_id(number)), config)
        for epoch in epochs:
            append(made, batch(10, value=b"v" * 50), epoch)
    if is_clean:
        manager.close(5)
    else:
        for directory in manager.directories:
            directory.release()
    return path


def opened(
    path: Path, broker_id: int = 1, config: PartitionLogConfig = PartitionLogConfig(), files: FileSystem = FILES
) -> LogManager:
    """The logs of a broker, as it opens them."""
    return LogManager.open(
        files, [str(path / "partitions")], StepRuntime(), cluster_id=CLUSTER_ID, node_id=broker_id,
        config_of=lambda _: config, new_id=lambda: UUID(bytes=an_id(900 + broker_id)),
    )  # fmt: skip


def read(path: Path, files: FileSystem = FILES) -> BrokerReport:
    """The report of a broker."""
    with stopped_broker(files, str(path), [str(path / "partitions")]) as broker:
        return read_broker(broker)


def closed(manager: LogManager) -> None:
    """Nothing durable happens."""
    for directory in manager.directories:
        directory.release()


def write_snapshot(directory: Path, *records: MetadataRecord) -> Path:
    """A snapshot of a cluster of the latest metadata.version, with these records in epoch 3."""
    level = MetadataRecord(feature_level=FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_LATEST))
    path = directory / "metadata.db"
    with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        store.apply([committed([level, *records])])
    snapshots = SnapshotStore(FILES, str(directory / "snapshots"))
    take_snapshot(path, snapshots)
    (snapshot_id,) = snapshots.ids()
    return Path(snapshots.path_of(snapshot_id))


def committed(records: Sequence[MetadataRecord]) -> CommittedBatch:
    """The first batch of a log."""
    return batch_of(0, records, epoch=3)
