"""What a log file and a broker's directory say."""

from __future__ import annotations

import os
from pathlib import Path

from kraftbase.types import NodeId
from kraftlog.broker.loop_watch import REPORT
from kraftlog.chaos.soak.brokers.samples import WINDOW_SECONDS, LogTail, take_broker_sample

STRAY = f"gone-0.{'0' * 32}-stray"
BROKER = NodeId(101)


def report(turn_ms: float) -> str:
    return f"timestamp='x' level='warning' event='{REPORT}' longest_processor_ms={turn_ms} late_ms={{0: 9}}\n"


def test_lines_are_counted_for_a_minute_without_reports_of_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "broker-101.log"
    tail = LogTail(path)
    assert tail.look(0.0).per_minute == 0
    path.write_text("one\ntwo\n" + report(3.5) + report(41.5) + "half a li")
    found = tail.look(1.0)
    assert (found.per_minute, found.turn_ms, found.fenced) == (2, 41.5, 0)
    with path.open("a") as log:
        log.write("ne\nlevel='warning' event='Broker 101 was fenced: its session is over'\n")
    found = tail.look(2.0)
    assert (found.per_minute, found.turn_ms, found.fenced, found.tracebacks) == (4, 0.0, 1, 0)
    with path.open("a") as log:
        log.write("level='error' event='bad' exception='Traceback (most recent call last):\\n  File'\n")
    assert tail.look(3.0).tracebacks == 1
    assert tail.look(1.0 + WINDOW_SECONDS).per_minute == 3
    assert tail.look(3.0 + WINDOW_SECONDS).per_minute == 0


def test_files_of_logs_are_told_from_a_brokers_own(tmp_path: Path) -> None:
    (tmp_path / "partitions" / "three-0").mkdir(parents=True)
    (tmp_path / "partitions" / "three-0" / "0.log").write_bytes(bytes(100))
    (tmp_path / "partitions" / STRAY).mkdir()
    (tmp_path / "partitions" / STRAY / "0.log").write_bytes(bytes(5))
    (tmp_path / "partitions" / STRAY / "0.index").write_bytes(bytes(5))
    (tmp_path / "partitions" / ".lock").write_bytes(b"")
    (tmp_path / "metadata.db").write_bytes(bytes(7))
    found = take_broker_sample(1.0, BROKER, tmp_path, LogTail(tmp_path / "none"), os.getpid())
    assert (found.log_files, found.log_bytes, found.own_bytes, found.stray_logs) == (2, 100, 7, 1)
    assert found.process is not None
    assert found.process.descriptors > 0


def test_a_broker_that_does_not_run_has_no_process(tmp_path: Path) -> None:
    assert take_broker_sample(1.0, BROKER, tmp_path, LogTail(tmp_path / "none"), None).process is None
