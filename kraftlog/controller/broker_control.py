"""Brokers that register, fall silent and leave: the decisions that also concern their partitions (CT-30, CT-31, CT-33,
CT-36). First comes the record with the broker's new state, so that every later decision takes the new state into
account. Then its partitions are changed page by page: first those that it leads, because they are unavailable. A
controller that takes over in the middle finishes what is left (`resume_unfinished`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_LEADER, UNKNOWN_OFFSET
from kraftbase.types import Offset
from kraftlog.controller.decisions import Decision, DecisionContext
from kraftlog.controller.full_disks import full_disks
from kraftlog.controller.operations.brokers import (
    controlled_shutdown_record,
    directories_record,
    fence_broker,
    fence_record,
    register_broker,
    unfence_record,
    unregister_broker,
    was_unfenced,
)
from kraftlog.controller.operations.directories import failed_directories, partitions_without_directories
from kraftlog.controller.operations.heartbeats import Transition, broker_heartbeat, executed
from kraftlog.controller.operations.leader_and_isr import leaders_where_none, partitions_without
from kraftlog.controller.rules.pages import Pages, PartitionPages, assigned_to, led_by, where
from kraftpb.v1.admin_pb2 import (
    BrokerHeartbeatRequest,
    FenceBrokerRequest,
    OperationResult,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from statemachine.metadata.state import MetadataState
from statemachine.replay.replay import changed_partition
from statemachine.tables.topic_tables import counting_on
from statemachine.words.record_versions import METADATA_VERSION_DIRECTORIES

RESUMED_TOGETHER_MAX: Final = 20
"""The partitions of at most this many brokers are looked up together: a page has this many records per partition."""


def register(
    state: MetadataState, request: RegisterBrokerRequest, context: DecisionContext, next_offset: Offset
) -> Decision:
    """A broker registers; a new incarnation of a known one leaves all its partitions (KIP-966)."""
    has_session = context.heartbeats.has_session(request.broker_id, context.runtime.now_ms())
    was_there = state.broker(request.broker_id) is not None
    found = register_broker(state, request, context.cluster_id, next_offset, has_session)
    pages = None
    if was_there and found.is_new_incarnation:
        pages = leader_and_isr_updates(
            state,
            request.broker_id,
            may_have_lost_data=found.had_unclean_shutdown,
            older_log_dirs=found.older_log_dirs,
        )
    result = OperationResult(register_broker=found.response)
    if pages is not None:
        return _removal([request.broker_id], found.records, result, pages, context)

    def on_appended(end_offset: Offset) -> None:
        if found.records:  # the directories that it names now are online, including those that failed earlier
            context.failed_directories.pop(request.broker_id, None)

    return Decision(found.records, result, on_appended=on_appended)


def note_contact(state: MetadataState, request: BrokerHeartbeatRequest, context: DecisionContext) -> None:
    """Note that a broker has sent a heartbeat, even if it cannot be answered now: the broker is not silent."""
    is_heard = request.current_metadata_offset >= UNKNOWN_OFFSET
    if is_heard and _is_unfenced(state, request.broker_id, request.broker_epoch):
        now_ms = context.runtime.now_ms()
        context.heartbeats.touch(request.broker_id, request.current_metadata_offset, now_ms)


def heartbeat(state: MetadataState, request: BrokerHeartbeatRequest, context: DecisionContext) -> Decision:
    """A broker reports that it is alive and what it wants."""
    now_ms, version = context.runtime.now_ms(), state.metadata_version
    transition, response = broker_heartbeat(state, context.heartbeats, request, now_ms)
    result = OperationResult(broker_heartbeat=response)
    broker = state.broker(request.broker_id)
    if broker is None:
        raise LookupError(f"broker {request.broker_id} was deleted during this decision")
    has_failed = _has_failed(state, broker, request, context)
    has_none = bool(broker.log_dirs) and set(broker.log_dirs) <= set(request.offline_log_dirs)
    if transition is Transition.UNFENCE and (has_failed or has_none or context.departing[broker.broker_id]):
        transition, response.is_fenced = (
            Transition.NONE,
            True,
        )  # not before its partitions are changed; the broker sends another heartbeat

    def session_follows(end_offset: Offset) -> None:
        if _is_unfenced(state, request.broker_id, request.broker_epoch):  # another append may have come first
            executed(context.heartbeats, request, transition, end_offset, now_ms)

    match transition:
        case Transition.FENCE:
            records, pages = [fence_record(broker, version)], leader_and_isr_updates(state, broker.broker_id)
            return _removal([broker.broker_id], records, result, pages, context)
        case Transition.UNFENCE:
            records, pages = [unfence_record(broker, version)], _leaderless_updates(state)
            return Decision(records, result, pages, answer_waits_for_pages=False, on_appended=session_follows)
        case Transition.CONTROLLED_SHUTDOWN:
            records, pages = (
                [controlled_shutdown_record(broker, version)],
                leader_and_isr_updates(state, broker.broker_id),
            )
            return Decision(records, result, pages, answer_waits_for_pages=False, on_done=session_follows)
    if has_failed:
        return _without_directories(state, broker, frozenset(request.offline_log_dirs), result, context)
    return full_disks(state, broker, request, result, context)


def fence(state: MetadataState, request: FenceBrokerRequest, context: DecisionContext) -> Decision:
    """An operator fences a broker, until its next heartbeat."""
    records, response = fence_broker(state, request)
    result = OperationResult(fence_broker=response)
    if not records:
        return Decision([], result)
    return _removal([request.broker_id], records, result, leader_and_isr_updates(state, request.broker_id), context)


def fence_silent(state: MetadataState, broker_id: int, context: DecisionContext) -> Decision:
    """A broker whose session has expired is fenced."""
    broker = state.broker(broker_id)
    if broker is None or broker.fenced:
        context.heartbeats.remove(broker_id)
        return Decision([])
    records = [fence_record(broker, state.metadata_version)]
    decision = _removal([broker_id], records, OperationResult(), leader_and_isr_updates(state, broker_id), context)

    def on_appended(end_offset: Offset) -> None:
        context.heartbeats.expire(broker_id)  # only now: if the append is refused it must be retried
        decision.on_appended(end_offset)

    return decision._replace(on_appended=on_appended)


def fence_dead(state: MetadataState, broker_id: int, broker_epoch: int, context: DecisionContext) -> Decision:
    """Fence a broker whose process has ended, unless it was fenced or has registered again since (CT-65)."""
    broker = state.broker(broker_id)
    if broker is None or not _is_unfenced(state, broker_id, broker_epoch):
        return Decision([])
    records = [fence_record(broker, state.metadata_version)]
    return _removal([broker_id], records, OperationResult(), leader_and_isr_updates(state, broker_id), context)


# Why the fence comes first. Consider brokers 1, 2 and 3 and 1,000 partitions that all three have in sync and broker 1
# leads. Broker 1 falls silent, and the controller appends:
#
#     offset 500       broker 1 is fenced
#     offsets 501 on   the first 200 partitions: ISR 2 and 3, leader 2
#     ...              four more such pages, with other operations in between
#
# Kafka appends the fence last, in the same step, so nothing can come in between. Here something can. After the first
# page broker 2, which has just received a late fetch of broker 1, may ask for the ISR 1, 2, 3 again. With broker 1
# fenced that is INELIGIBLE_REPLICA. If it were not fenced, the ISR would be granted after the page, and broker 1
# would stay in the ISR of a partition to which no page returns. Topics that are created in between do not get broker
# 1 as leader.
#
# Nor is broker 1 unfenced in between, although it may return and have read the whole log: `departing` counts its
# departures, and it has to wait until the last page of the last one is appended. Otherwise the later pages would take
# it out of partitions that it has rightly joined.
#
# If the controller is lost when the third page is committed, offset 500 is committed, too. The next controller finds
# broker 1 fenced, searches all partitions for those that still count on it (`resume_unfinished`), and finishes. If not
# even offset 500 is committed, nothing has happened: broker 1 gets a new session there, and is fenced when it expires.
def _removal(
    broker_ids: Sequence[int],
    records: list[MetadataRecord],
    result: OperationResult,
    pages: Pages,
    context: DecisionContext,
) -> Decision:
    """Fence brokers with `records`, unless they are fenced, and remove them from their partitions with `pages`."""

    def on_appended(end_offset: Offset) -> None:
        for broker_id in broker_ids:
            context.heartbeats.remove(broker_id)
            context.disk_space.remove(broker_id)
            context.failed_directories.pop(broker_id, None)
            context.departing[broker_id] += 1

    def on_done(end_offset: Offset) -> None:
        for broker_id in broker_ids:
            context.departing[broker_id] -= 1

    return Decision(records, result, pages, on_appended=on_appended, on_done=on_done)


def unregister(state: MetadataState, request: UnregisterBrokerRequest, context: DecisionContext) -> Decision:
    """A broker is removed: fenced first, then taken out of every ISR, then its registration is deleted."""
    records, response = unregister_broker(state, request)
    broker_id = request.broker_id
    broker = state.broker(broker_id)
    is_fenced = broker is None or broker.fenced

    def closing() -> list[MetadataRecord]:
        present = state.broker(broker_id)
        if present is not None and broker is not None and present.broker_epoch == broker.broker_epoch:
            return records
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED if present is None else ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {broker_id} {'was unregistered' if present is None else 'has registered again'}"
            " in the meantime; nothing else was done",
        )

    first = [] if is_fenced or broker is None else [fence_record(broker, state.metadata_version)]
    pages = leader_and_isr_updates(state, broker_id, may_have_lost_data=True, closing=closing)
    return _removal([broker_id], first, OperationResult(unregister_broker=response), pages, context)


def resume_unfinished(state: MetadataState, context: DecisionContext) -> Iterator[Decision]:
    """The work that the previous controller may not have finished. Partitions may still count on brokers that have
    left, and may have no leader although a broker returned. All partitions are searched for that, once for many
    brokers. Mostly nothing is left to do, but no index shows that.
    """
    yield Decision([], pages=_leaderless_updates(state))
    going = [broker for broker in state.brokers().values() if broker.fenced or broker.in_controlled_shutdown]
    for first in range(0, len(going), RESUMED_TOGETHER_MAX):
        yield _unfinished_removals(state, going[first : first + RESUMED_TOGETHER_MAX], context)


def _unfinished_removals(
    state: MetadataState, going: Sequence[RegisterBrokerRecord], context: DecisionContext
) -> Decision:
    """Brokers that are fenced, or in controlled shutdown, leave the partitions that they may still be in."""
    fenced = [broker.broker_id for broker in going if broker.fenced]
    lost_data = {broker.broker_id for broker in going if broker.fenced and broker.unclean_shutdown}
    older = {
        broker.broker_id: frozenset(broker.older_log_dirs)
        for broker in going
        if broker.older_log_dirs and not was_unfenced(broker)
    }
    broker_ids = [broker.broker_id for broker in going]

    def decide(page: Sequence[PartitionRecord]) -> list[MetadataRecord]:
        # One broker after the other, each from the result of the previous one: the outcome is the same as if the
        # brokers had left on their own.
        records: list[MetadataRecord] = []
        for broker_id in broker_ids:
            changes = partitions_without(
                state,
                broker_id,
                page,
                may_have_lost_data=broker_id in lost_data,
                older_log_dirs=older.get(broker_id, ()),
            )
            page = _after(page, changes)
            records += changes
        return records

    def on_done(end_offset: Offset) -> None:
        removal.on_done(end_offset)
        for broker in going:
            # It may shut down when the other brokers can know the new leaders of its partitions.
            if not broker.fenced and _is_unfenced(state, broker.broker_id, broker.broker_epoch):
                context.heartbeats.begin_controlled_shutdown(broker.broker_id, end_offset)

    counted_on = where(state, counting_on(broker_ids, lost_data, older))
    pages = PartitionPages([*(led_by(state, broker_id) for broker_id in broker_ids), counted_on], decide)
    removal = _removal(fenced, [], OperationResult(), pages, context)
    return removal._replace(on_done=on_done)


def _after(page: Sequence[PartitionRecord], changes: Sequence[MetadataRecord]) -> Sequence[PartitionRecord]:
    """The partitions after `changes` are replayed."""
    if not changes:
        return page
    by_key = {(change.topic_id, change.partition_id): change for change in (of.partition_change for of in changes)}
    present = [(partition, by_key.get((partition.topic_id, partition.partition_id))) for partition in page]
    return [partition if change is None else changed_partition(partition, change) for partition, change in present]


def _is_unfenced(state: MetadataState, broker_id: int, broker_epoch: int) -> bool:
    """Whether the broker is still registered with that epoch, and unfenced."""
    present = state.broker(broker_id)
    return present is not None and present.broker_epoch == broker_epoch and not present.fenced


def leader_and_isr_updates(
    state: MetadataState,
    broker_id: int,
    *,
    may_have_lost_data: bool = False,
    older_log_dirs: Collection[bytes] = (),
    closing: Callable[[], list[MetadataRecord]] = list,
) -> PartitionPages:
    """A broker leaves the ISR and the leadership of all its partitions."""
    return PartitionPages(
        [led_by(state, broker_id), assigned_to(state, broker_id)],
        lambda page: partitions_without(
            state, broker_id, page, may_have_lost_data=may_have_lost_data, older_log_dirs=older_log_dirs
        ),
        closing,
    )


def _leaderless_updates(state: MetadataState) -> PartitionPages:
    """Elect leaders for partitions without a leader, where a replica can now lead."""
    return PartitionPages([led_by(state, NO_LEADER)], lambda page: leaders_where_none(state, page))


def _has_failed(
    state: MetadataState, broker: RegisterBrokerRecord, request: BrokerHeartbeatRequest, context: DecisionContext
) -> bool:
    """Whether the broker names log directories that this controller does not know as failed."""
    known = context.failed_directories.get(broker.broker_id, frozenset())
    return state.metadata_version >= METADATA_VERSION_DIRECTORIES and not known.issuperset(request.offline_log_dirs)


def _without_directories(
    state: MetadataState,
    broker: RegisterBrokerRecord,
    offline: frozenset[bytes],
    result: OperationResult,
    context: DecisionContext,
) -> Decision:
    """The replicas in failed directories leave the ISR and the leadership; if all failed, the broker does."""
    broker_id, version = broker.broker_id, state.metadata_version

    def on_appended(end_offset: Offset) -> None:
        context.failed_directories[broker_id] = context.failed_directories.get(broker_id, frozenset()) | offline

    online = [directory for directory in broker.log_dirs if directory not in offline]
    if broker.log_dirs and not online:
        first = [] if broker.fenced else [fence_record(broker, version)]
        removal = _removal([broker_id], first, result, leader_and_isr_updates(state, broker_id), context)

        def on_removal(end_offset: Offset) -> None:
            removal.on_appended(end_offset)
            on_appended(end_offset)

        return removal._replace(on_appended=on_removal)
    pages = PartitionPages(
        [led_by(state, broker_id), assigned_to(state, broker_id)],
        lambda page: partitions_without_directories(state, broker_id, offline, page),
    )
    is_news = bool(failed_directories(broker, offline))
    records = [directories_record(broker, online, version)] if is_news else []
    return Decision(records, result, pages, answer_waits_for_pages=False, on_appended=on_appended)
