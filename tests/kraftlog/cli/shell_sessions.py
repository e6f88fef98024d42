"""What the tests of `kraftlog shell` stand on: a node's directory, its snapshot, and sessions."""

from __future__ import annotations

import io
import sqlite3
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path as FilePath

import pytest

from kraftlog.offline.metadata_shell import MetadataShell
from kraftlog.offline.metadata_tree import root
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.database import create_in
from tests.kraftlog.command_line import Finished, Run
from tests.kraftlog.offline.test_metadata_tree import everything
from tests.statemachine.builders import BROKER, CLUSTER_ID, broker, config, log_of, partition, topic
from tests.statemachine.snapshots import filled, posix_snapshots, snapshot_of

RECORDS = [
    topic("orders", 1),
    *(partition(1, number) for number in range(3)),
    config("orders", "retention.ms", "1"),
    config("orders", "note", "two\nlines\x1b[31m"),
    topic("a.b", 2),
    partition(2),
    topic("odd name*", 3),
    broker(1),
    broker(2, fenced=True),
    config("", "log.retention.ms", "4", BROKER),
]


@pytest.fixture
def node(tmp_path: FilePath) -> FilePath:
    """A data directory of a node that was stopped, with a snapshot, in it."""
    directory = tmp_path / "node"
    (directory / "snapshots").mkdir(parents=True)
    with closing(filled(directory / "metadata.db", log_of([RECORDS]))) as store:
        snapshot_of(store, posix_snapshots(directory / "snapshots"))
    return directory


@pytest.fixture
def snapshot(node: FilePath) -> FilePath:
    (path,) = (node / "snapshots").iterdir()
    return path


Type = Callable[..., Finished]


@pytest.fixture
def enter(run: Run, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Runs the shell with lines on its standard input."""

    def enter(*arguments: object, lines: Sequence[str] = (), data: bytes | None = None) -> Finished:
        given = "".join(f"{line}\n" for line in lines).encode() if data is None else data
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        return run("shell", *arguments)

    return enter


class Memory:
    """A source over a database in memory."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self.connection.close)
        create_in(self.connection, CLUSTER_ID)
        MetadataTables(self.connection).apply(log_of([RECORDS]))

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        yield self.connection


with Memory().reading() as whole:
    NODES = dict(everything(root(whole)))
LISTING = list(NODES)


class Session:
    """A shell whose lines are kept."""

    def __init__(self) -> None:
        self.source = Memory()
        self.output: list[str] = []
        self.errors: list[str] = []
        self.shell = MetadataShell(self.source, self.output.append, self.errors.append)

    def does(self, line: str) -> list[str]:
        """What a line prints, which must go well."""
        assert self.shell.run_line(line), self.errors
        assert self.errors == []
        said = "\n".join(self.output).split("\n") if self.output else []
        self.output.clear()
        return said

    def fails(self, line: str) -> str:
        """What a line complains of, once, having printed nothing."""
        assert not self.shell.run_line(line)
        assert self.output == []
        (error,) = self.errors
        self.errors.clear()
        assert error.isprintable()
        return error


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.source.connection.close()
