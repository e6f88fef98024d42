"""Which metadata.version allows which version of Fetch (CT-62)."""

from __future__ import annotations

import pytest

from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from raft.core.types import Offset
from statemachine.features import METADATA_VERSION
from statemachine.fetch_version import FetchVersionGate, allowed_fetch_version
from statemachine.store import MetadataStore
from tests.statemachine.builders import log_of, topic


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
