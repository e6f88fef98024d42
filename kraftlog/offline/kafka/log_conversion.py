"""A Kafka's log as kraftlog batches, with the same offsets, epochs and times. NoOps replace records that kraftlog does
not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftbase.errors import CorruptLog
from kraftbase.types import Epoch, Offset
from kraftlog.kafka import control_records as kafka
from kraftlog.kafka.notation import Message
from kraftlog.offline.kafka.batch_files import control_of, metadata_of, records_of
from kraftlog.offline.kafka.conversion import from_kafka
from kraftlog.offline.kafka.directory import LogBatch
from kraftpb.v1.batch_pb2 import ControlBody, ControlRecord, KRaftVersion, LeaderChange, Voters
from kraftpb.v1.common_pb2 import Endpoint, ReplicaKey
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, NoOpRecord
from raft.core.types import Batch
from raft.storage.batch import encode_batch

Convert = Callable[[Message, int], MetadataRecord]
"""From a metadata record of Kafka's and its version."""

EPOCH_MIN: Final = 1
"""Of a batch of kraftlog's."""


def converted(record: Message, version: int) -> MetadataRecord:
    """The kraftlog record, or a NoOp."""
    return from_kafka(record, version) or MetadataRecord(no_op=NoOpRecord())


def batch_of_ours(found: LogBatch, convert: Convert = converted) -> Batch:
    """The batch as kraftlog would have it. Raises CorruptLog, and StorageError for a newer Kafka's."""
    batch = found.batch
    records = records_of(found.path, batch)
    if [record.offset for record in records] != list(range(batch.base_offset, batch.end_offset)):
        raise CorruptLog(f"{found.path}: the batch at offset {batch.base_offset} does not have one record per offset")
    if batch.is_control:
        controls = [_control(control_of(found.path, record)) for record in records]
        body = ControlBody(records=controls).SerializeToString()
    else:
        converting = (convert(*metadata_of(found.path, record)) for record in records)
        body = MetadataBatch(records=converting).SerializeToString()
    return encode_batch(
        Offset(batch.base_offset),
        Epoch(max(EPOCH_MIN, batch.partition_leader_epoch)),
        body,
        len(records),
        max(0, batch.max_timestamp_ms),
        batch.is_control,
    )


def _control(record: Message) -> ControlRecord:
    match record:
        case kafka.LeaderChangeMessage():
            voters, granting = ([_key(voter) for voter in some] for some in (record.voters, record.granting_voters))
            change = LeaderChange(leader_id=record.leader_id, voters=voters, granting_voters=granting)
            return ControlRecord(leader_change=change)
        case kafka.KRaftVersionRecord():
            return ControlRecord(kraft_version=KRaftVersion(version=record.version, kraft_version=record.kraft_version))
        case kafka.VotersRecord():
            voters_of_ours = [_voter(voter) for voter in record.voters]
            return ControlRecord(voters=Voters(version=record.version, voters=voters_of_ours))
        case _:
            return ControlRecord()


def _key(voter: kafka.Voter | kafka.VotersVoter) -> ReplicaKey:
    return ReplicaKey(node_id=voter.voter_id, directory_id=voter.voter_directory_id)


def _voter(voter: kafka.VotersVoter) -> Voters.Voter:
    versions = voter.kraft_version_feature
    return Voters.Voter(
        key=_key(voter),
        listeners=[
            Voters.Listener(name=at.name, endpoint=Endpoint(host=at.host, port=at.port)) for at in voter.endpoints
        ],
        min_kraft_version=versions.min_supported_version,
        max_kraft_version=versions.max_supported_version,
    )
