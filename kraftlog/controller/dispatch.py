"""Which function decides on which operation."""

from __future__ import annotations

from kraftbase.errors import ErrorCode, ProtocolError
from kraftlog.controller import broker_lifecycle, config_updates, feature_updates
from kraftlog.controller.decisions import Context, Decision
from kraftlog.controller.operations.acl_deletion import AclDeletion
from kraftlog.controller.operations.acls import create_acls
from kraftlog.controller.operations.alter_partition import alter_partition
from kraftlog.controller.operations.brokers import register_controller
from kraftlog.controller.operations.create_partitions import create_partitions
from kraftlog.controller.operations.directories import assign_replicas_to_dirs
from kraftlog.controller.operations.elections import ElectionPages, elect_leaders
from kraftlog.controller.operations.producer_ids import allocate_producer_ids
from kraftlog.controller.operations.quotas import alter_client_quotas
from kraftlog.controller.operations.reassignments import alter_partition_reassignments
from kraftlog.controller.operations.remote_log import add_segment, put_partition_delete, update_segment
from kraftlog.controller.operations.topics import create_topics, delete_topics
from kraftlog.controller.rules.quota import ChargeMutations, no_quota
from kraftpb.v1.admin_pb2 import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    Operation,
    OperationResult,
    RemoteLogMetadataResponse,
)
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.types import Offset
from statemachine.metadata.state import MetadataState
from statemachine.words.names import check_name_lengths


def decide(state: MetadataState, operation: Operation, context: Context, next_offset: Offset) -> Decision:
    """What `operation` comes to, if its records start at `next_offset`. Raises ProtocolError."""
    kind = operation.WhichOneof("operation")
    match kind:
        case "register_broker":
            return broker_lifecycle.register(state, operation.register_broker, context, next_offset)
        case "broker_heartbeat":
            return broker_lifecycle.heartbeat(state, operation.broker_heartbeat, context)
        case "fence_broker":
            return broker_lifecycle.fence(state, operation.fence_broker, context)
        case "unregister_broker":
            return broker_lifecycle.unregister(state, operation.unregister_broker, context)
        case "alter_configs":
            return config_updates.alter(state, operation.alter_configs, context)
        case "update_features":
            return feature_updates.update(state, operation.update_features, context)
        case "create_topics" | "delete_topics" | "create_partitions":
            return _on_topics(state, operation, context)
        case "add_remote_log_segment" | "update_remote_log_segment" | "put_remote_partition_delete":
            return _on_remote_log(state, operation)
        case "create_acls":
            records, created = create_acls(state, operation.create_acls, context.random)
            return Decision(records, OperationResult(create_acls=created))
        case "alter_client_quotas":
            records, limited = alter_client_quotas(state, operation.alter_client_quotas)
            return Decision(
                records,
                OperationResult(alter_client_quotas=limited),
                on_appended=lambda end_offset: context.mutation_quotas.look_up_again(),
            )
    return _on_the_rest(state, operation)


def _on_topics(state: MetadataState, operation: Operation, context: Context) -> Decision:
    check_name_lengths((operation.client_id,))  # it is remembered
    charge = context.charge_of(state, operation.client_id)
    records, result = _changed_topics(state, operation, context, charge or no_quota)
    return Decision(records, result, on_appended=lambda end_offset: charge.settle() if charge is not None else None)


def _changed_topics(
    state: MetadataState, operation: Operation, context: Context, charge: ChargeMutations
) -> tuple[list[MetadataRecord], OperationResult]:
    match operation.WhichOneof("operation"):
        case "create_topics":
            records, created = create_topics(
                state,
                operation.create_topics,
                context.random,
                create_topic_policy=context.config.create_topic_policy,
                charge=charge,
            )
            return records, OperationResult(create_topics=created)
        case "delete_topics":
            records, deleted = delete_topics(
                state,
                operation.delete_topics,
                now_ms=context.runtime.wall_clock_ms(),
                deletion_enabled=context.config.delete_topic_enable,
                charge=charge,
            )
            return records, OperationResult(delete_topics=deleted)
    records, more = create_partitions(state, operation.create_partitions, context.random, charge=charge)
    return records, OperationResult(create_partitions=more)


def _on_remote_log(state: MetadataState, operation: Operation) -> Decision:
    match operation.WhichOneof("operation"):
        case "add_remote_log_segment":
            records = add_segment(state, operation.add_remote_log_segment)
        case "update_remote_log_segment":
            records = update_segment(state, operation.update_remote_log_segment)
        case _:
            records = put_partition_delete(state, operation.put_remote_partition_delete)
    return Decision(records, OperationResult(remote_log_metadata=RemoteLogMetadataResponse()))


def _on_the_rest(state: MetadataState, operation: Operation) -> Decision:
    match operation.WhichOneof("operation"):
        case "alter_partition":
            records, altered = alter_partition(state, operation.alter_partition)
            return Decision(records, OperationResult(alter_partition=altered))
        case "elect_leaders":
            return _elect(state, operation.elect_leaders)
        case "alter_partition_reassignments":
            records, moved = alter_partition_reassignments(state, operation.alter_partition_reassignments)
            return Decision(records, OperationResult(alter_partition_reassignments=moved))
        case "assign_replicas_to_dirs":
            records, assigned = assign_replicas_to_dirs(state, operation.assign_replicas_to_dirs)
            return Decision(records, OperationResult(assign_replicas_to_dirs=assigned))
        case "allocate_producer_ids":
            records, ids = allocate_producer_ids(state, operation.allocate_producer_ids)
            return Decision(records, OperationResult(allocate_producer_ids=ids))
        case "delete_acls":
            return _delete_acls(state, operation.delete_acls)
        case "register_controller":
            records, registered = register_controller(state, operation.register_controller)
            return Decision(records, OperationResult(register_controller=registered))
    raise ProtocolError(ErrorCode.INVALID_REQUEST, "the operation says nothing to do that this version knows")


def _delete_acls(state: MetadataState, request: DeleteAclsRequest) -> Decision:
    """At once if one turn finds all that there is to delete; else in the background, turn by turn."""
    result = OperationResult(delete_acls=DeleteAclsResponse())
    deletion = AclDeletion(state, request, result.delete_acls)
    records = deletion.take()
    if deletion.is_found:
        return Decision(records or [], result)
    return Decision([], result, deletion, in_background=True)


def _elect(state: MetadataState, request: ElectLeadersRequest) -> Decision:
    """Elections where they are asked for, or in pages wherever they are needed."""
    if request.HasField("partitions"):
        records, elected = elect_leaders(state, request)
        return Decision(records, OperationResult(elect_leaders=elected))
    result = OperationResult(elect_leaders=ElectLeadersResponse())
    return Decision([], result, ElectionPages(state, request, result.elect_leaders), in_background=True)
