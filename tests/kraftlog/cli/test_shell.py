"""`kraftlog shell` (OT-10): where the metadata and the commands come from, and that nothing changes."""

from __future__ import annotations

import builtins
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path as FilePath
from types import SimpleNamespace

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.ids import id_to_text
from kraftlog.cli import main
from kraftlog.cli.look import shell
from kraftlog.offline.metadata_shell import MetadataShell
from statemachine.store.store import MetadataStore
from statemachine.tables.database import install
from tests.kraftlog.cli.shell_sessions import Session, Type, enter, node, session, snapshot
from tests.kraftlog.command_line import Run, environment
from tests.kraftlog.node_directories import contents, flip
from tests.kraftlog.offline.test_metadata_tree import add_topic
from tests.snapshot.builders import overwrite
from tests.statemachine.builders import CLUSTER_ID, an_id

__all__ = ["enter", "node", "session", "snapshot"]

# --- where the metadata comes from ------------------------------------------------------------------------------------


def test_a_snapshot_and_the_database_that_it_is_of_are_alike(run: Run, node: FilePath, snapshot: FilePath) -> None:
    of_database = run("shell", "--directory", node, "find").lines()
    assert run("shell", "--snapshot", snapshot, "find").lines() == of_database
    files = run("shell", "--snapshot", snapshot, "cat", "/{topics,brokers,applied}/*/*", "/topics/*/*/*")
    assert files.output == run("shell", "--directory", node, "cat", "/{topics,brokers,applied}/*/*", "/topics/*/*/*")[1]
    assert f"/topicIds/{id_to_text(an_id(1))}" in of_database


def test_options_behind_the_command_are_its_own(run: Run, node: FilePath) -> None:
    assert run("shell", "--directory", node, "ls", "-l", "/topics").lines()[-1] == f"d {3:>10} orders"
    assert run("shell", "--directory", node, "find", "-name", "isF*").lines() == [
        "/brokers/1/isFenced",
        "/brokers/2/isFenced",
    ]


def test_nothing_changes_in_the_directory_of_a_stopped_node(enter: Type, node: FilePath, snapshot: FilePath) -> None:
    before = contents(node)
    for source in (["--directory", node], ["--snapshot", snapshot]):
        assert enter(*source, lines=["find", "cat /applied/*", "tree"]).code == 0
        assert contents(node) == before


def test_nothing_but_the_locks_changes_where_a_node_was_killed(enter: Type, node: FilePath, tmp_path: FilePath) -> None:
    with closing(MetadataStore.open(node / "metadata.db", CLUSTER_ID)) as store:
        add_topic(store)
        killed = {path.name: path.read_bytes() for path in node.glob("metadata.db*")}
    assert len(killed) == 3
    directory = tmp_path / "killed"
    directory.mkdir()
    for name, data in killed.items():
        (directory / name).write_bytes(data)
    del killed["metadata.db-shm"]
    said = enter("--directory", directory, lines=["cat /topics/new/id", "tree"])
    assert said.lines()[0] == id_to_text(an_id(77))
    assert {path.name for path in directory.iterdir()} == {*killed, "metadata.db-shm"}
    for name, data in killed.items():
        assert (directory / name).read_bytes() == data


def test_each_command_sees_the_newest_state(node: FilePath, tmp_path: FilePath) -> None:
    output: list[str] = []
    session = MetadataShell(shell.LiveDatabase(node), output.append, output.append)
    assert not session.run(["cat", "/topics/new/id"])
    with closing(MetadataStore.open(node / "metadata.db", CLUSTER_ID)) as store:
        assert not session.run(["cat", "/topics/new/id"])
        output.clear()
        add_topic(store)
        assert session.run(["cat", "/topics/new/id"])
        assert session.run(["cat", "/applied/endOffset"])
        assert output == [id_to_text(an_id(77)), str(store.applied_end_offset)]
    output.clear()
    assert session.run(["cat", "/topics/new/id"])
    with closing(MetadataStore.open(tmp_path / "anew.db", CLUSTER_ID)):
        pass
    install(tmp_path / "anew.db", node / "metadata.db")
    assert session.run(["ls", "/topics"])
    assert output == [id_to_text(an_id(77))]


