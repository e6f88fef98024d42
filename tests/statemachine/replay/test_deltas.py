"""The content of a delta: the net change of each run, with values before and after, and the cost of looking them up."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionChangeRecord
from raft.listener import CommittedBatch
from statemachine.replay.changes import Changes
from statemachine.replay.deltas import Change, MetadataDelta
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.cluster_tables import (
    ACLS,
    BROKERS,
    CLIENT_QUOTAS,
    CONFIGS,
    CONTROLLERS,
    FEATURES,
    PRODUCER_IDS,
)
from statemachine.tables.database import create_in
from statemachine.tables.remote_log_tables import REMOTE_EPOCH_ENDS, REMOTE_PARTITION_DELETES, REMOTE_SEGMENTS
from statemachine.tables.table import Table
from statemachine.tables.topic_tables import PARTITIONS, TOPICS
from tests.statemachine.builders import CLUSTER_ID, an_id, batch, broker, config, log_of, no_op, partition, topic
from tests.statemachine.builders import remove_topic as remove
from tests.statemachine.remote_logs import FINISHED, MARKED, STARTED, copied, deleting, segment
from tests.statemachine.replay.test_transactions import ABORT, BEGIN, END
from tests.statemachine.sample_cluster import SAMPLE
from tests.statemachine.store.test_store_model import RUNS, possible

TABLE_OF: Final[dict[str, Table[Any]]] = {
    "features": FEATURES,
    "controllers": CONTROLLERS,
    "brokers": BROKERS,
    "topics": TOPICS,
    "partitions": PARTITIONS,
    "configs": CONFIGS,
    "client_quotas": CLIENT_QUOTAS,
    "producer_ids": PRODUCER_IDS,
    "acls": ACLS,
    "remote_segments": REMOTE_SEGMENTS,
    "remote_epoch_ends": REMOTE_EPOCH_ENDS,
    "remote_partition_deletes": REMOTE_PARTITION_DELETES,
}


class Watched:
    """Tables in memory, and the deltas of the batches applied to them."""

    def __init__(self, *runs: Sequence[MetadataRecord]) -> None:
        """`runs` are applied before."""
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self.connection.close)
        create_in(self.connection, CLUSTER_ID)
        self.tables = MetadataTables(self.connection)
        self.tables.apply(log_of(runs))

    def apply(self, *batches: CommittedBatch) -> list[MetadataDelta]:
        self.tables.apply(batches, note_delta=True)
        return self.tables.take_deltas()

    def run(self, *records: MetadataRecord) -> MetadataDelta:
        """The delta of a run of one batch, which must have one."""
        (delta,) = self.apply(batch(self.tables.applied.end_offset, records))
        return delta


def partitions_of(number: int, count: int) -> list[MetadataRecord]:
    return [topic(f"topic-{number}", number), *(partition(number, index) for index in range(count))]


def moved(number: int, partition_id: int, leader: int) -> MetadataRecord:
    change = PartitionChangeRecord(topic_id=an_id(number), partition_id=partition_id, leader=leader)
    return MetadataRecord(partition_change=change)


def test_a_delta_has_a_field_for_each_kind_of_metadata() -> None:
    assert {field.name for field in fields(MetadataDelta)} == {"end_offset", *TABLE_OF}


def test_what_was_made_has_nothing_before() -> None:
    watched = Watched()
    delta = watched.run(*SAMPLE)
    assert delta.end_offset == len(SAMPLE)
    for name, table in TABLE_OF.items():
        made = [record for _, record in table.find(watched.connection)]
        assert made, f"the sample has no {name}"
        assert sorted(map(repr, getattr(delta, name))) == sorted(repr(Change(None, record)) for record in made), name


def test_what_changed_is_there_as_it_was_and_as_it_is() -> None:
    watched = Watched([*partitions_of(1, 3), broker(1), config("topic-1", "retention.ms", "1")])
    delta = watched.run(moved(1, 1, 2), broker(1, fenced=True), config("topic-1", "retention.ms", "2"))
    (change,) = delta.partitions
    assert change.before is not None and change.after is not None
    assert (change.before.partition_id, change.before.leader, change.after.leader) == (1, 1, 2)
    assert [(of.before and of.before.fenced, of.after and of.after.fenced) for of in delta.brokers] == [(False, True)]
    assert [(of.before and of.before.value, of.after and of.after.value) for of in delta.configs] == [("1", "2")]
    assert (delta.topics, delta.features) == ((), ())


def test_a_topics_partitions_and_configs_go_with_it_one_by_one() -> None:
    watched = Watched(partitions_of(1, 3), partitions_of(2, 2), [config("topic-1", "retention.ms", "1")])
    delta = watched.run(remove(1))
    assert [(of.before and of.before.name, of.after) for of in delta.topics] == [("topic-1", None)]
    gone = [(of.before and (of.before.topic_id, of.before.partition_id), of.after) for of in delta.partitions]
    assert gone == [((an_id(1), index), None) for index in range(3)]
    assert [(of.before and of.before.name, of.after) for of in delta.configs] == [("retention.ms", None)]


def test_a_delta_is_the_net_change_of_its_run() -> None:
    watched = Watched(partitions_of(1, 1))
    delta = watched.run(*partitions_of(2, 2), moved(1, 0, 2), moved(1, 0, 1), moved(1, 0, 2), remove(2))
    assert (delta.topics, len(delta.partitions)) == ((), 1)
    (change,) = delta.partitions
    assert change.before is not None and change.after is not None
    assert (change.before.leader_epoch, change.after.leader_epoch, change.after.leader) == (0, 3, 2)


def test_what_goes_with_its_topic_and_comes_again_has_changed_once() -> None:
    watched = Watched([topic("a", 1), config("a", "retention.ms", "1"), config("a", "segment.ms", "1")])
    delta = watched.run(remove(1), topic("a", 2), config("a", "retention.ms", "2"), config("a", "segment.ms", "1"))
    assert [(of.before and of.before.value, of.after and of.after.value) for of in delta.configs] == [("1", "2")]
    assert [(of.before is None, of.after is None) for of in delta.topics] == [(False, True), (True, False)]


@pytest.mark.parametrize("topic_first", [True, False])
def test_what_goes_with_its_partition_and_with_its_topic_goes_once(topic_first: bool) -> None:
    watched = Watched(partitions_of(1, 1), copied(segment(1, 0, 9)), [deleting(MARKED)])
    deletions = [deleting(STARTED), deleting(FINISHED)]
    delta = watched.run(*([remove(1), *deletions] if topic_first else [*deletions, remove(1)]))
    assert [(of.before and of.before.highest_offset, of.after) for of in delta.remote_epoch_ends] == [(9, None)]
    assert (len(delta.topics), len(delta.partitions), len(delta.remote_segments)) == (1, 1, 1)


@pytest.mark.parametrize(
    "records",
    [[no_op()], [topic("b", 2), remove(2)], [config("topic-1", "x", "1"), config("topic-1", "x", None)], [broker(1)]],
    ids=["no-op", "made and removed", "set and deleted", "set to what it is"],
)
def test_a_run_that_changes_nothing_has_no_delta(records: list[MetadataRecord]) -> None:
    watched = Watched([*partitions_of(1, 1), broker(1)])
    assert watched.apply(batch(watched.tables.applied.end_offset, records)) == []


def test_ct16_a_transaction_has_one_delta_at_its_end_and_an_aborted_one_none() -> None:
    watched = Watched()
    begun, ended, aborted = log_of(
        [[BEGIN, topic("a", 1)], [topic("b", 2), END], [BEGIN, topic("c", 3), ABORT]],
    )
    assert watched.apply(begun) == []
    (delta,) = watched.apply(ended)
    assert [of.after and of.after.name for of in delta.topics] == ["a", "b"]
    assert delta.end_offset == 4
    assert watched.apply(aborted) == []


@given(RUNS, st.data())
def test_whoever_starts_with_nothing_and_follows_the_deltas_has_the_state(
    runs: list[list[MetadataRecord]], data: st.DataObject
) -> None:
    watched = Watched()
    followed: dict[str, dict[Any, Any]] = {name: {} for name in TABLE_OF}
    batches = log_of(possible(runs))
    while batches:
        count = data.draw(st.integers(1, len(batches)))
        taken, batches = batches[:count], batches[count:]
        for delta in watched.apply(*taken):
            assert delta.end_offset == taken[-1].end_offset
            for name, table in TABLE_OF.items():
                for change in getattr(delta, name):
                    key = table.key_of(change.before if change.after is None else change.after)
                    assert followed[name].pop(key, None) == change.before
                    assert change.before != change.after
                    if change.after is not None:
                        followed[name][key] = change.after
        for name, table in TABLE_OF.items():
            assert followed[name] == dict(table.find(watched.connection)), name


def steps_of_one_change(partition_count: int) -> int:
    """How many instructions SQLite executes for a run that changes one of this many partitions."""
    watched = Watched(partitions_of(1, partition_count))
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    watched.connection.set_progress_handler(count, 1)
    watched.run(moved(1, 0, 2))
    return steps


def test_what_a_delta_costs_depends_on_the_change_and_not_on_the_state() -> None:
    assert 0 < steps_of_one_change(2_000) <= steps_of_one_change(10) + 20


def test_nothing_is_looked_up_for_deltas_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(partitions_of(1, 2))
    monkeypatch.delattr(Changes, "differences")
    watched.tables.apply([batch(watched.tables.applied.end_offset, [moved(1, 0, 2)])])
    assert watched.tables.take_deltas() == []
