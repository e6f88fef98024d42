"""The tables agree with the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.metadata_rows import STEPS_BETWEEN_LOOKS, RowsAreTheLog, rows_in
from kraftlog.sim.quorum.observation.node_view import AppliedState
from kraftlog.sim.quorum.observation.step import Delivery, Step
from kraftpb.v1.metadata_pb2 import (
    MetadataRecord,
    RegisterControllerRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpoch,
)
from raft.listener import CommittedBatch
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.database import create_in
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import TOPIC_ID, MetadataCluster, change, partition
from tests.statemachine.builders import CLUSTER_ID

SEGMENT_ID = b"s" * 16

OTHERS = [
    MetadataRecord(register_controller=RegisterControllerRecord(controller_id=1, incarnation_id=b"i" * 16)),
    MetadataRecord(
        remote_log_segment_metadata=RemoteLogSegmentMetadataRecord(
            topic_id=TOPIC_ID,
            segment_id=SEGMENT_ID,
            end_offset=9,
            segment_leader_epochs=[SegmentLeaderEpoch(), SegmentLeaderEpoch(leader_epoch=1, start_offset=5)],
            segment_size_bytes=100,
        )
    ),
    MetadataRecord(
        remote_log_segment_metadata_update=RemoteLogSegmentMetadataUpdateRecord(
            topic_id=TOPIC_ID, segment_id=SEGMENT_ID, state=1, custom_metadata=b""
        )
    ),
    MetadataRecord(
        remote_partition_delete_metadata=RemotePartitionDeleteMetadataRecord(topic_id=TOPIC_ID, partition_id=7)
    ),
]


@pytest.fixture
def cluster() -> Iterator[MetadataCluster]:
    """Node 1 has applied everything that is committed."""
    cluster = MetadataCluster().with_brokers()
    cluster.records(partition(), change(isr=[1, 2], leader=2), *OTHERS)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_in(connection, CLUSTER_ID)
        MetadataTables(connection).apply([CommittedBatch(batch) for batch in cluster.committed])
        cluster.nodes[1].tables = connection
        cluster.nodes[1].applied = AppliedState(cluster.committed_end_offset, "any")
        yield cluster


def delivery(cluster: MetadataCluster) -> Step:
    return cluster.step(1, deliveries=[Delivery(tuple(cluster.committed))])


def test_tables_that_say_the_same_are_in_order(cluster: MetadataCluster) -> None:
    RowsAreTheLog(cluster).at_end()


def test_every_column_is_compared_of_all_tables_that_simulated_brokers_write(cluster: MetadataCluster) -> None:
    tables = cluster.nodes[1].tables
    assert tables is not None
    for table, rows in rows_in(tables).items():
        columns = tables.execute(f"SELECT * FROM {table}").description
        assert {len(row) for row in rows} <= {len(columns)}
    names = {name for (name,) in tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    of_a_kafka = {"scram_credentials", "delegation_tokens", "zk_migration_states"}
    not_asked_for = {"client_quotas", "producer_ids", "acls", *of_a_kafka}
    assert names - set(rows_in(tables)) == {"applied", "_sqlite_migrations", *not_asked_for}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE partitions SET leader_epoch = 0",
        "UPDATE brokers SET fenced = 1 WHERE broker_id = 2",
        "DELETE FROM topics",
        "INSERT INTO features VALUES ('x', 1)",
        "INSERT INTO configs VALUES (2, 'clicks', 'x', 'y')",
        "UPDATE brokers SET listeners = '[{}]' WHERE broker_id = 2",
        "UPDATE brokers SET rack = 'a' WHERE broker_id = 2",
        "UPDATE controllers SET features = '[{}]'",
        "UPDATE remote_segments SET size_bytes = 99",
        "UPDATE remote_segments SET custom_metadata = NULL",
        "UPDATE remote_segments SET leader_epochs = '[[0, 0, 0], [1, 5, 1]]'",
        "UPDATE remote_segment_epochs SET is_referenced = 0 WHERE leader_epoch = 1",
        "UPDATE remote_epoch_ends SET highest_offset = 8 WHERE leader_epoch = 1",
        "DELETE FROM remote_partition_deletes",
    ],
)
def test_a_row_that_differs_is_found(cluster: MetadataCluster, statement: str) -> None:
    tables = cluster.nodes[1].tables
    assert tables is not None
    tables.execute(statement)
    invariant = RowsAreTheLog(cluster)
    with violates(invariant):
        invariant.at_end()
    for _ in range(STEPS_BETWEEN_LOOKS - 1):
        invariant.after_step(delivery(cluster))
    with violates(invariant):
        invariant.after_step(delivery(cluster))


def test_a_node_that_differs_by_a_fault_or_is_not_as_far_is_left_out(cluster: MetadataCluster) -> None:
    tables = cluster.nodes[1].tables
    assert tables is not None
    tables.execute("DELETE FROM topics")
    cluster.nodes[1].has_diverged = True
    RowsAreTheLog(cluster).at_end()
    cluster.nodes[1].has_diverged = False
    cluster.nodes[1].applied = AppliedState(Offset(3), "any")
    RowsAreTheLog(cluster).at_end()
