"""`kraftlog produce`, `consume` and `log-dirs` without a broker: usage, and what is missing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.clients import broker_errors
from tests.kraftlog.command_line import Run, run
from tests.raft.nodes import free_port

__all__ = ["run"]

NOWHERE = "127.0.0.1:1"
AT_NOWHERE = ("--bootstrap-server", NOWHERE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["produce"], "Missing argument 'TOPIC'"),
        (["consume", "t"], "Missing option '--bootstrap-server'"),
        (["consume", "t"], "`kraftlog brokers list` shows where brokers listen"),
        (["log-dirs", "--bootstrap-server", "localhost"], "'localhost' is not an address"),
        (["produce", "t", *AT_NOWHERE, "--json", "--headers"], "leave the other options out"),
        (["produce", "t", *AT_NOWHERE, "--json", "--key-separator", ":"], "leave the other options out"),
        (["produce", "t", *AT_NOWHERE, "--key-separator", ""], "it is empty"),
        (["produce", "t", *AT_NOWHERE, "--acks", "1", "--idempotence"], "needs --acks all, not 1"),
        (["produce", "t", *AT_NOWHERE, "--acks", "2"], "'2'"),
        (["produce", "t", *AT_NOWHERE, "--compression", "zip"], "'zip'"),
        (["produce", "t", *AT_NOWHERE, "--partition", str(2**31)], str(2**31 - 1)),
        (["produce", "t", *AT_NOWHERE, "--linger-ms", "-1"], "--linger-ms"),
        (["produce", "t", *AT_NOWHERE, "--batch-bytes", "0"], "--batch-bytes"),
        (["produce", "t", *AT_NOWHERE, "--file", ""], "--file"),
        (["consume", "t", *AT_NOWHERE, "--from", "now"], "'now' is not a position in a partition"),
        (["consume", "t", *AT_NOWHERE, "--to", "2026-11-24T03:15:00"], "has no time zone"),
        (["consume", "t", *AT_NOWHERE, "--to", "beginning"], "there are no records before the beginning"),
        (["consume", "t", *AT_NOWHERE, "--to", "5", "--until-end"], "leave one of them out"),
        (["consume", "t", *AT_NOWHERE, "--count", "0"], "--count"),
        (["consume", "t", *AT_NOWHERE, "--isolation", "none"], "'none'"),
        (["consume", "t", *AT_NOWHERE, "--checksum", "--keys"], "leave --keys"),
        (["consume", "t", *AT_NOWHERE, "--output", "json", "--offsets"], "leave --keys"),
        (["log-dirs", *AT_NOWHERE, "--broker", "-1"], "--broker"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(run: Run, arguments: list[str], words: str) -> None:
    said = run(*arguments)
    assert (said.code, said.output) == (2, "")
    assert re.fullmatch(r"error: .*; see kraftlog.* --help\n", said.errors), said.errors
    assert words in said.errors


@pytest.mark.parametrize("arguments", [["produce", "t"], ["consume", "t"], ["log-dirs"]])
def test_an_address_where_nobody_listens_is_one_line(run: Run, arguments: list[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    said = run(*arguments, "--bootstrap-server", address)
    assert said.is_error(ErrorCode.BROKER_NOT_AVAILABLE, address)
    assert "check the addresses" in said.errors


def test_the_servers_may_be_in_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAFTLOG_BROKERS", NOWHERE)
    monkeypatch.setenv("KRAFTLOG_BOOTSTRAP_SERVER", "127.0.0.1:2")
    assert run("log-dirs").is_error(ErrorCode.BROKER_NOT_AVAILABLE, NOWHERE)


@pytest.mark.parametrize("arguments", [["produce", "t"], ["consume", "t"]])
def test_without_the_library_it_is_said_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(broker_errors, "LIBRARY", "a_package_that_nobody_has")
    assert run(*arguments, *AT_NOWHERE).is_error(ErrorCode.INVALID_CONFIG, "pip install '.[clients]'")


def test_nothing_else_needs_the_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == broker_errors.LIBRARY]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, broker_errors.LIBRARY, None)
    assert run("log-dirs", *AT_NOWHERE).is_error(ErrorCode.BROKER_NOT_AVAILABLE)
    for command in ("produce", "consume", "log-dirs"):
        assert run(command, "--help").code == 0


def test_a_file_that_is_not_there_is_named_before_a_broker_is_asked(run: Run, tmp_path: Path) -> None:
    said = run("produce", "t", *AT_NOWHERE, "--file", tmp_path / "none")
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(tmp_path / "none"))
