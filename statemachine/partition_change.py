"""How a partition changes: who is in sync, who leads, and when a reassignment is complete (5.6).

`change_partition` decides from one partition and what it shall become, as Kafka's PartitionChangeBuilder does. What the
latest metadata say of brokers, configs and features comes from `statemachine.partition_context`. Nothing changes here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kraftpb.v1.metadata_pb2 import (
    BrokerIds,
    DirectoryIds,
    PartitionChangeRecord,
    PartitionRecord,
)
from statemachine.ids import UNASSIGNED_DIRECTORY
from statemachine.record_versions import METADATA_VERSION_DIRECTORIES

NO_LEADER: Final = -1
"""The leader of a partition that nobody leads."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader was elected uncleanly and has not yet said that it found its feet."""

METADATA_VERSION_SHRINK_KEEPS_EPOCH: Final = 12
"""3.6-IV0: brokers no longer need a new leader epoch when the ISR shrinks (CT-53)."""


class Election(Enum):
    """How to look for a leader (CT-51)."""

    ONLINE = "online"
    """The leader stays if it can; else the first replica that is in sync."""
    PREFERRED = "preferred"
    """The first replica if it is in sync; else as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE, and if nobody is in sync the first replica that is there: what it lacks is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a partition shall become. What is None stays as it is."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    """Those being removed included."""
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    leader_recovery_state: int | None = None
    directories: Mapping[int, bytes] = field(default_factory=dict)
    """The new log directory of single replicas, by broker."""
    lost_data: Collection[int] = ()
    """Brokers that may lack what they once had: neither in sync nor eligible any more (KIP-966)."""
    election: Election = Election.ONLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a change depends on besides the partition."""

    can_lead: Callable[[int], bool]
    """Whether a broker is active and has the directory of its replica online (CT-50)."""
    metadata_version: int
    min_isr: int = 1
    """The topic's min.insync.replicas. A partition with fewer replicas needs only all of them: if they are in sync,
    nobody is left to be eligible, so it makes no difference here."""
    elr_enabled: bool = False
    directory_of_new: Callable[[int], bytes] = lambda broker_id: UNASSIGNED_DIRECTORY
    """The directory that a replica which is new on a broker gets."""


@dataclass(slots=True)
class _Plan:
    """The partition as it will be."""

    replicas: list[int]
    removing: list[int]
    adding: list[int]
    isr: list[int]
    elr: list[int]
    last_known: list[int]
    leader: int
    recovery_state: int
    is_unclean: bool = False


def change_partition(
    partition: PartitionRecord, target: Target, conditions: Conditions
) -> PartitionChangeRecord | None:
    """The change that brings `partition` to `target`, with the election that it needs; None if nothing changes (CT-58).

    The ISR and the eligible replicas are always replicas, and no broker is in both.
    """
    plan = _planned(partition, target)
    _complete_reassignment(plan)
    _find_eligible(plan, partition, target.lost_data, conditions)
    _elect(plan, target.election, conditions)
    _settle(plan, partition, conditions)
    needs_epoch = plan.leader != partition.leader or plan.is_unclean or _needs_leader_epoch(plan, partition, conditions)
    change = PartitionChangeRecord(
        topic_id=partition.topic_id,
        partition_id=partition.partition_id,
        isr=_changed(partition.isr, plan.isr),
        leader=plan.leader if needs_epoch else None,
        replicas=_changed(partition.replicas, plan.replicas),
        removing_replicas=_changed(partition.removing_replicas, plan.removing),
        adding_replicas=_changed(partition.adding_replicas, plan.adding),
        leader_recovery_state=(plan.recovery_state if plan.recovery_state != partition.leader_recovery_state else None),
        eligible_leader_replicas=_changed(partition.eligible_leader_replicas, plan.elr),
        last_known_elr=_changed(partition.last_known_elr, plan.last_known),
        directories=_changed_directories(partition, plan, target, conditions),
    )
    nothing = PartitionChangeRecord(topic_id=partition.topic_id, partition_id=partition.partition_id)
    return None if change == nothing else change


def _planned(partition: PartitionRecord, target: Target) -> _Plan:
    replicas = list(_given(target.replicas, partition.replicas))
    isr = [
        broker_id
        for broker_id in _given(target.isr, partition.isr)
        if broker_id in replicas and broker_id not in target.lost_data
    ]
    recovery_state = target.leader_recovery_state
    return _Plan(
        replicas=replicas,
        removing=list(_given(target.removing, partition.removing_replicas)),
        adding=list(_given(target.adding, partition.adding_replicas)),
        isr=isr,
        elr=list(partition.eligible_leader_replicas),
        last_known=list(partition.last_known_elr),
        leader=partition.leader,
        recovery_state=partition.leader_recovery_state if recovery_state is None else recovery_state,
    )


def _given(target: Sequence[int] | None, present: Sequence[int]) -> Sequence[int]:
    return present if target is None else target


