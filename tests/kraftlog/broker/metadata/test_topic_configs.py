"""Which value of a config applies to a topic on a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.files.memory import MemoryFileSystem
from kraftlog.broker.metadata.topic_configs import last_known_configs
from kraftlog.storage.config import PartitionLogConfig
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.database import open_database
from tests.kraftlog.broker.broker_world import ME, BrokerWorld, replicas, topic
from tests.kraftlog.storage.builders import CLUSTER_ID, NOW_MS, batch, open_log
from tests.statemachine.builders import BROKER, config
from tests.statemachine.builders import batch as metadata_batch

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


def test_before_the_broker_follows_the_metadata_its_database_tells_which_topics_are_compacted(tmp_path: Path) -> None:
    tables = MetadataTables(open_database(tmp_path / "metadata.db", CLUSTER_ID).conn)
    tables.apply([metadata_batch(0, [topic("clicks"), config("clicks", "cleanup.policy", "compact")])])
    tables.connection.close()
    with last_known_configs(tmp_path / "metadata.db", ME, {}) as configs:
        assert configs.log_config("clicks").is_compacted
        assert not configs.log_config("orders").is_compacted


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_gap_where_a_segment_ends_is_a_loss_unless_the_topic_is_compacted(is_compacted: bool) -> None:
    files = MemoryFileSystem()
    log = open_log(files)
    log.append_as_follower(batch(3, epoch=0), NOW_MS, 0)
    log._roll(5, NOW_MS)
    log.append_as_follower(batch(3, base_offset=5, epoch=0), NOW_MS, 0)
    log.flush()
    files.end_process()
    assert open_log(files, PartitionLogConfig(is_compacted=is_compacted)).log_end_offset == (8 if is_compacted else 3)
