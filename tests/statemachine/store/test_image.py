"""The state as a snapshot and back: nothing is lost, and the bytes depend on the state alone.

A rule that tests here are named after: SN-33.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import CorruptSnapshot
from kraftbase.types import Epoch, Offset
from kraftpb.v1.metadata_pb2 import (
    AbortTransactionRecord,
    AppliedStateRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataBatch,
    MetadataRecord,
)
from raft.core.types import OffsetAndEpoch
from raft.storage.batch import batch_body
from snapshot.format import SnapshotHeader
from snapshot.store import SnapshotStore
from statemachine.store.image import BATCH_BYTES_SOFT_MAX, RECORDS_PER_BATCH_MAX, load_image
from statemachine.store.metadata_tables import MetadataTables
from statemachine.store.store import MetadataStore
from statemachine.tables.database import create_in
from tests.effort import examples
from tests.snapshot.builders import overwrite
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
    topic,
)
from tests.statemachine.snapshots import content, filled, load, posix_snapshots, snapshot_of
from tests.statemachine.store.test_store_model import RUNS as ANY_RUNS
from tests.statemachine.store.test_store_model import possible

POINT = OffsetAndEpoch(epoch=Epoch(1), offset=Offset(7))
STATE = MetadataRecord(applied_state=AppliedStateRecord(digest=bytes(16)))


def empty(path: Path) -> MetadataStore:
    return MetadataStore.open(path, CLUSTER_ID)


def written(snapshots: SnapshotStore, bodies: Sequence[bytes], cluster_id: str = CLUSTER_ID) -> OffsetAndEpoch:
    """A whole snapshot with these data batches."""
    writer = snapshots.create(POINT, SnapshotHeader(5, cluster_id))
    assert writer is not None
    with writer:
        for body in bodies:
            writer.append(body, count(body))
        writer.freeze()
    return POINT


def count(body: bytes) -> int:
    try:
        return len(MetadataBatch.FromString(body).records)
    except DecodeError:
        return 1


def encoded(*records: MetadataRecord) -> bytes:
    return MetadataBatch(records=records).SerializeToString()


@settings(max_examples=examples(100), deadline=None)
@given(runs=ANY_RUNS, later=ANY_RUNS)
def test_what_is_loaded_is_what_was_applied_and_goes_on_the_same(
    runs: list[list[MetadataRecord]], later: list[list[MetadataRecord]]
) -> None:
    kept = possible(runs + later)
    log = log_of(kept)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        snapshots = posix_snapshots(directory / "snapshots")
        with (
            closing(filled(directory / "a.db", log[: len(runs)])) as store,
            closing(empty(directory / "b.db")) as other,
        ):
            point = snapshot_of(store, snapshots)
            with snapshots.open(point) as reader:
                load(other, reader)
            assert content(other.reader) == content(store.reader)
            assert (other.applied, other.state_digest) == (store.applied, store.state_digest)
            for each in (store, other):
                each.apply(log)
            assert content(other.reader) == content(store.reader)


@settings(max_examples=examples(50), deadline=None)
@given(runs=ANY_RUNS, cut=st.integers(0, 12))
def test_sn06_the_bytes_of_a_snapshot_depend_on_the_state_alone(runs: list[list[MetadataRecord]], cut: int) -> None:
    log = log_of(possible(runs))
    with tempfile.TemporaryDirectory() as name:
        made = []
        for turn, parts in enumerate(([log], [log[:cut], log[cut:]])):
            directory = Path(name) / str(turn)
            directory.mkdir()
            snapshots = posix_snapshots(directory / "snapshots")
            with closing(empty(directory / "metadata.db")) as store:
                for part in parts:
                    store.apply(part)
                path = snapshots.path_of(snapshot_of(store, snapshots))
            made.append(Path(path).read_bytes())
        assert made[0] == made[1]


def test_sn33_records_come_in_a_fixed_order_at_most_1024_in_a_batch(tmp_path: Path) -> None:
    snapshots = posix_snapshots(tmp_path / "snapshots")
    runs = [[topic(f"t{number}", number) for number in range(1, 900)], [partition(1, number) for number in range(500)]]
    with closing(filled(tmp_path / "metadata.db", log_of(runs))) as store:
        point = snapshot_of(store, snapshots)
    with snapshots.open(point) as reader:
        batches = [MetadataBatch.FromString(batch_body(batch)).records for batch in reader.batches()]
    assert [len(records) for records in batches] == [RECORDS_PER_BATCH_MAX, 1 + 899 + 500 - RECORDS_PER_BATCH_MAX]
    kinds = [record.WhichOneof("record") for records in batches for record in records]
    assert kinds == ["applied_state", *["topic"] * 899, *["partition"] * 500]


def test_sn33_the_order_is_that_of_the_keys_whatever_order_they_came_in(tmp_path: Path) -> None:
    """Also where SQLite keeps the rows in another order: it promises none without an ORDER BY."""
    numbers = [3, 1, 12, 2]
    runs = [
        [topic(name, number) for name, number in zip("acbd", numbers, strict=True)],
        [partition(number, partition_id) for partition_id in (2, 10, 0) for number in numbers],
        [broker(number) for number in (10, 9, 2)],
        [config(name, key, "1", kind) for key in ("y", "x") for name in ("b", "10", "9") for kind in (TOPIC, BROKER)],
    ]
    snapshots = posix_snapshots(tmp_path / "snapshots")
    with closing(filled(tmp_path / "metadata.db", log_of(runs))) as store:
        connection = store._tables.connection
        tables = ("brokers", "topics", "partitions", "configs")
        for table in tables:  # the same rows, in tables that keep them in the order in which they came
            rows = connection.execute(f"SELECT * FROM {table} ORDER BY 1 DESC, 2 DESC").fetchall()
            columns = ", ".join(name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})"))
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"CREATE TABLE {table} ({columns})")
            marks = ", ".join("?" * len(columns.split(", ")))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        point = snapshot_of(store, snapshots)
    with snapshots.open(point) as reader:
        (only,) = (MetadataBatch.FromString(batch_body(each)).records for each in reader.batches())
    kinds = [record.WhichOneof("record") for record in only]
    assert kinds == ["applied_state", *["register_broker"] * 3, *["topic"] * 4, *["partition"] * 12, *["config"] * 12]
    by_id = sorted(numbers)
    assert [record.register_broker.broker_id for record in only[1:4]] == [2, 9, 10]
    assert [record.topic.topic_id for record in only[4:8]] == [an_id(number) for number in by_id]
    assert [(record.partition.topic_id, record.partition.partition_id) for record in only[8:20]] == [
        (an_id(number), partition_id) for number in by_id for partition_id in (0, 2, 10)
    ]
    assert [(record.config.resource_type, record.config.resource_name, record.config.name) for record in only[20:]] == [
        (kind, name, key) for kind in (TOPIC, BROKER) for name in ("10", "9", "b") for key in ("x", "y")
    ]


def test_tables_that_were_filled_know_all_that_the_snapshot_says(tmp_path: Path) -> None:
    """Not only their rows, from which another connection reads: also the state from which they continue."""
    snapshots = posix_snapshots(tmp_path / "snapshots")
    state = AppliedStateRecord(digest=bytes([3]) * 16, state_digest_end_offset=6, state_digest=bytes([4]) * 16)
    point = written(snapshots, [encoded(MetadataRecord(applied_state=state))])
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection, snapshots.open(point) as reader:
        create_in(connection, CLUSTER_ID)
        tables = MetadataTables(connection)
        load_image(reader, tables)
        assert tables.applied == (7, 1, "03" * 16)
        assert tables.state_digest == (6, bytes([4]) * 16)
        assert tables.take_state_digests() == []
        row = "SELECT end_offset, epoch, timestamp_ms, digest, state_digest_end_offset, state_digest FROM applied"
        assert connection.execute(row).fetchone() == (7, 1, 5, "03" * 16, 6, "04" * 16)
        assert tables._timestamp_ms == 5
        reloaded = MetadataTables(connection)
        assert (reloaded.applied, reloaded.state_digest) == (tables.applied, tables.state_digest)
        tables.apply([batch(7, [no_op()])])
        assert connection.execute(row).fetchone()[:3] == (8, 1, 1)


def test_large_records_make_smaller_batches(tmp_path: Path) -> None:
    snapshots = posix_snapshots(tmp_path / "snapshots")
    records = [config("a", f"config-{number:03}", "v" * 32_000) for number in range(100)]
    with closing(filled(tmp_path / "metadata.db", [batch(0, records)])) as store:
        point = snapshot_of(store, snapshots)
        before = content(store.reader)
    with snapshots.open(point) as reader, closing(empty(tmp_path / "other.db")) as other:
        sizes = [len(batch.data) for batch in reader.batches()]
        load(other, reader)
        assert content(other.reader) == before
    assert len(sizes) == 4
    assert max(sizes) < BATCH_BYTES_SOFT_MAX + 64_000


def test_the_header_has_the_time_of_the_last_batch_below_the_end(tmp_path: Path) -> None:
    snapshots = posix_snapshots(tmp_path / "snapshots")
    with closing(filled(tmp_path / "metadata.db", [batch(0, [no_op()], epoch=3)])) as store:
        point = snapshot_of(store, snapshots)
    assert point == OffsetAndEpoch(epoch=Epoch(3), offset=Offset(1))
    with snapshots.open(point) as reader:
        assert reader.header == SnapshotHeader(1, CLUSTER_ID)


MARKERS: dict[str, Any] = {
    "begin_transaction": BeginTransactionRecord(),
    "end_transaction": EndTransactionRecord(),
    "abort_transaction": AbortTransactionRecord(),
}
"""CT-16: illegal in a snapshot."""


@pytest.mark.parametrize(
    ("bodies", "cluster_id", "reason"),
    [
        ([encoded(STATE)], "MkU3OEVBNTcwNTJENDM2Qg", "is of cluster MkU3"),
        ([], CLUSTER_ID, "does not have the applied state of its state machine"),
        ([encoded(topic("a", 1))], CLUSTER_ID, "does not have the applied state of its state machine"),
        ([encoded(STATE), b"\x0f"], CLUSTER_ID, "no MetadataBatch"),
        ([encoded(STATE), encoded(partition(1))], CLUSTER_ID, "cannot be applied"),
        ([encoded(STATE), encoded(STATE)], CLUSTER_ID, "cannot be applied"),
        ([encoded(STATE, topic("a", 1)), encoded(topic("a", 2))], CLUSTER_ID, "cannot be applied"),
        *(
            ([encoded(STATE), encoded(MetadataRecord(**{marker: record}), topic("a", 1))], CLUSTER_ID, marker)
            for marker, record in MARKERS.items()
        ),
        (
            [encoded(MetadataRecord(applied_state=AppliedStateRecord(digest=b"short")))],
            CLUSTER_ID,
            "not 16 bytes long",
        ),
    ],
)
def test_a_snapshot_that_holds_something_else_is_refused_and_changes_nothing(
    tmp_path: Path, bodies: list[bytes], cluster_id: str, reason: str
) -> None:
    snapshots = posix_snapshots(tmp_path / "snapshots")
    point = written(snapshots, bodies, cluster_id)
    with closing(filled(tmp_path / "metadata.db")) as store:
        before = content(store.reader)
        with snapshots.open(point) as reader, pytest.raises(CorruptSnapshot, match=reason):
            store.load(reader)
        assert content(store.reader) == before
        store.apply([batch(store.applied_end_offset, [topic("more", 9)])])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata.db", "snapshots"]


def test_a_snapshot_that_is_damaged_at_its_end_changes_nothing(tmp_path: Path) -> None:
    snapshots = posix_snapshots(tmp_path / "snapshots")
    with closing(filled(tmp_path / "other.db")) as store:
        point = snapshot_of(store, snapshots)
    path = Path(snapshots.path_of(point))
    overwrite(path, path.read_bytes()[:-1])
    with closing(empty(tmp_path / "metadata.db")) as store:
        with snapshots.open(point) as reader, pytest.raises(CorruptSnapshot, match="damaged"):
            store.load(reader)
        assert store.applied_end_offset == 0
        assert store.reader.execute("SELECT count(*) FROM topics").fetchone() == (0,)
