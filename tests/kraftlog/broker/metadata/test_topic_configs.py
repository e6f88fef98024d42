"""Which value of a config applies to a topic on a broker."""

from __future__ import annotations

from pathlib import Path

from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.broker.broker_world import ME, BrokerWorld, replicas, topic
from tests.statemachine.builders import BROKER, config

OWN = {"log.retention.ms": "1", "min.insync.replicas": "2"}


def retention(world: BrokerWorld, name: str = "clicks") -> int:
    return world.configs.log_config(name).retention_ms


def set_retention(value: str | None, of: str) -> MetadataRecord:
    """For a broker, or for all of them if `of` is empty."""
    return config(of, "log.retention.ms", value, BROKER)


def test_the_topics_own_value_comes_before_this_brokers_all_brokers_the_file_and_kafkas_default(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), topic("views", 2), replicas()], own=OWN)
    found = [retention(world)]
    for record in (
        set_retention("2", of=""),
        set_retention("9", of=str(ME + 1)),
        set_retention("3", of=str(ME)),
        config("clicks", "retention.ms", "4"),
    ):
        world.commit(record)
        found.append(retention(world))
        assert world.replica().online_log().config.retention_ms == found[-1]
    assert found == [1, 2, 2, 3, 4]
    assert retention(world, "views") == 3
    for record in (
        config("clicks", "retention.ms", None),
        set_retention(None, of=str(ME)),
        set_retention(None, of=""),
    ):
        world.commit(record)
        found.append(retention(world))
        assert world.replica().online_log().config.retention_ms == found[-1]
    assert found[5:] == [3, 2, 1]


def test_what_no_one_has_set_is_kafkas_default(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas()])
    assert retention(world) == 7 * 24 * 3_600_000
    assert world.configs.min_insync_replicas("clicks") == 1
    assert world.configs.broker_value("log.retention.ms") == str(retention(world))


def test_min_insync_replicas_of_brokers_reaches_the_partitions(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2, 3])], own=OWN)
    assert world.replica().effective_min_isr == 2
    world.commit(config("", "min.insync.replicas", "3", BROKER))
    assert world.replica().effective_min_isr == 3
    world.commit(config("clicks", "min.insync.replicas", "1"))
    assert world.replica().effective_min_isr == 1
