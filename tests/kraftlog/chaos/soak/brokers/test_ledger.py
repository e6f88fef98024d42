"""A ledger of partitions whose oldest records are deleted."""

from __future__ import annotations

import pytest

from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.soak.brokers.ledger import RetainedLedger

AT = At("three", 0)


@pytest.fixture
def ledger() -> RetainedLedger:
    ledger = RetainedLedger()
    for offset, key in enumerate("abcdef"):
        ledger.acknowledge(AT, offset, key)
        ledger.read(AT, offset, key)
    return ledger


def test_what_was_read_before_retention_deleted_it_is_forgotten(ledger: RetainedLedger) -> None:
    ledger.forget(AT, 4)
    assert ledger.compare_all(AT, {4: "e", 5: "f"}) == 0
    assert ledger.violations == []


def test_a_record_from_the_start_of_the_log_on_must_be_there(ledger: RetainedLedger) -> None:
    ledger.forget(AT, 4)
    assert ledger.compare_all(AT, {5: "f"}) == 1
    assert "acknowledged and lost: e at 4 of three-0" in ledger.violations[0]


def test_a_record_that_was_deleted_unread_is_lost(ledger: RetainedLedger) -> None:
    ledger.acknowledge(AT, 6, "g")
    assert ledger.unread() == 1
    ledger.forget(AT, 7)
    assert ledger.violations == ["acknowledged and never read: g at 6 of three-0"]
    assert ledger.counts["acknowledged and lost"] == 1


def test_a_reader_that_retention_leaves_behind_is_no_loss(ledger: RetainedLedger) -> None:
    ledger.acknowledge(AT, 6, "g")
    ledger.skip(AT, 6, 8)
    assert ledger.unread() == 0
    ledger.forget(AT, 8)
    assert (ledger.violations, ledger.counts["deleted before a reader came"]) == ([], 2)


def test_an_acknowledgement_without_an_offset_is_one_of_a_record_that_was_read(ledger: RetainedLedger) -> None:
    ledger.acknowledge(AT, UNKNOWN_OFFSET, "f")
    ledger.acknowledge(AT, UNKNOWN_OFFSET, "g")
    ledger.read(AT, 6, "g")
    ledger.acknowledge(AT, UNKNOWN_OFFSET, "h")
    ledger.forget(AT, 7)
    assert ledger.compare_all(AT, {}) == 1
    assert ledger.violations == ["acknowledged and lost: h of three-0, which a broker called a duplicate"]


def test_a_part_that_was_read_back_is_compared_alone(ledger: RetainedLedger) -> None:
    assert ledger.compare(AT, {2: "c", 3: "d"}, below=4, start=2) == 0
    assert ledger.compare(AT, {2: "c", 4: "e"}, below=5, start=2) == 1
    assert "acknowledged and lost: d at 3 of three-0" in ledger.violations[0]
