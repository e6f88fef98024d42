"""AlterPartitionReassignments (CT-25): from a request and the latest metadata to records and an answer.

Nothing changes here.

A reassignment has two steps. First a partition gets its new replicas in addition to the old ones. When the new ones are
in sync, an AlterPartition of its leader removes those that are not in the target (CT-54). If the new replicas are
already in sync, one record does both.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.lookups import find_partition_by_name, partition_name
from kraftlog.controller.operations.new_partitions import invalid_assignment
from kraftlog.controller.rules.partition_change import Election, Target, directory_of
from kraftlog.controller.rules.partition_context import PartitionChanges
from kraftpb.v1.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    PartitionReassignment,
    PartitionResult,
)
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.query.reassignments import is_reassigning
from statemachine.words.limits import check_record_count
from statemachine.words.names import check_name_lengths
from statemachine.words.repeats import repeats


def alter_partition_reassignments(
    state: MetadataState, request: AlterPartitionReassignmentsRequest
) -> tuple[list[MetadataRecord], AlterPartitionReassignmentsResponse]:
    """The records that begin, replace or cancel reassignments, and an answer for each partition, in their order.

    Raises ApiError(RECORD_LIST_TOO_LARGE) if they are too many for one batch (CT-12), INVALID_REQUEST if a name is
    far too long.
    """
    check_record_count(len(request.partitions))
    check_name_lengths(asked.topic for asked in request.partitions)
    repeated = repeats((asked.topic, asked.partition_id) for asked in request.partitions)
    changes = PartitionChanges(state)
    records: list[MetadataRecord] = []
    response = AlterPartitionReassignmentsResponse()
    for asked in request.partitions:
        answer = PartitionResult(topic=asked.topic, partition_id=asked.partition_id)
        try:
            partition = find_partition_by_name(state, asked.topic, asked.partition_id)
            if (asked.topic, asked.partition_id) in repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{_what(asked)} is in the request more than once")
            record = changes.change(partition, _target(changes, partition, asked))
            if record is not None:
                records.append(record)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.args[0]
        response.partitions.append(answer)
    return records, response


def _target(changes: PartitionChanges, partition: PartitionRecord, asked: PartitionReassignment) -> Target:
    if asked.HasField("replicas"):
        wanted = list(asked.replicas.ids)
        _check_replicas(changes, wanted, asked)
        return _begun(partition, wanted)
    if not is_reassigning(partition):
        raise ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{_what(asked)} is not being reassigned; there is nothing to cancel"
        )
    return _cancelled(changes, partition, asked)


def _begun(partition: PartitionRecord, wanted: list[int]) -> Target:
    """A reassignment to `wanted`, perhaps over another: no replica leaves or is elected until all of it is in sync.

    Consider 0 and 1, which become 2 and 3, and then 4 and 5. Broker 2 may be in sync and lead by then, and 0 and 1 may
    have stopped: so all four stay until 4 and 5 are in sync (CT-55). All replicas count as present, whether they were
    being added, removed or neither.
    """
    present = set(partition.replicas)
    removing = sorted(present - set(wanted))
    adding = sorted(set(wanted) - present)
    return Target(replicas=[*wanted, *removing], adding=adding, removing=removing)


# Consider a partition of brokers 1 and 2 that is reassigned to 3. Its replicas are 3, 1, 2 for now. Broker 1 leads and
# is alone in sync, and stops. Its topic does not allow unclean elections, so there is no leader. The reassignment is
# cancelled, and the replicas become 1 and 2 again. Broker 1 has the data and stays, so no replica is elected, even if
# the topic has been changed to allow unclean elections since. Kafka would elect broker 2 then, if that is active.
# Whether to lose the records that only broker 1 has is for an explicit election to decide (CT-19, CT-24), not for a
# cancellation.
#
# Now consider a reassignment from 1 and 2 to 3 and 4 during which 1 and 2 have stopped, so that broker 3 leads and is
# alone in sync, while 4 has not caught up. Cancelling would drop broker 3, and with it all records written since. That
# is INVALID_REPLICA_ASSIGNMENT, unless the topic allows unclean elections and broker 1 or 2 is active again: then the
# first of them that is active leads, alone in the ISR, and recovers.
def _cancelled(changes: PartitionChanges, partition: PartitionRecord, asked: PartitionReassignment) -> Target:
    """Back to the replicas that are not being added: only this may drop every replica that is in sync (CT-54)."""
    replicas = [broker_id for broker_id in partition.replicas if broker_id not in partition.adding_replicas]
    # While a replica that stays has the data, the partition waits for it: the other replicas may have no records.
    election = Election.ONLINE if _has_survivor(partition, replicas) else Election.UNCLEAN
    if election is Election.UNCLEAN:
        _check_unclean(changes, partition, replicas, asked)
    return Target(replicas=replicas, adding=[], removing=[], election=election)


def _check_replicas(changes: PartitionChanges, wanted: Sequence[int], asked: PartitionReassignment) -> None:
    if not wanted:
        raise invalid_assignment(f"{_what(asked)} would have no replicas; name at least one broker")
    for broker_id in repeats(wanted):
        raise invalid_assignment(f"{_what(asked)} would have broker {broker_id} more than once")
    for broker_id in wanted:
        if broker_id not in changes.brokers:
            raise invalid_assignment(
                f"{_what(asked)} is assigned to broker {broker_id}, which is not registered; register it first"
            )


def _has_survivor(partition: PartitionRecord, replicas: Sequence[int]) -> bool:
    """Whether a replica with the data stays. None does when only replicas that were being added have the data. If no
    replica is known to have all data, the last leader must not be dropped.
    """
    with_data = {*partition.isr, *partition.eligible_leader_replicas} or {*partition.last_known_elr}
    return not with_data or bool(with_data & set(replicas))


def _check_unclean(
    changes: PartitionChanges, partition: PartitionRecord, replicas: Sequence[int], asked: PartitionReassignment
) -> None:
    """Refuse to drop all data, unless the topic allows an unclean election and a replica can win it (CT-54)."""
    if not changes.allows_unclean(partition.topic_id):
        raise invalid_assignment(
            f"{_what(asked)} would keep no replica that is in sync; wait until one of {list(replicas)} is, or set"
            " unclean.leader.election.enable"
        )
    if not any(changes.can_lead(broker_id, directory_of(partition, broker_id)) for broker_id in replicas):
        raise invalid_assignment(
            f"{_what(asked)} would keep no replica that is in sync or on an active broker; start one of"
            f" {list(replicas)}"
        )


def _what(asked: PartitionReassignment) -> str:
    return partition_name(asked.topic, asked.partition_id)
