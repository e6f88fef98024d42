"""Bugs of the controller: epochs that are not checked or raised, early answers, and work that is never finished."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import kraftlog.controller.periodic_tasks
import statemachine.replay.replay
import statemachine.replay.replay_tiering
from kraftbase.types import Offset
from kraftlog.controller import broker_control
from kraftlog.controller.layer import Layer
from kraftlog.controller.operations import alter_partition, brokers, reassignments, remote_log, topics
from kraftlog.controller.paged_writes import PagedWrites
from kraftlog.controller.pending_operations import PendingOperation, PendingOperations
from kraftlog.controller.rules import partition_change
from kraftlog.controller.rules.partition_change import Conditions, Election, Target
from kraftlog.sim.engine.mutation import instead, mutation
from kraftpb.v1.admin_pb2 import AlteredPartition, RegisterBrokerRequest
from kraftpb.v1.metadata_pb2 import PartitionChangeRecord, PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.replay.changes import Changes
from statemachine.words.limits import RECORDS_PER_BATCH_MAX

BROKERS = 3

MOVING_BROKERS = 5
"""Enough brokers that replicas can move to others."""


@mutation("the leader epoch is not raised", "CT-01", brokers=BROKERS)
def leader_epoch_not_raised() -> list[Any]:
    """A new leader leads in the epoch of its predecessor."""
    changed_partition = statemachine.replay.replay.changed_partition

    def forgetful(before: PartitionRecord, change: PartitionChangeRecord) -> PartitionRecord:
        after = changed_partition(before, change)
        after.leader_epoch = before.leader_epoch
        return after

    return [
        instead(statemachine.replay.replay, "changed_partition", forgetful),
        instead(alter_partition, "changed_partition", forgetful),
    ]


@mutation("the partition epoch is not checked", "KIP-497", brokers=BROKERS)
def partition_epoch_not_checked() -> list[Any]:
    """A leader's late request restores an ISR that has changed since."""
    check_epochs = alter_partition._check_epochs

    def careless(name: str, partition: PartitionRecord, altered: AlteredPartition, broker_id: int) -> None:
        present = AlteredPartition()
        present.CopyFrom(altered)
        present.partition_epoch = partition.partition_epoch
        check_epochs(name, partition, present, broker_id)

    return [instead(alter_partition, "_check_epochs", careless)]


@mutation("a fenced broker may come into an ISR", "KIP-841", brokers=BROKERS)
def fenced_in_isr() -> list[Any]:
    """The broker's leader does not know yet that it is fenced, and the controller does not check."""
    return [instead(alter_partition, "_ineligible", lambda member, changes: None)]


@mutation("a leader is elected although it is not active", "CT-50", brokers=BROKERS)
def absent_leader() -> list[Any]:
    """The first replica in the ISR is elected, even if its broker is not active."""
    elect = partition_change._elect

    def careless(plan: Any, election: Any, conditions: Conditions) -> None:
        elect(plan, election, replace(conditions, can_lead=lambda broker_id: True))

    return [instead(partition_change, "_elect", careless)]


@mutation("an unclean election ignores in-sync replicas", "CT-51", brokers=MOVING_BROKERS)
def in_sync_passed_over() -> list[Any]:
    """Where the topic allows unclean elections, the first live replica is elected although others are in sync."""
    elect = partition_change._elect

    def careless(plan: Any, election: Election, conditions: Conditions) -> None:
        if election is Election.UNCLEAN:
            plan.isr, plan.eligible_leader_replicas = [], []
        elect(plan, election, conditions)

    return [instead(partition_change, "_elect", careless)]


@mutation("eligible replicas stay when enough are in sync", "KIP-966", brokers=BROKERS)
def eligible_stay() -> list[Any]:
    """Eligible replicas stay in the ELR, but may lack records that were committed since."""
    settle = partition_change._apply_election

    def careless(plan: Any, before: Any, begins_anew: Any, conditions: Conditions) -> None:
        settle(plan, before, begins_anew, replace(conditions, min_isr=RECORDS_PER_BATCH_MAX))

    return [instead(partition_change, "_apply_election", careless)]


@mutation("a reassignment drops what another one was adding", "CT-55", brokers=MOVING_BROKERS)
def adding_dropped() -> list[Any]:
    """A reassignment drops the replicas that are being added, as ZooKeeper's controller did.

    An unclean election may then elect a replica that has no records yet.
    """
    begun = reassignments._begun

    def forgetful(partition: PartitionRecord, wanted: list[int]) -> Target:
        original = PartitionRecord()
        original.CopyFrom(partition)
        kept = [broker_id for broker_id in partition.replicas if broker_id not in partition.adding_replicas]
        original.replicas[:] = kept
        del original.adding_replicas[:]
        return replace(begun(original, wanted), election=Election.UNCLEAN)

    return [instead(reassignments, "_begun", forgetful)]


