"""The figures of one broker, with their measures and bounds (issues 18, 29 and 30)."""

from __future__ import annotations

from typing import Final

from kraftlog.bench.broker import hostile, metadata_changes, starts
from kraftlog.bench.broker.measure import COST_OF_ONE, Measure, Measures, at_most, limited, moved, one_record

_READ: Final = Measure("read_from_disk_percent", "read from the disk", "%", decimals=0)
_ONE_RECORD: Final = one_record(0.7, at_most(0.7, "end_to_end_ms_p99", "end to end, p99", "ms"))

MEASURES: Final[Measures] = {
    "produce-64k": moved(2.0),
    "produce-1m": moved(2.0),
    "produce-64k-flushed": moved(2.0),
    "produce-1m-flushed": moved(2.0),
    "consume-hot": (*moved(1.0), _READ),
    "consume-cold": (*moved(1.0), _READ),
    "one-record": _ONE_RECORD,
    "one-record-flushed": _ONE_RECORD,
    "connections": (
        Measure("acknowledged_ms_p50", "acknowledged, p50", "ms"),
        at_most(1.0, "acknowledged_ms_p99", "acknowledged, p99", "ms"),
        Measure("records_per_second", "acknowledged", "records/s", decimals=0),
        COST_OF_ONE,
    ),
    "idle": (
        limited(150, "resident_megabytes", "resident", "MB"),
        limited(512, "open_files", "open files", "files"),
        limited(2, "processor_percent", "processor of the brokers", "% of a core", 2),
        limited(10, "start_seconds", "start after SIGKILL", "s", 1),
    ),
    "hostile": hostile.measures(),
    "metadata-changes": metadata_changes.measures(),
    "starts": starts.measures(),
}
