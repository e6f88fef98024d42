"""Which function decides on which operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.controller import broker_control, config_updates, feature_updates
from kraftlog.controller.decisions import Decision, DecisionContext
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
    DeleteAclsResponse,
    ElectLeadersResponse,
    Operation,
    OperationResult,
    RemoteLogMetadataResponse,
)
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.names import check_name_lengths


class Asked(NamedTuple):
    """An operation, and the inputs to decide on it."""

    state: MetadataState
    request: Any
    """The message of the operation's kind."""
    context: DecisionContext
    next_offset: Offset
    """Where its records start."""
    client_id: str


def decide(state: MetadataState, operation: Operation, context: DecisionContext, next_offset: Offset) -> Decision:
    """The records of `operation`, if they start at `next_offset`, and its answer. Raises ApiError."""
    kind = operation.WhichOneof("operation") or ""
    decide_on = DECIDE.get(kind)
    if decide_on is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the operation has no kind that this version knows")
    return decide_on(Asked(state, getattr(operation, kind), context, next_offset, operation.client_id))


# --- topics: what a client creates and deletes is charged to its quota ------------------------------------------------


def _charged(
    asked: Asked, change: Callable[[ChargeMutations], tuple[list[MetadataRecord], OperationResult]]
) -> Decision:
    check_name_lengths((asked.client_id,))  # it is kept in memory
    charge = asked.context.charge_of(asked.state, asked.client_id)
    records, result = change(charge or no_quota)
    return Decision(records, result, on_appended=lambda end_offset: charge.charge() if charge is not None else None)


def _create_topics(asked: Asked) -> Decision:
    def change(charge: ChargeMutations) -> tuple[list[MetadataRecord], OperationResult]:
        records, created = create_topics(
            asked.state,
            asked.request,
            asked.context.random,
            create_topic_policy=asked.context.config.create_topic_policy,
            charge=charge,
            tiering_enabled=asked.context.config.remote_log_storage_system_enable,
        )
        return records, OperationResult(create_topics=created)

    return _charged(asked, change)


def _delete_topics(asked: Asked) -> Decision:
    def change(charge: ChargeMutations) -> tuple[list[MetadataRecord], OperationResult]:
        records, deleted = delete_topics(
            asked.state,
            asked.request,
            now_ms=asked.context.runtime.wall_clock_ms(),
            deletion_enabled=asked.context.config.delete_topic_enable,
            charge=charge,
        )
        return records, OperationResult(delete_topics=deleted)

    return _charged(asked, change)


def _create_partitions(asked: Asked) -> Decision:
    def change(charge: ChargeMutations) -> tuple[list[MetadataRecord], OperationResult]:
        records, created = create_partitions(asked.state, asked.request, asked.context.random, charge=charge)
        return records, OperationResult(create_partitions=created)

    return _charged(asked, change)


# --- partitions -------------------------------------------------------------------------------------------------------


def _alter_partition(asked: Asked) -> Decision:
    records, altered = alter_partition(asked.state, asked.request)
    return Decision(records, OperationResult(alter_partition=altered))


def _alter_partition_reassignments(asked: Asked) -> Decision:
    records, moved = alter_partition_reassignments(asked.state, asked.request)
    return Decision(records, OperationResult(alter_partition_reassignments=moved))


def _assign_replicas_to_dirs(asked: Asked) -> Decision:
    records, assigned = assign_replicas_to_dirs(asked.state, asked.request)
    return Decision(records, OperationResult(assign_replicas_to_dirs=assigned))


def _elect_leaders(asked: Asked) -> Decision:
    """Elections of the named partitions, or in pages wherever they are needed."""
    if asked.request.HasField("partitions"):
        records, elected = elect_leaders(asked.state, asked.request)
        return Decision(records, OperationResult(elect_leaders=elected))
    result = OperationResult(elect_leaders=ElectLeadersResponse())
    return Decision([], result, ElectionPages(asked.state, asked.request, result.elect_leaders), in_background=True)


