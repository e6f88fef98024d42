"""How a partition changes (CT-50 to CT-58): every rule, and what holds of every change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.ids import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.rules.partition_change import (
    RECOVERED,
    RECOVERING,
    Conditions,
    Election,
    Target,
    change_partition,
    directory_of,
)
from kraftlog.controller.rules.partition_context import PartitionChanges
from kraftpb.v1.metadata_pb2 import PartitionChangeRecord, PartitionRecord
from statemachine.replay.replay import changed_partition
from statemachine.words.features import METADATA_VERSION_LATEST
from tests.effort import examples
from tests.statemachine.builders import an_id, broker
from tests.statemachine.partitions import NUMBER, a_cluster, a_partition


def change(
    partition: PartitionRecord,
    active: Sequence[int] = (1, 2, 3, 4),
    *,
    min_isr: int = 1,
    elr: bool = True,
    version: int = METADATA_VERSION_LATEST,
    **target: Any,
) -> PartitionChangeRecord | None:
    """The change to the target when these brokers can lead. The partition given must stay as it is."""
    before = partition.SerializeToString(deterministic=True)
    conditions = Conditions(
        can_lead=lambda broker_id: broker_id in active,
        metadata_version=version,
        min_isr=min_isr,
        elr_enabled=elr,
        directory_of_new=lambda broker_id: an_id(900 + broker_id),
    )
    record = change_partition(partition, Target(**target), conditions)
    assert partition.SerializeToString(deterministic=True) == before
    return record


def changed(partition: PartitionRecord, *args: Any, **kwargs: Any) -> PartitionRecord:
    """The partition after the change, which must not be None."""
    record = change(partition, *args, **kwargs)
    assert record is not None
    assert (record.topic_id, record.partition_id) == (partition.topic_id, partition.partition_id)
    return changed_partition(partition, record)


# --- CT-50 and CT-51: who is elected ----------------------------------------------------------------------------------


def test_ct50_only_an_acceptable_member_of_the_isr_leads() -> None:
    after = changed(a_partition((1, 2, 3), (1, 3)), active=(2, 3))
    assert (after.leader, list(after.isr)) == (3, [1, 3])  # 2 is active, but not in sync; 1 is not active


def test_ct50_an_eligible_replica_leads_only_if_the_isr_is_empty() -> None:
    waiting = a_partition((1, 2, 3), (1,), leader=NO_LEADER, elr=(2,))
    assert change(waiting, active=(2,), min_isr=2) is None
    after = changed(a_partition((1, 2, 3), (), elr=(2, 3)), active=(3,), min_isr=2)
    assert (after.leader, list(after.isr), list(after.eligible_leader_replicas)) == (3, [3], [2])


def test_ct51_an_unclean_election_takes_replicas_that_are_being_added_last() -> None:
    """They may have no data yet, though they come first in a reassignment (CT-54)."""
    partition = a_partition((3, 1, 2), (1,), adding=[3], removing=[1])
    assert changed(partition, active=(2, 3), election=Election.UNCLEAN).leader == 2
    assert changed(partition, active=(3,), election=Election.UNCLEAN).leader == 3


def test_ct50_an_eligible_replica_does_not_lead_if_the_feature_is_off() -> None:
    conditions = Conditions(can_lead=lambda _: True, metadata_version=METADATA_VERSION_LATEST, elr_enabled=False)
    record = change_partition(a_partition((1, 2), (1,), leader=NO_LEADER, elr=(2,)), Target(), conditions)
    assert record is not None
    assert record.leader == 1
    assert record.HasField("eligible_leader_replicas")
    assert not record.eligible_leader_replicas.ids


def test_ct51_online_keeps_the_leader_and_else_takes_the_first_replica_in_sync() -> None:
    assert change(a_partition((1, 2, 3), leader=3)) is None
    assert changed(a_partition((2, 3, 1), (1, 3, 2), leader=4), active=(1, 3)).leader == 3


def test_ct51_preferred_takes_the_first_replica_else_the_leader_else_the_first_in_sync() -> None:
    partition = a_partition((1, 2, 3), leader=3)
    assert changed(partition, election=Election.PREFERRED).leader == 1
    assert change(partition, active=(2, 3), election=Election.PREFERRED) is None
    assert changed(partition, active=(2,), election=Election.PREFERRED).leader == 2
    assert change(a_partition((1, 2, 3), (2, 3), leader=3), election=Election.PREFERRED) is None


def test_ct51_unclean_prefers_who_is_in_sync() -> None:
    after = changed(a_partition((1, 2, 3), (3,), leader=NO_LEADER), election=Election.UNCLEAN)
    assert (after.leader, list(after.isr), after.leader_recovery_state) == (3, [3], RECOVERED)


def test_ct51_unclean_takes_the_first_active_replica_alone_and_recovering() -> None:
    """From leader epoch 5 and partition epoch 7: each rises by one (CT-01)."""
    partition = a_partition((1, 2, 3), (1,), leader=1, elr=(3,))
    after = changed(partition, active=(2, 4), min_isr=2, election=Election.UNCLEAN)
    assert (after.leader, list(after.isr), after.leader_recovery_state) == (2, [2], RECOVERING)
    assert (after.leader_epoch, after.partition_epoch) == (6, 8)
    assert not after.eligible_leader_replicas


def test_ct51_online_is_never_unclean() -> None:
    after = changed(a_partition((1, 2, 3), (1,)), active=(2, 3))
    assert (after.leader, list(after.isr)) == (NO_LEADER, [1])
    assert not after.last_known_elr  # a replica is in sync


# --- CT-52: no leader is elected --------------------------------------------------------------------------------------


def test_ct52_without_elr_the_last_member_stays_in_the_isr_and_nobody_leads() -> None:
    after = changed(a_partition((1, 2), (1,)), active=(2,), elr=False, isr=[])
    assert (after.leader, list(after.isr), after.leader_epoch) == (NO_LEADER, [1], 6)


def test_ct52_with_elr_the_isr_becomes_empty() -> None:
    after = changed(a_partition((1, 2), (1,)), active=(2,), isr=[])
    assert (after.leader, list(after.isr), list(after.eligible_leader_replicas)) == (NO_LEADER, [], [1])


# --- CT-53: the leader's epoch ----------------------------------------------------------------------------------------


def test_ct53_a_new_leader_has_a_new_epoch() -> None:
    after = changed(a_partition((1, 2)), active=(2,))
    assert (after.leader, after.leader_epoch) == (2, 6)


def test_ct53_an_isr_that_grows_or_shrinks_keeps_the_epoch() -> None:
    for isr in ([1, 2], [1, 2, 3, 4]):
        record = change(a_partition((1, 2, 3, 4), (1, 2, 3)), isr=isr)
        assert record is not None
        assert not record.HasField("leader")


@pytest.mark.parametrize(("version", "bumps"), [(11, True), (12, False)])
def test_ct53_before_3_6_a_shrink_needs_a_new_epoch(version: int, bumps: bool) -> None:
    partition = a_partition((1, 2, 3, 4), (1, 2, 3))
    shrunk = change(partition, version=version, elr=False, isr=[1, 2])
    assert shrunk is not None
    assert shrunk.HasField("leader") is bumps
    assert shrunk.leader == (1 if bumps else 0)
    grown = change(partition, version=version, elr=False, isr=[1, 2, 3, 4])
    assert grown is not None
    assert not grown.HasField("leader")


def test_ct53_removing_replicas_needs_a_new_epoch_for_the_same_leader() -> None:
    after = changed(a_partition((1, 2, 3)), replicas=[1, 2], isr=[1, 2])
    assert (after.leader, after.leader_epoch) == (1, 6)
    grown = change(a_partition((1, 2)), replicas=[1, 2, 3])
    assert grown is not None
    assert not grown.HasField("leader")


# --- CT-54: reassignments complete ------------------------------------------------------------------------------------


def test_ct54_a_reassignment_completes_when_the_added_replicas_are_in_sync() -> None:
    partition = a_partition((4, 3, 1, 2), (1, 2, 3), adding=(4,), removing=(1, 2))
    waiting = changed(partition, isr=[1, 2])
    assert (list(waiting.replicas), list(waiting.adding_replicas), list(waiting.removing_replicas)) == (
        [4, 3, 1, 2],
        [4],
        [1, 2],
    )
    after = changed(partition, isr=[1, 2, 3, 4])
    assert (list(after.replicas), list(after.isr), after.leader) == ([4, 3], [3, 4], 4)
    assert not after.adding_replicas and not after.removing_replicas
    assert after.leader_epoch == 6
    assert after.directories == [an_id(904), an_id(903)]


def test_ct54_who_stays_is_not_waited_for_if_as_many_come_as_go() -> None:
    """Found by difftest: Kafka 4.3 waits for the added replicas only."""
    after = changed(a_partition((4, 2, 1, 3), (1, 3), adding=(4,), removing=(3,)), isr=[1, 3, 4])
    assert (list(after.replicas), list(after.isr)) == ([4, 2, 1], [1, 4])
    assert not after.adding_replicas and not after.removing_replicas
    grown = changed(a_partition((1, 2, 3), (1,), adding=(3,)), isr=[1, 3])
    assert (list(grown.replicas), list(grown.isr), list(grown.adding_replicas)) == ([1, 2, 3], [1, 3], [])


def test_ct54_who_stays_is_waited_for_if_fewer_come_than_go() -> None:
    partition = a_partition((4, 2, 1, 3), (1, 3), adding=(4,), removing=(1, 3))
    after = changed(partition, isr=[1, 3, 4])
    assert (list(after.replicas), list(after.removing_replicas)) == ([4, 2, 1, 3], [1, 3])
    assert list(changed(partition, isr=[1, 3, 4, 2]).replicas) == [4, 2]
    fewer = changed(a_partition((1, 2, 3), (1, 3)), replicas=[1, 2, 3], removing=[3])
    assert (list(fewer.replicas), list(fewer.isr)) == ([1, 2, 3], [1, 3])


def test_ct54_a_leader_that_stays_is_kept_with_a_new_epoch() -> None:
    after = changed(a_partition((3, 2, 1), (2, 3), leader=2, removing=(1,)))
    assert (list(after.replicas), after.leader, after.leader_epoch) == ([3, 2], 2, 6)


def test_ct54_only_adding_completes_without_a_new_epoch() -> None:
    record = change(a_partition((1, 2, 3), (1, 2), adding=(3,)), isr=[1, 2, 3])
    assert record is not None
    assert record.HasField("adding_replicas")
    assert not record.adding_replicas.ids
    assert not record.HasField("replicas") and not record.HasField("leader")


def test_ct54_a_new_replica_gets_a_directory_and_the_others_keep_theirs() -> None:
    partition = a_partition((1, 2), directories=[an_id(11), an_id(12)])
    after = changed(partition, replicas=[3, 2, 1], adding=[3], removing=[1])
    assert after.directories == [an_id(903), an_id(12), an_id(11)]
    old = change(partition, version=16, elr=False, replicas=[3, 2, 1], adding=[3], removing=[1])
    assert old is not None
    assert not old.HasField("directories")


def test_the_directory_of_one_replica_is_set_beside_unknown_ones() -> None:
    after = changed(a_partition((1, 2), directories=[]), directories={2: an_id(12)})
    assert after.directories == [MIGRATING_DIRECTORY, an_id(12)]
    assert directory_of(after, 2) == an_id(12)
    assert directory_of(after, 3) == MIGRATING_DIRECTORY
    assert change(after, directories={2: an_id(12)}) is None


# --- CT-56 and CT-57: eligible leader replicas ------------------------------------------------------------------------


def test_ct56_who_leaves_an_isr_that_becomes_too_small_stays_eligible() -> None:
    partition = a_partition((1, 2, 3), (1, 2), elr=())
    after = changed(partition, min_isr=2, isr=[1])
    assert (list(after.isr), list(after.eligible_leader_replicas)) == ([1], [2])
    further = changed(after, active=(2, 3), min_isr=2, isr=[])
    assert (further.leader, list(further.isr), list(further.eligible_leader_replicas)) == (2, [2], [1])


def test_ct56_an_isr_of_min_isr_clears_the_eligible_and_the_last_known() -> None:
    partition = a_partition((1, 2, 3), (1,), elr=(2,))
    after = changed(partition, min_isr=2, isr=[1, 3])
    assert (list(after.isr), list(after.eligible_leader_replicas)) == ([1, 3], [])


def test_ct56_min_isr_is_at_most_the_number_of_replicas() -> None:
    after = changed(a_partition((1, 2), (1,), elr=(2,)), min_isr=5, isr=[1, 2])
    assert after.eligible_leader_replicas == []


def test_ct56_a_leader_from_the_eligible_that_is_enough_clears_the_rest() -> None:
    after = changed(a_partition((1, 2), (), elr=(1, 2)), active=(2,), min_isr=1)
    assert (after.leader, list(after.isr), list(after.eligible_leader_replicas)) == (2, [2], [])


def test_ct56_an_election_from_the_eligible_is_clean() -> None:
    after = changed(a_partition((1, 2), (), elr=(1, 2)), active=(2,), min_isr=2, election=Election.UNCLEAN)
    assert (after.leader, list(after.isr), after.leader_recovery_state) == (2, [2], RECOVERED)
    assert after.eligible_leader_replicas == [1]


def test_ct56_an_election_from_the_eligible_leaves_a_recovering_leader_recovering() -> None:
    """Only an unclean election, and the leader's own report, change the leader recovery state."""
    recovering = a_partition((1, 2), (), elr=(2,), recovery_state=RECOVERING)
    after = changed(recovering, active=(2,), min_isr=2)
    assert (after.leader, list(after.isr), after.leader_recovery_state) == (2, [2], RECOVERING)