def _complete_reassignment(plan: _Plan) -> None:
    """Let the replicas go that are being removed, once all that shall stay are in sync (CT-54)."""
    staying = [broker_id for broker_id in plan.replicas if broker_id not in plan.removing]
    if (plan.removing or plan.adding) and staying and set(staying) <= set(plan.isr):
        plan.replicas = staying
        plan.isr = [broker_id for broker_id in plan.isr if broker_id in staying]
        plan.removing = []
        plan.adding = []


def _find_eligible(plan: _Plan, before: PartitionRecord, lost_data: Collection[int], conditions: Conditions) -> None:
    """Who left the ISR still has all that is committed, as long as it is too small to commit more (CT-56).

    Whether it is too small is only known after the election: `_settle` forgets them if not.
    """
    if not conditions.elr_enabled:
        if not before.isr:
            # The feature was turned off while the ISR was empty: those that were eligible take its place, or the
            # partition could only be had back uncleanly.
            plan.isr = plan.isr or [broker_id for broker_id in plan.elr if broker_id in plan.replicas]
        plan.elr = []
        plan.last_known = []
        return
    eligible = {*plan.elr, *before.isr} - {*plan.isr, *lost_data}
    if eligible != set(plan.elr) or not eligible <= set(plan.replicas):
        plan.elr = [broker_id for broker_id in plan.replicas if broker_id in eligible]


def _elect(plan: _Plan, election: Election, conditions: Conditions) -> None:
    """Find the leader (CT-50, CT-51). Who is elected from outside the ISR is alone in it."""
    in_sync = plan.isr or plan.elr
    order = [plan.leader, *plan.replicas]
    if election is Election.PREFERRED:
        order.insert(0, plan.replicas[0])
    clean = next((broker_id for broker_id in order if broker_id in in_sync and conditions.can_lead(broker_id)), None)
    if clean is not None:
        plan.leader = clean
        if clean not in plan.isr:
            plan.isr = [clean]
            plan.elr = [broker_id for broker_id in plan.elr if broker_id != clean]
        return
    unclean = next(filter(conditions.can_lead, _unclean_candidates(plan, election)), None)
    if unclean is None:
        plan.leader = NO_LEADER
        return
    plan.leader = unclean
    plan.is_unclean = True
    plan.isr = [unclean]
    plan.elr = []
    plan.recovery_state = RECOVERING


def _unclean_candidates(plan: _Plan, election: Election) -> Iterable[int]:
    """Who may lead though it may lack something: the last known leader, then, if that was asked for, any replica."""
    if not plan.isr and not plan.elr and len(plan.last_known) == 1:
        # Nobody is known to have everything. The last leader has most; that it is there is asked like of any other
        # (CT-57: Kafka's own check of that was the wrong way around).
        yield from (broker_id for broker_id in plan.last_known if broker_id in plan.replicas)
    if election is Election.UNCLEAN:
        yield from plan.replicas


def _settle(plan: _Plan, before: PartitionRecord, conditions: Conditions) -> None:
    """What follows from the election: who led last, and who stays in an ISR that would be empty."""
    if not conditions.elr_enabled:
        # Nothing else would say who has the data when they come back (CT-52).
        plan.isr = plan.isr or [broker_id for broker_id in before.isr if broker_id in plan.replicas]
        return
    if len(plan.isr) >= conditions.min_isr:
        plan.elr = []
    if plan.leader != NO_LEADER:
        plan.last_known = []
    elif not plan.isr and before.leader != NO_LEADER:
        plan.last_known = [before.leader]
    plan.last_known = [broker_id for broker_id in plan.last_known if broker_id in plan.replicas]


def _needs_leader_epoch(plan: _Plan, before: PartitionRecord, conditions: Conditions) -> bool:
    """Whether even the same leader gets a new epoch (CT-53): then the record names it again."""
    if not set(before.replicas) <= set(plan.replicas):
        return True
    shrinks = not set(before.isr) <= set(plan.isr)
    return shrinks and conditions.metadata_version < METADATA_VERSION_SHRINK_KEEPS_EPOCH


def _changed(before: Sequence[int], after: Sequence[int]) -> BrokerIds | None:
    return None if list(before) == list(after) else BrokerIds(ids=after)


def _changed_directories(
    partition: PartitionRecord, plan: _Plan, target: Target, conditions: Conditions
) -> DirectoryIds | None:
    if conditions.metadata_version < METADATA_VERSION_DIRECTORIES:
        return None
    if not target.directories and plan.replicas == list(partition.replicas):
        return None
    directories = [
        target.directories.get(broker_id)
        or (
            directory_of(partition, broker_id)
            if broker_id in partition.replicas
            else conditions.directory_of_new(broker_id)
        )
        for broker_id in plan.replicas
    ]
    return None if directories == list(partition.directories) else DirectoryIds(ids=directories)


def directory_of(partition: PartitionRecord, broker_id: int) -> bytes:
    """The log directory of a broker's replica; UNASSIGNED_DIRECTORY if it is not known."""
    of_broker = dict(zip(partition.replicas, partition.directories, strict=False))  # an old record has none
    return of_broker.get(broker_id, UNASSIGNED_DIRECTORY)
