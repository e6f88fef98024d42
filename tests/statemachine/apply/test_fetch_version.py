"""Which metadata.version allows which version of Fetch (CT-62)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.types import Offset
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from statemachine.apply.fetch_version import FetchVersionGate, allowed_fetch_version
from statemachine.store.store import MetadataStore
from statemachine.words.features import METADATA_VERSION
from tests.statemachine.builders import log_of, no_op, partition, topic
from tests.statemachine.snapshots import filled, load, posix_snapshots, snapshot_of


def level(metadata_version: int) -> MetadataRecord:
    return MetadataRecord(feature_level=FeatureLevelRecord(name=METADATA_VERSION, level=metadata_version))


def test_ct62_a_node_that_knows_no_metadata_version_yet_goes_by_the_lowest(store: MetadataStore) -> None:
    assert allowed_fetch_version(store) == 17


@pytest.mark.parametrize(("metadata_version", "expected"), [(7, 17), (26, 17), (27, 18), (29, 18)])
def test_ct62_version_18_comes_with_metadata_version_27(
    store: MetadataStore, metadata_version: int, expected: int
) -> None:
    store.apply(log_of([[level(metadata_version)]]))
    assert allowed_fetch_version(store) == expected


def test_ct62_the_log_is_told_of_each_change_and_of_nothing_else(store: MetadataStore) -> None:
    told: list[int] = []
    gate = FetchVersionGate(store, told.append)
    steps = [[level(26)], [level(29)], [topic("clicks", 1)], [level(28)], [level(26)]]
    after_each = []
    for batch in log_of(steps):
        store.apply([batch])
        gate.applied(Offset(batch.end_offset))
        after_each.append(list(told))
    assert after_each == [[], [18], [18], [18], [18, 17]]


def test_the_database_is_asked_only_when_features_have_changed(store: MetadataStore) -> None:
    told: list[int] = []
    asked: list[str] = []
    gate = FetchVersionGate(store, told.append)
    store.reader.set_trace_callback(asked.append)
    after_each = []
    for batch in log_of([[topic("clicks", 1)], [level(29)], [partition(1)], [no_op()], [level(26)]]):
        store.apply([batch])
        gate.applied(Offset(batch.end_offset))
        after_each.append((len(asked), list(told)))
    assert after_each == [(0, []), (1, [18]), (1, [18]), (1, [18]), (2, [18, 17])]


def test_ct62_a_snapshot_that_takes_the_databases_place_is_asked(store: MetadataStore, tmp_path: Path) -> None:
    snapshots = posix_snapshots(tmp_path)
    with closing(filled(tmp_path / "other.db", log_of([[level(29)]]))) as other:
        snapshot_id = snapshot_of(other, snapshots)
    told: list[int] = []
    gate = FetchVersionGate(store, told.append)
    with snapshots.open(snapshot_id) as reader:
        load(store, reader)
    gate.applied(store.applied_end_offset)
    assert told == [18]