def test_the_node_goes_on_while_a_command_reads(node: FilePath) -> None:
    said: list[str] = []
    with closing(MetadataStore.open(node / "metadata.db", CLUSTER_ID)) as store:

        def say(line: str) -> None:
            if not said:
                add_topic(store)
            said.append(line)

        assert MetadataShell(shell.LiveDatabase(node), say, said.append).run(["find", "/topics"])
        assert "/topics/new" not in said
        assert MetadataShell(shell.LiveDatabase(node), said.append, said.append).run(["find", "/topics"])
        assert "/topics/new" in said


def test_the_connections_can_only_read(node: FilePath, snapshot: FilePath) -> None:
    def is_refused(connection: sqlite3.Connection) -> bool:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM topics")
        return True

    with closing(shell.load_snapshot(snapshot)) as connection:
        assert is_refused(connection)
    live = shell.LiveDatabase(node)
    with live.reading() as connection:
        assert is_refused(connection)
    with closing(MetadataStore.open(node / "metadata.db", CLUSTER_ID)), live.reading() as connection:
        assert is_refused(connection)


@pytest.mark.parametrize("position", [3, 100, 250, -5])
def test_a_damaged_snapshot_is_refused(run: Run, snapshot: FilePath, position: int) -> None:
    flip(snapshot, position)
    assert run("shell", "--snapshot", snapshot, "ls").is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot))


def test_half_a_snapshot_is_refused(run: Run, snapshot: FilePath) -> None:
    overwrite(snapshot, snapshot.read_bytes()[:-60])
    assert run("shell", "--snapshot", snapshot, "ls").is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot))


def test_what_is_no_snapshot_is_refused(run: Run, node: FilePath, snapshot: FilePath) -> None:
    for path in (node, node / "metadata.db", node / "nothing", snapshot.with_name(f"{1:020d}-{1:010d}.checkpoint")):
        assert run("shell", "--snapshot", path, "ls").is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(path))


def test_a_directory_without_a_database_is_refused(run: Run, node: FilePath, tmp_path: FilePath) -> None:
    for path in (tmp_path, tmp_path / "nowhere", node / "metadata.db"):
        before = contents(tmp_path)
        assert run("shell", "--directory", path, "pwd").is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(path))
        assert contents(tmp_path) == before
    (node / "metadata.db").write_bytes(b"no database" * 500)
    assert run("shell", "--directory", node, "pwd").is_error(ErrorCode.KAFKA_STORAGE_ERROR, "not a database")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM applied",
        "UPDATE partitions SET replicas = 'x'",
        "UPDATE topics SET topic_id = CAST(x'ff' AS TEXT) WHERE name = 'orders'",
        "DROP TABLE partitions",
    ],
)
def test_a_rotten_database_is_one_line(run: Run, node: FilePath, statement: str) -> None:
    with closing(sqlite3.connect(node / "metadata.db", isolation_level=None)) as connection:
        connection.execute(statement)
    said = run("shell", "--directory", node, "cat", "/topics/a.b/partitions/0", "/topics/orders/id")
    assert said.code == 1
    assert said.errors.startswith("error: KAFKA_STORAGE_ERROR: ")
    assert said.errors.count("\n") == 1
    assert str(node / "metadata.db") in said.errors


@pytest.mark.parametrize("options", [[], ["--snapshot", "x", "--directory", "y"], ["--snapshot", ""], ["--nonsense"]])
def test_one_source_must_be_given(run: Run, options: list[str]) -> None:
    said = run("shell", *options, "ls")
    assert (said.code, said.output, said.errors.count("\n")) == (2, "", 1)


# --- where the commands come from -------------------------------------------------------------------------------------


def test_one_command_that_fails_is_exit_code_1(run: Run, node: FilePath) -> None:
    said = run("shell", "--directory", node, "ls", "/cluster", "/topics/x")
    assert said == (1, "id\n", "ls: /topics/x: no such file or directory\n")
    assert run("shell", "--directory", node, "nonsense").code == 1


def test_standard_input_is_run_line_by_line(enter: Type, node: FilePath) -> None:
    lines = ["cd topics", "", "  pwd", "cat 'orders/id'", "exit", "ls /nothing"]
    assert enter("--directory", node, lines=lines).lines() == ["/topics", id_to_text(an_id(1))]
    said = enter("--directory", node, lines=["ls /x", "cat /y", "cat /cluster/id", "ls 'x"])
    assert (said.code, said.output) == (1, f"{CLUSTER_ID}\n")
    assert said.errors.splitlines() == [
        "ls: /x: no such file or directory",
        "cat: /y: no such file or directory",
        "ls 'x: no closing quotation",
    ]
    assert enter("--directory", node).lines() == []
    assert enter("--directory", node, data=b"pwd").lines() == ["/"]


