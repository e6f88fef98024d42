"""AlterPartition: a leader's new ISR, from a request and the latest metadata to records and an answer (CT-42, KIP-497).

Nothing changes here. Topics are named by id, as from version 2 of Kafka's request on.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.errors import ApiError, ErrorCode, invalid_request
from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.operations.brokers import check_broker_epoch
from kraftlog.controller.operations.lookups import find_partition_by_id
from kraftlog.controller.rules.partition_change import RECOVERED, RECOVERING, Target
from kraftlog.controller.rules.partition_context import PartitionChanges
from kraftpb.v1.admin_pb2 import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    IsrMember,
)
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from statemachine.metadata.state import MetadataState
from statemachine.replay.replay import changed_partition
from statemachine.words.limits import check_record_count
from statemachine.words.repeats import repeats


def alter_partition(
    state: MetadataState, request: AlterPartitionRequest
) -> tuple[list[MetadataRecord], AlterPartitionResponse]:
    """The records that give partitions the ISR that their leader asks for, and an answer for each, in their order.

    Raises ApiError(STALE_BROKER_EPOCH) if the sender is not registered with the epoch that it names,
    RECORD_LIST_TOO_LARGE if it names too many partitions for one batch (CT-12).
    """
    check_broker_epoch(state, request.broker_id, request.broker_epoch)
    check_record_count(len(request.partitions))
    repeated = repeats((altered.topic_id, altered.partition_id) for altered in request.partitions)
    changes = PartitionChanges(state)
    records: list[MetadataRecord] = []
    response = AlterPartitionResponse()
    for altered in request.partitions:
        answer = AlterPartitionResult(topic_id=altered.topic_id, partition_id=altered.partition_id)
        try:
            name, partition = find_partition_by_id(state, altered.topic_id, altered.partition_id)
            if (altered.topic_id, altered.partition_id) in repeated:
                raise invalid_request(f"{name} is in the request more than once; ask for one change of it at a time")
            _check_epochs(name, partition, altered, request.broker_id)
            _check_isr(name, partition, altered, changes)
            _alter(name, partition, altered, changes, records, answer)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.args[0]
        response.partitions.append(answer)
    return records, response


# Consider a partition that has leader epoch 5 and partition epoch 9 here, and a request with partition epoch 10.
# Brokers read epochs from the committed log, and an active controller has all of that. So another controller is active,
# which has committed a change that this one does not know: the broker must find it. FENCED_LEADER_EPOCH or
# INVALID_UPDATE_VERSION would be wrong, as the broker would wait for metadata that is newer than what it has.
def _check_epochs(name: str, partition: PartitionRecord, altered: AlteredPartition, broker_id: int) -> None:
    """Steps 3 to 6 of CT-42: whether the sender leads the partition, and knows its latest state."""
    for kind, given, known in (
        ("leader", altered.leader_epoch, partition.leader_epoch),
        ("partition", altered.partition_epoch, partition.partition_epoch),
    ):
        if given > known:
            raise ApiError(
                ErrorCode.NOT_CONTROLLER,
                f"{name} has the {kind} epoch {known} here, and the request names {given}: this controller may be"
                " behind; find the active one",
            )
    if altered.leader_epoch < partition.leader_epoch:
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{name} has the leader epoch {partition.leader_epoch}, and the request names {altered.leader_epoch};"
            " fetch newer metadata",
        )
    if broker_id != partition.leader:
        leader = _shown_leader(partition)
        raise invalid_request(f"{name} is led by {leader}, not by broker {broker_id}; only the leader alters it")
    if altered.partition_epoch < partition.partition_epoch:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name} has the partition epoch {partition.partition_epoch}, and the request names"
            f" {altered.partition_epoch}; fetch newer metadata and try again",
        )


def _check_isr(name: str, partition: PartitionRecord, altered: AlteredPartition, changes: PartitionChanges) -> None:
    """Steps 7 to 10 of CT-42: whether the partition may have that ISR."""
    isr = [member.broker_id for member in altered.new_isr]
    for broker_id in repeats(isr):
        raise invalid_request(f"the new ISR of {name} has broker {broker_id} more than once")
    for broker_id in isr:
        if broker_id not in partition.replicas:
            raise invalid_request(f"the new ISR of {name} has broker {broker_id}, which has no replica of it")
    if partition.leader not in isr:
        raise invalid_request(f"the new ISR of {name} lacks its leader, broker {partition.leader}")
    _check_recovery_state(name, partition, altered)
    problems = [problem for member in altered.new_isr if (problem := _ineligible(member, changes))]
    if problems:
        raise ApiError(
            ErrorCode.INELIGIBLE_REPLICA, f"{name} cannot have that ISR: {', '.join(problems)}; leave such brokers out"
        )


def _check_recovery_state(name: str, partition: PartitionRecord, altered: AlteredPartition) -> None:
    recovery_state = altered.leader_recovery_state
    if recovery_state not in (RECOVERED, RECOVERING):
        raise invalid_request(
            f"{recovery_state} is not a leader recovery state of {name}; use 0 (recovered) or 1 (recovering)"
        )
    if recovery_state == RECOVERING and len(altered.new_isr) > 1:
        raise invalid_request(
            f"the new ISR of {name} has {len(altered.new_isr)} brokers; while its leader is recovering it can have"
            " only the leader"
        )
    if recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise invalid_request(f"the leader of {name} is recovered; it cannot be recovering again without an election")


def _ineligible(member: IsrMember, changes: PartitionChanges) -> str | None:
    """Why a broker cannot be in an ISR, if it cannot."""
    broker: RegisterBrokerRecord | None = changes.brokers.get(member.broker_id)
    what = f"broker {member.broker_id}"
    if broker is None:
        return f"{what} is not registered"
    if broker.in_controlled_shutdown:
        return f"{what} is shutting down"
    if broker.fenced:
        return f"{what} is fenced"
    if member.broker_epoch not in (-1, broker.broker_epoch):
        return f"{what} is registered with the epoch {broker.broker_epoch}, not {member.broker_epoch}"
    return None


def _alter(
    name: str,
    partition: PartitionRecord,
    altered: AlteredPartition,
    changes: PartitionChanges,
    records: list[MetadataRecord],
    answer: AlterPartitionResult,
) -> None:
    """Make the change and fill in the answer (CT-40); raises ApiError(NEW_LEADER_ELECTED), change made (CT-41).

    That error comes with a record: the ISR completed a reassignment, or the sender can no longer lead.
    """
    target = Target(
        isr=[member.broker_id for member in altered.new_isr],
        leader_recovery_state=altered.leader_recovery_state,
        election=changes.election(partition.topic_id),
    )
    record = changes.change(partition, target)
    if record is not None:
        records.append(record)
    after = partition if record is None else changed_partition(partition, record.partition_change)
    if after.leader != partition.leader:
        raise ApiError(
            ErrorCode.NEW_LEADER_ELECTED,
            f"{name} has the new ISR {_listed(after.isr)} and is led by {_shown_leader(after)} from now on; fetch newer"
            " metadata",
        )
    answer.leader = after.leader
    answer.leader_epoch = after.leader_epoch
    answer.isr.extend(after.isr)
    answer.leader_recovery_state = after.leader_recovery_state
    answer.partition_epoch = after.partition_epoch


def _shown_leader(partition: PartitionRecord) -> str:
    return "no broker" if partition.leader == NO_LEADER else f"broker {partition.leader}"


def _listed(broker_ids: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, broker_ids)) + "]"
