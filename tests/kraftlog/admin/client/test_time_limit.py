"""`--timeout`: on every command that calls a cluster, and enforced on nodes that do not answer."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client import connection, leader_finder, time_limit
from kraftlog.cli.main import app
from kraftlog.cli.shared.timeout import with_timeout
from kraftlog.commands.clients import TIMEOUT_MS, allowed_ms
from tests.kraftlog.admin.client.scripted_node import scripted_nodes
from tests.kraftlog.cli.test_changes_as_json import asking_commands
from tests.kraftlog.command_line import Run, kraftlog

ASKING = asking_commands(with_timeout(typer.main.get_command(app)))


@pytest.fixture(autouse=True)
def no_limit() -> Iterator[None]:
    with time_limit.limits_end():
        yield


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield "{}:{}".format(*listening.getsockname())


@pytest.mark.parametrize("name", ASKING)
def test_every_command_that_asks_a_cluster_has_it_once(name: str) -> None:
    assert sum("--timeout" in parameter.opts for parameter in ASKING[name].params) == 1


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "1e9", "x"])
def test_what_is_no_time_is_a_usage_error(given: str, run: Run) -> None:
    said = run("topics", "list", "--bootstrap-server", "localhost:1", "--timeout", given)
    assert (said.code, said.output) == (2, "")
    assert "--timeout" in said.errors


def test_without_a_limit_everything_takes_what_it_takes() -> None:
    assert time_limit.allowed_seconds(10) == 10
    assert time_limit.allowed_call_seconds(2) == 2
    assert allowed_ms(TIMEOUT_MS) == TIMEOUT_MS


def test_a_limit_makes_shorter_and_longer_and_leaves_time_for_others() -> None:
    time_limit.set_limit(60)
    assert time_limit.allowed_seconds(10) == 60
    assert time_limit.allowed_call_seconds(2) == 20
    assert allowed_ms(TIMEOUT_MS) == 60_000
    time_limit.set_limit(1)
    assert time_limit.allowed_seconds(10) == 1
    assert time_limit.allowed_call_seconds(2) == 1


def test_the_limit_ends_with_its_command(run: Run) -> None:
    for arguments in (("topics", "list", "--timeout", 1), ("topics", "list")):
        said = run(*arguments, "--bootstrap-server", "localhost:1")
        assert said.is_error(ErrorCode.BROKER_NOT_AVAILABLE)
        assert time_limit.allowed_seconds(10) == 10


async def test_what_a_part_has_used_up_the_next_one_has_not_and_a_user_who_thinks_is_not_counted() -> None:
    time_limit.set_limit(100)
    started = time.monotonic()
    await time_limit.within_limit(asyncio.sleep(0.05))
    left, took = time_limit.allowed_seconds(10), time.monotonic() - started
    assert 100 - took <= left <= 99.95
    await asyncio.sleep(0.05)
    assert time_limit.allowed_seconds(10) == left


async def test_what_takes_longer_is_given_up_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "GRACE_SECONDS", 0.0)
    time_limit.set_limit(0.05)
    with pytest.raises(ApiError, match="the change may still be made") as failure:
        await time_limit.within_limit(asyncio.Event().wait())
    assert failure.value.code is ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(ApiError, match="nothing was changed"):
        await time_limit.within_limit(asyncio.Event().wait(), "nothing was changed")


@pytest.mark.parametrize(
    "arguments",
    [
        ("quorum", "describe", "--status"),
        ("topics", "list"),
        ("topics", "create", "x"),
        ("snapshot", "create"),
        ("watch",),
    ],
)
def test_somebody_silent_is_not_waited_for_longer(
    silent: str, run: Run, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What bounds a call by itself would end it in an hour."""
    monkeypatch.setattr(connection, "CALL_TIMEOUT_SECONDS", 3_600.0)
    monkeypatch.setattr(leader_finder, "DESCRIBE_TIMEOUT_SECONDS", 3_600.0)
    assert run(*arguments, "--bootstrap-server", silent, "--timeout", 0.2).is_error(ErrorCode.REQUEST_TIMED_OUT)


def test_an_export_from_somebody_silent_ends(silent: str, run: Run, tmp_path: Path) -> None:
    to = tmp_path / "exported"
    said = run("export", "--to", to, "--bootstrap-server", silent, "--timeout", 0.2)
    assert said.code == 1


async def test_a_leader_is_not_waited_for_longer() -> None:
    async with scripted_nodes() as (node,):
        node.leader = None
        arguments = ("topics", "create", "x", "--bootstrap-server", node.endpoint, "--timeout", 1)
        said = await asyncio.to_thread(kraftlog, *arguments)
    assert said.code == 1
    (given_up_ms,) = re.findall(r"gave up after (\d+) ms", said.errors)
    assert int(given_up_ms) <= 1_000 < TIMEOUT_MS