def test_ct56_who_may_have_lost_data_is_neither_in_sync_nor_eligible() -> None:
    after = changed(a_partition((1, 2, 3), (1, 2), elr=(3,)), active=(1, 2), min_isr=3, lost_data=(2, 3))
    assert (list(after.isr), list(after.eligible_leader_replicas)) == ([1], [])


def test_ct56_replicas_that_go_are_not_eligible() -> None:
    after = changed(a_partition((1, 2, 3)), min_isr=2, replicas=[3, 4], isr=[3])
    assert (list(after.isr), list(after.eligible_leader_replicas)) == ([3], [])


def test_ct56_the_last_leader_is_known_while_nobody_is_in_sync() -> None:
    lost = changed(a_partition((1, 2), (1,)), active=(2,), isr=[])
    assert (list(lost.last_known_elr), list(lost.eligible_leader_replicas)) == ([1], [1])
    gone = changed(lost, active=(2,), lost_data=(1,))
    assert (list(gone.last_known_elr), list(gone.eligible_leader_replicas), gone.leader) == ([1], [], NO_LEADER)
    back = changed(gone, active=(1, 2))
    assert (back.leader, list(back.isr), back.leader_recovery_state, list(back.last_known_elr)) == (
        1,
        [1],
        RECOVERING,
        [],
    )


