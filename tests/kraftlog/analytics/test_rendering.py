"""The report on a terminal and as JSON, without Spark."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from kraftbase.types import Epoch, Offset
from kraftlog.analytics.manifest import ExportedFile, Manifest
from kraftlog.analytics.rendering import BUCKETS_SHOWN_MAX, bar, render
from kraftlog.analytics.report import BrokerLoad, Counts, Leadership, RecordCount, Report, bucket_for

REPORT = Report(
    cluster_id="cluster",
    start_offset=0,
    counts=Counts(end_offset=120, topics=2, partitions=5, brokers=3, configs=1),
    brokers=(BrokerLoad(11, 2, 4, 1), BrokerLoad(12, 1, 2, 2), BrokerLoad(13, 0, 0, 0)),
    bucket="minute",
    records=(
        RecordCount(1_700_000_040_000, "TOPIC_RECORD", 20),
        RecordCount(1_700_000_040_000, "PARTITION_RECORD", 60),
        RecordCount(1_700_000_100_000, "NO_OP_RECORD", 40),
    ),
    leaders=(
        Leadership(1, 3, 0, 90, 1_700_000_040_000, 1_700_000_041_500),
        Leadership(2, 1, 90, None, 1_700_000_041_500, None),
    ),
)


def rendered(report: Report, width: int = 120) -> str:
    output = io.StringIO()
    Console(file=output, width=width, color_system=None).print(render(report))
    return output.getvalue()


def test_the_terminal_shows_every_part():
    text = rendered(REPORT)
    assert "offsets 0 to 120 (exclusive): 2 topics, 5 partitions, 3 brokers, 1 configs" in text
    lines = [line.replace("│", " ").split() for line in text.splitlines()]
    assert ["11", "2", "4", "█" * 24, "1", "█" * 6] in lines
    assert ["13", "0", "0", "0"] in lines
    assert ["60", "█" * 24, "PARTITION_RECORD"] in lines
    assert ["22:14", "80", "█" * 24, "PARTITION_RECORD", "60,", "TOPIC_RECORD", "20"] in lines
    assert ["1", "3", "2023-11-14", "22:14:00", "1.5", "s", "90", "█" * 24] in lines
    assert ["2", "1", "2023-11-14", "22:14:01", "still", "leads", "30", "█" * 8] in lines


def test_an_empty_report_can_be_shown():
    assert "0 topics" in rendered(Report("cluster", 0, Counts(0, 0, 0, 0, 0), (), "second", (), ()))


def test_of_many_buckets_the_latest_are_shown():
    many = tuple(RecordCount(1_700_000_000_000 + 60_000 * minute, "NO_OP_RECORD", 1) for minute in range(90))
    text = rendered(replace(REPORT, records=many))
    assert f"the latest {BUCKETS_SHOWN_MAX} of 90" in text
    assert text.count("NO_OP_RECORD 1") == BUCKETS_SHOWN_MAX


def test_it_fits_a_narrow_terminal():
    assert max(map(len, rendered(REPORT, width=80).splitlines())) <= 80


@pytest.mark.parametrize(
    ("value", "largest", "text"),
    [(0, 10, ""), (10, 10, "████"), (5, 10, "██"), (1, 1000, "▏"), (3, 8, "█▌"), (0, 0, "")],
)
def test_a_bar_is_as_long_as_its_value(value, largest, text):
    assert bar(value, largest, width=4).plain == text


def test_the_report_is_json():
    value = json.loads(json.dumps(REPORT.to_dict()))
    assert value["counts"] == {"end_offset": 120, "topics": 2, "partitions": 5, "brokers": 3, "configs": 1}
    assert value["brokers"][1] == {"broker_id": 12, "topics": 1, "partitions": 2, "led": 2}
    assert value["leaders"][1]["until_ms"] is None


@pytest.mark.parametrize(
    ("span_ms", "bucket"),
    [
        (0, "second"),
        (119_999, "second"),
        (120_000, "minute"),
        (7_199_999, "minute"),
        (7_200_000, "hour"),
        (10**9, "day"),
    ],
)
def test_buckets_are_as_wide_as_the_time_that_the_log_spans(span_ms, bucket):
    def file(start: int, time_ms: int) -> ExportedFile:
        return ExportedFile(Offset(start), Offset(start + 1), Epoch(1), 1, 1, 0, 1, time_ms, time_ms)

    files = (file(0, 5000 + span_ms), file(1, 5000))  # clocks of leaders may go back
    assert bucket_for(Manifest(1, "cluster", Offset(0), Offset(0), Offset(2), files)) == bucket
