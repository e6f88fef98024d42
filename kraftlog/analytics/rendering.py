"""The report as tables with bars for a terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kraftlog.analytics.report import Leadership, RecordCount, Report

BAR_WIDTH: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_DATE_FORMATS: Final = {"second": "%H:%M:%S", "minute": "%H:%M", "hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d"}
BUCKETS_SHOWN_MAX: Final = 20
"""How many of the latest buckets with records the table shows; the JSON has all of them."""


def render(report: Report) -> RenderableType:
    """The report for `rich.console.Console.print`."""
    return Group(
        _summary(report), _brokers(report), _records_by_type(report), _records_over_time(report), _leaders(report)
    )


def bar(value: int, largest: int, width: int = BAR_WIDTH) -> Text:
    """Return a bar whose length is `value` in proportion to `largest`, to an eighth of a character; none for 0 only."""
    eighths = 0 if largest <= 0 else max(round(value * width * 8 / largest), 1 if value > 0 else 0)
    return Text("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip(), style="cyan")


def _summary(report: Report) -> Text:
    counts = report.counts
    return Text(
        f"cluster {report.cluster_id}, offsets {report.start_offset} to {counts.end_offset} (exclusive): "
        f"{counts.topics} topics, {counts.partitions} partitions, {counts.brokers} brokers, {counts.configs} configs"
    )


def _brokers(report: Report) -> Table:
    table = _table("Topics and partitions by broker", "broker", "topics", "partitions", "", "leads", "")
    most = max((load.partitions for load in report.brokers), default=0)
    for load in report.brokers:
        table.add_row(
            str(load.broker_id),
            str(load.topics),
            str(load.partitions),
            bar(load.partitions, most),
            str(load.led),
            bar(load.led, most),
        )
    return table


def _records_by_type(report: Report) -> Table:
    table = _table("Records by type", "records", "", "type")
    totals = Counter[str]()
    for count in report.records:
        totals[count.record_type] += count.records
    most = max(totals.values(), default=0)
    for record_type, records in totals.most_common():
        table.add_row(str(records), bar(records, most), record_type)
    return table


def _records_over_time(report: Report) -> Table:
    buckets: dict[int, list[RecordCount]] = defaultdict(list)
    for count in report.records:
        buckets[count.start_ms].append(count)
    shown = sorted(buckets.items())[-BUCKETS_SHOWN_MAX:]
    title = f"Records per {report.bucket}"
    if len(shown) < len(buckets):
        title += f" (the latest {len(shown)} of {len(buckets)})"
    table = _table(title, "UTC", "records", "", "types")
    most = max((_total(counts) for _, counts in shown), default=0)
    for start_ms, counts in shown:
        largest_first = sorted(counts, key=lambda count: -count.records)
        types = ", ".join(f"{count.record_type} {count.records}" for count in largest_first)
        total = _total(counts)
        table.add_row(_time(start_ms, _DATE_FORMATS[report.bucket]), str(total), bar(total, most), types)
    return table


def _leaders(report: Report) -> Table:
    table = _table("Leaders of the quorum", "epoch", "node", "since (UTC)", "for", "records", "")
    end_offset = report.counts.end_offset
    most = max((_records_of(leadership, end_offset) for leadership in report.leaders), default=0)
    for leadership in report.leaders:
        records = _records_of(leadership, end_offset)
        table.add_row(
            str(leadership.epoch),
            str(leadership.leader),
            _time(leadership.since_ms, "%Y-%m-%d %H:%M:%S"),
            "still leads"
            if leadership.until_ms is None
            else f"{(leadership.until_ms - leadership.since_ms) / 1000:.1f} s",
            str(records),
            bar(records, most),
        )
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    words = {"type", "types", "UTC", "since (UTC)", "for", ""}
    for heading in headings:
        table.add_column(heading, justify="left" if heading in words else "right", no_wrap=heading != "types")
    return table


def _total(counts: Iterable[RecordCount]) -> int:
    return sum(count.records for count in counts)


def _records_of(leadership: Leadership, end_offset: int) -> int:
    return (end_offset if leadership.end_offset is None else leadership.end_offset) - leadership.start_offset


def _time(milliseconds: int, date_format: str) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(date_format)