def test_ct56_of_a_partition_that_nobody_led_the_last_in_sync_is_known() -> None:
    after = changed(a_partition((1, 2), (1,), leader=NO_LEADER), active=(), isr=[])
    assert (list(after.isr), list(after.last_known_elr)) == ([], [1])
    gone = changed(after, active=(2,), lost_data=(1,))
    assert (list(gone.last_known_elr), list(gone.eligible_leader_replicas)) == ([1], [])
    assert changed(gone, active=(1, 2)).leader == 1


def test_ct57_a_last_known_leader_that_is_not_there_is_not_elected() -> None:
    partition = a_partition((1, 2), (), last_known=(1,))
    assert change(partition, active=(2,)) is None
    assert changed(partition, active=(1,)).leader == 1
    assert changed(partition, active=(2,), election=Election.UNCLEAN).leader == 2


def test_ct57_a_last_known_leader_is_not_elected_while_somebody_is_eligible() -> None:
    assert change(a_partition((1, 2), (), elr=(2,), last_known=(1,)), active=(1,)) is None


def test_ct56_without_the_feature_nothing_of_it_is_kept() -> None:
    off = changed(a_partition((1, 2, 3), (1,), elr=(2,), last_known=(3,)), min_isr=2, elr=False)
    assert (list(off.eligible_leader_replicas), list(off.last_known_elr)) == ([], [])


