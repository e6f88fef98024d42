"""`kraftlog snapshot` against a running node: what each command prints, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from snapshot.names import snapshot_name
from tests.kraftlog.command_line import Finished, Run, command, environment, running_brokers
from tests.kraftlog.node_directories import contents, flip
from tests.snapshot.builders import an_id, overwrite

NOWHERE = Endpoint("127.0.0.1", 1)
COLUMNS = ["EndOffset", "Epoch", "SizeBytes", "LastContainedLogTimestamp", "Path"]
WIDE_PARTITIONS = 40
"""A snapshot with so many is larger than 1 kB, whichever tests ran before."""

MOMENT = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


# --- a node that runs -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A sole voter with nothing but its own first records."""
    cluster = LocalCluster(open_or_create(tmp_path_factory.mktemp("cluster"), voters=1, observers=0))
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_for_leader())
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture(scope="module")
def broker(cluster: LocalCluster) -> Iterator[None]:
    """A broker that lives, so that topics can be placed."""
    with running_brokers(cluster.bootstrap_servers[0], 1):
        yield


@pytest.fixture
def ask(run: Run, cluster: LocalCluster, broker: None) -> Run:
    """Runs a command against that node; an address where no node listens precedes its own."""

    def ask(*arguments: object) -> Finished:
        return run(*arguments, "--bootstrap-server", f"{NOWHERE},{cluster.bootstrap_servers[0]}")

    return ask


@pytest.fixture
def data(cluster: LocalCluster) -> Path:
    """That node's data directory."""
    return cluster.directory.path / "node-1"


def taken(ask: Run, name: str) -> dict[str, object]:
    """Change something, and have a snapshot of it."""
    assert ask("topics", "create", name, "--partitions", 2, "--config", "retention.ms=5").code == 0
    created: dict[str, object] = ask("snapshot", "create", "--output", "json").json()
    assert created["IsNew"] is True
    return created


@pytest.mark.process
def test_a_node_without_a_snapshot_has_an_empty_list_and_none_to_copy(
    run: Run, tmp_path: Path, cluster: LocalCluster, ask: Run, data: Path
) -> None:
    for snapshot in (data / "snapshots").iterdir():  # of the tests before, if any ran before this one
        snapshot.unlink()
    assert ask("snapshot", "list", "--output", "json").json() == []
    assert ask("snapshot", "list").lines()[0].split() == COLUMNS
    assert run("snapshot", "list", data, "--output", "json").json() == []
    said = ask("snapshot", "save", "--to", tmp_path)
    assert said.is_error(ErrorCode.SNAPSHOT_NOT_FOUND, f"{cluster.bootstrap_servers[0]} says: this node has no")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_create_tells_what_was_taken_and_whether_it_had_been(ask: Run, data: Path) -> None:
    created = taken(ask, "created")
    assert list(created) == ["NodeId", *COLUMNS, "IsNew"]
    path = Path(str(created["Path"]))
    assert path == data / "snapshots" / snapshot_name(an_id(created["EndOffset"], created["Epoch"]))
    assert path.stat().st_size == created["SizeBytes"]
    assert MOMENT.fullmatch(str(created["LastContainedLogTimestamp"]))
    again = ask("snapshot", "create", "--output", "json").json()
    assert again == {**created, "IsNew": False}
    lines = ask("snapshot", "create").lines()
    assert [line.split() for line in lines[:-1]] == [[f"{name}:", str(created[name])] for name in ("NodeId", *COLUMNS)]
    assert lines[-1] == "It existed before; nothing was applied since."
    ask("topics", "create", "created-then")
    assert len(ask("snapshot", "create").lines()) == len(lines) - 1


