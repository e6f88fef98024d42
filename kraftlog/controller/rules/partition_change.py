"""How a partition changes: ISR, leader, and when a reassignment is complete (CT-50 to CT-58).

`change_partition` decides from one partition and its target, as Kafka's PartitionChangeBuilder does. Brokers, configs
and features of the latest metadata come from `kraftlog.controller.rules.partition_context`. Nothing changes here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from kraftbase.ids import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftbase.sentinels import NO_LEADER
from kraftpb.v1.metadata_pb2 import (
    BrokerIds,
    DirectoryIds,
    PartitionChangeRecord,
    PartitionRecord,
)
from statemachine.words.record_versions import METADATA_VERSION_DIRECTORIES

RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader was elected uncleanly and has not reported that it recovered."""

METADATA_VERSION_SHRINK_KEEPS_EPOCH: Final = 12
"""3.6-IV0: brokers no longer need a new leader epoch when the ISR shrinks (CT-53)."""


class Election(Enum):
    """How to choose a leader (CT-51)."""

    ONLINE = "online"
    """The leader stays if it can; else the first replica that is in sync."""
    PREFERRED = "preferred"
    """The first replica if it is in sync; else as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE, and if none is in sync the first replica that is active: records that it lacks are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The wanted state of a partition. None leaves a field unchanged."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    """Those being removed included."""
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    leader_recovery_state: int | None = None
    directories: Mapping[int, bytes] = field(default_factory=dict)
    """The new log directory of single replicas, by broker."""
    lost_data: Collection[int] = ()
    """Brokers that may have lost records: no longer in sync or eligible (KIP-966)."""
    begins_anew: Collection[int] = ()
    """Brokers whose replica has no records, or only those of an older copy: no longer the last known leader or the last
    member of an ISR (CT-27, CT-38).
    """
    election: Election = Election.ONLINE
    leaders: Collection[int] | None = None
    """The only brokers that may lead; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The inputs of a change besides the partition."""

    can_lead: Callable[[int], bool]
    """Whether a broker is active and has the directory of its replica online (CT-50)."""
    is_older: Callable[[int], bool] = lambda broker_id: False
    """Whether the directory of a broker's replica was an older copy when it registered (CT-38)."""
    metadata_version: int
    can_lead_damaged: Callable[[int], bool] = lambda broker_id: False
    """Whether a broker is active and has said that the log of its replica is damaged (DB-88)."""
    min_isr: int = 1
    """The topic's min.insync.replicas. A partition with fewer replicas needs only all of them (DB-22): if they are in
    sync, no replica is left to be eligible, so it makes no difference here. Kafka's getTopicEffectiveMinIsr counts the
    replicas of the topic's partition 0, whichever partition it is about."""
    elr_enabled: bool = False
    directory_of_new: Callable[[int], bytes] = lambda broker_id: UNASSIGNED_DIRECTORY
    """The directory of a new replica on a broker."""


@dataclass(slots=True)
class _Plan:
    """A partition's present or future state."""

    replicas: list[int]
    isr: list[int]
    removing_replicas: list[int]
    adding_replicas: list[int]
    eligible_leader_replicas: list[int]
    last_known_elr: list[int]
    leader: int
    leader_recovery_state: int
    is_unclean: bool = False


_LISTS: Final = (
    "isr",
    "replicas",
    "removing_replicas",
    "adding_replicas",
    "eligible_leader_replicas",
    "last_known_elr",
)


def change_partition(
    partition: PartitionRecord, target: Target, conditions: Conditions
) -> PartitionChangeRecord | None:
    """The change that brings `partition` to `target`, with the election that it needs; None if nothing changes (CT-58).

    The ISR and the eligible replicas are always replicas, and no broker is in both.
    """
    before = _as_it_is(partition)
    plan = _planned(before, target)
    _complete_reassignment(plan)
    _find_eligible(plan, before, target.lost_data, conditions)
    _elect(plan, target.election, conditions)
    _apply_election(plan, before, target.begins_anew, conditions)
    plan.last_known_elr = _without(plan.last_known_elr, target.begins_anew)
    changes: dict[str, Any] = {}
    for name in _LISTS:
        after: list[int] = getattr(plan, name)
        if after != getattr(before, name):
            changes[name] = BrokerIds(ids=after)
    if plan.leader != before.leader or plan.is_unclean or _needs_leader_epoch(plan, before, conditions):
        changes["leader"] = plan.leader
    if plan.leader_recovery_state != before.leader_recovery_state:
        changes["leader_recovery_state"] = plan.leader_recovery_state
    if target.directories or "replicas" in changes:
        directories = _directories(partition, plan, target, conditions)
        if directories != list(partition.directories):
            changes["directories"] = DirectoryIds(ids=directories)
    if not changes:
        return None
    return PartitionChangeRecord(topic_id=partition.topic_id, partition_id=partition.partition_id, **changes)