def test_a_line_that_is_not_utf_8_names_nothing(enter: Type, node: FilePath) -> None:
    said = enter("--directory", node, data=b"cat /topics/\xff\n\xff\xfe\npwd\r\n")
    assert (said.code, said.output) == (1, "/\n")
    assert said.errors.splitlines() == [
        "cat: /topics/xff: no such file or directory",
        "xffxfe: no such command; see help",
    ]


def test_ctrl_c_ends_what_is_no_conversation(
    run: Run, enter: Type, node: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(MetadataShell, "run", interrupted)
    assert run("shell", "--directory", node, "ls") == (128 + signal.SIGINT, "", "")
    assert enter("--directory", node, lines=["ls"]) == (128 + signal.SIGINT, "", "")


def test_a_conversation_survives_what_goes_wrong(
    node: FilePath, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entered: Iterator[str | BaseException] = iter(
        ["ls /x", KeyboardInterrupt(), "cd /topics", "cat orders/id", "", EOFError()]
    )
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        if len(prompts) == 4:
            (node / "metadata.db").rename(node / "away")
        line = next(entered)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr(builtins, "input", answer)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert main.main(["shell", "--directory", str(node)]) == 0
    assert prompts == ["/> ", "/> ", "/> ", "/topics> ", "/topics> ", "/topics> "]
    said = capsys.readouterr()
    assert said.out == "\n\n"
    first, second = said.err.splitlines()
    assert first == "ls: /x: no such file or directory"
    assert second.startswith("error: KAFKA_STORAGE_ERROR: cannot read the metadata")


@pytest.mark.parametrize(
    ("before", "text", "found"),
    [
        ("", "c", ["cat ", "cd "]),
        ("man ", "f", ["find "]),
        ("ls ", "/to", ["/topicIds/", "/topics/"]),
        ("ls ", "/topics/o", ["/topics/odd%20name%2A/", "/topics/orders/"]),
        ("ls -l /x ", "/cluster/", ["/cluster/id "]),
        ("cat ", "or", ["orders/"]),
        ("cat ", "../cl", ["../cluster/"]),
        ("cat ", "nothing/", []),
        ("cat ", "/cluster/id/", []),
        ("cat ", "*/p", ["*/partitions/", "*/partitions/", "*/partitions/"]),
    ],
)
def test_words_are_completed(session: Session, before: str, text: str, found: list[str]) -> None:
    session.does("cd /topics")
    assert shell.completions(session.shell, before, text) == found


def test_no_database_completes_nothing(tmp_path: FilePath) -> None:
    assert shell.completions(MetadataShell(shell.LiveDatabase(tmp_path), print, print), "ls ", "/") == []


ON_A_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))  # makes it the controlling one, for Ctrl-C
from kraftlog.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self.controller, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_A_TERMINAL, *map(str, arguments)],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment(TERM="dumb", INPUTRC=os.devnull),
            start_new_session=True,
        )
        os.close(terminal)

    def expect(self, text: str, seconds: float = 100) -> str:
        """What comes up to and with `text`."""
        said = b""
        deadline = time.monotonic() + seconds
        while text.encode() not in said:
            ready, _, _ = select.select([self.controller], [], [], max(0, deadline - time.monotonic()))
            assert ready, said
            said += os.read(self.controller, 4096)
        return said.decode()

    def enter(self, text: str) -> None:
        os.write(self.controller, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.controller)


@pytest.mark.process
def test_on_a_terminal_it_prompts_and_completes_until_ctrl_d(node: FilePath) -> None:
    with closing(Terminal("shell", "--directory", node)) as terminal:
        terminal.expect("/> ")
        terminal.enter("cd /topics/or\t\n")
        terminal.expect("/topics/orders> ")
        for pause in range(200):
            terminal.enter("cat x" * (1 + pause % 4))
            time.sleep(pause % 50 * 1e-5)  # Ctrl-C comes while a key is being read, in one of the rounds
            terminal.enter("\x03")
            terminal.expect("\n/topics/orders> ")  # on a line of its own: readline shows the old one without its text
        terminal.enter("cat i\t\n")
        assert id_to_text(an_id(1)) in terminal.expect("/topics/orders> ")
        terminal.enter("\x04")
        assert terminal.process.wait(30) == 0