# --- brokers and controllers ------------------------------------------------------------------------------------------


def _register_broker(asked: Asked) -> Decision:
    return broker_control.register(asked.state, asked.request, asked.context, asked.next_offset)


def _broker_heartbeat(asked: Asked) -> Decision:
    return broker_control.heartbeat(asked.state, asked.request, asked.context)


def _fence_broker(asked: Asked) -> Decision:
    return broker_control.fence(asked.state, asked.request, asked.context)


def _unregister_broker(asked: Asked) -> Decision:
    return broker_control.unregister(asked.state, asked.request, asked.context)


def _register_controller(asked: Asked) -> Decision:
    records, registered = register_controller(asked.state, asked.request)
    return Decision(records, OperationResult(register_controller=registered))


def _allocate_producer_ids(asked: Asked) -> Decision:
    records, ids = allocate_producer_ids(asked.state, asked.request)
    return Decision(records, OperationResult(allocate_producer_ids=ids))


# --- configs, features, quotas, access control ------------------------------------------------------------------------


def _alter_configs(asked: Asked) -> Decision:
    return config_updates.alter(asked.state, asked.request, asked.context)


def _update_features(asked: Asked) -> Decision:
    return feature_updates.update(asked.state, asked.request, asked.context)


def _alter_client_quotas(asked: Asked) -> Decision:
    records, limited = alter_client_quotas(asked.state, asked.request)
    return Decision(
        records,
        OperationResult(alter_client_quotas=limited),
        on_appended=lambda end_offset: asked.context.mutation_quotas.look_up_again(),
    )


def _create_acls(asked: Asked) -> Decision:
    records, created = create_acls(asked.state, asked.request, asked.context.random)
    return Decision(records, OperationResult(create_acls=created))


def _delete_acls(asked: Asked) -> Decision:
    """Immediately if one turn finds everything to be deleted; else in the background, turn by turn."""
    result = OperationResult(delete_acls=DeleteAclsResponse())
    deletion = AclDeletion(asked.state, asked.request, result.delete_acls)
    records = deletion.next_page()
    if deletion.is_found:
        return Decision(records or [], result)
    return Decision([], result, deletion, in_background=True)


# --- tiered storage ---------------------------------------------------------------------------------------------------


def _add_remote_log_segment(asked: Asked) -> Decision:
    return _remote_log(add_segment(asked.state, asked.request))


def _update_remote_log_segment(asked: Asked) -> Decision:
    return _remote_log(update_segment(asked.state, asked.request))


def _put_remote_partition_delete(asked: Asked) -> Decision:
    return _remote_log(put_partition_delete(asked.state, asked.request))


def _remote_log(records: list[MetadataRecord]) -> Decision:
    return Decision(records, OperationResult(remote_log_metadata=RemoteLogMetadataResponse()))


DECIDE: Final[dict[str, Callable[[Asked], Decision]]] = {
    "create_topics": _create_topics,
    "delete_topics": _delete_topics,
    "create_partitions": _create_partitions,
    "alter_partition": _alter_partition,
    "alter_partition_reassignments": _alter_partition_reassignments,
    "assign_replicas_to_dirs": _assign_replicas_to_dirs,
    "elect_leaders": _elect_leaders,
    "register_broker": _register_broker,
    "broker_heartbeat": _broker_heartbeat,
    "fence_broker": _fence_broker,
    "unregister_broker": _unregister_broker,
    "register_controller": _register_controller,
    "allocate_producer_ids": _allocate_producer_ids,
    "alter_configs": _alter_configs,
    "update_features": _update_features,
    "alter_client_quotas": _alter_client_quotas,
    "create_acls": _create_acls,
    "delete_acls": _delete_acls,
    "add_remote_log_segment": _add_remote_log_segment,
    "update_remote_log_segment": _update_remote_log_segment,
    "put_remote_partition_delete": _put_remote_partition_delete,
}
"""By the kinds of `Operation`, each of which is here: a test compares them."""