@pytest.mark.process
def test_list_shows_the_same_from_the_node_and_from_its_disk(run: Run, ask: Run, data: Path) -> None:
    created = taken(ask, "listed")
    rows = run("snapshot", "list", data, "--output", "json").json()
    assert list(rows[-1]) == COLUMNS
    assert rows[-1] == {name: created[name] for name in COLUMNS}
    assert ask("snapshot", "list", "--output", "json").json() == [{"NodeId": 1, **row} for row in rows]
    table = ask("snapshot", "list").lines()
    assert table == run("snapshot", "list", data).lines() == run("snapshot", "list", data / "snapshots").lines()
    assert table[-1].split() == [str(created[name]) for name in COLUMNS]


@pytest.mark.process
def test_a_directory_goes_before_the_nodes_that_the_environment_names(
    run: Run, data: Path, ask: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAFTLOG_BOOTSTRAP_SERVER", str(NOWHERE))
    assert run("snapshot", "list", data).code == 0
    assert run("snapshot", "list").is_error(ErrorCode.BROKER_NOT_AVAILABLE, str(NOWHERE))
    said = ask("snapshot", "list", data)
    assert (said.code, "leave one of them out" in said.errors) == (2, True)


@pytest.mark.process
def test_save_copies_the_newest_byte_for_byte(run: Run, ask: Run, tmp_path: Path) -> None:
    created = taken(ask, "saved")
    saved = ask("snapshot", "save", "--to", tmp_path, "--output", "json").json()
    original = Path(str(created["Path"]))
    copy = tmp_path / original.name
    inspected = run("snapshot", "inspect", copy, "--output", "json").json()
    assert saved == {name: inspected[name] for name in ("Path", "EndOffset", "Epoch", "SizeBytes", "Records", "Digest")}
    assert list(tmp_path.iterdir()) == [copy]
    assert copy.read_bytes() == original.read_bytes()
    before = contents(tmp_path)
    for target in (tmp_path, copy):  # a backup job that runs again
        assert ask("snapshot", "save", "--to", target, "--output", "json").json() == saved
    assert contents(tmp_path) == before


@pytest.mark.process
def test_the_shell_shows_a_running_cluster_as_it_is_now(run: Run, ask: Run, cluster: LocalCluster) -> None:
    ask("brokers", "register", "--id", 31, "--endpoint", "PLAINTEXT://localhost:9192").lines()
    nodes = f"{NOWHERE},{cluster.bootstrap_servers[0]}"
    live = run("shell", "--live", "--bootstrap-server", nodes, "ls", "/brokers/31").lines()
    assert "isFenced" in live
    said = run("shell", "--live", "--bootstrap-server", str(NOWHERE), "ls")
    assert said.code == 1
    assert str(NOWHERE) in said.errors


def test_save_finds_one_by_its_id_or_by_the_name_of_the_file(ask: Run, tmp_path: Path) -> None:
    older, newer = taken(ask, "older"), taken(ask, "newer")
    name = Path(str(older["Path"])).name
    by_id = ("--end-offset", older["EndOffset"], "--epoch", older["Epoch"])
    for directory, arguments in (("by-id", ("", by_id)), ("by-name", (name, ())), ("by-both", (name, by_id))):
        (tmp_path / directory).mkdir()
        target, options = arguments
        lines = ask("snapshot", "save", "--to", tmp_path / directory / target, *options).lines()
        assert lines[0].split() == ["Path:", str(tmp_path / directory / name)]
        assert (tmp_path / directory / name).read_bytes() == Path(str(older["Path"])).read_bytes()
    before = contents(tmp_path)
    elsewhere = tmp_path / Path(str(newer["Path"])).name
    said = ask("snapshot", "save", "--to", elsewhere, *by_id)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "is not the name of the snapshot", name)
    said = ask("snapshot", "save", "--to", tmp_path, "--end-offset", 1, "--epoch", 7)
    assert said.is_error(ErrorCode.SNAPSHOT_NOT_FOUND, "no snapshot with end offset 1 and epoch 7")
    said = ask("snapshot", "save", "--to", tmp_path / snapshot_name(an_id(1, 7)))
    assert said.is_error(ErrorCode.SNAPSHOT_NOT_FOUND, "no snapshot with end offset 1 and epoch 7")
    assert contents(tmp_path) == before


