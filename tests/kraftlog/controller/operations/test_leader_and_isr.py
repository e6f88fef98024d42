"""How partitions change when brokers leave and return (CT-31), and that nothing committed is lost by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.operations.alter_partition import alter_partition
from kraftlog.controller.operations.elections import elect_leaders
from kraftlog.controller.operations.leader_and_isr import leaders_where_none, partitions_without
from kraftlog.controller.operations.reassignments import alter_partition_reassignments
from kraftlog.controller.rules.partition_change import RECOVERED, RECOVERING
from kraftpb.v1.admin_pb2 import (
    AlteredPartition,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    ElectLeadersRequest,
    IsrMember,
    PartitionReassignment,
    PartitionReference,
    PartitionReferences,
)
from kraftpb.v1.metadata_pb2 import BrokerIds, BrokerRegistrationChangeRecord, MetadataRecord, PartitionRecord
from tests.effort import examples
from tests.statemachine.builders import an_id
from tests.statemachine.partitions import NUMBER, TOPIC, a_cluster, a_partition, the_partition
from tests.statemachine.states import Metadata


def without(state: Metadata, broker_id: int, *, may_have_lost_data: bool = False) -> list[MetadataRecord]:
    """The records of a departure, which take effect."""
    found = state.partitions(an_id(NUMBER))
    records = partitions_without(state, broker_id, found, may_have_lost_data=may_have_lost_data)
    state.append(records)
    return records


def back(state: Metadata, broker_id: int) -> list[MetadataRecord]:
    """A broker is unfenced; the records of its return, which take effect."""
    fencing(state, broker_id, fenced=False)
    records = leaders_where_none(state, state.partitions_led_by(NO_LEADER))
    state.append(records)
    return records


def fencing(state: Metadata, broker_id: int, fenced: bool) -> None:
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=0, fenced=fenced)
    state.append([MetadataRecord(broker_registration_change=change)])


def test_ct31_a_broker_that_leaves_is_in_no_isr_and_leads_nothing() -> None:
    partitions = [
        a_partition((1, 2, 3)),
        a_partition((2, 1, 3), partition_id=1),
        a_partition((3, 1), (3,), partition_id=2),
        a_partition((2, 3), partition_id=3),
    ]
    state = a_cluster(*partitions)  # its registration still has it as active
    records = without(state, 1)
    assert [record.partition_change.partition_id for record in records] == [0, 1]
    assert records[0].version == 2
    after = state.partitions(an_id(NUMBER))
    assert [list(partition.isr) for partition in after] == [[2, 3], [2, 3], [3], [2, 3]]
    assert [partition.leader for partition in after] == [2, 2, 3, 2]
    assert [partition.leader_epoch for partition in after] == [6, 5, 5, 5]
    assert without(state, 1) == []  # a page may be repeated


@pytest.mark.parametrize(("elr", "version"), [(False, 29), (True, 22)])
def test_ct31_without_elr_the_last_member_stays_and_does_not_lead(elr: bool, version: int) -> None:
    state = a_cluster(a_partition((1, 2), (1,)), elr=elr, version=version)
    without(state, 1)
    after = the_partition(state)
    assert (list(after.isr), after.leader, after.leader_epoch) == ([1], NO_LEADER, 6)
    assert without(state, 1) == []


def test_ct31_with_elr_the_last_member_becomes_eligible() -> None:
    state = a_cluster(a_partition((1, 2), (1,)))
    without(state, 1)
    after = the_partition(state)
    assert (list(after.isr), list(after.eligible_leader_replicas), after.leader) == ([], [1], NO_LEADER)
    assert after.last_known_elr == [1]


def test_ct31_where_the_topic_allows_it_another_is_elected_uncleanly() -> None:
    state = a_cluster(a_partition((1, 2), (1,)), unclean=True)
    without(state, 1)
    after = the_partition(state)
    assert (list(after.isr), after.leader, after.leader_recovery_state) == ([2], 2, RECOVERING)


def test_ct31_a_leader_that_is_not_in_the_isr_goes_too() -> None:
    state = a_cluster(a_partition((1, 2), (2,), leader=1))
    without(state, 1)
    assert the_partition(state).leader == 2


def test_ct31_the_next_leader_is_active() -> None:
    state = a_cluster(a_partition((1, 2, 3, 4)), shutting_down=[2], fenced=[3])
    without(state, 1)
    assert the_partition(state).leader == 4


def test_ct56_a_fenced_broker_stays_eligible_and_one_that_may_have_lost_data_does_not() -> None:
    partition = a_partition((1, 2, 3), (2,), elr=[1])
    state = a_cluster(partition, min_isr=2)
    assert without(state, 1) == []
    without(state, 1, may_have_lost_data=True)
    assert the_partition(state).eligible_leader_replicas == []
    leader_lost = a_cluster(a_partition((1, 2, 3), (1,)), min_isr=2)
    without(leader_lost, 1, may_have_lost_data=True)
    after = the_partition(leader_lost)
    assert (list(after.isr), list(after.eligible_leader_replicas), after.leader) == ([], [], NO_LEADER)
    assert after.last_known_elr == [1]


def test_ct31_a_broker_that_comes_back_leads_what_nobody_leads() -> None:
    partitions = [
        a_partition((2, 1), (), leader=NO_LEADER, elr=[1]),
        a_partition((2, 1), (), leader=NO_LEADER, elr=[2], partition_id=1),
        a_partition((2, 1), (2,), partition_id=2),
        a_partition((3, 2), (), leader=NO_LEADER, elr=[3], partition_id=3),
    ]
    state = a_cluster(*partitions, fenced=[1], shutting_down=[2], brokers=[1, 2])
    records = back(state, 1)
    assert [record.partition_change.partition_id for record in records] == [0]
    after = the_partition(state)
    assert (after.leader, list(after.isr), after.leader_epoch, after.leader_recovery_state) == (1, [1], 6, RECOVERED)


def test_ct31_partitions_that_do_not_have_the_broker_there_are_passed_over() -> None:
    # Since min.insync.replicas was lowered no replica has to be eligible; that is for the next change of the partition.
    state = a_cluster(a_partition((2, 3, 1), (2,), elr=[3]), min_isr=1)
    assert without(state, 1) == []
    assert without(state, 1, may_have_lost_data=True) == []


def test_ct31_without_elr_the_last_member_leads_again() -> None:
    state = a_cluster(a_partition((1, 2), (1,), leader=NO_LEADER), elr=False, fenced=[1])
    back(state, 1)
    assert (the_partition(state).leader, list(the_partition(state).isr)) == (1, [1])


@pytest.mark.parametrize("unclean", [True, False])
def test_ct31_who_comes_back_leads_uncleanly_if_the_topic_allows_it(unclean: bool) -> None:
    state = a_cluster(a_partition((1, 2), (1,), leader=NO_LEADER), fenced=[1, 2], elr=False, unclean=unclean)
    back(state, 2)
    assert the_partition(state).leader == (2 if unclean else NO_LEADER)


@pytest.mark.parametrize(
    "partition",
    [
        a_partition((1, 2), (2, 1)),  # its leader is only just leaving
        a_partition((2, 1), (2,), leader=NO_LEADER, elr=[1]),  # no replica in the ISR is active
    ],
)
def test_ct31_a_broker_that_comes_back_changes_only_what_gets_a_leader(partition: PartitionRecord) -> None:
    state = a_cluster(partition, fenced=[2])
    assert leaders_where_none(state, state.partitions(an_id(NUMBER))) == []


def test_ct57_the_last_known_leader_leads_again_when_it_comes_back() -> None:
    state = a_cluster(a_partition((1, 2), (), leader=NO_LEADER, last_known=[1]), fenced=[1, 2])
    assert back(state, 2) == []
    back(state, 1)
    after = the_partition(state)
    assert (after.leader, list(after.isr), after.leader_recovery_state) == (1, [1], RECOVERING)
    assert after.last_known_elr == []


# --- a partition's life -----------------------------------------------------------------------------------------------

BROKERS: Final = (1, 2, 3, 4)
B = st.sampled_from(BROKERS)
EVENTS = st.one_of(
    st.tuples(st.just("fence"), B),
    st.tuples(st.just("unfence"), B),
    st.tuples(st.just("lose"), B),
    st.tuples(st.just("isr"), st.sets(B)),
    st.tuples(st.just("reassign"), st.lists(B, min_size=1, unique=True)),
    st.tuples(st.just("cancel"), st.none()),
    st.tuples(st.just("prefer"), st.none()),
    st.tuples(st.just("unclean"), st.none()),
    st.tuples(st.just("write"), st.none()),
)


class Life:
    """A partition through all that can happen to it, and what each broker has of its data."""

    def __init__(self, replicas: Sequence[int], min_isr: int, *, elr: bool) -> None:
        self.elr, self.min_isr = elr, min_isr
        self.state = a_cluster(a_partition(replicas), brokers=BROKERS, min_isr=min_isr, elr=elr)
        self.fenced: set[int] = set()
        self.data = dict.fromkeys(BROKERS, 0)
        self.committed = 0

    @property
    def partition(self) -> PartitionRecord:
        return the_partition(self.state)

    def enough(self) -> int:
        return min(self.min_isr, len(self.partition.replicas))

    def happen(self, event: str, what: object) -> None:
        before = PartitionRecord.FromString(self.partition.SerializeToString())
        match event, what:
            case "fence", int(broker_id):
                self.leave(broker_id, may_have_lost_data=False)
            case "lose", int(broker_id) if self.elr:
                self.leave(broker_id, may_have_lost_data=True)
                self.data[broker_id] = -1
            case "unfence", int(broker_id) if broker_id in self.fenced:
                back(self.state, broker_id)
                self.fenced.discard(broker_id)
            case "isr", set(members):
                self.alter(members)
            case "reassign", list(replicas):
                self.reassign(BrokerIds(ids=replicas))
            case "cancel", _:
                self.reassign(None)
            case "prefer", _:
                self.elect(ElectLeadersRequest.PREFERRED)
            case "unclean", _:
                self.elect(ElectLeadersRequest.UNCLEAN)
        self.follow(before)
        if event == "write":
            self.write()

    def leave(self, broker_id: int, *, may_have_lost_data: bool) -> None:
        without(self.state, broker_id, may_have_lost_data=may_have_lost_data)
        if broker_id not in self.fenced:
            fencing(self.state, broker_id, fenced=True)
        self.fenced.add(broker_id)

    def alter(self, members: set[int]) -> None:
        before = self.partition
        isr = sorted({b for b in members if b in before.replicas and b not in self.fenced} | {before.leader})
        if before.leader == NO_LEADER:
            return
        for broker_id in isr:  # a replica that joins has fetched what the leader has
            if broker_id not in before.isr:
                self.data[broker_id] = self.data[before.leader]
        altered = AlteredPartition(
            topic_id=an_id(NUMBER),
            leader_epoch=before.leader_epoch,
            partition_epoch=before.partition_epoch,
            leader_recovery_state=RECOVERED,
            new_isr=[IsrMember(broker_id=broker_id, broker_epoch=0) for broker_id in isr],
        )
        request = AlterPartitionRequest(broker_id=before.leader, partitions=[altered])
        self.state.append(alter_partition(self.state, request)[0])

    def reassign(self, replicas: BrokerIds | None) -> None:
        asked = PartitionReassignment(topic=TOPIC, partition_id=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(partitions=[asked])
        self.state.append(alter_partition_reassignments(self.state, request)[0])

    def elect(self, kind: ElectLeadersRequest.ElectionType.ValueType) -> None:
        named = PartitionReferences(partitions=[PartitionReference(topic=TOPIC, partition_id=0)])
        request = ElectLeadersRequest(election_type=kind, partitions=named)
        self.state.append(elect_leaders(self.state, request)[0])

    def write(self) -> None:
        """The leader takes a record; if enough are in sync, it is committed."""
        partition = self.partition
        if partition.leader != NO_LEADER:
            self.data[partition.leader] += 1
            if len(partition.isr) >= self.enough():
                for broker_id in partition.isr:
                    self.data[broker_id] = self.data[partition.leader]
                self.committed = self.data[partition.leader]

    def follow(self, before: PartitionRecord) -> None:
        """The effect of a new leader on the data; a clean one must have all that was committed."""
        after = self.partition
        if after.leader in (NO_LEADER, before.leader):
            return
        if after.leader_recovery_state == RECOVERING:
            self.data = {b: (max(0, have) if b == after.leader else -1) for b, have in self.data.items()}
            self.committed = self.data[after.leader]
        assert self.data[after.leader] >= self.committed, "committed data would be lost"
        for broker_id in BROKERS:  # followers truncate what the leader does not have
            self.data[broker_id] = min(self.data[broker_id], self.data[after.leader])

    def check(self, before: PartitionRecord) -> None:
        after = self.partition
        isr, eligible, replicas = set(after.isr), set(after.eligible_leader_replicas), set(after.replicas)
        assert isr | eligible | set(after.last_known_elr) <= replicas
        assert not isr & eligible
        assert after.leader == NO_LEADER or after.leader in isr - self.fenced
        if isr & self.fenced:  # the last member, where nothing else records which replica has the data
            assert not self.elr and len(isr) == 1 and after.leader == NO_LEADER
        if len(isr) >= self.enough() or not self.elr:
            assert not eligible
        assert after.leader == NO_LEADER or not after.last_known_elr
        assert set(after.adding_replicas) | set(after.removing_replicas) <= replicas
        assert not set(after.adding_replicas) & set(after.removing_replicas)
        assert after.leader_epoch >= before.leader_epoch and after.partition_epoch >= before.partition_epoch
        if after.leader != before.leader or not set(before.replicas) <= replicas:
            assert after.leader_epoch > before.leader_epoch
        assert len(after.directories) == len(after.replicas)


@settings(max_examples=examples(150), deadline=None)
@given(
    replicas=st.lists(B, min_size=1, unique=True),
    min_isr=st.integers(1, 3),
    elr=st.booleans(),
    events=st.lists(EVENTS, max_size=40),
)
def test_whatever_happens_to_a_partition_no_clean_election_loses_committed_data(
    replicas: list[int], min_isr: int, elr: bool, events: list[tuple[str, object]]
) -> None:
    life = Life(replicas, min_isr, elr=elr)
    for event, what in events:
        before = PartitionRecord.FromString(life.partition.SerializeToString())
        life.happen(event, what)
        life.check(before)