def test_the_eligible_become_the_isr_if_the_feature_is_turned_off_while_it_is_empty() -> None:
    after = changed(a_partition((1, 2, 3), (), elr=(2, 3), last_known=(1,)), active=(3,), elr=False)
    assert (list(after.isr), after.leader, after.leader_recovery_state) == ([2, 3], 3, RECOVERED)


# --- CT-58, the recovery state ----------------------------------------------------------------------------------------


def test_ct58_what_changes_nothing_makes_no_record() -> None:
    partition = a_partition((1, 2, 3), (1, 2))
    assert change(partition) is None
    assert change(partition, isr=[1, 2], replicas=[1, 2, 3], adding=[], removing=[], leader_recovery_state=0) is None
    assert change(partition, election=Election.UNCLEAN) is None


def test_ct58_the_order_of_the_eligible_is_no_change() -> None:
    assert change(a_partition((1, 2, 3), (), elr=(3, 2)), active=(), min_isr=2) is None


def test_a_leader_that_has_recovered_says_so_and_an_unclean_election_takes_it_back() -> None:
    recovering = a_partition((1, 2), (1,), recovery_state=RECOVERING)
    assert changed(recovering, leader_recovery_state=RECOVERED).leader_recovery_state == RECOVERED
    elected = change(recovering, active=(2,), election=Election.UNCLEAN, leader_recovery_state=RECOVERED)
    assert elected is not None
    assert not elected.HasField("leader_recovery_state")  # it is recovering, as before
    assert elected.leader == 2


