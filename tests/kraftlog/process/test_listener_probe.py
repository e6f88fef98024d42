"""CT-65: what a node learns of the listeners of brokers, by connections of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

import pytest

from kraftbase.endpoint import Endpoint, Reply
from kraftlog.process.listener_probe import LOOKS_MAX, LOOKUPS_MAX, ListenerProbe
from tests.raft.nodes import free_port


async def replies(*endpoints: Endpoint) -> Mapping[Endpoint, Reply]:
    probe, found = ListenerProbe(), asyncio.get_running_loop().create_future()
    probe.connect(endpoints, found.set_result)
    try:
        return await found
    finally:
        await probe.close()


async def test_each_listener_has_its_reply() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listening = Endpoint("127.0.0.1", server.getsockname()[1])
        closed, unknown = Endpoint("127.0.0.1", free_port()), Endpoint("no-such-host.invalid", 9092)
        assert await replies(listening, closed, unknown) == {
            listening: Reply.ACCEPTED,
            closed: Reply.REFUSED,
            unknown: Reply.UNKNOWN,
        }


async def test_a_full_backlog_is_no_refusal() -> None:
    """As of a process that is paused for long."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(5)]
        for connection in waiting:
            connection.setblocking(False)
            connection.connect_ex(server.getsockname())
        full = Endpoint("127.0.0.1", server.getsockname()[1])
        assert await replies(full) == {full: Reply.UNKNOWN}
        for connection in waiting:
            connection.close()


async def test_few_connections_are_tried_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = asyncio.Event()

    async def reply_of(endpoint: Endpoint, _: object) -> Reply:
        await hang.wait()
        return Reply.REFUSED

    monkeypatch.setattr("kraftlog.process.listener_probe.reply_of", reply_of)
    probe, found = ListenerProbe(), list[Mapping[Endpoint, Reply]]()
    endpoint = Endpoint("127.0.0.1", 9092)
    for _ in range(LOOKS_MAX + 1):
        probe.connect((endpoint,), found.append)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert found == [{}]
    hang.set()
    while len(found) <= LOOKS_MAX:
        await asyncio.sleep(0)
    assert found[1:] == [{endpoint: Reply.REFUSED}] * LOOKS_MAX
    await probe.close()


async def test_names_that_are_looked_up_for_ever_take_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    hang, asked = asyncio.Event(), list[object]()

    async def getaddrinfo(*name: object, **options: object) -> list[object]:
        asked.append(name)
        await hang.wait()
        return []

    monkeypatch.setattr("raft.rpc.closed_ports.PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    probe, endpoint = ListenerProbe(), Endpoint("slow", 9092)
    for _ in range(2 * LOOKUPS_MAX):
        found = asyncio.get_running_loop().create_future()
        probe.connect((endpoint,), found.set_result)
        assert await found == {endpoint: Reply.UNKNOWN}
    assert len(asked) == LOOKUPS_MAX
    hang.set()
    while probe._lookups:
        await asyncio.sleep(0)
    await probe.close()
