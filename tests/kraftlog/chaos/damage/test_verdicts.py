"""What counts as well after a damage, and what does not: each kind of failure is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.contents import Contents, batches
from kraftlog.chaos.damage.damages import BIT, CLOSED_LOG, DELETION, Damage, Setting
from kraftlog.chaos.damage.reading import Reading
from kraftlog.chaos.damage.verdicts import Seen, Verdict, judge, named

ONE, THREE = At("one", 0), At("three", 0)
SETTING = Setting(is_killed=False, is_last=True)
FILE = "one-0/00000000000000000000.index"
INDEX = Damage(7, SETTING, DELETION, FILE, ".index", None, "80 bytes")
BIT_OF_LOG = Damage(
    8, SETTING, BIT, "one-0/00000000000000000000.log", CLOSED_LOG, b"", "byte 70, bit 1", is_hidden=True
)
CHECKPOINT = Damage(9, SETTING, DELETION, "meta.properties", "meta.properties", None, "90 bytes")
COMPLAINT = "timestamp='now' level='error' event='a partition is offline' topic='one' partition=0 reason='x'"


def contents(at: At) -> Contents:
    found = Contents(at, producer_id=5)
    for batch in list(batches(found, 9)):
        found.stored(found.log_end_offset, batch)
    found.log_start_offset = 4
    return found


LEDGER = {at: contents(at) for at in (ONE, THREE)}


def reading(at: At, **changes: Any) -> Reading:
    """What must be read, but for the changes."""
    of = LEDGER[at]
    assert of.last_idempotent is not None
    whole = Reading(
        log_start_offset=4,
        log_end_offset=of.log_end_offset,
        last_stable_offset=of.log_end_offset,
        entries=of.readable,
        committed=of.committed,
        seeks={offset: of.records[offset] for offset in (4, 9)},
        lookups=of.lookups(),
        largest=(of.largest[1], of.largest[0]),
        resent_offset=of.last_idempotent[0],
    )
    return replace(whole, **changes)


def verdict(damage: Damage = INDEX, output: str = "", one: Reading | None = None, **seen: Any) -> Verdict:
    readings = {ONE: one or reading(ONE), THREE: reading(THREE)}
    return judge(
        damage, LEDGER, 101, Seen(**{"readings": readings, "up": {101, 102, 103}, "output": output, **seen})
    ).verdict


def test_all_that_was_acknowledged_is_the_same() -> None:
    assert verdict() is Verdict.SAME
    assert len(LEDGER[ONE].lookups()) >= 3


@pytest.mark.parametrize(
    "changes",
    [
        {"entries": LEDGER[ONE].readable[:3] + LEDGER[ONE].readable[5:]},
        {"entries": [*LEDGER[ONE].readable, LEDGER[ONE].readable[-1]]},
        {"entries": LEDGER[ONE].readable[::-1]},
        {"entries": [LEDGER[ONE].readable[0]._replace(value=b"other"), *LEDGER[ONE].readable[1:]]},
        {"entries": LEDGER[ONE].records, "log_start_offset": 0},
        {"committed": LEDGER[ONE].committed[1:]},
        {"lookups": {timestamp: (timestamp, 0) for timestamp in LEDGER[ONE].lookups()}},
        {"largest": (0, 0)},
        {"seeks": {9: None}},
        {"seeks": {9: LEDGER[ONE].records[10]}},
        {"last_stable_offset": 3},
        {"stuck_at": 9},
        {"resent_offset": LEDGER[ONE].log_end_offset},
        {"resent_error": "OUT_OF_ORDER_SEQUENCE_NUMBER: no"},
        {"bad_batches": ["its CRC is wrong"]},
    ],
)
def test_an_answer_that_is_wrong_without_an_error_is_silent(changes: dict[str, Any]) -> None:
    assert verdict(one=reading(ONE, **changes)) is Verdict.SILENT
    assert verdict(one=reading(ONE, **changes), output=COMPLAINT) is Verdict.SILENT


@pytest.mark.parametrize(
    "seen",
    [
        {"one": reading(ONE, log_end_offset=20, entries=LEDGER[ONE].readable[:9])},
        {"one": reading(ONE, log_start_offset=8, entries=LEDGER[ONE].readable[4:])},
        {"cut": {102: {THREE: [12]}}},
        {"gone": {THREE: [12]}},
    ],
)
@pytest.mark.parametrize("damage", [INDEX, BIT_OF_LOG, CHECKPOINT])
def test_records_that_are_gone_are_lost(seen: dict[str, Any], damage: Damage) -> None:
    assert verdict(damage, COMPLAINT, **seen) is Verdict.LOST


def test_an_error_is_well_only_if_it_is_named_and_where_the_damage_is() -> None:
    refused = Reading(error="it has no leader")
    assert verdict(one=refused, output=COMPLAINT) is Verdict.NAMED
    assert verdict(one=refused) is Verdict.UNNAMED
    assert verdict(one=refused, output=COMPLAINT.replace("topic='one'", "topic='two'")) is Verdict.UNNAMED
    assert verdict(one=refused, output=f"Traceback of {FILE}") is Verdict.UNNAMED
    both = {ONE: refused, THREE: refused}
    assert verdict(readings=both, output=COMPLAINT) is Verdict.UNNAMED
    assert verdict(CHECKPOINT, readings=both, up={102, 103}, output="error: X: meta.properties is bad") is Verdict.NAMED
    assert verdict(INDEX, one=refused, up={102, 103}, output=COMPLAINT) is Verdict.UNNAMED
    assert verdict(CHECKPOINT, up={101, 103}, output="error: X: meta.properties is bad") is Verdict.UNNAMED
    assert verdict(readings={ONE: reading(ONE)}, output=COMPLAINT) is Verdict.UNNAMED


@pytest.mark.parametrize(
    ("damage", "line", "is_named"),
    [
        (INDEX, "level='error' path='/data/partitions/one-0/00000000000000000000.index'", True),
        (INDEX, "level='warning' log='one-0'", True),
        (INDEX, "error: KAFKA_STORAGE_ERROR: one-0 is damaged", True),
        (INDEX, "level='info' log='one-0'", False),
        (INDEX, "level='error' log='one-01'", False),
        (INDEX, "level='error' log='everyone-0'", False),
        (INDEX, "level='error' path='/data/partitions'", False),
        (CHECKPOINT, "error: KAFKA_STORAGE_ERROR: /data/partitions is of broker 102", True),
        (CHECKPOINT, "level='error' path='/data/partitions'", True),
        (CHECKPOINT, "level='error' path='/data/partitions/one-0/00000000000000000000.log'", False),
        (CHECKPOINT, "level='error' path='/data/partitions/meta.properties'", True),
    ],
)
def test_a_complaint_names_the_file_its_partition_or_the_log_directory(
    damage: Damage, line: str, is_named: bool
) -> None:
    assert bool(named(damage, f"Broker 101 is unfenced\n{line}\n")) is is_named


def test_what_was_read_before_an_error_must_be_right() -> None:
    part = reading(ONE, error="KAFKA_STORAGE_ERROR", entries=LEDGER[ONE].readable[:6], committed=[])
    assert verdict(one=part, output=COMPLAINT) is Verdict.NAMED
    skipped = reading(ONE, error="KAFKA_STORAGE_ERROR", entries=LEDGER[ONE].readable[2:6], committed=[])
    assert verdict(one=skipped, output=COMPLAINT) is Verdict.SILENT


def test_what_the_damaged_broker_serves_when_it_leads_counts_as_well() -> None:
    damage = replace(INDEX, file="three-0/00000000000000000000.index")
    assert verdict(damage, again={THREE: reading(THREE)}) is Verdict.SAME
    assert verdict(damage, again={THREE: reading(THREE, entries=LEDGER[THREE].readable[1:])}) is Verdict.SILENT
    assert verdict(damage, again={THREE: reading(THREE, log_end_offset=20)}) is Verdict.LOST
    assert verdict(damage, again={THREE: Reading(error="it has no leader")}) is Verdict.UNNAMED
    bit = replace(BIT_OF_LOG, file="three-0/00000000000000000000.log")
    assert verdict(bit, again={THREE: reading(THREE, bad_batches=["its CRC is wrong"])}) is Verdict.HIDDEN


def test_a_replica_that_stays_out_of_sync_needs_a_reason() -> None:
    damage = replace(INDEX, file="three-0/00000000000000000000.index")
    assert verdict(damage, not_in_sync=[THREE]) is Verdict.UNNAMED
    assert verdict(damage, COMPLAINT.replace("'one'", "'three'"), not_in_sync=[THREE]) is Verdict.NAMED
    assert verdict(INDEX, COMPLAINT, not_in_sync=[THREE]) is Verdict.UNNAMED


def test_a_bit_within_a_batch_is_hidden_if_somebody_finds_it() -> None:
    refused = reading(ONE, entries=LEDGER[ONE].readable[4:], bad_batches=["its CRC is wrong"])
    assert verdict(BIT_OF_LOG, one=refused) is Verdict.HIDDEN
    assert verdict(replace(BIT_OF_LOG, is_hidden=False), one=refused) is Verdict.SILENT
    moved = reading(ONE, entries=LEDGER[ONE].readable[4:])
    assert verdict(BIT_OF_LOG, one=moved, verified=True) is Verdict.HIDDEN
    assert verdict(BIT_OF_LOG, one=moved) is Verdict.SILENT
    elsewhere = {ONE: refused, THREE: reading(THREE, stuck_at=9)}
    assert verdict(BIT_OF_LOG, readings=elsewhere) is Verdict.SILENT
    assert verdict(BIT_OF_LOG, verified=True) is Verdict.SAME
