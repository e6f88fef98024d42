"""Brokers whose disks are full: their leaderships move to replicas that have room, where there are any (CT-66). A
broker reports in its heartbeats how much room its log directories have, and which are full. That becomes part of its
registration, so that all nodes and brokers know it, and its leaderships leave those directories page by page.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftlog.controller.decisions import Decision, DecisionContext
from kraftlog.controller.operations.brokers import full_directories_record
from kraftlog.controller.operations.elections import lead_where_there_is_room
from kraftlog.controller.rules.pages import PartitionPages, led_by
from kraftpb.v1.admin_pb2 import BrokerHeartbeatRequest, OperationResult
from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.record_versions import METADATA_VERSION_DIRECTORIES


def full_disks(
    state: MetadataState,
    broker: RegisterBrokerRecord,
    request: BrokerHeartbeatRequest,
    result: OperationResult,
    context: DecisionContext,
) -> Decision:
    """Note the room that a heartbeat reports; if the set of full directories has changed, decide on the change."""
    context.disk_space.report(broker.broker_id, request.log_dir_space)
    if state.metadata_version < METADATA_VERSION_DIRECTORIES:
        return Decision([], result)
    named = {of.log_dir for of in request.log_dir_space if of.is_full}
    full = [log_dir for log_dir in broker.log_dirs if log_dir in named]
    if full == [*broker.full_log_dirs]:
        return Decision([], result)
    is_worse = not set(full) <= set(broker.full_log_dirs)
    pages = leaderships_to_room(state, [broker.broker_id], context) if is_worse else None
    records = [full_directories_record(broker, full, state.metadata_version)]
    return Decision(records, result, pages, answer_waits_for_pages=False)


def leaderships_to_room(state: MetadataState, broker_ids: Iterable[int], context: DecisionContext) -> PartitionPages:
    """Move the leaderships of these brokers in full directories to replicas with room."""
    return PartitionPages(
        [led_by(state, broker_id) for broker_id in broker_ids],
        lambda page: lead_where_there_is_room(state, page, context.disk_space, context.runtime.now_ms()),
    )
