"""Proposals of `kraftlog reassign generate`: how replicas are spread."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kraftbase.errors import ApiError
from kraftbase.partition import TopicPartition
from kraftlog.commands import reassignments
from kraftlog.controller.rules.placement import PlacementBroker
from tests.kraftlog.partitions import a_partition

NOWHERE = "127.0.0.1:1"
AT_NOWHERE = ("--bootstrap-server", NOWHERE)
AT: TopicPartition = TopicPartition("t", 0)


def placed(
    num_partitions: int, num_replicas: int, brokers: dict[int, PlacementBroker], seed: int = 0
) -> list[list[int]]:
    partitions = {
        TopicPartition("t", partition_id): a_partition(partition_id, replicas=range(90, 90 + num_replicas))
        for partition_id in range(num_partitions)
    }
    return list(reassignments.propose_assignment(partitions, brokers, Random(seed)).values())


@pytest.mark.parametrize("seed", range(5))
def test_a_proposal_spreads_leaders_replicas_and_racks(seed: int) -> None:
    brokers = {broker_id: PlacementBroker(True, rack="ab"[broker_id % 2]) for broker_id in (1, 2, 3, 4)}
    assignment = placed(8, 2, brokers, seed)
    assert Counter(replicas[0] for replicas in assignment) == dict.fromkeys(brokers, 2)
    assert Counter(broker_id for replicas in assignment for broker_id in replicas) == dict.fromkeys(brokers, 4)
    assert all({broker_id % 2 for broker_id in replicas} == {0, 1} for replicas in assignment)


def test_a_proposal_uses_a_fenced_broker_only_where_the_others_are_too_few() -> None:
    brokers = {1: PlacementBroker(True), 2: PlacementBroker(False), 3: PlacementBroker(True)}
    assert {frozenset(replicas) for replicas in placed(4, 2, brokers)} == {frozenset({1, 3})}
    assert all(replicas[2] == 2 for replicas in placed(4, 3, brokers))


def test_a_proposal_keeps_the_number_of_replicas_that_a_reassignment_leads_to() -> None:
    partitions = {TopicPartition("t", 0): a_partition(replicas=[3, 1, 2], adding=[3], removing=[1, 2])}
    brokers = {1: PlacementBroker(True), 2: PlacementBroker(True)}
    assert len(reassignments.propose_assignment(partitions, brokers, Random(0))[TopicPartition("t", 0)]) == 1


def test_brokers_that_are_too_few_or_all_fenced_are_refused() -> None:
    with pytest.raises(ApiError, match=r"partition 0 of topic 't' has 2 replicas, .* only 7; name 2 or more"):
        placed(1, 2, {7: PlacementBroker(True)})
    with pytest.raises(ApiError, match="each of the brokers 7, 8 is fenced or shutting down; start one"):
        placed(1, 2, {7: PlacementBroker(False), 8: PlacementBroker(False)})
