"""Whether brokers and partitions have settled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.sim.quorum.runs.settled_metadata import why_not_settled
from kraftpb.v1.metadata_pb2 import ConfigRecord, FeatureLevelRecord, MetadataRecord
from tests.kraftlog.sim.quorum.invariants.metadata import MetadataCluster, change, fenced, partition

ELR = MetadataRecord(feature_level=FeatureLevelRecord(name="eligible.leader.replicas.version", level=1))
UNCLEAN = MetadataRecord(
    config=ConfigRecord(resource_type=2, resource_name="clicks", name="unclean.leader.election.enable", value="true")
)


class Story:
    """Three brokers and a partition; broker 3 is down."""

    def __init__(self) -> None:
        self.cluster = MetadataCluster().with_brokers()
        self.epochs = {broker_id: broker.epoch for broker_id, broker in self.cluster.metadata.brokers.items()}
        self.brokers: list[Any] = [
            SimpleNamespace(broker_id=broker_id, is_up=broker_id != 3, epoch=epoch)
            for broker_id, epoch in self.epochs.items()
        ]
        self.cluster.records(fenced(3, self.epochs[3]), partition(isr=[1, 2]))

    def obstacle(self, *records: MetadataRecord) -> str | None:
        if records:
            self.cluster.records(*records)
        return why_not_settled(self.cluster.metadata, self.brokers)


def test_at_rest() -> None:
    assert Story().obstacle() is None


def test_a_broker_that_is_there_and_fenced_or_gone_and_not_fenced_is_an_obstacle() -> None:
    story = Story()
    story.brokers[1].is_up = False
    assert "broker 2 is down" in str(story.obstacle())
    story.brokers[1].is_up = True
    story.brokers[1].epoch = 99
    assert "broker 2 is up with epoch 99" in str(story.obstacle())
    story.brokers[1].epoch = story.epochs[2]
    assert "broker 2 is up" in str(story.obstacle(fenced(2, story.epochs[2])))


def test_a_partition_that_is_led_has_nobody_in_its_isr_who_is_not_there() -> None:
    assert "another broker is in its ISR" in str(Story().obstacle(change(isr=[1, 3])))


@pytest.mark.parametrize(
    ("records", "could"),
    [
        ([change(isr=[2], leader=-1)], "[2] could"),
        ([change(isr=[3], leader=-1)], None),
        ([UNCLEAN, change(isr=[3], leader=-1)], "[1, 2] could"),
        ([ELR, change(isr=[], leader=-1, eligible_leader_replicas=[1, 3])], "[1] could"),
        ([change(isr=[], leader=-1, eligible_leader_replicas=[1, 3])], None),
        ([ELR, change(isr=[], leader=-1, eligible_leader_replicas=[3])], None),
        ([ELR, change(isr=[], leader=-1, last_known_elr=[2])], "[2] could"),
        ([ELR, change(isr=[], leader=-1, last_known_elr=[3])], None),
    ],
)
def test_a_partition_that_could_be_led_is(records: list[MetadataRecord], could: str | None) -> None:
    obstacle = Story().obstacle(*records)
    assert obstacle is None if could is None else could in str(obstacle)
