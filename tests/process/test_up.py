"""`kraftlog up`: a cluster in the foreground, stopped by Ctrl-C, resumed by the same command with all its data."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.clean_shutdown import FILE_NAME
from kraftlog.local.brokers import BROKERS_MAX, FIRST_BROKER_ID
from kraftlog.local.cluster_directory import OBSERVERS_MAX, VOTERS_MAX
from tests.kraftlog.command_line import Run, command, environment, kraftlog
from tests.shells import run_block

pytestmark = pytest.mark.process

NAME_BYTES_MAX = 15
"""The system shows no more of a process's name."""
EXPORT_LINE = re.compile(r"export KRAFTLOG_BOOTSTRAP_SERVER=(\S+)")


@contextmanager
def up(directory: Path, *options: object, said: list[str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`kraftlog up`, running and with a leader, and its addresses. `said` gets the lines before the table."""
    process = subprocess.Popen(
        command("up", "--dir", directory, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        try:
            yield process, _addresses(process, [] if said is None else said)
        finally:
            process.kill()


def _addresses(process: subprocess.Popen[str], said: list[str]) -> str:
    addresses = ""
    for line in process.stdout:
        said.append(line)
        if match := EXPORT_LINE.search(line):
            addresses = match[1]
        if "leader" in line:  # the table of nodes
            return addresses
    raise AssertionError(f"up ended: {process.stderr.read()}")


def test_up_resumes_with_all_data_after_ctrl_c(tmp_path: Path, run: Run) -> None:
    directory = tmp_path / "cluster"
    with up(directory, "--voters", 3, "--brokers", 1) as (process, addresses):
        at = ("--bootstrap-server", addresses)
        assert run("topics", "create", "kept", *at).code == 0
        cluster_id = run("quorum", "describe", "--status", *at, "--output", "json").json()["ClusterId"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    with up(directory) as (process, addresses):
        at = ("--bootstrap-server", addresses)
        topics = run("topics", "list", *at, "--output", "json").json()
        assert [topic["Topic"] for topic in topics] == ["kept"]
        assert run("quorum", "describe", "--status", *at, "--output", "json").json()["ClusterId"] == cluster_id
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_its_brokers_live_when_it_is_ready_hand_over_when_it_ends_and_lead_again_when_it_resumes(
    tmp_path: Path, run: Run
) -> None:
    directory, said = tmp_path / "cluster", list[str]()
    for attempt, end in enumerate((signal.SIGHUP, signal.SIGTERM)):
        options = ("--voters", 1, "--observers", 1, "--brokers", 3)
        with up(directory, *options, said=said) as (process, addresses):
            at = ("--bootstrap-server", addresses, "--output", "json")
            brokers = run("brokers", "list", *at).json()
            assert [(broker["BrokerId"], broker["Fenced"]) for broker in brokers] == [
                (FIRST_BROKER_ID + number, False) for number in range(3)
            ]
            rows = [process.stdout.readline().split() for _ in range(4)][1:]  # an observer, then the brokers
            assert rows == [[str(broker["BrokerId"]), _address(broker), "broker"] for broker in brokers]
            if attempt == 0:
                pasted = run_block("".join(line for line in said if line.startswith("  ")), tmp_path)
                assert (pasted.returncode, pasted.stderr) == (0, "")
                assert "Created topic events" in pasted.stdout
                assert "Records: 1000" in pasted.stdout
                created = run("topics", "create", "led", *at[:2], "--partitions", 6, "--replication-factor", 3)
                assert created.code == 0
            (topic,) = run("topics", "describe", "led", *at).json()
            led_by = {partition["Leader"] for partition in topic["Partitions"]}
            assert led_by <= {broker["BrokerId"] for broker in brokers}
            process.send_signal(end)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        assert _fenced(directory) == {FIRST_BROKER_ID + number: True for number in range(3)}
        assert [(directory / f"broker-{FIRST_BROKER_ID + number}" / FILE_NAME).exists() for number in range(3)] == [
            True
        ] * 3


def test_a_broker_that_cannot_start_is_reported_and_ends_no_other_and_one_that_is_left_out_is_named(
    tmp_path: Path, run: Run
) -> None:
    directory = tmp_path / "cluster"
    with up(directory, "--voters", 1, "--brokers", 2) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    (directory / f"broker-{FIRST_BROKER_ID}" / "meta.properties").write_text("version=1\n")
    said: list[str] = []
    with up(directory, "--brokers", 2, said=said) as (process, addresses):
        (told,) = [line for line in said if "meta.properties" in line]
        assert f"broker {FIRST_BROKER_ID} ended, its last words:" in told
        listed = run("brokers", "list", "--bootstrap-server", addresses, "--output", "json").json()
        assert [broker["Fenced"] for broker in listed] == [True, False]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "meta.properties" not in process.stdout.read(), "it is reported once"
    said.clear()
    with up(directory, said=said) as (process, _):
        (hint,) = [line for line in said if line.startswith("Not started")]
        assert hint.endswith("brokers 101, 102. --brokers 2 runs them, too.\n")


def test_a_number_of_brokers_that_cannot_be_is_refused_before_anything_is_made(tmp_path: Path, run: Run) -> None:
    directory = tmp_path / "cluster"
    for count in (-1, BROKERS_MAX + 1):
        said = run("up", "--dir", directory, "--brokers", count)
        assert said.is_error(ErrorCode.INVALID_CONFIG, f"{count} brokers", f"from 0 to {BROKERS_MAX}")
    assert not directory.exists()
    assert VOTERS_MAX + OBSERVERS_MAX < FIRST_BROKER_ID


def test_the_nodes_end_when_up_is_killed_and_can_be_resumed(tmp_path: Path) -> None:
    directory = tmp_path / "[" / "x]"  # no markup
    with up(directory, "--voters", 1) as (process, _):
        children = _nodes(process.pid)
        assert len(children) == 1
        process.kill()
    deadline = time.monotonic() + 100
    while any(_is_running(child) for child in children):
        assert time.monotonic() < deadline, "a node outlived its parent"
        time.sleep(0.05)
    with up(directory):
        pass


def test_what_is_killed_is_told_of_and_may_be_started_again_by_hand(tmp_path: Path, run: Run) -> None:
    directory = tmp_path / "a cluster"
    with up(directory, "--voters", 3, "--brokers", 1) as (process, addresses):
        at = ("--bootstrap-server", addresses)
        assert run("topics", "create", "kept", *at).code == 0
        before = run("brokers", "list", *at, "--output", "json").json()
        for kind, pid in ((b"brokers", _children(process.pid, b"brokers")[0]), (b"start", _nodes(process.pid)[0])):
            os.kill(pid, signal.SIGKILL)
            told = next(line for line in process.stdout if "was ended by SIGKILL" in line)
            if kind == b"start":
                assert run("quorum", "describe", "--status", *at, "--timeout", 60).code == 0
            with by_hand(told, tmp_path) as again:
                assert {b"start": "listens on", b"brokers": "is unfenced"}[kind] in again.stdout.readline()
                if kind == b"brokers":
                    after = run("brokers", "list", *at, "--output", "json").json()
                    assert [of["Endpoints"] for of in after] == [of["Endpoints"] for of in before]
                again.terminate()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def by_hand(told: str, directory: Path) -> subprocess.Popen[str]:
    """Runs the command that a message ends with, in a terminal that is elsewhere."""
    program, *arguments = shlex.split(told.partition("start it again: ")[2])
    assert program == "kraftlog"
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(),
        cwd=directory,
    )  # fmt: skip


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_when_it_is_told_to_though_a_node_hangs_in_its_start(tmp_path: Path, end: signal.Signals) -> None:
    line = command("up", "--dir", tmp_path / "cluster", "--voters", 1)
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        while not (children := _nodes(process.pid)):
            assert process.poll() is None
        os.kill(children[0], signal.SIGSTOP)
        process.send_signal(end)
        told = next((line for line in process.stdout if "Stopping" in line), None)
        os.kill(children[0], signal.SIGCONT)
        assert told is not None, process.stderr.read()
        assert (process.wait(30), process.stderr.read()) == (0, "")
    assert not _is_running(children[0])


def test_a_second_up_on_the_same_directory_is_one_line(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with up(directory, "--voters", 1):
        second = kraftlog("up", "--dir", directory)
        assert second.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "in use by another `kraftlog up`; stop that one")


def _address(broker: dict[str, Any]) -> str:
    (endpoint,) = broker["Endpoints"]
    return str(endpoint.removeprefix("PLAINTEXT://"))


def _fenced(directory: Path) -> dict[int, bool]:
    """Whether each broker was fenced when the nodes stopped: one that just falls silent is not, for some seconds."""
    with closing(sqlite3.connect(directory / "node-1" / "metadata.db")) as database:
        return {
            broker_id: bool(fenced) for broker_id, fenced in database.execute("SELECT broker_id, fenced FROM brokers")
        }


def _nodes(pid: int) -> list[int]:
    """The children that are nodes by now: before, each is a copy of its parent, which waits for it."""
    return _children(pid, b"start")


def _children(pid: int, kind: bytes) -> list[int]:
    """The children that run this command: `start` or `brokers`."""
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if _runs(Path(f"/proc/{child}"), kind)]


def _runs(process: Path, kind: bytes) -> bool:
    name = (process / "comm").read_bytes().strip()
    return b"\0%b\0" % kind in (process / "cmdline").read_bytes() or name == (b"kraftlog %b" % kind)[:NAME_BYTES_MAX]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
