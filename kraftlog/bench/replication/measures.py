"""The figures of replication, with their measures and bounds (issue 19)."""

from __future__ import annotations

from typing import Final

from kraftlog.bench.broker.measure import COST, Bounded, Measure, Measures, limited, moved, one_record

LAG_TIME_MAX_SECONDS: Final = 4.0
"""`replica.lag.time.max.ms` of both systems where a follower is stopped. It is less than the session timeout, so that
the follower leaves the ISR before its session ends."""

_SLOWEST: Final = Measure("slowest_ms", "slowest record", "ms", decimals=0)
_ERRORS: Final = limited(0, "errors", "errors that the client sees", "errors")
_ONE_RECORD: Final = one_record(0.8, Measure("end_to_end_ms_p99", "end to end, p99", "ms"))

MEASURES: Final[Measures] = {
    "produce-1": moved(1.0),
    "produce-10": moved(1.0),
    "produce-1-flushed": moved(1.0),
    "produce-10-flushed": moved(1.0),
    "one-record": _ONE_RECORD,
    "one-record-flushed": _ONE_RECORD,
    "leader-killed": (
        limited(1.5, "all_again_seconds", "all partitions produce again", "s", 2),
        _SLOWEST,
        _ERRORS,
    ),
    "controlled-shutdown": (
        Measure("all_again_seconds", "all partitions produce again", "s"),
        limited(500, "slowest_ms", "slowest record", "ms"),
        _ERRORS,
    ),
    "catch-up": (
        Measure("megabytes_per_second", "a follower catches up", "MB/s", decimals=1),
        Measure("consumed_megabytes_per_second", "a client consumes", "MB/s", decimals=1),
        Measure("to_consume", "caught up, to consumed", "times", Bounded.VALUE, 0.8, is_minimum=True),
        Measure("start_seconds", "from its start until in sync", "s"),
        COST,
    ),
    "follower-stopped": (
        limited(1.5 * LAG_TIME_MAX_SECONDS, "all_again_seconds", "all partitions produce again", "s", 2),
        limited(1.5 * LAG_TIME_MAX_SECONDS, "out_of_isr_seconds", "it has left the ISR", "s", 2),
        _SLOWEST,
        _ERRORS,
    ),
}
