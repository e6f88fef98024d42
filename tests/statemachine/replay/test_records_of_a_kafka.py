"""The records that only a Kafka writes: fencing before 3.3, cleared eligible leader replicas, cordoned directories."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from kraftbase.ids import id_to_text
from kraftpb.v1.metadata_pb2 import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    DirectoryIds,
    FenceBrokerRecord,
    MetadataRecord,
    UnfenceBrokerRecord,
)
from statemachine.replay.replay import ReplayError
from statemachine.store.metadata_tables import MetadataTables
from statemachine.store.store import MetadataStore
from statemachine.tables.database import create_in
from statemachine.words.record_versions import in_version
from tests.statemachine.builders import CLUSTER_ID, an_id, batch, broker, topic
from tests.statemachine.conftest import Query
from tests.statemachine.partitions import a_partition

ELR = "SELECT partition_id, eligible_leader_replicas, last_known_elr, partition_epoch, leader_epoch FROM partitions"


def fence(broker_id: int, epoch: int) -> MetadataRecord:
    return MetadataRecord(fence_broker=FenceBrokerRecord(id=broker_id, epoch=epoch))


def unfence(broker_id: int, epoch: int) -> MetadataRecord:
    return MetadataRecord(unfence_broker=UnfenceBrokerRecord(id=broker_id, epoch=epoch))


def clear(name: str = "") -> MetadataRecord:
    return MetadataRecord(clear_elr=ClearElrRecord(topic_name=name))


def with_elr(number: int, *partition_ids: int) -> list[MetadataRecord]:
    return [
        MetadataRecord(partition=a_partition([1, 2, 3], [1], number=number, partition_id=at, elr=[2], last_known=[3]))
        for at in partition_ids
    ]


def test_a_broker_is_fenced_and_unfenced_in_its_epoch_only(store: MetadataStore, rows: Query) -> None:
    store.apply([batch(0, [broker(1, epoch=5), fence(1, 5)])])
    assert rows("SELECT fenced FROM brokers") == [(1,)]
    store.apply([batch(2, [unfence(1, 5)])])
    assert rows("SELECT fenced FROM brokers") == [(0,)]
    for record in (fence(1, 4), unfence(1, 6), fence(2, 5)):
        with pytest.raises(ReplayError, match="offset 3"):
            store.apply([batch(3, [record])])
    assert rows("SELECT fenced FROM brokers") == [(0,)]


def test_eligible_leader_replicas_of_a_topic_are_cleared(store: MetadataStore, rows: Query) -> None:
    plain = MetadataRecord(partition=a_partition([1], number=1, partition_id=2))
    store.apply([batch(0, [topic("a", 1), *with_elr(1, 0, 1), plain, topic("b", 2), *with_elr(2, 7)])])
    store.apply([batch(6, [clear("a")])])
    assert sorted(rows(ELR)) == [
        (0, "[]", "[]", 8, 5),
        (1, "[]", "[]", 8, 5),
        (2, "[]", "[]", 7, 5),
        (7, "[2]", "[3]", 7, 5),
    ]
    with pytest.raises(ReplayError, match="clears the eligible leader replicas of topic 'c', which does not exist"):
        store.apply([batch(7, [clear("c")])])


def test_an_empty_name_clears_those_of_all_topics(store: MetadataStore, rows: Query) -> None:
    store.apply([batch(0, [topic("a", 1), *with_elr(1, 0, 1), topic("b", 2), *with_elr(2, 7)])])
    store.apply([batch(5, [*with_elr(2, 8), clear(), *with_elr(2, 9)])])
    assert sorted(rows(ELR)) == [
        (0, "[]", "[]", 8, 5),
        (1, "[]", "[]", 8, 5),
        (7, "[]", "[]", 8, 5),
        (8, "[]", "[]", 8, 5),
        (9, "[2]", "[3]", 7, 5),
    ]


def test_more_partitions_than_a_page_has_are_cleared() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_in(connection, CLUSTER_ID)
        tables = MetadataTables(connection)
        tables.apply([batch(0, [topic("a", 1), *with_elr(1, *range(1_010))])])
        tables.apply([batch(1_011, [clear()])])
        assert connection.execute("SELECT count(*) FROM partitions WHERE partition_epoch = 8").fetchone() == (1_010,)


def test_cordoned_directories_are_kept_and_replaced(store: MetadataStore, rows: Query) -> None:
    registered = broker(1, epoch=5)
    registered.register_broker.cordoned_log_dirs.append(an_id(7))
    store.apply([batch(0, [registered])])
    assert rows("SELECT cordoned_log_dirs FROM brokers") == [(f'["{id_to_text(an_id(7))}"]',)]
    for at, (cordoned, shown) in enumerate([(None, [an_id(7)]), ([an_id(8), an_id(9)],) * 2, ([], [])], 1):
        change = BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=5, cordoned_log_dirs=None if cordoned is None else DirectoryIds(ids=cordoned)
        )
        store.apply([batch(at, [MetadataRecord(broker_registration_change=change)])])
        texts = ", ".join(f'"{id_to_text(one)}"' for one in shown)
        assert rows("SELECT cordoned_log_dirs FROM brokers") == [(f"[{texts}]",)]


@pytest.mark.parametrize(("level", "version", "kept"), [(29, 3, 0), (30, 4, 1)])
def test_a_quorum_with_an_older_node_never_sees_the_field(level: int, version: int, kept: int) -> None:
    record = broker(1)
    record.register_broker.cordoned_log_dirs.append(an_id(7))
    written = in_version(record, level)
    assert (written.version, len(written.register_broker.cordoned_log_dirs)) == (version, kept)
