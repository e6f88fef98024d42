"""The first snapshot of a restored cluster that adopts brokers, with the logs and epochs that the brokers report. The
saved snapshot is loaded into a database, one more batch is applied to it, and another snapshot is made of the result,
beyond every offset and epoch of the metadata that an adopted broker has seen. The same snapshot and the same reports
give the same bytes on every node.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import UUID

from kraftbase.errors import ConfigurationError
from kraftbase.files.posix import PosixFileSystem
from kraftbase.ids import is_reserved
from kraftbase.partition import TopicPartition
from kraftbase.types import Epoch, Offset
from kraftlog.offline.adoption.broker_report import BrokerReport, ReportedLog
from kraftlog.offline.adoption.partition_choice import ChosenPartition, choose
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, ProducerIdsRecord, RegisterBrokerRecord
from raft.core.types import OffsetAndEpoch
from raft.listener import CommittedBatch
from raft.storage.batch import encode_batch
from snapshot.reader import SnapshotReader
from snapshot.writer import SnapshotWriter
from statemachine.store.image import RECORDS_PER_BATCH_MAX, load_image, write_image
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.cluster_tables import BROKERS, CONTROLLERS, FEATURES, PRODUCER_IDS
from statemachine.tables.database import open_database
from statemachine.tables.topic_tables import PARTITIONS, TOPICS
from statemachine.words.adopted_brokers import LEFT_OUT, adopted_as
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_MIN
from statemachine.words.record_versions import in_version

OFFSET_JUMP: Final = 1_000_000
"""How far beyond the metadata seen by any adopted broker the new metadata begins: other brokers may have seen more."""

PRODUCER_ID_JUMP: Final = 1_000_000_000
"""How many producer ids are skipped. Ids that were assigned since the snapshot are in the logs: the first records of
another producer with such an id would be dropped as repeated ones.
"""


@dataclass(slots=True)
class Adoption:
    """The outcome for partitions and logs."""

    partitions: list[tuple[TopicPartition, ChosenPartition]] = field(default_factory=list)
    strays: list[tuple[int, ReportedLog]] = field(default_factory=list)
    """By broker, the logs of topics and partitions that the snapshot lacks, or that have no replica on the broker in
    it. They stay on the broker's disk, under other names.
    """
    brokers: list[int] = field(default_factory=list)
    """The adopted brokers."""
    brokers_left_out: list[int] = field(default_factory=list)
    """The brokers in the snapshot without a report."""
    directories_left_out: list[tuple[int, UUID]] = field(default_factory=list)
    """By broker, the registered log directories that its report lacks."""


class Reports:
    """The reports of several brokers."""

    def __init__(self, reports: Sequence[BrokerReport], cluster_ids: Collection[str]) -> None:
        """Raises ConfigurationError for two reports of one broker, and for a report of a cluster that is not in
        `cluster_ids`.
        """
        self.by_broker: dict[int, BrokerReport] = {}
        self.logs: dict[tuple[bytes, int], dict[int, ReportedLog]] = defaultdict(dict)
        """By topic id and partition, the best log of each broker."""
        for report in reports:
            if report.cluster_id not in cluster_ids:
                raise ConfigurationError(
                    f"the report of broker {report.broker_id} is of cluster {report.cluster_id}, and the snapshot"
                    f" is of {' or '.join(cluster_ids)}. If the snapshot's cluster was restored from a snapshot of"
                    " this broker's cluster, name"
                    f" it: --also-of-cluster {report.cluster_id}"
                )
            if report.broker_id in self.by_broker:
                raise ConfigurationError(f"broker {report.broker_id} has two reports; give only the later one")
            self.by_broker[report.broker_id] = report
            for log in report.logs:
                of_partition = self.logs[log.topic_id.bytes, log.partition_id]
                present = of_partition.get(report.broker_id)
                if present is None or present.rank < log.rank:
                    of_partition[report.broker_id] = log

    def has(self, broker_id: int, directory_id: bytes | None) -> bool:
        """Whether everything that a broker had in a directory is reported; None, or a reserved id: in any directory."""
        report = self.by_broker.get(broker_id)
        if report is None or directory_id is None or is_reserved(directory_id):
            return report is not None
        return UUID(bytes=directory_id) in report.directory_ids


@dataclass(frozen=True, slots=True)
class Adopting:
    """The brokers that a restored cluster adopts."""

    reports: Sequence[BrokerReport] = ()
    also_of_clusters: Collection[str] = ()
    """Other clusters that reports may be of: the snapshot's cluster was restored from a snapshot of them."""
    lost_voters: Collection[int] | None = None
    """The cluster keeps its id, and all of its voters, which are these, are lost; None: it gets a new id."""

    @property
    def keeps_cluster_id(self) -> bool:
        """Whether the cluster keeps its id. Then brokers that are not adopted can reach the cluster, which must refuse
        them.
        """
        return self.lost_voters is not None

    def __bool__(self) -> bool:
        return bool(self.reports) or self.keeps_cluster_id


