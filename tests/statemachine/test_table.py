"""How rows are found by their keys."""

from __future__ import annotations

import pytest

from statemachine.store.store import MetadataStore
from statemachine.tables.cluster_tables import CONFIGS
from tests.statemachine.builders import TOPIC, batch, config


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 137])
def test_many_rows_are_found_by_their_keys_whatever_their_number(store: MetadataStore, count: int) -> None:
    names = [f"topic-{number}" for number in range(count)]
    store.apply([batch(0, [config(name, "retention.ms", name) for name in [*names, "another"]])])
    keys = [(TOPIC, name, "retention.ms") for name in names]
    absent = [(TOPIC, f"no-{name}", "retention.ms") for name in names]
    found = list(CONFIGS.get_rows(store.reader, [key for pair in zip(absent, keys, strict=True) for key in pair]))
    assert sorted(found) == sorted((TOPIC, name, "retention.ms", name) for name in names)