def test_ct53_an_unclean_election_of_the_same_leader_needs_a_new_epoch() -> None:
    after = changed(a_partition((1, 2), (2,), leader=1), active=(1,), election=Election.UNCLEAN)
    assert (after.leader, after.leader_epoch, list(after.isr), after.leader_recovery_state) == (1, 6, [1], RECOVERING)


# --- what the state has -----------------------------------------------------------------------------------------------


def test_brokers_that_are_fenced_leaving_unknown_or_without_their_directory_cannot_lead() -> None:
    state = a_cluster(brokers=(1, 2, 3), fenced=(2,), shutting_down=(3,))
    changes = PartitionChanges(state)
    assert changes.can_lead(1, an_id(901))
    assert changes.can_lead(1, UNASSIGNED_DIRECTORY) and changes.can_lead(1, MIGRATING_DIRECTORY)
    assert not changes.can_lead(1, an_id(77))
    assert not changes.can_lead(1, LOST_DIRECTORY)
    assert [changes.can_lead(broker_id, an_id(900 + broker_id)) for broker_id in (2, 3, 4)] == [False] * 3
    assert not PartitionChanges(state, departing=(1,)).can_lead(1, an_id(901))


def test_a_broker_that_never_said_which_directories_it_has_can_lead_in_any_but_a_lost_one() -> None:
    silent = broker(9)
    del silent.register_broker.log_dirs[:]
    changes = PartitionChanges(a_cluster().commit(silent))
    assert changes.can_lead(9, an_id(1))
    assert not changes.can_lead(9, LOST_DIRECTORY)


@pytest.mark.parametrize(("elr", "version", "kept"), [(True, 23, [2]), (False, 23, []), (True, 22, [])])
def test_ct56_eligible_replicas_need_the_feature_and_metadata_version_23(
    elr: bool, version: int, kept: list[int]
) -> None:
    state = a_cluster(a_partition((1, 2, 3), (1, 2)), elr=elr, version=version, min_isr=2)
    record = PartitionChanges(state).change(a_partition((1, 2, 3), (1, 2)), Target(isr=[1]))
    assert record is not None
    assert record.partition_change.eligible_leader_replicas.ids == kept
    assert record.version == (2 if version >= 23 else 1)


def test_a_new_replica_gets_its_brokers_directory_if_that_has_only_one() -> None:
    many = broker(4)
    many.register_broker.log_dirs.append(an_id(905))
    state = a_cluster(a_partition((1,)), brokers=(1, 2, 3)).commit(many)
    record = PartitionChanges(state).change(a_partition((1,)), Target(replicas=[1, 2, 4], adding=[2, 4]))
    assert record is not None
    assert record.partition_change.directories.ids == [an_id(901), an_id(902), UNASSIGNED_DIRECTORY]


