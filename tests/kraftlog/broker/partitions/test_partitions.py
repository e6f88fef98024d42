"""Which replicas a broker has, and what becomes of their logs, as the metadata changes."""

from __future__ import annotations

from pathlib import Path

from kraftbase.errors import ErrorCode
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.broker.log.builders import batch
from tests.statemachine.builders import batch as metadata_batch
from tests.statemachine.builders import config


def test_a_partition_of_a_topic_that_was_elsewhere_comes_to_this_broker(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(index=0, on=[2])])
    world.commit(replicas(index=1))
    world.send((1, batch(1)), acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    assert list(world.partitions) == [world.replica(1)]


def test_configs_that_a_snapshot_brings_apply_to_the_logs_that_are_open(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    world.tables.apply([metadata_batch(2, [config("clicks", "max.message.bytes", "10")])])
    world.begin_anew()
    world.send((0, batch(1)))
    assert world.produced_codes() == [ErrorCode.MESSAGE_TOO_LARGE]
