"""The brokers of a local cluster: what is said of them, without their processes."""

from __future__ import annotations

import shlex
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import pytest
from rich.console import Console
from rich.table import Table

from kraftbase.endpoint import Endpoint
from kraftlog.local.brokers import BrokerState, LocalBrokers, add_broker_rows
from kraftlog.local.status import lines_to_paste

NODES = (Endpoint("localhost", 9191), Endpoint("::1", 9192))
UP = BrokerState(7, False, Endpoint("localhost", 9292))


def brokers(directory: Path, first_port: int | None = None) -> LocalBrokers:
    return LocalBrokers(Mock(), NODES, directory, 2, first_port, {"log.retention.ms": "-1"})


def test_the_command_that_starts_a_broker_again_can_be_pasted_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(brokers(Path("my cluster"), 9300).command_by_hand(102))
    assert program == "kraftlog"
    assert arguments == [
        "brokers", "run", "--id", "102",
        "--bootstrap-server", "localhost:9191,[::1]:9192",
        "--endpoint", "PLAINTEXT://localhost:9301",
        "--data-dir", str(tmp_path / "my cluster" / "broker-102"),
        "--config", "log.retention.ms=-1",
    ]  # fmt: skip


def test_lines_to_paste_name_nodes_and_brokers_for_a_shell() -> None:
    assert lines_to_paste(NODES[:1], {}) == [
        "export KRAFTLOG_BOOTSTRAP_SERVER=localhost:9191",
        "kraftlog quorum describe --status",
    ]
    nodes, exported, created, *_ = lines_to_paste(NODES, {101: UP, 102: BrokerState(8, False, NODES[1])})
    assert nodes == "export KRAFTLOG_BOOTSTRAP_SERVER='localhost:9191,[::1]:9192'"
    assert exported == "export KRAFTLOG_BROKERS='localhost:9292,[::1]:9192'"
    assert created.endswith(" --replication-factor 2")


def test_a_broker_that_was_started_again_by_hand_is_shown_as_one_that_lives(tmp_path: Path) -> None:
    table = Table("Node", "Address", "Role", box=None, pad_edge=False)
    add_broker_rows(table, brokers(tmp_path), {101: UP})
    printed = StringIO()
    Console(file=printed).print(table)
    assert [line.split() for line in printed.getvalue().splitlines()[1:]] == [
        ["101", "localhost:9292", "broker"],
        ["102", "has", "ended"],
    ]