def _as_it_is(partition: PartitionRecord) -> _Plan:
    return _Plan(
        replicas=[*partition.replicas],
        isr=[*partition.isr],
        removing_replicas=[*partition.removing_replicas],
        adding_replicas=[*partition.adding_replicas],
        eligible_leader_replicas=[*partition.eligible_leader_replicas],
        last_known_elr=[*partition.last_known_elr],
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
    )


def _planned(before: _Plan, target: Target) -> _Plan:
    replicas = _given(target.replicas, before.replicas)
    recovery_state = target.leader_recovery_state
    return _Plan(
        replicas=replicas,
        isr=[
            broker_id
            for broker_id in _given(target.isr, before.isr)
            if broker_id in replicas and broker_id not in target.lost_data
        ],
        removing_replicas=_given(target.removing, before.removing_replicas),
        adding_replicas=_given(target.adding, before.adding_replicas),
        eligible_leader_replicas=before.eligible_leader_replicas,
        last_known_elr=_without(before.last_known_elr, target.begins_anew),
        leader=before.leader,
        leader_recovery_state=before.leader_recovery_state if recovery_state is None else recovery_state,
    )


def _without(broker_ids: Sequence[int], those: Collection[int]) -> list[int]:
    return [broker_id for broker_id in broker_ids if broker_id not in those]


def _given(target: Sequence[int] | None, present: list[int]) -> list[int]:
    return present if target is None else list(target)


# Consider brokers 1, 2 and 3, of which 3 has failed for good, and the reassignment to 1, 2 and 4. Broker 2 is slow, and
# in and out of the ISR. When 4 is in sync the partition has as many good replicas as before without 3: done, whether 2
# is in sync at that moment or not. But a reassignment to 1 and 2 alone makes do with fewer replicas: if 2 were not in
# sync, broker 3, which may be, would go, and 1 would be left alone with the data.
def _complete_reassignment(plan: _Plan) -> None:
    """Remove the replicas that are being removed, once the added ones are in sync (CT-54).

    If more are removed than added, all that will stay must be in sync.
    """
    if not plan.removing_replicas and not plan.adding_replicas:
        return
    staying = [broker_id for broker_id in plan.replicas if broker_id not in plan.removing_replicas]
    awaited = staying if len(plan.adding_replicas) < len(plan.removing_replicas) else plan.adding_replicas
    if staying and set(awaited) <= set(staying) & set(plan.isr):
        plan.replicas = staying
        plan.isr = [broker_id for broker_id in plan.isr if broker_id in staying]
        plan.removing_replicas = []
        plan.adding_replicas = []


def _find_eligible(plan: _Plan, before: _Plan, lost_data: Collection[int], conditions: Conditions) -> None:
    """A replica that left the ISR still has all committed records, while the ISR is too small to commit more (CT-56).

    Whether it is too small is only known after the election: `_apply_election` removes them if not.
    """
    if not conditions.elr_enabled:
        if not before.isr:
            # The feature was turned off while the ISR was empty: those that were eligible take its place, or the
            # partition would only get a leader uncleanly.
            plan.isr = plan.isr or [
                broker_id for broker_id in plan.eligible_leader_replicas if broker_id in plan.replicas
            ]
        plan.eligible_leader_replicas = []
        plan.last_known_elr = []
        return
    eligible = {*plan.eligible_leader_replicas, *before.isr} - {*plan.isr, *lost_data}
    if eligible != set(plan.eligible_leader_replicas) or not eligible <= set(plan.replicas):
        plan.eligible_leader_replicas = [broker_id for broker_id in plan.replicas if broker_id in eligible]


def _elect(plan: _Plan, election: Election, conditions: Conditions) -> None:
    """Find the leader (CT-50, CT-51). A leader from outside the ISR is alone in it."""
    in_sync = plan.isr or plan.eligible_leader_replicas
    order = [plan.leader, *plan.replicas]
    if election is Election.PREFERRED:
        order.insert(0, plan.replicas[0])
    clean = next((broker_id for broker_id in order if broker_id in in_sync and conditions.can_lead(broker_id)), None)
    if clean is not None:
        plan.leader = clean
        if clean not in plan.isr:
            plan.isr = [clean]
            plan.eligible_leader_replicas = [
                broker_id for broker_id in plan.eligible_leader_replicas if broker_id != clean
            ]
        return
    unclean = next(filter(conditions.can_lead, _unclean_candidates(plan, election, conditions)), None)
    if unclean is None and election is Election.UNCLEAN:
        unclean = next(filter(conditions.can_lead_damaged, plan.replicas), None)
    if unclean is None:
        plan.leader = NO_LEADER
        return
    plan.leader = unclean
    plan.is_unclean = True
    plan.isr = [unclean]
    plan.eligible_leader_replicas = []
    plan.leader_recovery_state = RECOVERING