def test_the_election_is_unclean_if_the_topic_allows_it() -> None:
    for unclean, election in ((True, Election.UNCLEAN), (False, Election.ONLINE)):
        assert PartitionChanges(a_cluster(unclean=unclean)).election(an_id(NUMBER)) is election


# --- properties -------------------------------------------------------------------------------------------------------

BROKERS = st.integers(1, 5)
SOME = st.sets(BROKERS)


@st.composite
def partitions(draw: st.DrawFn, *, elr: bool, min_isr: int) -> PartitionRecord:
    replicas = draw(st.lists(BROKERS, min_size=1, max_size=5, unique=True))
    isr = draw(st.permutations([b for b in replicas if b in draw(SOME)]))
    if not elr and not isr:
        isr = replicas[:1]
    too_few = elr and len(isr) < min(min_isr, len(replicas))
    eligible = [b for b in replicas if b not in isr and b in draw(SOME)] if too_few else []
    leader = draw(st.sampled_from([*isr, NO_LEADER]))
    adding = [b for b in replicas[1:] if b in draw(SOME)]
    removing = [b for b in replicas[1:] if b not in adding and b in draw(SOME)]
    last_known = draw(st.lists(st.sampled_from(replicas), max_size=1)) if elr and not isr else []
    return a_partition(replicas, isr, leader, elr=eligible, last_known=last_known, adding=adding, removing=removing)


@settings(max_examples=examples(300))
@given(data=st.data(), elr=st.booleans(), min_isr=st.integers(1, 4), version=st.sampled_from([11, 16, 22, 29]))
def test_what_holds_of_every_change(data: st.DataObject, elr: bool, min_isr: int, version: int) -> None:
    elr = elr and version >= 23
    before = data.draw(partitions(elr=elr, min_isr=min_isr))
    active = data.draw(SOME)
    replicas = data.draw(st.none() | st.lists(BROKERS, min_size=1, unique=True))
    if replicas is not None and not elr and not set(replicas) & set(before.isr):
        replicas.append(before.isr[0])
    members = before.replicas if replicas is None else replicas
    target = {
        "replicas": replicas,
        "isr": data.draw(st.none() | st.lists(st.sampled_from(members), unique=True)),
        "adding": data.draw(st.none() | st.just([])),
        "removing": data.draw(st.none() | st.just([])),
        "lost_data": data.draw(SOME),
        "election": data.draw(st.sampled_from(Election)),
    }
    if replicas is not None:
        target["adding"] = target["removing"] = []
    record = change(before, tuple(active), elr=elr, min_isr=min_isr, version=version, **target)
    if record is None:
        return
    after = changed_partition(before, record)
    assert set(after.isr) | set(after.eligible_leader_replicas) | set(after.last_known_elr) <= set(after.replicas)
    assert not set(after.isr) & set(after.eligible_leader_replicas)
    assert len(set(after.isr)) == len(after.isr)
    assert after.leader == NO_LEADER or (after.leader in after.isr and after.leader in active)
    if len(after.isr) >= min(min_isr, len(after.replicas)):
        assert not after.eligible_leader_replicas
    if elr:
        assert not set(target["lost_data"]) & (set(after.isr) - {after.leader} | set(after.eligible_leader_replicas))
        assert after.leader == NO_LEADER or not after.last_known_elr
    else:
        assert after.isr
        assert not after.eligible_leader_replicas and not after.last_known_elr
    assert after.partition_epoch == before.partition_epoch + 1
    removes = not set(before.replicas) <= set(after.replicas)
    if after.leader != before.leader or removes:
        assert after.leader_epoch == before.leader_epoch + 1
    if after.leader_recovery_state == RECOVERING:
        assert after.isr == [after.leader]
    if target["isr"] is None and not target["lost_data"] and not after.adding_replicas and not after.removing_replicas:
        assert change(after, tuple(active), elr=elr, min_isr=min_isr, version=version) is None  # it is settled
