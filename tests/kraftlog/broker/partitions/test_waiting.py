"""What happens to requests that wait while their partition goes away, changes its leader or loses its disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.broker.log.builders import batch
from tests.statemachine.builders import batch as metadata_batch
from tests.statemachine.builders import remove_topic

MOVED = replicas(on=[2], epoch=1)
OTHER_LEADER = replicas(on=[1, 2], leader=2, epoch=1)
MADE_ANEW = (remove_topic(1), topic("clicks", 2), replicas(2))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ((remove_topic(1),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MADE_ANEW, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((MOVED,), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ((OTHER_LEADER,), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
@pytest.mark.parametrize("comes_by_snapshot", [False, True])
def test_a_fetch_and_a_produce_that_wait_for_others_end_with_what_became_of_the_partition(
    tmp_path: Path, records: tuple[MetadataRecord, ...], code: ErrorCode, comes_by_snapshot: bool
) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    partition = world.replica()
    world.send((0, batch(1)))
    world.runtime.run()
    world.read((0, 0))
    assert world.answers == []
    if comes_by_snapshot:
        world.tables.apply([metadata_batch(2, records)])
        world.begin_anew()
    else:
        world.commit(*records)
    assert [part.error_code for part in world.fetched()] == [code]
    assert world.produced_codes() == [code]
    assert all(timer.is_cancelled for timer in world.runtime.timers)
    assert partition.watcher_count == 0
