"""A node logs whatever happens to its standard error: it is not read, its reader exits, its disk is full."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, TextIO

import pytest
import structlog

from kraftlog.process.logs import WAITING_LINES_MAX, configure_logging, flush_logging
from raft.node import EXIT_CANNOT_GO_ON
from tests.kraftlog.command_line import environment

LAST_WORDS = """
from kraftlog.process.logs import configure_logging
from raft.node import end_process
import structlog
configure_logging("info")
for number in range(1000):
    structlog.get_logger().info("before", number=number)
end_process(RuntimeError("fsync failed"))
"""


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, TextIO]]:
    """The two ends of a small pipe."""
    with ExitStack() as stack:
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        reader = stack.enter_context(os.fdopen(reading, "rb"))
        yield reader, stack.enter_context(os.fdopen(writing, "w"))


def count_of(line: str) -> int:
    match = re.search(r"event='log lines could not be written' count=(\d+)$", line)
    return 0 if match is None else int(match[1])


def test_lines_are_written_in_order(pipe: tuple[BinaryIO, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pipe
    monkeypatch.setattr(sys, "stderr", writer)
    configure_logging("info")
    for number in range(100):
        structlog.get_logger().info("said", number=number, text="ü\udcff")
    structlog.get_logger().debug("not said")
    lines = [reader.readline().decode() for _ in range(100)]
    assert [int(line.rsplit("number=")[1].split()[0]) for line in lines] == list(range(100))
    assert lines[0].startswith("timestamp='20")
    assert " level='info' event='said' number=0 " in lines[0]


def test_nobody_waits_for_a_reader_that_stands_still(
    pipe: tuple[BinaryIO, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(sys, "stderr", writer)
    configure_logging("info")
    logged = WAITING_LINES_MAX + 5_000
    for number in range(logged):
        structlog.get_logger().info("said", number=number)
    written, left_out = 0, 0
    while written + left_out < logged:
        line = reader.readline().decode()
        left_out += count_of(line.rstrip())
        written += not count_of(line.rstrip())
    assert left_out > 4_000  # the pipe took some


def test_what_the_disk_has_no_room_for_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full, (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", full)
        configure_logging("info")
        for number in range(3):
            structlog.get_logger().info("lost", number=number)
        flush_logging()
        os.dup2(log.fileno(), full.fileno())  # there is room again
        structlog.get_logger().info("kept")
        flush_logging()
    kept, told = (tmp_path / "log").read_text().splitlines()
    assert kept.endswith(" event='kept'")
    assert count_of(told) == 3


def test_a_reader_that_is_gone_stops_nobody(pipe: tuple[BinaryIO, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pipe
    reader.close()
    monkeypatch.setattr(sys, "stderr", writer)
    configure_logging("info")
    structlog.get_logger().info("to nobody")
    flush_logging()


def test_standard_error_that_was_closed_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    configure_logging("info")
    structlog.get_logger().info("to nobody")


def test_the_standard_librarys_loggers_take_the_same_way(pipe: tuple[BinaryIO, TextIO]) -> None:
    _, writer = pipe
    program = """
import logging
from kraftlog.process.logs import configure_logging
configure_logging("info")
for number in range(3000):
    logging.getLogger("asyncio").warning("number %d", number)
logging.getLogger("asyncio").warning("number %d", "no number")
"""
    ended = subprocess.run([sys.executable, "-c", program], env=environment(), stderr=subprocess.PIPE, text=True)
    assert ended.stderr.splitlines()[:2000] == [f"number {number}" for number in range(2000)]
    subprocess.run([sys.executable, "-c", program], env=environment(), stderr=writer, check=True)  # which is never read


def test_all_of_it_is_written_when_a_process_ends() -> None:
    program = LAST_WORDS.replace('end_process(RuntimeError("fsync failed"))', "")
    ended = subprocess.run([sys.executable, "-c", program], env=environment(), stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (0, 1000)


def test_what_was_logged_can_be_waited_for() -> None:
    program = LAST_WORDS.replace("end_process(", "flush_logging()\nsys.stderr.write(").replace(
        'RuntimeError("fsync failed")', '"error: told last"'
    )
    program = "import sys\nfrom kraftlog.process.logs import flush_logging\n" + program
    ended = subprocess.run([sys.executable, "-c", program], env=environment(), stderr=subprocess.PIPE, text=True)
    lines = ended.stderr.splitlines()
    assert (ended.returncode, len(lines), lines[-1]) == (0, 1001, "error: told last")


def test_a_process_that_must_end_says_why_behind_what_it_said_before() -> None:
    ended = subprocess.run([sys.executable, "-c", LAST_WORDS], env=environment(), stderr=subprocess.PIPE, text=True)
    lines = ended.stderr.splitlines()
    assert ended.returncode == EXIT_CANNOT_GO_ON
    assert [" event='before'" in line for line in lines[:1000]] == [True] * 1000
    assert "event='the node cannot continue'" in lines[1000]
    assert "fsync failed" in lines[1000]


def test_a_process_that_must_end_does_where_nothing_can_be_written() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([sys.executable, "-c", LAST_WORDS], env=environment(), stderr=full)
    assert ended.returncode == EXIT_CANNOT_GO_ON


@pytest.mark.parametrize("logging_is_ours", [True, False], ids=["a node's logging", "some program's logging"])
def test_a_process_that_must_end_does_where_nobody_reads(pipe: tuple[BinaryIO, TextIO], logging_is_ours: bool) -> None:
    _, writer = pipe
    writer.write("x" * 4096)
    writer.flush()
    program = LAST_WORDS
    if not logging_is_ours:  # one that writes where it logs
        program = "from raft.node import end_process\nend_process(RuntimeError('fsync failed'))"
    ended = subprocess.run([sys.executable, "-c", program], env=environment(), stdout=writer, stderr=writer)
    assert ended.returncode == EXIT_CANNOT_GO_ON