@pytest.mark.process
def test_what_the_node_finds_damaged_is_not_copied(ask: Run, tmp_path: Path) -> None:
    path = Path(str(taken(ask, "damaged")["Path"]))
    sound = path.read_bytes()
    flip(path, -1)
    try:
        said = ask("snapshot", "save", "--to", tmp_path)
    finally:
        overwrite(path, sound)
    assert said.is_error(ErrorCode.CORRUPT_MESSAGE, "is damaged", path.name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_bar_is_drawn_on_a_terminal_only(ask: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    assert ask("topics", "create", "wide", "--partitions", WIDE_PARTITIONS).code == 0
    taken(ask, "bar")
    arguments = command(
        "snapshot", "save", "--to", tmp_path, "--bootstrap-server", cluster.bootstrap_servers[0], "--output", "json"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=theirs, env=environment(TERM="xterm"), text=True
    ) as process:
        os.close(theirs)
        drawn = b"".join(iter(lambda: _read(ours), b""))
        printed = process.communicate(timeout=60)[0]
    os.close(ours)
    assert process.returncode == 0
    size_bytes = json.loads(printed)["SizeBytes"]
    assert size_bytes >= 1_000, "the bar counts a smaller one in bytes"
    kilobytes = f"{size_bytes / 1000:.1f}"
    assert f"{kilobytes}/{kilobytes} kB" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.decode())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's error when the other end is closed
        return b""


# --- nodes and targets that are none --------------------------------------------------------------------------------


def test_a_command_that_is_misused_is_one_line_and_exit_code_2(run: Run, tmp_path: Path) -> None:
    at_nowhere = ("--bootstrap-server", NOWHERE)
    for arguments in (
        ("create",),
        ("list",),
        ("list", ""),
        ("list", tmp_path, *at_nowhere),
        ("inspect",),
        ("verify",),
        ("save", *at_nowhere),
        ("save", "--to", tmp_path),
        ("save", *at_nowhere, "--to", ""),
        ("save", *at_nowhere, "--to", tmp_path, "--epoch", 1),
        ("save", *at_nowhere, "--to", tmp_path, "--end-offset", 1),
        ("save", *at_nowhere, "--to", tmp_path, "--end-offset", -1, "--epoch", 1),
        ("save", *at_nowhere, "--to", tmp_path, "--end-offset", 1, "--epoch", 2**31),
    ):
        said = run("snapshot", *arguments)
        assert (said.code, said.output, said.errors.count("\n")) == (2, "", 1), said


def test_nobody_there_is_one_line(run: Run, tmp_path: Path) -> None:
    for arguments in (("create",), ("list",), ("save", "--to", tmp_path)):
        said = run("snapshot", *arguments, "--bootstrap-server", NOWHERE)
        assert said.is_error(ErrorCode.BROKER_NOT_AVAILABLE, str(NOWHERE))
    assert list(tmp_path.iterdir()) == []


def test_a_bad_target_is_refused_before_anybody_is_asked(run: Run, tmp_path: Path) -> None:
    (tmp_path / snapshot_name(an_id(5, 1))).symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.iterdir())
    by_id = ("--end-offset", 5, "--epoch", 1)
    for target, options, words in (
        (tmp_path / "backup", (), f"directory {tmp_path / 'backup'} does not exist; create it"),
        (tmp_path / "backup.checkpoint", (), "is not named like a snapshot"),
        (tmp_path / "nowhere" / snapshot_name(an_id(5, 1)), (), f"directory {tmp_path / 'nowhere'} does not exist"),
        (tmp_path / snapshot_name(an_id(5, 1)), (), "already exists"),
        (tmp_path, by_id, "already exists"),
        (tmp_path / snapshot_name(an_id(6, 1)), by_id, "is not the name of the snapshot"),
    ):
        said = run("snapshot", "save", "--bootstrap-server", NOWHERE, "--to", target, *options)
        assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, words)
    assert sorted(tmp_path.iterdir()) == before
