"""Which replicas a partition begins with in a restored cluster, by what their logs have (CT-39)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kraftbase.sentinels import NO_LEADER
from kraftlog.offline.adoption.broker_report import ReportedLog
from kraftlog.offline.adoption.partition_choice import EPOCH_JUMP, EPOCH_MAX, ChosenPartition, choose
from kraftpb.v1.metadata_pb2 import PartitionRecord
from tests.kraftlog.offline.adoption.builders import log
from tests.statemachine.builders import an_id
from tests.statemachine.partitions import a_partition


def chosen(
    logs: Mapping[int, ReportedLog], reported: Sequence[int] = (1, 2, 3), partition: PartitionRecord | None = None
) -> ChosenPartition:
    return choose(partition or a_partition(), logs, lambda broker_id, _: broker_id in reported)


def in_sync(logs: Mapping[int, ReportedLog]) -> list[int]:
    return [*chosen(logs).record.isr]


def test_ct39_the_highest_epoch_wins_then_the_longest_log() -> None:
    assert in_sync({1: log(900, 5), 2: log(300, 8), 3: log(200, 8)}) == [2]
    assert in_sync({1: log(300, 8), 2: log(300, 8), 3: log(299, 8)}) == [1, 2]
    assert in_sync({3: log(300, 8), 2: log(300, 8), 1: log(300, 8)}) == [1, 2, 3]


def test_ct39_an_epoch_without_records_wins_nothing() -> None:
    assert in_sync({1: log(900, 8), 2: log(300, 5, latest=30)}) == [1]


def test_ct39_who_was_in_sync_in_the_snapshot_does_not_count() -> None:
    """Broker 1 led alone there; it left the ISR since, and the others went on in epoch 8."""
    old = a_partition(isr=[1])
    found = chosen({1: log(500, 5), 2: log(600, 8), 3: log(600, 8)}, partition=old).record
    assert ([*found.isr], found.leader) == ([2, 3], NO_LEADER)


def test_ct39_the_leader_epoch_is_above_all_that_a_log_knows_of() -> None:
    found = chosen({1: log(500, 5), 2: log(600, 8), 3: log(100, 2, latest=40)}).record
    assert found.leader_epoch == 40 + EPOCH_JUMP
    assert found.partition_epoch == 7 + EPOCH_JUMP
    assert chosen({}).record.leader_epoch == 5 + EPOCH_JUMP
    high = chosen({1: log(5, EPOCH_MAX + 7)}).record
    assert EPOCH_MAX + 7 < high.leader_epoch < 2**31


def test_ct39_a_damaged_log_leads_only_if_no_other_one_was_reported() -> None:
    found = chosen({1: log(900, 8, is_damaged=True), 2: log(900, 8)})
    assert ([*found.record.isr], found.damaged) == ([2], (1,))
    assert in_sync({1: log(900, 8, is_damaged=True)}) == [1]


@pytest.mark.parametrize(
    ("damaged", "is_beyond"),
    [
        (log(900, 8, is_damaged=True), True),
        (log(400, 5, is_damaged=True), True),
        (log(300, 5, is_damaged=True), False),
        (log(900, 4, is_damaged=True), False),
        (log(301, -1, is_damaged=True), True),
        (log(300, -1, is_damaged=True), False),
    ],
)
def test_ct39_a_damaged_log_that_may_have_had_more_is_named(damaged: ReportedLog, is_beyond: bool) -> None:
    found = chosen({1: damaged, 2: log(300, 5)})
    assert [*found.record.isr] == [2]
    assert (found.damaged, found.damaged_beyond) == (((), (1,)) if is_beyond else ((1,), ()))
    assert not chosen({1: damaged}).damaged_beyond


def test_ct39_a_replica_that_nobody_reported_is_not_in_sync_and_is_named() -> None:
    found = chosen({1: log(900, 8)}, reported=[1, 2])
    assert ([*found.record.isr], found.not_adopted, found.is_without_leader) == ([1], (3,), False)


def test_ct39_only_those_may_lead_that_were_not_reported_if_no_other_one_has_anything() -> None:
    found = chosen({}, reported=[1], partition=a_partition(isr=[1, 2]))
    assert ([*found.record.isr], found.not_adopted, found.is_without_leader) == ([2], (2, 3), True)
    found = chosen({}, reported=[1, 2], partition=a_partition(isr=[1, 2]))
    assert [*found.record.isr] == [3]


def test_ct39_a_partition_of_which_nothing_is_left_begins_as_it_was() -> None:
    found = chosen({}, partition=a_partition(isr=[2, 3]))
    assert ([*found.record.isr], found.is_without_leader) == ([2, 3], False)


def test_ct39_a_replica_that_was_added_since_is_one_if_it_alone_has_everything() -> None:
    found = chosen({1: log(300, 5), 7: log(900, 8, directory=907)}).record
    assert ([*found.replicas], [*found.isr]) == ([1, 2, 3, 7], [7])
    assert [*found.directories] == [an_id(901), an_id(902), an_id(903), an_id(907)]
    assert [*chosen({1: log(900, 8), 7: log(900, 8)}).record.replicas] == [1, 2, 3]


def test_ct39_a_replica_is_in_the_directory_that_has_its_log() -> None:
    found = chosen({1: log(300, 5, directory=990)}).record
    assert [*found.directories] == [an_id(990), an_id(902), an_id(903)]
    assert not chosen({1: log(3, 5)}, partition=a_partition(directories=[])).record.directories


@pytest.mark.parametrize("isr", [[1], []])
def test_ct39_eligible_replicas_of_before_are_so_no_more(isr: list[int]) -> None:
    found = chosen({1: log(1, 1)}, partition=a_partition(isr=isr, elr=[2], last_known=[3])).record
    assert not found.eligible_leader_replicas
    assert not found.last_known_elr
