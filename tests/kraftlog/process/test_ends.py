"""Nodes and brokers shut down in their own order at TERM, INT and HUP alike."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbase.errors import StorageError
from kraftbase.stop_signals import STOP_SIGNALS
from kraftlog.broker.running import Callbacks
from kraftlog.broker.settings import BrokerSettings
from kraftlog.commands import broker_process
from kraftlog.process import server
from statemachine.query.descriptions import BrokerListener

TIMEOUT_SECONDS = 60


@pytest.fixture(autouse=True)
def given_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What this process does at the signals is as before; what it does with its garbage does not change."""
    for module in (server, broker_process):
        for name in ("take_turns", "keep_what_is_there", "look_at_old_objects_seldom"):
            monkeypatch.setattr(module, name, lambda: None, raising=False)
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


LOGS = SimpleNamespace(
    online=[SimpleNamespace(path="/disk-1", logs=dict.fromkeys(range(3)))],
    directories=[
        SimpleNamespace(path="/disk-1", offline_reason=""), SimpleNamespace(path="/disk-2", offline_reason="broken"),
    ],
    failed={"/disk-3": "not there"},
)  # fmt: skip


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_node_shuts_down(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    ended: list[str] = []

    @contextlib.asynccontextmanager
    async def node(*_: object) -> AsyncIterator[object]:
        yield object()
        ended.append("in order")

    monkeypatch.setattr(server, "running_node", node)
    config: Any = SimpleNamespace(node_id=1)

    async def run() -> None:
        ready = partial(os.kill, os.getpid(), number)
        await asyncio.wait_for(server.serve(config, ready=ready), TIMEOUT_SECONDS)

    asyncio.run(run())
    assert ended == ["in order"]


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_broker_shuts_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals) -> None:
    ended: list[str] = []

    async def unless_ended(work: asyncio.Task[None]) -> None:
        os.kill(os.getpid(), number)
        await work

    @contextlib.asynccontextmanager
    async def running(*_: object) -> AsyncIterator[object]:
        yield SimpleNamespace(epoch=7, ports={}, unless_ended=unless_ended, logs=LOGS)
        ended.append("in order")

    monkeypatch.setattr(broker_process, "running", running)
    settings = BrokerSettings(
        broker_id=1, directory=tmp_path, listeners=(BrokerListener("PLAINTEXT", "localhost", 0),),
        configs={"log.retention.ms": "5"},
    )  # fmt: skip
    said: list[str] = []

    async def run() -> None:
        await asyncio.wait_for(
            broker_process.run_broker(settings, [], Callbacks(), said.append, "0.9"), TIMEOUT_SECONDS
        )

    asyncio.run(run())
    assert ended == ["in order"]
    assert said[-1] == "Broker 1 has shut down."
    assert said[2:4] == [
        f"kraftlog 0.9, data in {tmp_path}, rack none, configs: log.retention.ms=5",
        "3 logs in /disk-1; offline: /disk-3, /disk-2",
    ]


async def test_a_broker_that_is_stopped_while_it_starts_says_why_it_could_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is cancelled while a thread looks at its disks, and the thread finds that they are broken."""

    @contextlib.asynccontextmanager
    async def running(*_: object) -> AsyncIterator[object]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise StorageError("input/output error") from None
        yield object()

    monkeypatch.setattr(broker_process, "running", running)
    settings = BrokerSettings(
        broker_id=1, directory=tmp_path, listeners=(BrokerListener("PLAINTEXT", "localhost", 0),), configs={}
    )
    with pytest.raises(StorageError, match="input/output error"):
        await asyncio.wait_for(
            broker_process.run_broker(settings, [], Callbacks(), lambda line: None, "0.9"), TIMEOUT_SECONDS
        )
