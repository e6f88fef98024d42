"""Metadata that fills a write-ahead log, and readers that hold it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kraftbase.types import Offset
from raft.listener import CommittedBatch
from statemachine.tables.database import open_reader
from tests.statemachine.builders import batch, config

HOLD_SCRIPT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT end_offset FROM applied").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""


def filler(base_offset: Offset, size_bytes: int) -> CommittedBatch:
    """A batch whose one record makes a transaction write about that much, and the database no larger each time."""
    return batch(base_offset, [config("topic", "filler", "x" * (size_bytes - 4_096))])


@contextmanager
def reading(database: Path) -> Iterator[sqlite3.Connection]:
    """A read transaction of this process."""
    with closing(open_reader(database)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT end_offset FROM applied").fetchone()
        yield connection


@contextmanager
def reading_process(database: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A read transaction of another process, until the end of the context or of that process."""
    command = (sys.executable, "-c", HOLD_SCRIPT, str(database))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"
        try:
            yield process
        finally:
            process.kill()
