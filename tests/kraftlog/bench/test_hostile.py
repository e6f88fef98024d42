"""`bench broker --only hostile`: what is sent, what is read from the broker's log, and what is judged."""

from __future__ import annotations

import io
from typing import Any

import pytest
import structlog
from rich.console import Console

from kraftlog.bench.broker.comparison import KAFKA, OWN, Pair, targets
from kraftlog.bench.broker.hostile import TOPIC, TURN_LIMIT_MS, hostile_table, measures
from kraftlog.bench.broker.loads.hostile import BATCH_BYTES, HOSTILE, LAST_RECORD_MS, REFUSED
from kraftlog.bench.broker.loop_reports import turns_in
from kraftlog.broker.loop_watch import REPORTED_LOOK_SECONDS, LoopReport
from kraftlog.broker.metadata.own_registration import OwnRegistration
from kraftlog.clients.large_requests import VERSIONS, full_batch, records_in, repeated_record
from kraftlog.clients.raw_client import frame_of
from kraftlog.kafka.apis import api_of, elements_max
from kraftlog.kafka.codec import encode
from kraftlog.kafka.layout import Layout
from kraftlog.kafka.record_batch import Compression, read_batch
from tests.kraftlog.broker.broker_world import registration
from tests.kraftlog.broker.largest_requests import elements_in

LONG_TO_COUNT = "fetch-1m"
"""A million elements, some seconds. `metadata-1m` has as many, which are smaller."""

LABELS = {OWN: "kraftlog", KAFKA: "Kafka 4.3.0"}


def figures(**changed: float) -> dict[str, float]:
    return {measure.key: 1.0 if "fenced" not in measure.key else 0.0 for measure in measures()} | changed


# --- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == LONG_TO_COUNT else ()) for name in HOSTILE]
)
def test_each_request_has_as_many_elements_as_are_taken_or_more(name: str) -> None:
    request = HOSTILE[name].make(TOPIC)
    version = VERSIONS[type(request)]
    elements = elements_in(Layout(type(request), version), request)
    bound = elements_max(api_of(request.KEY).name, len(encode(request, version)))
    assert (elements > bound) == name.endswith("-1m"), f"{elements}, and {bound} are taken"
    if name in ("fetch", "metadata", "produce"):
        assert elements > 0.99 * bound  # the largest
    if name.endswith("-1m"):
        assert elements >= REFUSED


def test_configs_are_those_of_the_issue() -> None:
    assert 250_000 < len(frame_of(HOSTILE["configs"].make(TOPIC))) < 260_000


def test_a_batch_of_71_kilobytes_has_seven_million_records() -> None:
    batch = read_batch(repeated_record(7_000_000))
    assert batch is not None
    batch.check_crc()
    assert (batch.record_count, batch.compression) == (7_000_000, Compression.GZIP)
    assert len(batch.data) < 72_000


def test_full_batches_are_full_of_small_records_up_to_the_time_that_is_looked_for() -> None:
    batch = read_batch(full_batch(BATCH_BYTES, LAST_RECORD_MS - records_in(BATCH_BYTES) + 1))
    assert batch is not None
    assert 0.9 * BATCH_BYTES < len(batch.data) <= BATCH_BYTES
    assert (batch.max_timestamp_ms, batch.record_count) == (LAST_RECORD_MS, records_in(BATCH_BYTES))


# --- what the broker's log says ---------------------------------------------------------------------------------------


def test_turns_and_fencings_are_read_from_a_brokers_log(capsys: pytest.CaptureFixture[str]) -> None:
    from kraftlog.process.logs import configure_logging, flush_logging

    now = processor = 0.0
    before = structlog.get_config()
    try:
        configure_logging("warning")
        report = LoopReport(1.0, lambda: now, lambda: processor)
        for late_ms, used_ms in ((0, 1), (1_200, 60), (3, 2), (999, 5)):
            now += REPORTED_LOOK_SECONDS + late_ms / 1_000
            processor += used_ms / 1_000
            report.check()
        registered = OwnRegistration(1, lambda: 0)
        for fenced in (False, True, False, True):
            registered._see(registration(1, fenced=fenced).register_broker)
        flush_logging()
    finally:
        structlog.configure(**before)
    assert turns_in(capsys.readouterr().err) == {
        "turn_processor_ms": 60.0, "turn_late_ms_p999": 1_200.0, "turn_late_ms": 1_200.0, "looks": 4, "fenced": 2,
    }  # fmt: skip


def test_a_log_without_reports_has_no_turns() -> None:
    assert set(turns_in("another line\n").values()) == {0}


# --- what is judged ---------------------------------------------------------------------------------------------------


def test_the_largest_of_all_pairs_is_judged() -> None:
    slow = figures(**{"fetch_longest_wait_ms": 251.0, "pipelined_longest_wait_ms": 99.0, "times-20_fenced": 1.0})
    pairs: list[Pair] = [{OWN: figures()}, {OWN: slow}, {OWN: figures(**{"gzip_turn_processor_ms": 50.1})}]
    missed = [target.name for target in targets("hostile", measures(), pairs) if not target.is_met]
    assert len(missed) == 3
    assert [name.rpartition(": ")[2] for name in missed] == [
        *("fenced", "longest turn of the loop", "longest wait of another client"),
    ]


def test_the_limits_are_those_of_the_issue() -> None:
    assert {name: request.longest_wait_ms for name, request in HOSTILE.items() if request.longest_wait_ms != 250} == {
        "pipelined": 100
    }
    assert TURN_LIMIT_MS == 50


@pytest.mark.parametrize("with_kafka", [False, True])
def test_the_table_has_a_row_for_each_request_and_says_what_is_missed(with_kafka: bool) -> None:
    pair: dict[str, Any] = {OWN: figures(**{"pipelined_longest_wait_ms": 101.0, "fetch-1m_refused": 1.0})}
    if with_kafka:
        pair[KAFKA] = {key: 4_444.0 for key in figures() if "turn" not in key and "fenced" not in key}
    console = Console(file=io.StringIO(), width=200)
    console.print(hostile_table([pair], LABELS if with_kafka else {OWN: "kraftlog"}))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    lines = {
        name: next(line for line in printed.splitlines() if request.label in line) for name, request in HOSTILE.items()
    }
    assert [name for name, line in lines.items() if "missed" in line] == ["pipelined"]
    assert "1.00, refused" in lines["fetch-1m"]
    assert all(("4444.0" in line) == with_kafka for line in lines.values())
