"""`kraftlog shell`: commands, paths, where the metadata and the commands come from, and that nothing changes."""

from __future__ import annotations

import builtins
import fnmatch
import io
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path as FilePath
from types import SimpleNamespace

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.cli import main, shell
from kraftlog.metadata_shell import ALTERNATIVES_MAX, COMMANDS, CommandError, Shell, alternatives, find_paths
from kraftlog.metadata_tree import File, root
from raft.core.errors import ErrorCode
from statemachine.ids import id_to_text
from statemachine.schema import create_in, install
from statemachine.store import MetadataStore
from statemachine.tables import MetadataTables
from tests.kraftlog.commands import Finished, Run, environment
from tests.kraftlog.node_directories import contents, flip
from tests.kraftlog.test_metadata_tree import add_topic, everything
from tests.statemachine.builders import BROKER, CLUSTER_ID, an_id, broker, config, log_of, partition, topic
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


def make_app() -> typer.Typer:
    """An application with this command only."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    shell.add_to(app)
    return app


@pytest.fixture(autouse=True)
def application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", make_app())


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
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        create_in(self.connection, CLUSTER_ID)
        MetadataTables(self.connection).apply(log_of([RECORDS]))

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        yield self.connection


with closing(Memory().connection) as whole:
    NODES = dict(everything(root(whole)))
LISTING = list(NODES)


class Session:
    """A shell whose lines are kept."""

    def __init__(self) -> None:
        self.source = Memory()
        self.output: list[str] = []
        self.errors: list[str] = []
        self.shell = Shell(self.source, self.output.append, self.errors.append)

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


# --- commands ---------------------------------------------------------------------------------------------------------


def test_ls_lists_directories(session: Session) -> None:
    assert session.does("ls") == ["applied", "brokers", "cluster", "configs", "topicIds", "topics"]
    assert session.does("ls /topics") == ["a.b", "odd%20name%2A", "orders"]
    assert session.does("ls /topics/odd%20name%2A/configs") == []
    assert session.does("ls /cluster/id /brokers topics/orders/id topics/a.b") == [
        *("/cluster/id", "/topics/orders/id"),
        *("", "/brokers:", "1", "2"),
        *("", "/topics/a.b:", "configs", "id", "partitions"),
    ]
    assert session.does("ls brokers cluster") == ["/brokers:", "1", "2", "", "/cluster:", "id"]


def test_ls_can_tell_how_much_there_is(session: Session) -> None:
    assert session.does("ls -l / /cluster/id")[0] == f"- {len(CLUSTER_ID):>10} /cluster/id"
    assert session.does("ls -l /topics/orders") == [f"d {2:>10} configs", f"- {22:>10} id", f"d {3:>10} partitions"]


def test_cat_prints_files(session: Session) -> None:
    assert session.does("cat /cluster/id") == [CLUSTER_ID]
    found = json.loads("\n".join(session.does("cat /topics/orders/partitions/2")))
    assert found["partitionId"] == 2
    assert session.does("cat /brokers/*/isFenced") == ["false", "true"]
    assert session.does("cat topics/orders/configs/*") == [r"two\nlines\x1b[31m", "1"]
    assert session.fails("cat") == "cat: name a file"
    assert session.fails("cat /topics") == "cat: /topics: is a directory"


def test_tree_shows_all_but_not_too_much(session: Session) -> None:
    assert session.does("tree /topics/orders") == [
        "/topics/orders",
        "  configs/",
        "    note",
        "    retention.ms",
        "  id",
        "  partitions/",
        *("    0", "    1", "    2"),
    ]
    assert session.does("tree -n 1 /topics") == [
        "/topics",
        "  a.b/",
        "    configs/",
        "    ... 2 more",
        "  ... 2 more",
    ]
    assert session.does("tree /cluster/id") == ["/cluster/id"]
    assert len(session.does("tree")) == sum(1 for _ in everything(root(session.source.connection)))
    MetadataTables(session.source.connection).apply(
        log_of([RECORDS, [topic("large", 9), *(partition(9, number) for number in range(2_000))]])
    )
    assert session.does("tree /topics/large/partitions")[-2:] == ["  19", "  ... 1,980 more"]
    assert session.does("tree /topics/large/partitions -n 2000")[-1] == "  1999"


def test_find_prints_paths_that_lead_there(session: Session) -> None:
    assert session.does("find /brokers") == [
        "/brokers",
        *(f"/brokers/{at}" for at in ("1", "1/inControlledShutdown", "1/isFenced", "1/registration")),
        *(f"/brokers/{at}" for at in ("2", "2/inControlledShutdown", "2/isFenced", "2/registration")),
    ]
    assert session.does("find / -name '{id,note}'") == [
        "/cluster/id",
        "/configs/topics/orders/note",
        "/topics/a.b/id",
        "/topics/odd%20name%2A/id",
        "/topics/orders/configs/note",
        "/topics/orders/id",
    ]
    assert session.does("find -name nothing") == session.does("find -name ''") == []
    session.does("cd /topics")
    assert session.does("find -name 'r*'") == ["orders/configs/retention.ms"]
    found = session.does("find")
    assert found[0] == "."
    assert session.does("ls -l " + " ".join(found[1:]))
    assert session.does("find ../brokers/1 -name '*ion'") == ["/brokers/1/registration"]
    assert session.does("find / -name /") == ["/"]


def test_cd_and_pwd(session: Session) -> None:
    assert session.does("pwd") == ["/"]
    for path, there in (
        ("topics", "/topics"),
        ("ord*", "/topics/orders"),
        ("./partitions/", "/topics/orders/partitions"),
        ("../..", "/topics"),
        ("gone/../a.b/.", "/topics/a.b"),
        ("/..", "/"),
        ("../../configs//brokers/default", "/configs/brokers/default"),
        ("", "/"),
    ):
        assert session.does(f"cd {path}") == []
        assert session.does("pwd") == [there] == [session.shell.current_directory]
    assert session.fails("cd /cluster/id") == "cd: /cluster/id: not a directory"
    assert session.fails("cd /topics/*") == "cd: /topics/*: stands for more than one path"
    assert session.fails("cd /topics/x") == "cd: /topics/x: no such file or directory"
    assert session.does("pwd") == ["/"]


def test_help_and_man_explain_every_command(session: Session) -> None:
    lines = session.does("help")
    assert lines == session.does("man")
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    for name in COMMANDS:
        usage, explanation = session.does(f"man {name}")
        assert usage.split()[0] == name
        assert explanation.startswith("    ")
        assert explanation.endswith(".")
    assert session.fails("man nonsense") == "man: nonsense: no such command"


@pytest.mark.parametrize("name", ["exit", "quit"])
def test_exit_ends_it(session: Session, name: str) -> None:
    session.does("")
    assert not session.shell.is_done
    session.does(name)
    assert session.shell.is_done


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ls /topics/x", "ls: /topics/x: no such file or directory"),
        ("ls /topics/x*", "ls: /topics/x*: no such file or directory"),
        ("ls ''", "ls: '': no such file or directory"),
        ("ls /cluster/id/", "ls: /cluster/id/: not a directory"),
        ("cat /cluster/id/x", "cat: /cluster/id/x: not a directory"),
        ("cat '/x\x1b[31m'", r"cat: /x\x1b[31m: no such file or directory"),
        ("find x/y", "find: x/y: no such file or directory"),
        ("tree x", "tree: x: no such file or directory"),
        ("tree / /", "tree: /: one word too many; usage: tree [-n COUNT] [PATH]"),
        ("tree -n", "tree: -n needs a value; usage: tree [-n COUNT] [PATH]"),
        ("tree -n 0", "tree: 0: no number from 1 to 999999999"),
        ("tree -n ١", "tree: ١: no number from 1 to 999999999"),
        ("ls -a", "ls: -a: no such option; usage: ls [-l] [PATH...]"),
        ("ls -- -l", "ls: -l: no such file or directory"),
        ("find -type f", "find: -type: no such option; usage: find [PATH] [-name GLOB]"),
        ("pwd x", "pwd: x: one word too many; usage: pwd"),
        ("rm -r /", "rm: no such command; see help"),
        ("'\x1b' /", r"\x1b: no such command; see help"),
        ("ls 'x", "ls 'x: no closing quotation"),
        ("ls x\\", "ls x\\: no escaped character"),
        ("cat /%ff", "cat: /%ff: no such file or directory"),
        ("cat /topics/a\0", r"cat: /topics/a\x00: no such file or directory"),
        ("ls " + "{a,b}" * 40, f"ls: {'{a,b}' * 40}: stands for too many paths"),
        ("ls " + "{a,a}" * 40, f"ls: {'{a,a}' * 40}: stands for too many paths"),
        ("ls " + "{" * 5000, f"ls: {'{' * 5000}: no such file or directory"),
    ],
)
def test_errors_are_one_line(session: Session, line: str, error: str) -> None:
    assert session.fails(line) == error


def test_the_rest_is_done_all_the_same(session: Session) -> None:
    assert not session.shell.run_line("cat /x /cluster/id /topics /{y,cluster}/id")
    assert session.output == [CLUSTER_ID] * 2
    assert session.errors == [
        "cat: /x: no such file or directory",
        "cat: /topics: is a directory",
        "cat: /y/id: no such file or directory",
    ]


def test_a_current_directory_that_goes_is_missed_and_left(session: Session) -> None:
    session.does("cd /topics/orders/partitions")
    session.source.connection.execute("DELETE FROM topics WHERE name = 'orders'")
    assert "no such file" in session.fails("ls ..")
    assert session.fails("cat 0") == "cat: 0: no such file or directory"
    session.does("cd ../..")
    assert session.does("ls") == ["a.b", "odd%20name%2A"]


# --- globs ------------------------------------------------------------------------------------------------------------

PIECE = st.one_of(
    st.sampled_from(["*", "?", "[a-o]", "[!o]", "[]", "[", "]", ".", "*s", "{", "}", ",", "%", "{a,o}*", "{0,{1,2}}"]),
    st.text(alphabet="abcdiorst012.*?", max_size=3),
)


@st.composite
def pattern(draw: st.DrawFn) -> str:
    """The path of something, some of whose names became patterns; or what is no path of anything."""
    if draw(st.integers(0, 4)) == 0:
        return "/".join(draw(st.lists(st.lists(PIECE, max_size=3).map("".join), min_size=1, max_size=4)))
    names = []
    for name in draw(st.sampled_from(LISTING)):
        begin = draw(st.integers(0, len(name)))
        end = draw(st.integers(begin, len(name)))
        names.append(draw(st.sampled_from([name, name, f"{name[:begin]}{draw(PIECE)}{name[end:]}", f"{{x,{name}}}"])))
    return "/".join(names)


def braces_expanded(text: str) -> set[str]:
    """What bash makes of it, but for braces that stay: the outermost first."""
    for start in (index for index, one in enumerate(text) if one == "{"):
        depth, parts, begin = 0, [], start + 1
        for position in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0 or (depth == 1 and text[position] == ","):
                parts.append(text[begin:position])
                begin = position + 1
            if depth == 0:
                break
        if depth == 0 and len(parts) > 1:
            pairs = product((one for part in parts for one in braces_expanded(part)), braces_expanded(text[begin:]))
            return {text[:start] + middle + rest for middle, rest in pairs}
    return {text}


def is_like(path: Sequence[str], pattern: str) -> bool:
    wanted: list[str] = []
    for name in pattern.split("/"):
        if name == "..":
            del wanted[-1:]
        elif name not in ("", "."):
            wanted.append(name)
    return len(path) == len(wanted) and all(map(fnmatch.fnmatchcase, path, wanted))


@settings(deadline=None)
@given(pattern())
def test_globs_find_what_fnmatch_finds_in_the_whole_listing(pattern: str) -> None:
    with closing(Memory().connection) as connection:
        tree = root(connection)
        found = set()
        for one in alternatives("/" + pattern):
            expected = [path for path in LISTING if is_like(path, one)]
            if one.endswith("/"):
                expected = [path for path in expected if not isinstance(NODES[path], File)]
            try:
                paths = [path for path, *_ in find_paths(tree, (), one)]
            except CommandError:
                paths = []
            assert paths == expected
            found.update(paths)
        expanded = braces_expanded("/" + pattern)
        if not any(one.endswith("/") or set("{}") & set(one) for one in expanded):
            assert found == {path for path in LISTING if any(is_like(path, one) for one in expanded)}


@given(st.text(alphabet="{},a", max_size=14))
def test_braces_are_those_of_bash_where_all_of_them_go(text: str) -> None:
    expanded = braces_expanded(text)
    if not any(set("{}") & set(one) for one in expanded):
        assert set(alternatives(text)) == expanded


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a", ["a"]),
        ("", [""]),
        ("{a,b}", ["a", "b"]),
        ("x{a,b}{c,d}y", ["xacy", "xady", "xbcy", "xbdy"]),
        ("a{b,c{d,e}}", ["ab", "acd", "ace"]),
        ("{,a}", ["", "a"]),
        ("{a}", ["{a}"]),
        ("{a,b", ["{a,b"]),
        ("/{topics/x,brokers}/1", ["/topics/x/1", "/brokers/1"]),
    ],
)
def test_braces_stand_for_alternatives(text: str, expanded: list[str]) -> None:
    assert alternatives(text) == expanded


def test_not_more_alternatives_than_can_be_tried() -> None:
    assert len(alternatives("{" + ",".join(map(str, range(1_000))) + "}")) == 1_000
    with pytest.raises(CommandError, match="too many"):
        alternatives("{" + ",".join(map(str, range(ALTERNATIVES_MAX))) + "}")


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
    session = Shell(shell.LiveDatabase(node), output.append, output.append)
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

        assert Shell(shell.LiveDatabase(node), say, said.append).run(["find", "/topics"])
        assert "/topics/new" not in said
        assert Shell(shell.LiveDatabase(node), said.append, said.append).run(["find", "/topics"])
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
    snapshot.write_bytes(snapshot.read_bytes()[:-60])
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

    monkeypatch.setattr(Shell, "run", interrupted)
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
    assert shell.completions(Shell(shell.LiveDatabase(tmp_path), print, print), "ls ", "/") == []


ON_A_TERMINAL = """
import sys
from kraftlog.cli import main
from tests.kraftlog.test_shell import make_app
main.app = make_app()
sys.exit(main.main(sys.argv[1:]))
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
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )
        os.close(terminal)

    def expect(self, text: str, seconds: float = 30) -> str:
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
        terminal.enter("cat x\x03")
        terminal.expect("/topics/orders> ")
        terminal.enter("cat i\t\n")
        assert id_to_text(an_id(1)) in terminal.expect("/topics/orders> ")
        terminal.enter("\x04")
        assert terminal.process.wait(30) == 0