NO_ADOPTION: Final = Adopting()


@contextmanager
def adopted_snapshot(reader: SnapshotReader, adopting: Adopting) -> Iterator[tuple[SnapshotReader, Adoption]]:
    """The snapshot that the cluster begins with, in a directory that is removed at the end of the block.

    `reader` has a snapshot that is whole and can be loaded. Raises ConfigurationError as `Reports` does, and for former
    voters that are not listed as lost.
    """
    found = Reports(adopting.reports, [reader.header.cluster_id, *adopting.also_of_clusters])
    with TemporaryDirectory(prefix="kraftlog-restore-") as directory:
        path = Path(directory) / "metadata.db"
        with closing(open_database(path, reader.header.cluster_id).conn) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")  # not needed after a crash
            connection.execute("PRAGMA synchronous = OFF")
            tables = MetadataTables(connection, name=str(path))
            load_image(reader, tables)
            if adopting.lost_voters is not None:
                _check_lost(connection, adopting.lost_voters)
            snapshot_id = _snapshot_id(tables, found)
            broker_epoch = snapshot_id.offset - 1
            records, adoption = adopt(connection, found, broker_epoch, LEFT_OUT if adopting.keeps_cluster_id else None)
            tables.apply(_batches(reader, tables, records))
            files = PosixFileSystem()
            with SnapshotWriter(files, directory, snapshot_id, reader.header, "0") as writer:
                write_image(connection, writer)
                writer.freeze()
        with closing(SnapshotReader(files, writer.path)) as made:
            yield made, adoption


# Consider voters 1, 2 and 3, and a cluster that keeps its id, restored because 1 and 2 are lost. If 2 and 3 came back
# they would elect a leader, and two quorums would exist that clients and brokers cannot distinguish.
def _check_lost(metadata: sqlite3.Connection, lost_voters: Collection[int]) -> None:
    """Raise ConfigurationError unless these are all the known former voters."""
    former = {voter_id for (voter_id,), _ in CONTROLLERS.find(metadata)}
    kept, unknown = sorted(former.difference(lost_voters)), sorted(set(lost_voters).difference(former))
    if kept or not lost_voters:
        names = " ".join(f"--lost-voter {voter_id}" for voter_id in kept) or "--lost-voter ID"
        raise ConfigurationError(
            f"not all of the former voters are listed as lost; add {names} if their directories are lost, or will"
            " never be started again: otherwise two quorums could run with one cluster id. Else restore with a new"
            " cluster id"
        )
    if former and unknown:
        raise ConfigurationError(
            f"{', '.join(map(str, unknown))} did not vote; the former voters are {', '.join(map(str, sorted(former)))}"
        )


def _snapshot_id(tables: MetadataTables, reports: Reports) -> OffsetAndEpoch:
    """Above everything that an adopted broker has seen, and everything applied here."""
    seen = reports.by_broker.values()
    rows = sum(of.row_count(tables.connection) for of in (BROKERS, PARTITIONS))
    applied = tables.applied.end_offset + rows + len(reports.by_broker) + 1
    end_offset = max([applied, *(report.metadata_end_offset for report in seen)])
    epoch = max([tables.applied.epoch, *(report.metadata_epoch for report in seen)])
    return OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(end_offset + OFFSET_JUMP))


def _batches(
    reader: SnapshotReader, tables: MetadataTables, records: Sequence[MetadataRecord]
) -> Iterator[CommittedBatch]:
    base_offset, epoch, _ = tables.applied
    for start in range(0, len(records), RECORDS_PER_BATCH_MAX):
        some = records[start : start + RECORDS_PER_BATCH_MAX]
        body = MetadataBatch(records=some).SerializeToString(deterministic=True)
        timestamp_ms = reader.header.last_contained_log_timestamp_ms
        yield CommittedBatch(encode_batch(Offset(base_offset + start), epoch, body, len(some), timestamp_ms))


