"""AssignReplicasToDirs, and the effect of a failed log directory: its replicas lead nothing and are not in sync.

From a request or a page of partitions and the latest metadata to records (CT-27, KIP-858). Nothing changes here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import DAMAGED_DIRECTORY, ID_BYTES, LOST_DIRECTORY, is_reserved
from kraftlog.controller.operations.brokers import check_broker_epoch
from kraftlog.controller.operations.leader_and_isr import partitions_without
from kraftlog.controller.operations.lookups import find_partition_by_id
from kraftlog.controller.rules.partition_change import Target, directory_of
from kraftlog.controller.rules.partition_context import PartitionChanges, is_online
from kraftpb.v1.admin_pb2 import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignment,
    DirectoryAssignmentResult,
)
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.limits import check_record_count
from statemachine.words.record_versions import METADATA_VERSION_DIRECTORIES
from statemachine.words.repeats import repeats


def assign_replicas_to_dirs(
    state: MetadataState, request: AssignReplicasToDirsRequest
) -> tuple[list[MetadataRecord], AssignReplicasToDirsResponse]:
    """The records that set in which of its log directories a broker has its replicas, and an answer for each.

    A replica in a directory that the broker has not registered as online leaves ISR and leadership, as in Kafka: the
    directory may have failed since. Unlike in Kafka, one that moves into a directory from another that is not online is
    no longer eligible to lead (KIP-966): it has lost its records.

    A replica in DAMAGED_DIRECTORY, which only kraftlog has (DB-88), leaves in the same way: its log is damaged, and no
    other replica is known to have its records. When the broker assigns it to a real directory again, the log is
    repaired.

    Raises ApiError(UNSUPPORTED_VERSION) before metadata.version 17, STALE_BROKER_EPOCH, RECORD_LIST_TOO_LARGE if
    there are too many for one batch (CT-12).
    """
    if state.metadata_version < METADATA_VERSION_DIRECTORIES:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"broker {request.broker_id} cannot assign replicas to its log directories: they are known from"
            f" metadata.version {METADATA_VERSION_DIRECTORIES} on, and this cluster's is {state.metadata_version};"
            " upgrade it",
        )
    broker = check_broker_epoch(state, request.broker_id, request.broker_epoch)
    check_record_count(len(request.assignments))
    repeated = repeats((assignment.topic_id, assignment.partition_id) for assignment in request.assignments)
    here, gone = PartitionChanges(state), PartitionChanges(state, departing=(broker.broker_id,))
    records: list[MetadataRecord] = []
    response = AssignReplicasToDirsResponse()
    for assignment in request.assignments:
        answer = DirectoryAssignmentResult(topic_id=assignment.topic_id, partition_id=assignment.partition_id)
        try:
            name, partition = find_partition_by_id(state, assignment.topic_id, assignment.partition_id)
            if (assignment.topic_id, assignment.partition_id) in repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is in the request more than once")
            _check_assignment(name, partition, assignment, broker.broker_id)
            changes = here if is_online(broker, assignment.directory_id) else gone
            record = _assign(changes, partition, assignment.directory_id, broker, leaves=changes is gone)
            if record is not None:
                records.append(record)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.args[0]
        response.assignments.append(answer)
    return records, response


def _check_assignment(name: str, partition: PartitionRecord, assignment: DirectoryAssignment, broker_id: int) -> None:
    if broker_id not in partition.replicas:
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has no replica of {name}; fetch newer metadata"
        )
    directory = assignment.directory_id
    if len(directory) != ID_BYTES or (is_reserved(directory) and directory not in (LOST_DIRECTORY, DAMAGED_DIRECTORY)):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{directory[:32].hex()!r} is not the id of a log directory for {name}; give one that the broker"
            " registered,"
            f" {ID_BYTES} bytes",
        )


def _assign(
    changes: PartitionChanges,
    partition: PartitionRecord,
    directory: bytes,
    broker: RegisterBrokerRecord,
    *,
    leaves: bool,
) -> MetadataRecord | None:
    broker_id = broker.broker_id
    before = directory_of(partition, broker_id)
    # The content of a directory that no longer exists was not moved: the replica in another directory starts over.
    # Consider a partition whose last leader, broker 4, has lost its directory, and whose other replica's broker is
    # down. Then 4 says that its replica is in another directory. As the last known leader it would lead at once, with
    # no records, and the other replica would truncate its log. A log that was damaged was repaired in place, and a log
    # in no directory has not been replaced by a new one yet.
    has_moved = directory not in (before, LOST_DIRECTORY, DAMAGED_DIRECTORY) and before != DAMAGED_DIRECTORY
    begins_anew = (broker_id,) if has_moved and not is_online(broker, before) else ()
    target = Target(
        isr=[member for member in partition.isr if member != broker_id] if leaves else None,
        lost_data=begins_anew,
        begins_anew=begins_anew,
        directories={broker_id: directory},
        election=changes.election(partition.topic_id),
    )
    return changes.change(partition, target)


def failed_directories(broker: RegisterBrokerRecord, offline: Collection[bytes]) -> set[bytes]:
    """The directories that a heartbeat reports as offline and the registration still has online."""
    return set(broker.log_dirs) & set(offline)


def partitions_without_directories(
    state: MetadataState, broker_id: int, offline: Collection[bytes], partitions: Iterable[PartitionRecord]
) -> list[MetadataRecord]:
    """Take a broker out of the ISR and the leadership of those of `partitions` that it has in a failed directory.

    None before metadata.version 17, where directories are not known. A broker all of whose directories have failed
    should be fenced instead: replicas whose directory is not known are passed over here.
    """
    if state.metadata_version < METADATA_VERSION_DIRECTORIES:
        return []
    failed = frozenset(offline)
    return partitions_without(
        state, broker_id, (partition for partition in partitions if directory_of(partition, broker_id) in failed)
    )
