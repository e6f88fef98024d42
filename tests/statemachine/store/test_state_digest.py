"""The digests that nodes compare: of the log and of the effects of its records, at the same offsets everywhere."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlite_utils import Database

from kraftbase.types import Offset
from kraftlog.sim.engine.tables_in_memory import empty_image, tables_in_memory
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.types import StateDigest
from statemachine.replay import replay
from statemachine.replay.changes import Changes
from statemachine.replay.view import View
from statemachine.store.metadata_tables import STATE_DIGEST_INTERVAL_OFFSETS, MetadataTables, StoreUnavailable
from statemachine.store.store import MetadataStore
from tests.effort import examples
from tests.statemachine.builders import (
    CLUSTER_ID,
    WithoutRecords,
    batch,
    broker,
    config,
    log_of,
    no_op,
    partition,
    remove_topic,
    topic,
)
from tests.statemachine.store.test_store_model import RUNS, possible

ONE_OF_EACH = [
    topic("a", 1),
    partition(1),
    config("a", "retention.ms", "1"),
    config("a", "retention.ms", None),
    broker(1),
    remove_topic(1),
]
INTERVAL = 3


def tables(image: bytes | None = None, digest_interval: int = INTERVAL) -> MetadataTables:
    return tables_in_memory(empty_image(CLUSTER_ID) if image is None else image, digest_interval=digest_interval)


@settings(max_examples=examples(100), deadline=None)
@given(runs=RUNS, cuts=st.lists(st.integers(1, 4), min_size=1), restarts=st.booleans())
def test_invariant_26_however_batches_are_grouped_the_same_state_digests_come_up(
    runs: list[list[MetadataRecord]], cuts: list[int], restarts: bool
) -> None:
    log = log_of(possible(runs))
    at_once, grouped = tables(), tables()
    at_once.apply(log)
    taken: list[StateDigest] = []
    start, turn = 0, 0
    while start < len(log):
        end = start + cuts[turn % len(cuts)]
        grouped.apply(log[max(0, start - 1) : end])  # a batch that is applied already, too
        taken += grouped.take_state_digests()
        start, turn = end, turn + 1
        if restarts:
            grouped = tables(grouped.connection.serialize())
    assert taken == at_once.take_state_digests()
    assert grouped.applied == at_once.applied
    assert grouped.state_digest == at_once.state_digest == (taken[-1] if taken else None)


def test_a_state_digest_is_put_by_at_the_first_batch_that_reaches_or_passes_each_multiple() -> None:
    log = log_of([[no_op()] * count for count in (2, 1, 1, 1, 8, 1, 1)])  # ends at 2, 3, 4, 5, 13, 14, 15
    made = tables()
    made.apply(log)
    digests = made.take_state_digests()
    assert [digest.end_offset for digest in digests] == [3, 13, 15]
    assert digests[-1].digest.hex() == made.applied.digest
    assert made.take_state_digests() == []


def test_by_default_they_are_a_thousand_offsets_apart(store: MetadataStore) -> None:
    assert STATE_DIGEST_INTERVAL_OFFSETS == 1_000
    store.apply([batch(0, [no_op()] * 999), batch(999, [no_op()]), batch(1_000, [no_op()])])
    assert [digest.end_offset for digest in store.take_state_digests()] == [1_000]


def test_the_last_state_digest_is_known_again_after_a_restart(database: Path) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.state_digest is None
        store.apply([batch(0, [no_op()] * 1_001)])
        digest = store.state_digest
        assert digest is not None
        store.apply([batch(1_001, [topic("a", 1)])])
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.state_digest == digest == StateDigest(Offset(1_001), digest.digest)
        assert store.take_state_digests() == []
        store.apply([batch(1_002, [no_op()] * 998)])
        assert [later.end_offset for later in store.take_state_digests()] == [2_000]


def test_a_transaction_that_found_no_room_puts_nothing_by(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tables()

    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Changes, "flush", full)
        with pytest.raises(StoreUnavailable):
            made.apply([batch(0, [no_op()] * 3)])
    assert (made.take_state_digests(), made.state_digest) == ([], None)
    made.apply([batch(0, [no_op()] * 3)])
    assert len(made.take_state_digests()) == 1


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: record.WhichOneof("record"))
def test_kafka_14275_a_record_that_is_passed_over_changes_the_digest(record: MetadataRecord) -> None:
    before = [record_before for record_before in ONE_OF_EACH[:3] if record_before != record]
    log = log_of([before[: 1 if record.HasField("partition") else None], [record]])
    if record.HasField("topic"):
        log = log_of([[no_op()], [record]])
    sound, unsound = tables(), tables()
    sound.apply(log)
    unsound.apply([log[0], WithoutRecords(log[1])])  # type: ignore[list-item]
    assert sound.applied.end_offset == unsound.applied.end_offset
    assert sound.applied.digest != unsound.applied.digest
    following = batch(log[-1].end_offset, [no_op()])
    sound.apply([following])
    unsound.apply([following])
    assert sound.applied.digest != unsound.applied.digest  # for good


def test_a_value_that_is_applied_wrongly_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of([[topic("a", 1)], [config("a", "x", "1")]])
    sound, unsound = tables(), tables()
    sound.apply(log)
    put = replay._REPLAY["config"]

    def wrong(view: View, record: Any) -> None:
        record.ClearField("value")
        put(view, record)

    monkeypatch.setitem(replay._REPLAY, "config", wrong)
    unsound.apply(log)
    assert sound.applied.digest != unsound.applied.digest


def test_a_name_that_the_tables_have_wrong_changes_the_digest_when_its_topic_goes() -> None:
    log = log_of([[topic("a", 1)], [remove_topic(1)]])
    sound, unsound = tables(), tables()
    sound.apply(log)
    unsound.apply(log[:1])
    unsound.connection.execute("UPDATE topics SET name = 'b'")
    unsound.apply(log)
    assert sound.applied.digest != unsound.applied.digest


def test_a_database_that_diverged_is_set_aside_at_the_next_start_and_made_anew(database: Path) -> None:
    log = log_of([[topic("a", 1)], [no_op()] * 1_000])
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        store.apply(log)
        store.mark_diverged("it differs from the quorum's at offset 1001")
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert (store.applied_end_offset, store.state_digest) == (0, None)
        store.apply(log)
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.applied_end_offset == 1_001
    with closing(sqlite3.connect(database.with_name("metadata.db.damaged"))) as aside:
        assert aside.execute("SELECT diverged FROM applied").fetchone() == (
            "it differs from the quorum's at offset 1001",
        )


def test_a_database_of_the_version_whose_digest_covered_less_is_made_anew(database: Path) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        store.apply([batch(0, [topic("a", 1)])])
    with closing(sqlite3.connect(database)) as connection:
        Database(connection)["_sqlite_migrations"].delete_where()  # type: ignore[union-attr]
        Database(connection)["_sqlite_migrations"].insert(  # type: ignore[union-attr]
            {"migration_set": "kraftlog", "name": "0001_tables", "applied_at": "2025"}
        )
        connection.execute("ALTER TABLE applied DROP COLUMN diverged")
        connection.commit()
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.applied_end_offset == 0
