"""What a controller appends when it becomes active: CT-14 as a pure function."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraftlog.controller.operations.activation import activation_records
from tests.statemachine.builders import broker, topic
from tests.statemachine.states import Metadata, metadata

FIRST_LEVELS = ["begin_transaction", "feature_level", "feature_level", "end_transaction"]
"""Of a new cluster, as one batch."""


def kinds(state: Metadata, *, has_open_transaction: bool) -> list[Sequence[str | None]]:
    """The kinds of the records that it appends over that state, batch by batch."""
    batches = activation_records(state, has_open_transaction=has_open_transaction)
    return [[record.WhichOneof("record") for record in batch] for batch in batches]


def test_ct14_an_empty_log_gets_the_first_levels_in_a_transaction() -> None:
    assert kinds(Metadata(), has_open_transaction=False) == [FIRST_LEVELS]


def test_ct14_a_transaction_that_was_left_open_is_aborted_and_the_first_levels_come_again() -> None:
    assert kinds(Metadata(), has_open_transaction=True) == [["abort_transaction"], FIRST_LEVELS]


@pytest.mark.parametrize("state", [metadata(), Metadata().commit(topic("a", 1)), Metadata().commit(broker(1))])
def test_ct14_a_cluster_that_has_levels_topics_or_brokers_is_not_new(state: Metadata) -> None:
    assert kinds(state, has_open_transaction=False) == []
    assert kinds(state, has_open_transaction=True) == [["abort_transaction"]]
