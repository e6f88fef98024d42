"""Applying committed batches: the content of the tables, exactly once, and what is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import id_to_text
from kraftbase.types import Epoch, Offset
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord, ProducerIdsRecord
from raft.listener import CommittedBatch
from raft.storage.batch import encode_batch
from statemachine.query.metadata_queries import applied_end_offset
from statemachine.replay.replay import ReplayError
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.store import MetadataStore
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_LATEST
from tests.statemachine.builders import (
    BROKER,
    CLUSTER_ID,
    TOPIC,
    an_id,
    batch,
    broker,
    config,
    log_of,
    no_op,
    partition,
    remove_topic,
    topic,
)
from tests.statemachine.conftest import Query


def test_each_kind_of_record_has_its_rows(store: MetadataStore, rows: Query) -> None:
    records = [
        topic("clicks", 1),
        config("clicks", "retention.ms", "1000"),
        partition(1, 0, (1, 2)),
        partition(1, 1, (2, 1)),
        broker(7, epoch=5, rack="r1"),
        config("", "num.partitions", "3", BROKER),
        no_op(),
    ]
    store.apply([batch(0, records)])
    directory = id_to_text(an_id(901)), id_to_text(an_id(902))
    assert rows("SELECT * FROM topics") == [(id_to_text(an_id(1)), "clicks")]
    assert rows("SELECT partition_id, leader, replicas, isr, adding_replicas, directories FROM partitions") == [
        (0, 1, "[1, 2]", "[1, 2]", "[]", f'["{directory[0]}", "{directory[1]}"]'),
        (1, 2, "[2, 1]", "[2, 1]", "[]", f'["{directory[1]}", "{directory[0]}"]'),
    ]
    assert rows("SELECT broker_id, broker_epoch, incarnation_id, rack, fenced FROM brokers") == [
        (7, 5, id_to_text(an_id(507)), "r1", 0)
    ]
    assert rows("SELECT * FROM configs") == [
        (TOPIC, "clicks", "retention.ms", "1000"),
        (BROKER, "", "num.partitions", "3"),
    ]
    assert rows("SELECT cluster_id, end_offset, epoch FROM applied") == [(CLUSTER_ID, 7, 1)]


def test_replicas_can_be_queried_as_json(store: MetadataStore, rows: Query) -> None:
    store.apply([batch(0, [topic("a", 1), partition(1, 0, (1, 2)), partition(1, 1, (2, 3))])])
    assert rows("SELECT value, count(*) FROM partitions, json_each(replicas) GROUP BY value ORDER BY value") == [
        (1, 1),
        (2, 2),
        (3, 1),
    ]


def test_a_removed_topic_takes_its_partitions_and_configs_along(store: MetadataStore, rows: Query) -> None:
    store.apply(
        [batch(0, [topic("a", 1), config("a", "retention.ms", "1"), partition(1), topic("b", 2), partition(2)])]
    )
    store.apply([batch(5, [remove_topic(1)])])
    assert rows("SELECT name FROM topics") == [("b",)]
    assert rows("SELECT topic_id FROM partitions") == [(id_to_text(an_id(2)),)]
    assert rows("SELECT * FROM configs") == []


def test_a_name_can_be_used_again_within_one_transaction(store: MetadataStore, rows: Query) -> None:
    store.apply([batch(0, [topic("a", 1), config("a", "retention.ms", "1"), partition(1, 3)])])
    again = [
        remove_topic(1),
        topic("a", 2),
        config("a", "segment.ms", "9"),
        partition(2),
        remove_topic(2),
        topic("a", 3),
    ]
    store.apply([batch(3, again)])
    assert rows("SELECT * FROM topics") == [(id_to_text(an_id(3)), "a")]
    assert rows("SELECT * FROM partitions") == []
    assert rows("SELECT * FROM configs") == []


def test_a_config_without_a_value_is_removed_and_the_last_of_a_run_wins(store: MetadataStore, rows: Query) -> None:
    run = [config("a", "x", "1"), config("a", "x", None), config("a", "y", None), config("a", "y", "2")]
    store.apply([batch(0, run)])
    assert rows("SELECT name, value FROM configs") == [("y", "2")]
    store.apply([batch(4, [config("a", "y", None)])])
    assert rows("SELECT * FROM configs") == []


def test_a_broker_registered_again_has_one_row(store: MetadataStore, rows: Query) -> None:
    store.apply([batch(0, [broker(1, epoch=0)]), batch(1, [broker(1, epoch=1, fenced=True)])])
    assert rows("SELECT broker_id, broker_epoch, fenced FROM brokers") == [(1, 1, 1)]


def test_li03_a_control_batch_moves_the_offset_and_nothing_else(store: MetadataStore) -> None:
    store.apply([batch(0, [], epoch=3, is_control=True)])
    assert store.applied.end_offset == 1
    assert store.applied.epoch == 3


def test_batches_that_are_applied_already_are_passed_over(store: MetadataStore) -> None:
    log = log_of([[topic("a", 1)], [partition(1)], [topic("b", 2)]])
    store.apply(log[:2])
    applied = store.applied
    store.apply(log[:2])
    store.apply(log[:1])
    assert store.applied == applied
    store.apply(log)
    assert store.applied.end_offset == 3


def test_nothing_is_applied_twice_after_a_reopen(database: Path) -> None:
    log = log_of([[topic("a", 1)], [partition(1)], [remove_topic(1), topic("a", 2)]])
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        store.apply(log)
        applied = store.applied
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.applied == applied
        store.apply(log)  # the topic would exist
        assert store.applied == applied


@pytest.mark.parametrize("base_offset", [0, 1, 3, 9])
def test_ct18_a_batch_that_does_not_follow_on_what_is_applied_is_refused(
    store: MetadataStore, base_offset: int
) -> None:
    store.apply(log_of([[topic("a", 1), no_op()]]))
    applied = store.applied
    with pytest.raises(ReplayError, match="does not follow"):
        store.apply([batch(base_offset, [no_op()] * 3)])
    assert store.applied == applied


def test_ct18_an_epoch_that_goes_back_is_refused(store: MetadataStore) -> None:
    store.apply([batch(0, [no_op()], epoch=5)])
    with pytest.raises(ReplayError, match="does not follow"):
        store.apply([batch(1, [no_op()], epoch=4)])


def test_ct18_a_log_that_says_something_else_where_records_were_applied_is_refused(store: MetadataStore) -> None:
    store.apply([batch(0, [no_op()], epoch=5)])
    with pytest.raises(ReplayError, match="not of this log"):
        store.apply([batch(0, [no_op()], epoch=6)])
    with pytest.raises(ReplayError, match="not of this log"):
        store.apply([batch(0, [no_op()], epoch=4)])


def level(name: str, number: int) -> MetadataRecord:
    return MetadataRecord(feature_level=FeatureLevelRecord(name=name, level=number))


def producer_ids(next_producer_id: int) -> MetadataRecord:
    return MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=next_producer_id))


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([partition(9)], "a partition of topic"),
        ([partition(2), topic("b", 2)], "a partition of topic"),
        ([remove_topic(1), partition(1)], "a partition of topic"),
        ([remove_topic(9)], "which does not exist"),
        ([remove_topic(1), remove_topic(1)], "which does not exist"),
        ([topic("b", 1)], "one of which exists"),
        ([topic("a", 2)], "one of which exists"),
        ([topic("b", 2), topic("b", 3)], "one of which exists"),
        ([topic("b", 2), topic("c", 2)], "one of which exists"),
        ([topic("", 2)], "cannot be"),
        ([MetadataRecord()], "upgrade this node"),
        (
            [level(METADATA_VERSION, METADATA_VERSION_LATEST + 1)],
            f"levels up to {METADATA_VERSION_LATEST}; upgrade this node",
        ),
        ([level("share.version", 1)], "'share.version' to 1, .* upgrade this node"),
        ([producer_ids(2_000), producer_ids(2_000)], "from producer id 2000 to 2000"),
        ([producer_ids(2_000), producer_ids(1_000)], "from producer id 2000 to 1000"),
    ],
)
def test_ct02_a_record_that_cannot_be_true_is_refused_and_nothing_of_its_run_is_applied(
    store: MetadataStore, rows: Query, records: list[MetadataRecord], reason: str
) -> None:
    """CT-02; a partition's topic, a topic's id and name, a level and a producer id can all be wrong."""
    store.apply([batch(0, [topic("a", 1)])])
    applied = store.applied
    with pytest.raises(ReplayError, match=reason):
        store.apply([batch(1, [config("a", "x", "1")]), batch(2, records)])
    assert store.applied == applied
    assert rows("SELECT * FROM configs") == []
    assert rows("SELECT name FROM topics") == [("a",)]


def test_ct02_a_removed_topic_cannot_hide_that_it_existed_before(store: MetadataStore) -> None:
    store.apply([batch(0, [topic("a", 1)])])
    with pytest.raises(ReplayError, match="one of which exists"):
        store.apply([batch(1, [topic("b", 1), remove_topic(1)])])


def test_ct18_bodies_that_are_no_metadata_are_refused(store: MetadataStore) -> None:
    not_protobuf = CommittedBatch(encode_batch(Offset(0), Epoch(1), b"\xff\xff", 1, 1))
    with pytest.raises(ReplayError, match="no MetadataBatch"):
        store.apply([not_protobuf])
    too_few = CommittedBatch(encode_batch(Offset(0), Epoch(1), b"", 2, 1))
    with pytest.raises(ReplayError, match="holds 0 records"):
        store.apply([too_few])
    bad_id = broker(1)
    bad_id.register_broker.incarnation_id = b"short"
    with pytest.raises(ReplayError, match="malformed"):
        store.apply([batch(0, [bad_id])])
    assert store.applied_end_offset == 0


def test_a_lock_that_somebody_holds_is_told_and_changes_nothing(store: MetadataStore, database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            store.apply([batch(0, [no_op()])])
        other.execute("ROLLBACK")
    store.apply([batch(0, [no_op()])])
    assert store.applied_end_offset == 1


def test_a_full_disk_is_told_and_changes_nothing(store: MetadataStore, rows: Query) -> None:
    store.apply([batch(0, [topic("a", 1)])])
    pages = rows("PRAGMA page_count")[0][0]
    writer = store._tables.connection
    writer.execute(f"PRAGMA max_page_count = {pages}")
    big = [config(f"topic-{number}", "retention.ms", str(number)) for number in range(5_000)]
    with pytest.raises(StoreUnavailable, match="full"):
        store.apply([batch(1, big)])
    assert store.applied_end_offset == 1
    writer.execute("PRAGMA max_page_count = 1000000")
    store.apply([batch(1, big)])
    assert rows("SELECT count(*) FROM configs") == [(5_000,)]


def test_somebody_elses_writing_is_noticed(store: MetadataStore, database: Path) -> None:
    with closing(sqlite3.connect(database)) as other:
        other.execute("UPDATE applied SET end_offset = 5")
        other.commit()
    with pytest.raises(ReplayError, match="another process"):
        store.apply([batch(0, [no_op()])])


async def test_a_query_sees_one_state_while_the_writer_goes_on(store: MetadataStore) -> None:
    store.apply([batch(0, [no_op()])])

    def read(connection: sqlite3.Connection) -> tuple[int, int]:
        before = connection.execute("SELECT end_offset FROM applied").fetchone()[0]
        store.apply([batch(1, [no_op()])])
        return before, connection.execute("SELECT end_offset FROM applied").fetchone()[0]

    assert await store.query(read) == (1, 1)
    assert store.applied_end_offset == 2


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


async def test_a_query_that_takes_longer_than_a_read_may_is_ended(database: Path) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID, read_max_ms=50)) as store:
        with pytest.raises(ApiError, match=r"longer than 0\.05 s \(metadata.read.max.ms\)") as caught:
            await store.query(lambda connection: connection.execute(ENDLESS).fetchone())
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        store.apply([batch(0, [no_op()])])
        assert store.write_ahead_log.start_over()  # no reader holds it now
        assert await store.query(applied_end_offset) == 1


async def test_a_statement_has_no_more_time_than_a_read(database: Path) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID, read_max_ms=50)) as store:
        try:
            [answer] = await store.run_statement(ENDLESS, 600)
            message = answer.error_message
        except ApiError as error:  # its process took longer to begin
            message = error.args[0]
        assert "longer than 0.05 s" in message


async def test_a_query_cannot_write(store: MetadataStore) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await store.query(lambda connection: connection.execute("DELETE FROM applied"))
