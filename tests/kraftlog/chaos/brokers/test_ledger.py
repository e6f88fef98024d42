"""What clients were told is compared, whatever comes first, and whatever contradicts it is a violation."""

from __future__ import annotations

import pytest

from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftlog.chaos.brokers.ledger import At, Ledger

AT, OTHER = At("three", 0), At("three", 1)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_what_agrees_is_counted(ledger: Ledger) -> None:
    ledger.acknowledge(AT, 0, "0.0:0")
    ledger.read(AT, 0, "0.0:0")
    ledger.read(AT, 0, "0.0:0")
    ledger.read(AT, 1, "0.0:1")
    ledger.lose_track()
    assert ledger.compare_all(AT, {0: "0.0:0", 1: "0.0:1", 2: "0.0:2"}) == 0
    assert (ledger.counts["acknowledged"], ledger.counts["read"], ledger.counts["unknown"]) == (1, 3, 1)
    assert ledger.violations == []


def test_what_was_acknowledged_and_is_not_there_is_lost(ledger: Ledger) -> None:
    ledger.acknowledge(AT, 3, "0.0:3")
    ledger.acknowledge(OTHER, 3, "0.0:4")
    assert ledger.compare_all(AT, {3: "0.0:9"}) == 1
    assert ledger.compare_all(OTHER, {}) == 1
    assert ledger.counts["acknowledged and lost"] == 2
    assert ledger.violations[0] == "acknowledged and lost: 0.0:3 at 3 of three-0; found 0.0:9"


def test_what_was_read_and_is_not_there_is_a_violation_but_no_lost_acknowledgement(ledger: Ledger) -> None:
    ledger.read(AT, 3, "0.0:3")
    assert ledger.compare_all(AT, {}) == 0
    assert ledger.violations == ["read and lost: 0.0:3 at 3 of three-0; found None"]


def test_amid_faults_only_what_could_be_read_back_is_compared(ledger: Ledger) -> None:
    ledger.acknowledge(AT, 0, "0.0:0")
    ledger.acknowledge(AT, 1, "0.0:1")
    assert ledger.compare(AT, {0: "0.0:0"}, below=1) == 0
    assert ledger.compare(AT, {1: "0.0:1"}, below=2) == 1


def test_two_records_at_one_offset_contradict_each_other(ledger: Ledger) -> None:
    ledger.read(AT, 0, "0.0:0")
    ledger.acknowledge(AT, 0, "0.0:1")
    ledger.read(AT, 0, "0.0:2")
    ledger.read(OTHER, 0, "0.0:3")
    assert ledger.counts["contradictions"] == len(ledger.violations) == 3
    assert ledger.violations[0] == "two records at 0 of three-0: a reader got 0.0:0, then acknowledged 0.0:1"


def test_a_record_that_a_broker_has_already_must_be_somewhere(ledger: Ledger) -> None:
    ledger.acknowledge(AT, UNKNOWN_OFFSET, "0.0:0")
    ledger.acknowledge(AT, UNKNOWN_OFFSET, "0.0:1")
    assert ledger.compare_all(AT, {7: "0.0:1"}) == 1
    assert ledger.violations == ["acknowledged and lost: 0.0:0 of three-0, which a broker called a duplicate"]


def test_records_that_are_there_twice_are_counted(ledger: Ledger) -> None:
    assert ledger.compare_all(AT, {0: "0.0:0", 1: "0.0:1", 2: "0.0:0"}) == 0
    assert (ledger.counts["written twice"], ledger.violations) == (1, [])


def test_a_high_watermark_never_goes_back_in_an_epoch_nor_from_one_to_the_next(ledger: Ledger) -> None:
    for at, leader_epoch, high_watermark in ((AT, 1, 5), (OTHER, 1, 1), (AT, 3, 7), (AT, 3, 7), (AT, 2, 5)):
        ledger.see_high_watermark(at, leader_epoch, high_watermark)
    assert ledger.violations == []
    ledger.see_high_watermark(AT, 3, 6)
    ledger.see_high_watermark(AT, 4, 6)
    assert (ledger.counts["high watermarks"], ledger.counts["high watermarks that went back"]) == (7, 2)
    assert ledger.violations == [
        "the leader of three-0 in epoch 3 answered high watermark 6; in epoch 3 it was 7",
        "the leader of three-0 in epoch 4 answered high watermark 6; in epoch 3 it was 7",
    ]


def test_a_leader_that_is_deposed_and_does_not_know_may_tell_less(ledger: Ledger) -> None:
    ledger.see_high_watermark(AT, 4, 9)
    ledger.see_high_watermark(AT, 3, 8)
    assert ledger.violations == []


def test_a_reader_must_find_all_that_was_acknowledged_or_read(ledger: Ledger) -> None:
    ledger.acknowledge(AT, 3, "0.0:3")
    ledger.read(AT, 5, "0.0:5")
    ledger.acknowledge(OTHER, UNKNOWN_OFFSET, "0.0:0")
    assert ledger.offsets_to_find() == {AT: 6}


def test_a_producer_that_fails_is_noted_and_no_violation(ledger: Ledger) -> None:
    ledger.note("producer 0.0 cannot go on")
    assert (ledger.notes, ledger.violations) == (["producer 0.0 cannot go on"], [])
    ledger.break_rule("a client ended")
    assert ledger.violations == ["a client ended"]


def test_many_violations_are_counted_and_some_are_told(ledger: Ledger) -> None:
    for offset in range(100):
        ledger.read(AT, offset, "0.0:1")
        ledger.read(AT, offset, "0.0:2")
    assert ledger.counts["violations"] == 100
    assert len(ledger.violations) < 100