# Consider a reassignment from brokers 1 and 2 to 3 and 4: the replicas are 3, 4, 1, 2, and broker 1 leads and is alone
# in sync. It stops, and the topic allows unclean elections. Brokers 2 and 3 are active. Broker 2 lacks the last
# records; broker 3 may have begun to fetch a second ago and have nothing. Broker 2 is elected here. Kafka takes the
# first active one in the order of replicas, which is 3, as the target of a reassignment comes first in that order.
def _unclean_candidates(plan: _Plan, election: Election, conditions: Conditions) -> Iterable[int]:
    """Replicas that may lead though they may lack records: the last known leader, then, if requested, any replica.

    Older copies come last but for those that a reassignment adds: these may have no records at all. Kafka has no such
    preference.
    """
    if not plan.isr and not plan.eligible_leader_replicas and len(plan.last_known_elr) == 1:
        # No replica is known to have everything. The last leader has most; like any other, it must be active
        # (CT-57: Kafka's own check of that was the wrong way around).
        yield from (broker_id for broker_id in plan.last_known_elr if broker_id in plan.replicas)
    if election is Election.UNCLEAN:
        yield from sorted(
            plan.replicas, key=lambda broker_id: (broker_id in plan.adding_replicas, conditions.is_older(broker_id))
        )


def _apply_election(plan: _Plan, before: _Plan, begins_anew: Collection[int], conditions: Conditions) -> None:
    """Apply the consequences of the election: the last known leader, and which replicas stay in an ISR that would be
    empty.
    """
    if not conditions.elr_enabled:
        # Nothing else would record which replicas have the data when they return (CT-52).
        staying = _without(before.isr, begins_anew)
        plan.isr = plan.isr or [broker_id for broker_id in staying if broker_id in plan.replicas]
        return
    # After the election, not before it. Consider min.insync.replicas=2, an empty ISR, and brokers 1 and 2 eligible, of
    # which none is active. The value is lowered to 1, and broker 2 returns. It is elected, and its ISR is 2 alone:
    # enough to commit. Before the election the ISR was empty, which is too few even for 1. By that measure broker 1
    # would stay eligible while broker 2 commits records that broker 1 lacks.
    if len(plan.isr) >= conditions.min_isr:
        plan.eligible_leader_replicas = []
    if plan.leader != NO_LEADER:
        plan.last_known_elr = []
    elif not plan.isr and before.leader != NO_LEADER:
        plan.last_known_elr = [before.leader]
    elif not plan.isr and before.isr:
        # The partition lost its leader while another replica was still in sync, on a fenced broker that leaves only
        # now.
        plan.last_known_elr = list(before.isr[:1])
    plan.last_known_elr = [broker_id for broker_id in plan.last_known_elr if broker_id in plan.replicas]


def _needs_leader_epoch(plan: _Plan, before: _Plan, conditions: Conditions) -> bool:
    """Whether even the same leader gets a new epoch (CT-53): then the record names it again."""
    if not set(before.replicas) <= set(plan.replicas):
        return True
    shrinks = not set(before.isr) <= set(plan.isr)
    return shrinks and conditions.metadata_version < METADATA_VERSION_SHRINK_KEEPS_EPOCH


def _directories(partition: PartitionRecord, plan: _Plan, target: Target, conditions: Conditions) -> list[bytes]:
    """The log directory of each replica after the change."""
    if conditions.metadata_version < METADATA_VERSION_DIRECTORIES:
        return list(partition.directories)
    return [
        target.directories.get(broker_id)
        or (
            directory_of(partition, broker_id)
            if broker_id in partition.replicas
            else conditions.directory_of_new(broker_id)
        )
        for broker_id in plan.replicas
    ]


def directory_of(partition: PartitionRecord, broker_id: int) -> bytes:
    """The log directory of a broker's replica; MIGRATING_DIRECTORY in a record older than directories."""
    of_broker = dict(zip(partition.replicas, partition.directories, strict=False))  # an old record has none
    return of_broker.get(broker_id, MIGRATING_DIRECTORY)