# --- changes -----------------------------------------------------------------------------------------------------


def adopt(
    metadata: sqlite3.Connection, reports: Reports, broker_epoch: int, left_out: bytes | None
) -> tuple[list[MetadataRecord], Adoption]:
    """The records that turn a snapshot's metadata into the cluster's first metadata, and the outcome. The expected
    brokers get `broker_epoch`; the other brokers get the incarnation `left_out`, or are left unchanged if it is None.
    """
    adoption = Adoption()
    records = [
        *_brokers(metadata, reports, adoption, broker_epoch, left_out),
        *_partitions(metadata, reports, adoption),
    ]
    version = FEATURES.get(metadata, (METADATA_VERSION,))
    level = METADATA_VERSION_MIN if version is None else version.level
    return [*(in_version(record, level) for record in records), _producer_ids(metadata)], adoption


def _brokers(
    metadata: sqlite3.Connection, reports: Reports, adoption: Adoption, broker_epoch: int, left_out: bytes | None
) -> Iterator[MetadataRecord]:
    """All brokers are fenced: no broker leads before it has registered."""
    adoption.brokers += sorted(reports.by_broker)
    for _, broker in BROKERS.find(metadata):
        record = RegisterBrokerRecord()
        record.CopyFrom(broker)
        record.fenced, record.in_controlled_shutdown, record.unclean_shutdown = True, False, False
        report = reports.by_broker.get(broker.broker_id)
        if report is None:
            adoption.brokers_left_out.append(broker.broker_id)
            awaited = left_out
        else:
            awaited = adopted_as(report.disk_id)
            registered = {UUID(bytes=log_dir) for log_dir in broker.log_dirs if not is_reserved(log_dir)}
            missing = sorted(registered.difference(report.directory_ids))
            adoption.directories_left_out += [(broker.broker_id, log_dir) for log_dir in missing]
        if awaited is not None:
            record.incarnation_id, record.broker_epoch = awaited, broker_epoch
            if record.HasField("last_unfenced_epoch"):
                record.last_unfenced_epoch = broker_epoch  # a directory that appears later is an older copy (CT-38)
        yield MetadataRecord(register_broker=record)
    for broker_id, report in sorted(reports.by_broker.items()):
        if BROKERS.get(metadata, (broker_id,)) is None:
            yield MetadataRecord(register_broker=_registered_later(report, broker_epoch))


# Consider broker 73, which registered after the snapshot was taken, and to which a partition was moved: only its disks
# have the records acknowledged since.
def _registered_later(report: BrokerReport, broker_epoch: int) -> RegisterBrokerRecord:
    """The registration of a reported broker that the snapshot does not know; the broker's own first registration has
    its addresses.
    """
    return RegisterBrokerRecord(
        broker_id=report.broker_id,
        incarnation_id=adopted_as(report.disk_id),
        broker_epoch=broker_epoch,
        fenced=True,
        log_dirs=sorted(of.bytes for of in report.directory_ids),
        last_unfenced_epoch=broker_epoch,
    )


def _partitions(metadata: sqlite3.Connection, reports: Reports, adoption: Adoption) -> Iterator[MetadataRecord]:
    topics = {topic_id: topic.name for (topic_id,), topic in TOPICS.find(metadata)}
    used: set[tuple[bytes, int, int]] = set()
    for _, partition in PARTITIONS.find(metadata):
        key = (partition.topic_id, partition.partition_id)
        chosen = choose(partition, reports.logs.get(key, {}), reports.has)
        used |= {(*key, replica) for replica in chosen.record.replicas}
        name = TopicPartition(topics[partition.topic_id], partition.partition_id)
        adoption.partitions.append((name, chosen))
        yield MetadataRecord(partition=chosen.record)
    adoption.strays += [
        (broker_id, log)
        for broker_id, report in sorted(reports.by_broker.items())
        for log in report.logs
        if (log.topic_id.bytes, log.partition_id, broker_id) not in used
    ]


def _producer_ids(metadata: sqlite3.Connection) -> MetadataRecord:
    record = ProducerIdsRecord(broker_id=-1, broker_epoch=-1)
    found = PRODUCER_IDS.get(metadata, (1,))
    if found is not None:
        record.CopyFrom(found)
    record.next_producer_id += PRODUCER_ID_JUMP
    return MetadataRecord(producer_ids=record)
