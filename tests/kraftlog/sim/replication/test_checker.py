"""What the court makes of elections: it is shown what the controller might have committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kraftbase.ids import DAMAGED_DIRECTORY
from kraftbase.partition import TopicPartition
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checker import Checker, Watched
from kraftlog.sim.replication.metadata import Topic, state_of
from kraftlog.sim.replication.parameters import TopicParameters
from kraftpb.v1.metadata_pb2 import PartitionRecord

PARAMETERS = TopicParameters(
    flush_before_ack=False, min_insync_replicas=1, replication_factor=2, partitions=1, has_unclean_elections=True
)
TOPIC = Topic("t", bytes(16), PARAMETERS, 1, 1)
WHOLE_DIRECTORY = bytes(range(16))
LATEST_START = 8
"""Of what is left of the log of broker 2, which somebody has damaged."""


class Damaged:
    """Files of broker 2 are damaged."""

    def latest_start(self, broker_id: int, partition: TopicPartition, topic_id: bytes) -> int:
        is_damaged = (broker_id, partition, topic_id) == (2, TopicPartition("t", 0), TOPIC.topic_id)
        return LATEST_START if is_damaged else 0


def elected(leader: int, directory: bytes, *, is_unclean: bool) -> Checker:
    """A court that has seen that leader elected, in epoch 1, after broker 1."""
    world = SimpleNamespace(
        marks=Marks(), note=lambda text: None, parameters=SimpleNamespace(lag_max_ms=1_000), damaged_files=Damaged()
    )
    checker = Checker(cast(Watched, world))
    before = PartitionRecord(replicas=[1, 2], isr=[1], leader=1, directories=[WHOLE_DIRECTORY, directory])
    after = PartitionRecord()
    after.CopyFrom(before)
    after.leader, after.leader_epoch, after.partition_epoch, after.isr[:] = leader, 1, 1, [leader]
    checker.partition_changed(TOPIC, 0, state_of(before), is_unclean=False)
    checker.partition_changed(TOPIC, 0, state_of(after), is_unclean=is_unclean)
    return checker


def test_a_damaged_log_that_leads_by_an_unclean_election_begins_where_it_is_left() -> None:
    promises = elected(2, DAMAGED_DIRECTORY, is_unclean=True).partitions[TOPIC.topic_id, 0].promises
    promises.replica_begins(2, LATEST_START, 1)
    with pytest.raises(Violation, match="begins at 9"):
        promises.replica_begins(2, LATEST_START + 1, 1)


@pytest.mark.parametrize(
    ("leader", "directory", "is_unclean"),
    [(2, WHOLE_DIRECTORY, True), (2, DAMAGED_DIRECTORY, False), (1, DAMAGED_DIRECTORY, True)],
    ids=["it has been copied anew", "a clean election", "of another replica"],
)
def test_any_other_log_begins_where_its_records_were_deleted(leader: int, directory: bytes, is_unclean: bool) -> None:
    promises = elected(leader, directory, is_unclean=is_unclean).partitions[TOPIC.topic_id, 0].promises
    promises.replica_begins(2, 0, 1)
    with pytest.raises(Violation, match="begins at 1,"):
        promises.replica_begins(2, 1, 1)
