"""A log directory that is an older copy (CT-38): how it is found, and what its replicas lose by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftbase.sentinels import NO_LEADER, UNKNOWN_EPOCH
from kraftbase.types import Offset
from kraftlog.controller.operations.brokers import Registration, register_broker, unfence_record, unregister_broker
from kraftlog.controller.operations.elections import elect_leaders
from kraftlog.controller.operations.leader_and_isr import leaders_where_none, partitions_without
from kraftpb.v1.admin_pb2 import (
    ElectLeadersRequest,
    PartitionReference,
    PartitionReferences,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)
from kraftpb.v1.metadata_pb2 import (
    BrokerRegistrationChangeRecord,
    DirectoryIds,
    MetadataRecord,
    RegisterBrokerRecord,
)
from tests.statemachine.builders import CLUSTER_ID, an_id, broker, registration, topic
from tests.statemachine.partitions import NUMBER, TOPIC, a_cluster, a_partition, the_partition
from tests.statemachine.states import Metadata, metadata

A, B = 901, 902
OLDER: Final = frozenset((an_id(A),))


def request(incarnation: int, epochs: Sequence[int], log_dirs: Sequence[int] = (A,)) -> RegisterBrokerRequest:
    asked = registration(1, incarnation, log_dirs)
    asked.log_dir_epochs.extend(epochs)
    return asked


def registered(state: Metadata, asked: RegisterBrokerRequest) -> Registration:
    found = register_broker(state, asked, CLUSTER_ID, Offset(state.end_offset), has_session=False)
    state.append(found.records)
    return found


def stored(state: Metadata) -> RegisterBrokerRecord:
    found = state.broker(1)
    assert found is not None
    return found


def unfenced(state: Metadata) -> int:
    """The broker is unfenced; its epoch."""
    state.append([unfence_record(stored(state), state.metadata_version)])
    return stored(state).broker_epoch


def used_twice() -> tuple[Metadata, int, int]:
    """A broker that was unfenced in two registrations, and their epochs."""
    state = metadata()
    registered(state, request(1, [UNKNOWN_EPOCH]))
    first = unfenced(state)
    registered(state, request(2, [first]))
    return state, first, unfenced(state)


# --- what a registration names ----------------------------------------------------------------------------------------


def test_ct38_a_directory_that_knows_of_an_earlier_registration_only_is_an_older_copy() -> None:
    state, first, _ = used_twice()
    found = registered(state, request(3, [first]))
    assert found.older_log_dirs == OLDER
    assert list(found.response.older_log_dirs) == list(stored(state).older_log_dirs) == [an_id(A)]


@pytest.mark.parametrize("more", [0, 1_000], ids=["the last one", "a higher one: restored metadata"])
def test_ct38_the_last_registration_or_a_later_one_proves_nothing(more: int) -> None:
    state, _, second = used_twice()
    assert not registered(state, request(3, [second + more])).older_log_dirs


def test_ct38_no_epoch_proves_nothing() -> None:
    state, _, _ = used_twice()
    assert not registered(state, request(3, [UNKNOWN_EPOCH])).older_log_dirs


def test_ct38_a_registration_in_which_it_stayed_fenced_is_none_that_a_disk_must_know() -> None:
    state, _, second = used_twice()
    registered(state, request(3, [second]))
    assert stored(state).last_unfenced_epoch == second
    assert not registered(state, request(4, [second])).older_log_dirs


def test_ct38_a_broker_that_keeps_no_epochs_has_no_older_disk_and_neither_has_the_next_one() -> None:
    """A broker of the version before, or a stock Kafka, leaves the file as it is, whatever it acknowledges."""
    state, first, _ = used_twice()
    assert not registered(state, request(3, [])).older_log_dirs
    unfenced(state)
    assert not stored(state).HasField("last_unfenced_epoch")
    assert not registered(state, request(4, [first])).older_log_dirs


def test_ct38_an_unregistered_broker_starts_from_nothing() -> None:
    state, first, _ = used_twice()
    state.append(unregister_broker(state, UnregisterBrokerRequest(broker_id=1))[0])
    assert not registered(state, request(3, [first])).older_log_dirs


def test_ct38_only_the_directory_that_is_older_is_named() -> None:
    state = metadata()
    registered(state, request(1, [UNKNOWN_EPOCH, UNKNOWN_EPOCH], log_dirs=(A, B)))
    first = unfenced(state)
    registered(state, request(2, [first, first], log_dirs=(A, B)))
    found = registered(state, request(3, [unfenced(state), first], log_dirs=(A, B)))
    assert found.older_log_dirs == {an_id(B)}


def test_ct38_nothing_is_known_of_a_directory_that_the_broker_never_had_or_had_before_it_was_unregistered() -> None:
    state, first, second = used_twice()
    assert not registered(state, request(3, [second, first], log_dirs=(A, B))).older_log_dirs


def test_ct38_a_directory_that_has_failed_was_in_use_until_then() -> None:
    """A backup of the disk is from before, though the broker goes on without it; the repaired disk is as it was."""
    state = metadata()
    registered(state, request(1, [UNKNOWN_EPOCH, UNKNOWN_EPOCH], log_dirs=(A, B)))
    first = unfenced(state)
    registered(state, request(2, [first, first], log_dirs=(A, B)))
    second = unfenced(state)
    failed = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=second, log_dirs=DirectoryIds(ids=[an_id(B)]))
    state.append([MetadataRecord(broker_registration_change=failed)])
    for incarnation, named, older in ((3, first, OLDER), (4, second, frozenset())):
        asked = request(incarnation, [named, second], log_dirs=(A, B))
        found = register_broker(state, asked, CLUSTER_ID, Offset(state.end_offset), has_session=False)
        assert found.older_log_dirs == older


def used_without(directory: int) -> tuple[Metadata, int, int]:
    """A broker that was unfenced with two directories, and then without one of them; both epochs."""
    state = metadata()
    registered(state, request(1, [UNKNOWN_EPOCH, UNKNOWN_EPOCH], log_dirs=(A, B)))
    both = unfenced(state)
    registered(state, request(2, [both], log_dirs=[{A, B}.difference([directory]).pop()]))
    return state, both, unfenced(state)


@pytest.mark.parametrize("starts", [1, 2], ids=["unfenced", "and once not"])
def test_ct38_a_directory_that_was_not_there_for_a_start_is_as_it_was_left(starts: int) -> None:
    state, both, without = used_without(A)
    for incarnation in range(3, 2 + starts):
        registered(state, request(incarnation, [without], log_dirs=(B,)))
    assert not registered(state, request(5, [both, without], log_dirs=(A, B))).older_log_dirs
    assert not registered(state, request(6, [both, without], log_dirs=(A, B))).older_log_dirs, "it was not unfenced"
    last = unfenced(state)
    found = registered(state, request(7, [both, last], log_dirs=(A, B)))
    assert found.older_log_dirs == OLDER, "now it lacks what was acknowledged since"


def test_ct38_a_copy_from_before_of_a_directory_that_was_not_there_is_older() -> None:
    state, both, without = used_without(A)
    assert registered(state, request(3, [both - 1, without], log_dirs=(A, B))).older_log_dirs == OLDER


def test_ct38_as_many_directories_are_remembered_as_a_broker_may_have() -> None:
    state, both, _ = used_without(A)
    for number in range(5):
        several = range(1_000 + 900 * number, 1_900 + 900 * number)
        registered(state, request(10 + number, [UNKNOWN_EPOCH] * len(several), log_dirs=several))
        last = unfenced(state)
        assert len(stored(state).unfenced_log_dirs) <= 1_000
    assert not registered(state, request(20, [both, last], log_dirs=(A, B))).older_log_dirs, "it is forgotten"


def test_ct38_it_stays_older_until_the_broker_is_unfenced() -> None:
    """Its files have the new epoch before its partitions know: consider a controller that is lost in between."""
    state, first, _ = used_twice()
    third = registered(state, request(3, [first])).response.broker_epoch
    assert registered(state, request(4, [third])).older_log_dirs == OLDER
    fourth = unfenced(state)
    assert not registered(state, request(5, [fourth])).older_log_dirs


def test_ct38_the_same_incarnation_that_asks_again_changes_nothing() -> None:
    state, first, _ = used_twice()
    before = registered(state, request(3, [first])).response
    again = registered(state, request(3, [first]))
    assert (again.records, again.response, again.older_log_dirs) == ([], before, frozenset())


@pytest.mark.parametrize("epochs", [[1, 2], [-2]])
def test_epochs_that_make_no_sense(epochs: list[int]) -> None:
    with pytest.raises(ApiError, match="give one for each, -1 or more, or none") as raised:
        registered(metadata(), request(1, epochs))
    assert raised.value.code is ErrorCode.INVALID_REQUEST


# --- what follows for partitions --------------------------------------------------------------------------------------


def leaves(state: Metadata) -> list[MetadataRecord]:
    found = state.partitions(an_id(NUMBER))
    records = partitions_without(state, 1, found, may_have_lost_data=True, older_log_dirs=OLDER)
    state.append(records)
    return records


def uncleanly() -> ElectLeadersRequest:
    asked = PartitionReferences(partitions=[PartitionReference(topic=TOPIC, partition_id=0)])
    return ElectLeadersRequest(election_type=ElectLeadersRequest.UNCLEAN, partitions=asked)


def elected(state: Metadata) -> int:
    """Broker 1 is unfenced and may be elected; the leader after that."""
    state.append(leaders_where_none(state, state.partitions_led_by(NO_LEADER)))
    return the_partition(state).leader


@pytest.mark.parametrize("elr", [True, False], ids=["eligible leader replicas", "without"])
@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)])
def test_ct38_the_last_member_of_an_isr_does_not_lead_by_itself(replicas: tuple[int, ...], elr: bool) -> None:
    state = a_cluster(a_partition(replicas, (1,)), elr=elr, fenced=[2, 3])
    leaves(state)
    after = the_partition(state)
    assert (list(after.isr), list(after.eligible_leader_replicas), list(after.last_known_elr)) == ([], [], [])
    assert elected(state) == NO_LEADER
    state.append(elect_leaders(state, uncleanly())[0])
    assert (the_partition(state).leader, list(the_partition(state).isr)) == (1, [1])


def test_ct38_the_last_known_leader_is_not_elected() -> None:
    state = a_cluster(a_partition((1, 2), (), leader=NO_LEADER, last_known=[1]), fenced=[2])
    leaves(state)
    assert (elected(state), list(the_partition(state).last_known_elr)) == (NO_LEADER, [])


def test_ct38_another_eligible_replica_leads() -> None:
    state = a_cluster(a_partition((1, 2), (), leader=NO_LEADER, elr=[1, 2], last_known=[1]), min_isr=2)
    leaves(state)
    assert (elected(state), list(the_partition(state).isr)) == (2, [2])


def test_ct38_what_is_in_another_directory_of_the_broker_stays_as_it_is() -> None:
    lost = a_partition((1, 2), (), leader=NO_LEADER, last_known=[1], directories=[an_id(B), an_id(902)])
    state = a_cluster(lost, fenced=[2])
    assert not leaves(state)


@pytest.mark.parametrize("directory", [UNASSIGNED_DIRECTORY, DAMAGED_DIRECTORY, LOST_DIRECTORY])
def test_ct38_a_replica_whose_directory_is_not_known_counts_as_older(directory: bytes) -> None:
    lost = a_partition((1, 2), (), leader=NO_LEADER, last_known=[1], directories=[directory, an_id(902)])
    state = a_cluster(lost, fenced=[2])
    leaves(state)
    assert list(the_partition(state).last_known_elr) == []


def test_ct38_an_unclean_election_prefers_any_other_replica() -> None:
    state, first, _ = used_twice()
    found = registered(state, request(3, [first]))
    assert found.older_log_dirs
    unfenced(state)
    lost = a_partition((1, 2), (), leader=NO_LEADER)
    state.append([broker(2), topic(TOPIC, NUMBER), MetadataRecord(partition=lost)])
    records, response = elect_leaders(state, uncleanly())
    assert (records[0].partition_change.leader, response.partitions[0].error_message) == (2, "")


def test_ct38_an_unclean_election_that_the_topic_allows_is_held() -> None:
    state = a_cluster(a_partition((1,), (1,)), unclean=True)
    leaves(state)
    assert elected(state) == 1