@mutation("an operation is answered before it is committed", "CT-10", brokers=BROKERS)
def answered_early() -> list[Any]:
    """The record is only in the leader's log, and may be lost with the leader."""

    def _enqueue(self: PendingOperations, waiting: PendingOperation) -> None:
        self._answer(waiting, waiting.result)

    return [instead(PendingOperations, "_enqueue", _enqueue)]


@mutation("pending operations succeed when leadership is lost", "CT-15", brokers=BROKERS)
def told_yes() -> list[Any]:
    """The outcome of the records is unknown, but their callers get a success."""

    def leadership_lost(self: PendingOperations) -> None:
        for waiting in self._for_commit:
            self._answer(waiting, waiting.result)
        self._for_commit.clear()

    return [instead(PendingOperations, "leadership_lost", leadership_lost)]


@mutation("pending changes are dropped before the store has them", "etcd #13766", brokers=BROKERS)
def drained_early() -> list[Any]:
    """For a moment the controller decides without acknowledged records, so an operation takes effect twice."""
    drain = Layer.drain

    def early(self: Layer, applied_end_offset: Offset) -> None:
        drain(self, Offset(applied_end_offset + 3))

    return [instead(Layer, "drain", early)]


@mutation("a broker that is fenced stays in its ISRs", "CT-31", brokers=BROKERS)
def fenced_stays() -> list[Any]:
    """A fenced broker stays in its ISRs, so the leader waits for it."""
    return [instead(broker_control, "partitions_without", lambda *arguments, **settings: [])]


@mutation("pages are dropped when the log accepts nothing for now", "CT-12", brokers=BROKERS)
def pages_given_up() -> list[Any]:
    """A departure stops in the middle, and no controller continues it."""
    next_page = PagedWrites.next_page

    def hasty(self: PagedWrites) -> float:
        if next_page(self):
            self.drop()
        return 0.0

    return [instead(PagedWrites, "next_page", hasty)]


@mutation("a broker's epoch stays when it registers again", "KIP-631", brokers=BROKERS)
def broker_epoch_kept() -> list[Any]:
    """Late messages of the broker's earlier incarnation count as its own."""
    register = brokers.register_broker

    def careless(state: MetadataState, request: RegisterBrokerRequest, *arguments: Any) -> Any:
        found = register(state, request, *arguments)
        present = state.broker(request.broker_id)
        for record in found.records:
            if present is not None:
                record.register_broker.broker_epoch = present.broker_epoch
                found.response.broker_epoch = present.broker_epoch
        return found

    return [instead(broker_control, "register_broker", careless)]


@mutation("a silent broker is not fenced", "CT-30", brokers=BROKERS)
def silent_not_fenced() -> list[Any]:
    """The partitions of a silent broker stay unavailable."""
    return [
        instead(kraftlog.controller.periodic_tasks.PeriodicTasks, "watch_sessions", lambda self, least_ms=0.0: None)
    ]


@mutation("a remote segment comes back from its deletion", "KIP-405", brokers=BROKERS)
def segment_comes_back() -> list[Any]:
    """A late request reports a segment's copy as finished, so it is read from an object that was deleted."""
    return [
        instead(remote_log, "segment_may_become", lambda before, after: before is not None or after == 0),
        instead(statemachine.replay.replay_tiering, "segment_may_become", lambda before, after: before is not None),
    ]


@mutation("a deleted topic's remote data is not marked", "TS-71", brokers=BROKERS)
def remote_data_not_marked() -> list[Any]:
    """The data stays forever, because no broker learns that it must be deleted."""
    return [instead(topics, "_may_have_remote_data", lambda state, topic: False)]


@mutation("a finished copy is not entered in its epochs", "TS-60", brokers=BROKERS)
def no_place_taken() -> list[Any]:
    """The highest copied offset of an epoch is unknown, so a new leader copies everything again and overlaps stay."""
    return [instead(statemachine.replay.replay_tiering, "_take_place", lambda view, finished, part: None)]


@mutation("a copy is found where another took its place", "TS-60", brokers=BROKERS)
def place_not_lost() -> list[Any]:
    """Lookups find either copy. The highest copied offset of the epoch is right."""
    take_place = statemachine.replay.replay_tiering._take_place

    def tolerant(view: Any, finished: Any, part: Any) -> None:
        blind = Mock(wraps=view)
        blind.find = lambda *place: ()
        take_place(blind, finished, part)

    return [instead(statemachine.replay.replay_tiering, "_take_place", tolerant)]


@mutation("a changed row is not written, but the offset is", "KAFKA-14275", brokers=BROKERS)
def row_not_written() -> list[Any]:
    """A row is not written, and the node continues. Digests cover the effects of records, not the written rows."""
    write = Changes._write
    count = itertools.count()

    def tolerant(self: Changes, table: Any, rows: Any, sums: Any) -> None:
        if table.name != "partitions" or next(count) % 10 != 7:
            write(self, table, rows, sums)

    return [instead(Changes, "_write", tolerant)]
