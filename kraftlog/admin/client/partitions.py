"""The admin client's calls about partitions: ISRs, elections, reassignments, segments in remote storage.

Where one request is about many partitions, each has its own outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraftbase.ids import id_to_bytes, id_to_text
from kraftbase.partition import TopicPartition
from kraftlog.admin.client.core import ClientCore
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerIds, RemoteLogSegmentMetadataRecord
from raft.rpc import codec
from statemachine.query.partition_descriptions import (
    AlteredIsr,
    ElectionType,
    FoundRemoteSegment,
    IsrAlteration,
    LeaderEpochStart,
    ListedReassignments,
    ListedRemoteSegments,
    OngoingReassignment,
    PartitionOutcome,
    RemoteSegment,
)


class PartitionCalls(ClientCore):
    """Replicas and leaders of partitions, and their segments in remote storage."""

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, alterations: Iterable[IsrAlteration]
    ) -> tuple[AlteredIsr, ...]:
        """As the leader `broker_id`, set the ISRs (KIP-497); return each outcome, in the given order. Raises ApiError
        if the broker is not registered with that epoch.
        """
        request = admin_pb2.AlterPartitionRequest(
            broker_id=broker_id, broker_epoch=broker_epoch, partitions=map(_alteration_to_proto, alterations)
        )
        result = await self.change(admin_pb2.Operation(alter_partition=request))
        return tuple(map(_altered_from_proto, result.alter_partition.partitions))

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> tuple[PartitionOutcome, ...]:
        """Hold elections; returns the outcome of each of `partitions`, in their order.

        None means all partitions; then only those that got a leader, or could not get one, are returned.
        """
        references = None
        if partitions is not None:
            references = admin_pb2.PartitionReferences(
                partitions=[
                    admin_pb2.PartitionReference(topic=at.topic, partition_id=at.partition_id) for at in partitions
                ]
            )
        kinds = admin_pb2.ElectLeadersRequest
        kind = kinds.UNCLEAN if election_type is ElectionType.UNCLEAN else kinds.PREFERRED
        request = admin_pb2.ElectLeadersRequest(election_type=kind, partitions=references)
        result = await self.change(admin_pb2.Operation(elect_leaders=request))
        return tuple(map(_outcome_from_proto, result.elect_leaders.partitions))

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> tuple[PartitionOutcome, ...]:
        """Begin to move each partition to these replicas, or cancel the move in progress (None).

        A new move replaces one in progress. Returns each outcome, in the given order.
        """
        request = admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                admin_pb2.PartitionReassignment(
                    topic=at.topic,
                    partition_id=at.partition_id,
                    replicas=None if wanted is None else BrokerIds(ids=wanted),
                )
                for at, wanted in replicas.items()
            ]
        )
        result = await self.change(admin_pb2.Operation(alter_partition_reassignments=request))
        return tuple(map(_outcome_from_proto, result.alter_partition_reassignments.partitions))

    async def list_partition_reassignments(self, *, min_applied_end_offset: int = 0) -> ListedReassignments:
        """The reassignments in progress."""
        request = admin_pb2.ListPartitionReassignmentsRequest()
        response = await self.read(
            lambda stub: stub.ListPartitionReassignments, request, min_applied_end_offset=min_applied_end_offset
        )
        return ListedReassignments(
            response.applied_end_offset, tuple(map(_reassignment_from_proto, response.reassignments))
        )

    async def list_remote_log_segments(
        self,
        topic_id: str,
        partition_id: int,
        *,
        leader_epoch: int | None = None,
        min_applied_end_offset: int = 0,
    ) -> ListedRemoteSegments:
        """The segments of a partition, or those with offsets of one leader epoch; none of an unknown partition."""
        request = admin_pb2.ListRemoteLogSegmentsRequest(
            topic_id=id_to_bytes(topic_id), partition_id=partition_id, leader_epoch=leader_epoch
        )
        response = await self.read(
            lambda stub: stub.ListRemoteLogSegments, request, min_applied_end_offset=min_applied_end_offset
        )
        segments = tuple(map(_segment_from_record, response.segments))
        return ListedRemoteSegments(response.applied_end_offset, segments, response.size_bytes)

    async def find_remote_log_segment(
        self,
        topic_id: str,
        partition_id: int,
        leader_epoch: int,
        offset: int | None = None,
        *,
        min_applied_end_offset: int = 0,
    ) -> FoundRemoteSegment:
        """The finished copy that has `offset` of `leader_epoch`, and the highest offset copied of that epoch."""
        request = admin_pb2.FindRemoteLogSegmentRequest(
            topic_id=id_to_bytes(topic_id), partition_id=partition_id, leader_epoch=leader_epoch, offset=offset
        )
        response = await self.read(
            lambda stub: stub.FindRemoteLogSegment, request, min_applied_end_offset=min_applied_end_offset
        )
        return FoundRemoteSegment(
            response.applied_end_offset,
            _segment_from_record(response.segment) if response.HasField("segment") else None,
            response.highest_offset if response.HasField("highest_offset") else None,
        )


def _alteration_to_proto(alteration: IsrAlteration) -> admin_pb2.AlteredPartition:
    return admin_pb2.AlteredPartition(
        topic_id=id_to_bytes(alteration.topic_id),
        partition_id=alteration.partition_id,
        leader_epoch=alteration.leader_epoch,
        new_isr=[
            admin_pb2.IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
            for member in alteration.isr
        ],
        leader_recovery_state=alteration.leader_recovery_state,
        partition_epoch=alteration.partition_epoch,
    )


def _altered_from_proto(altered: admin_pb2.AlterPartitionResult) -> AlteredIsr:
    return AlteredIsr(
        topic_id=id_to_text(altered.topic_id),
        partition_id=altered.partition_id,
        code=codec.error_from_proto(altered.error_code),
        message=altered.error_message,
        leader=altered.leader,
        leader_epoch=altered.leader_epoch,
        isr=tuple(altered.isr),
        leader_recovery_state=altered.leader_recovery_state,
        partition_epoch=altered.partition_epoch,
    )


def _outcome_from_proto(result: admin_pb2.PartitionResult) -> PartitionOutcome:
    code = codec.error_from_proto(result.error_code)
    return PartitionOutcome(result.topic, result.partition_id, code, result.error_message)


def _reassignment_from_proto(ongoing: admin_pb2.OngoingReassignment) -> OngoingReassignment:
    return OngoingReassignment(
        topic=ongoing.topic,
        partition_id=ongoing.partition_id,
        replicas=tuple(ongoing.replicas),
        adding_replicas=tuple(ongoing.adding_replicas),
        removing_replicas=tuple(ongoing.removing_replicas),
        isr=tuple(ongoing.isr),
    )


def _segment_from_record(record: RemoteLogSegmentMetadataRecord) -> RemoteSegment:
    return RemoteSegment(
        topic_id=id_to_text(record.topic_id),
        partition_id=record.partition_id,
        segment_id=id_to_text(record.segment_id),
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        leader_epochs=tuple(
            LeaderEpochStart(entry.leader_epoch, entry.start_offset) for entry in record.segment_leader_epochs
        ),
        size_bytes=record.segment_size_bytes,
        state=record.state,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        custom_metadata=record.custom_metadata if record.HasField("custom_metadata") else None,
        txn_index_empty=record.txn_index_empty,
    )
