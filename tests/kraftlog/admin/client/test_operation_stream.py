"""A client's stream to a node that hangs, and a stream that is given up while it is in use."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from kraftbase.endpoint import Endpoint
from kraftlog.admin.client.channels import open_channel
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.operation_stream import NotSent, OperationStream, OutcomeUnknown
from tests.kraftlog.admin.client.scripted_node import ScriptedNode, executed, scripted_nodes
from tests.statemachine.builders import create
from tests.statemachine.waiting import turns, until


@pytest_asyncio.fixture
async def nodes() -> AsyncIterator[Sequence[ScriptedNode]]:
    async with scripted_nodes(2) as nodes:
        yield nodes


def hang(node: ScriptedNode) -> tuple[asyncio.Event, asyncio.Event]:
    """Have `node` answer nothing from the next message on; returns two events: it arrived, and continue."""
    arrived, node.hold = asyncio.Event(), asyncio.Event()
    node.on_receive = arrived.set
    return arrived, node.hold


async def test_new_operations_go_around_a_leader_that_hangs(
    nodes: Sequence[ScriptedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, successor = nodes
    hung.script, successor.script = [executed(1)], [executed(2)]
    arrived, go_on = hang(hung)
    async with AdminClient([node.endpoint for node in nodes]) as client:
        pending = asyncio.create_task(client.execute(create("a")))
        await arrived.wait()
        successor.leader, successor.leader_epoch = successor.endpoint, 5
        monkeypatch.setattr("kraftlog.admin.client.operation_stream.STALL_SECONDS", 0)
        assert (await client.execute(create("b"))).end_offset == 2
        assert not pending.done()
        go_on.set()
        assert (await pending).end_offset == 1
    assert [len(node.received) for node in nodes] == [1, 1]


async def test_a_stream_that_waits_for_nothing_is_open_however_long_it_was_quiet(
    nodes: Sequence[ScriptedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.admin.client.operation_stream.STALL_SECONDS", -1)
    arrived, go_on = hang(nodes[0])
    stream = await OperationStream.open(nodes[0].endpoint, open_channel(nodes[0].endpoint))
    assert stream.is_open
    pending = asyncio.create_task(stream.execute(create("a"), 20_000))
    await arrived.wait()
    assert not stream.is_open
    with pytest.raises(NotSent, match="stalled"):
        await stream.execute(create("b"), 20_000)
    go_on.set()
    await pending
    assert stream.is_open
    await stream.close()


async def test_after_an_operation_without_any_answer_new_ones_go_around_the_node_until_it_says_something(
    nodes: Sequence[ScriptedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short the callers' timeouts are: one after the other they would never wait long enough to see a stall."""
    monkeypatch.setattr("kraftlog.admin.client.operation_stream.ANSWER_GRACE_SECONDS", 0)
    _, go_on = hang(nodes[0])
    stream = await OperationStream.open(nodes[0].endpoint, open_channel(nodes[0].endpoint))
    with pytest.raises(OutcomeUnknown):
        await stream.execute(create("a"), 50)
    assert not stream.is_open
    with pytest.raises(NotSent, match="stalled"):
        await stream.execute(create("b"), 20_000)
    go_on.set()
    await until(lambda: stream.is_open)
    await stream.close()


async def test_a_stream_that_is_retired_finishes_the_write_under_way_and_sends_no_more(
    nodes: Sequence[ScriptedNode],
) -> None:
    arrived, go_on = hang(nodes[0])
    stream = await OperationStream.open(nodes[0].endpoint, open_channel(nodes[0].endpoint))
    names = ["first", "large" + "x" * 8_000_000, "unsent"]
    first = asyncio.create_task(stream.execute(create(names[0]), 20_000))
    await arrived.wait()
    large = asyncio.create_task(stream.execute(create(names[1]), 20_000))
    await until(lambda: len(stream._sent) == 2)
    unsent = asyncio.create_task(stream.execute(create(names[2]), 20_000))
    await turns(2)
    stream.retire()
    with pytest.raises(NotSent):
        await unsent
    assert not first.done() and not large.done()
    go_on.set()
    assert [result.error_code for result in await asyncio.gather(first, large)] == [0, 0]
    assert [operation.create_topics.topics[0].name for operation in nodes[0].received] == names[:2]
    await until(lambda: stream.is_finished)


async def test_a_retired_stream_to_a_node_that_hangs_ends_with_its_last_operation(
    nodes: Sequence[ScriptedNode],
) -> None:
    arrived, _ = hang(nodes[0])
    stream = await OperationStream.open(nodes[0].endpoint, open_channel(nodes[0].endpoint))
    pending = asyncio.create_task(stream.execute(create("a"), 20_000))
    await arrived.wait()
    stream.retire()
    assert not stream.is_finished
    pending.cancel()
    await until(lambda: stream.is_finished)


async def test_a_node_that_takes_connections_and_hangs_keeps_nobody_from_finding_the_leader(
    nodes: Sequence[ScriptedNode],
) -> None:
    nodes[1].leader, nodes[1].leader_epoch = nodes[1].endpoint, 5
    with socket.create_server(("127.0.0.1", 0)) as nobody_accepts:
        hung = Endpoint("127.0.0.1", nobody_accepts.getsockname()[1])
        nodes[0].leader, nodes[0].leader_epoch = hung, 4  # it led before
        async with AdminClient([hung, nodes[0].endpoint, nodes[1].endpoint]) as client:
            await client.execute(create("a"))
    assert len(nodes[1].received) == 1
