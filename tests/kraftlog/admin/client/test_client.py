"""The admin client: what it retries, what it does not, and how it finds the node to ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from socket import socket

import pytest
import pytest_asyncio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client import node_reader
from kraftlog.admin.client.client import AdminClient, NotSent, OutcomeUnknown
from kraftlog.admin.client.node_reader import NotApplied
from kraftpb.v1 import admin_pb2
from statemachine.words.limits import OPERATION_TIMEOUT_MS_MAX
from tests.kraftlog.admin.client.scripted_node import HANG_UP, ScriptedNode, executed, refused, scripted_nodes
from tests.raft.nodes import free_port
from tests.statemachine.builders import create
from tests.statemachine.waiting import until


@pytest_asyncio.fixture
async def nodes() -> AsyncIterator[Sequence[ScriptedNode]]:
    async with scripted_nodes(3) as nodes:
        yield nodes


def client_of(*nodes: ScriptedNode, timeout_ms: int = 20_000) -> AdminClient:
    return AdminClient([node.endpoint for node in nodes], timeout_ms=timeout_ms)


def nobody() -> Endpoint:
    return Endpoint("127.0.0.1", free_port())


# --- finding the leader -----------------------------------------------------------------------------------------------


async def test_any_nodes_address_leads_to_the_leader(nodes: Sequence[ScriptedNode]) -> None:
    async with client_of(nodes[2]) as client:
        await client.execute(create("a"))
    assert [len(node.received) for node in nodes] == [1, 0, 0]


async def test_one_living_address_of_many_is_enough(nodes: Sequence[ScriptedNode]) -> None:
    async with AdminClient([nobody(), nodes[1].endpoint, nobody()]) as client:
        await client.execute(create("a"))
    assert len(nodes[0].received) == 1


async def test_the_cluster_is_the_one_of_the_leader_whoever_else_answers() -> None:
    async with scripted_nodes(8) as nodes, client_of(*nodes) as client:
        for node in nodes:
            node.cluster_id = "another"
        nodes[3].cluster_id, nodes[3].leader, nodes[3].leader_epoch = "its own", nodes[3].endpoint, 5
        assert await client.cluster_id() == "its own"
        assert (await client.execute(create("a"))).end_offset == 1
        assert len(nodes[3].received) == 1


async def test_the_node_that_knows_of_the_highest_epoch_is_believed(nodes: Sequence[ScriptedNode]) -> None:
    nodes[1].leader, nodes[1].leader_epoch = nodes[1].endpoint, 5
    async with client_of(*nodes) as client:
        await client.execute(create("a"))
    assert [len(node.received) for node in nodes] == [0, 1, 0]


async def test_a_node_that_does_not_lead_any_more_says_who_does(nodes: Sequence[ScriptedNode]) -> None:
    nodes[0].script = [refused(ErrorCode.NOT_CONTROLLER, leader=nodes[1].endpoint)]
    async with client_of(nodes[0]) as client:
        result = await client.execute(create("a"))
        await client.execute(create("b"))
    assert result.error_code == 0
    assert [len(node.received) for node in nodes] == [1, 2, 0]


async def test_a_leader_that_is_not_active_yet_is_asked_again_over_the_same_stream(
    nodes: Sequence[ScriptedNode],
) -> None:
    not_yet = refused(ErrorCode.NOT_CONTROLLER, leader=nodes[0].endpoint)
    nodes[0].script = [not_yet, not_yet, executed()]
    async with client_of(nodes[0]) as client:
        await client.execute(create("a"))
    assert [operation.correlation_id for operation in nodes[0].received] == [1, 2, 3]


async def test_without_a_leader_there_is_an_error_that_says_what_to_do(nodes: Sequence[ScriptedNode]) -> None:
    for node in nodes:
        node.leader = None
    async with client_of(*nodes, timeout_ms=1_000) as client:
        with pytest.raises(NotSent, match="majority of the voters") as failure:
            await client.execute(create("a"))
    assert failure.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert "1000 ms" in str(failure.value)


async def test_if_nobody_answers_the_addresses_are_named() -> None:
    endpoint = nobody()
    async with AdminClient([endpoint], timeout_ms=1_000) as client:
        with pytest.raises(ApiError, match=str(endpoint)) as failure:
            await client.execute(create("a"))
        assert failure.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        with pytest.raises(ApiError, match=str(endpoint)) as failure:
            await client.list_topics()
        assert failure.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_a_client_needs_an_address_and_time() -> None:
    with pytest.raises(ValueError, match="no address"):
        AdminClient([])
    with pytest.raises(ValueError, match="timeout_ms"):
        AdminClient([nobody()], timeout_ms=0)


# --- what is retried --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "certain",
    [
        refused(ErrorCode.NOT_CONTROLLER),
        refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        refused(ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_what_was_certainly_not_carried_out_is_tried_again(
    nodes: Sequence[ScriptedNode], certain: admin_pb2.OperationResult
) -> None:
    nodes[0].script = [certain, certain, executed(7)]
    async with client_of(*nodes) as client:
        result = await client.execute(create("a"))
    assert result.end_offset == 7
    assert len(nodes[0].received) == 3


@pytest.mark.parametrize(
    "unknown",
    [refused(ErrorCode.NOT_CONTROLLER, 5), refused(ErrorCode.REQUEST_TIMED_OUT, 5), HANG_UP],
)
async def test_what_may_have_been_carried_out_is_not_tried_again(
    nodes: Sequence[ScriptedNode], unknown: object
) -> None:
    nodes[0].script = [unknown, executed()]
    async with client_of(*nodes) as client:
        with pytest.raises(OutcomeUnknown):
            await client.execute(create("a"))
        assert len(nodes[0].received) == 1
        await client.execute(create("b"))  # the client continues
    assert len(nodes[0].received) == 2


@pytest.mark.parametrize("unknown", [refused(ErrorCode.NOT_CONTROLLER, 5), HANG_UP])
async def test_what_does_no_harm_twice_is_tried_again_if_the_caller_says_so(
    nodes: Sequence[ScriptedNode], unknown: object
) -> None:
    nodes[0].script = [unknown, executed(3)]
    async with client_of(*nodes) as client:
        assert (await client.execute(create("a"), retry_unknown=True)).end_offset == 3


async def test_without_retry_there_is_one_attempt_whose_answer_is_returned_as_it_is(
    nodes: Sequence[ScriptedNode],
) -> None:
    nodes[0].script = [refused(ErrorCode.NOT_CONTROLLER), refused(ErrorCode.REQUEST_TIMED_OUT, 5), HANG_UP]
    async with client_of(*nodes) as client:
        assert (await client.execute(create("a"), retry=False)).error_code == ErrorCode.NOT_CONTROLLER
        assert (await client.execute(create("a"), retry=False)).error_code == ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(OutcomeUnknown, match="but the connection broke; it may"):
            await client.execute(create("a"), retry=False)
    assert len(nodes[0].received) == 3


async def test_without_retry_a_leader_that_cannot_be_reached_is_certainly_not_sent_to() -> None:
    async with scripted_nodes(1) as nodes:
        nodes[0].leader = nobody()
        async with client_of(nodes[0]) as client:
            with pytest.raises(NotSent) as failure:
                await client.execute(create("a"), retry=False)
    assert failure.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert failure.value.args[0] == (
        f"the leader was at {nodes[0].leader}, where no node answers; a new leader needs a majority of the voters:"
        " start the stopped ones"
    )


async def test_an_answer_that_never_comes_is_an_unknown_outcome(nodes: Sequence[ScriptedNode]) -> None:
    nodes[0].script = [None]
    async with client_of(*nodes) as client:
        with pytest.raises(OutcomeUnknown, match="no answer in time") as failure:
            await client.execute(create("a"), timeout_ms=300)
    assert failure.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_other_errors_are_raised_at_once_and_say_how_many_more_there_are(nodes: Sequence[ScriptedNode]) -> None:
    answer = executed()
    for name, code in (("a", 0), ("b", ErrorCode.TOPIC_ALREADY_EXISTS), ("c", ErrorCode.INVALID_PARTITIONS)):
        answer.create_topics.topics.add(name=name, error_code=code, error_message=f"{name} is wrong")
    nodes[0].script = [answer]
    async with client_of(*nodes) as client:
        with pytest.raises(ApiError, match="b is wrong") as failure:
            await client.create_topics([])
        assert failure.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert "(and 1 more failed)" in str(failure.value)
        nodes[0].script = [refused(ErrorCode.INVALID_REQUEST, message="no such thing")]
        with pytest.raises(ApiError, match="no such thing"):
            await client.delete_topics(["a"])
    assert len(nodes[0].received) == 2


# --- one stream -------------------------------------------------------------------------------------------------------


async def test_all_that_is_pending_goes_as_one_message(nodes: Sequence[ScriptedNode]) -> None:
    async with client_of(*nodes) as client:
        await client.execute(create("first"))
        before = nodes[0].messages
        await asyncio.gather(*(client.execute(create(f"t{number}")) for number in range(100)))
    assert len(nodes[0].received) == 101
    assert nodes[0].messages - before == 1


async def test_callers_that_start_together_share_one_search_for_the_leader(nodes: Sequence[ScriptedNode]) -> None:
    async with client_of(*nodes) as client:
        await asyncio.gather(*(client.execute(create(f"t{number}")) for number in range(50)))
    assert sorted(operation.correlation_id for operation in nodes[0].received) == list(range(1, 51))


async def test_the_node_is_told_how_long_the_client_waits(nodes: Sequence[ScriptedNode]) -> None:
    async with client_of(*nodes, timeout_ms=5_000) as client:
        await client.execute(create("a"))
    assert 0 < nodes[0].received[0].timeout_ms <= 5_000


async def test_a_caller_that_gives_up_disturbs_no_other(nodes: Sequence[ScriptedNode]) -> None:
    arrived = asyncio.Event()
    nodes[0].on_receive = arrived.set
    nodes[0].hold = asyncio.Event()
    async with client_of(*nodes) as client:
        tasks = [asyncio.create_task(client.execute(create(f"t{number}"))) for number in range(3)]
        await arrived.wait()
        tasks[1].cancel()
        nodes[0].hold.set()
        assert [result.error_code for result in await asyncio.gather(tasks[0], tasks[2])] == [0, 0]
        await asyncio.gather(tasks[1], return_exceptions=True)
        await client.execute(create("more"))


async def test_a_client_that_is_closed_ends_what_is_under_way(nodes: Sequence[ScriptedNode]) -> None:
    arrived = asyncio.Event()
    nodes[0].on_receive = arrived.set
    nodes[0].script = [None]
    client = client_of(*nodes)
    pending = asyncio.create_task(client.execute(create("a")))
    await arrived.wait()
    await client.close()
    with pytest.raises(OutcomeUnknown):
        await pending


async def test_a_client_that_is_closed_says_so_to_whom_looks_for_the_leader_or_reads(
    nodes: Sequence[ScriptedNode],
) -> None:
    nodes[0].leader, nodes[0].hold_reads = None, asyncio.Event()
    client = client_of(nodes[0])
    with socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        searching = AdminClient([Endpoint(*hanging.getsockname())])
        pending = [
            asyncio.create_task(call)
            for call in (searching.execute(create("a")), client.execute(create("b")), client.list_topics())
        ]
        await until(lambda: nodes[0].reads == 1)
        await searching.close()
        await client.close()
        ends = await asyncio.gather(*pending, client.list_topics(), client.list_topics(), return_exceptions=True)
    assert [str(end) for end in ends] == ["BROKER_NOT_AVAILABLE: this client was closed; use another one"] * 5
    assert all(isinstance(end, NotSent) for end in ends)


async def test_a_caller_that_is_cancelled_is_cancelled_also_while_the_client_is_closed(
    nodes: Sequence[ScriptedNode],
) -> None:
    nodes[0].hold_reads = asyncio.Event()
    client = client_of(nodes[0])
    reading = asyncio.create_task(client.list_topics())
    await until(lambda: nodes[0].reads == 1)
    reading.cancel()
    await client.close()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_client_may_be_more_patient_than_a_node(nodes: Sequence[ScriptedNode]) -> None:
    async with client_of(*nodes, timeout_ms=3_600_000) as client:
        await client.execute(create("a"))
    assert nodes[0].received[0].timeout_ms == OPERATION_TIMEOUT_MS_MAX


async def test_an_operation_that_fits_no_message_is_refused_before_it_is_sent(
    nodes: Sequence[ScriptedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.admin.client.operation_stream.OPERATION_BYTES_MAX", 100)
    async with client_of(*nodes) as client:
        with pytest.raises(ApiError) as failure:
            await client.execute(create("x" * 100))
    assert failure.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert nodes[0].received == []


# --- reads ------------------------------------------------------------------------------------------------------------


async def test_reads_ask_for_at_least_the_clients_own_changes(nodes: Sequence[ScriptedNode]) -> None:
    nodes[0].script = [executed(42)]
    async with client_of(nodes[1]) as client:
        assert (await client.list_topics()).applied_end_offset == 0
        await client.execute(create("a"))
        assert (await client.list_topics()).applied_end_offset == 42
        assert (await client.list_topics(min_applied_end_offset=50)).applied_end_offset == 50


async def test_a_request_that_fits_no_message_is_not_sent(nodes: Sequence[ScriptedNode]) -> None:
    async with client_of(*nodes) as client:
        with pytest.raises(ApiError, match=r"the request has 70[0-9]* bytes, at most .*: request less") as refused:
            await client.describe_topics(["x" * 70_000])
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.usefixtures("reads_begin_at_the_first_address")
@pytest.mark.parametrize(
    "answer",
    [
        admin_pb2.ListTopicsResponse(error_code=ErrorCode.RECORD_LIST_TOO_LARGE, error_message="the node's own words"),
        admin_pb2.ListTopicsResponse(error_message="x" * 17_000_000),
    ],
)
async def test_no_other_node_is_asked_for_what_fits_no_message(
    nodes: Sequence[ScriptedNode], answer: admin_pb2.ListTopicsResponse
) -> None:
    for node in nodes:
        node.listing = answer
    async with client_of(*nodes) as client:
        with pytest.raises(
            ApiError, match=r"the node's own words|is too large for one message \(.* larger than max"
        ) as refused:
            await client.list_topics()
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert [node.reads for node in nodes] == [1, 0, 0]


@pytest.fixture
def reads_begin_at_the_first_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_reader.random, "randrange", lambda _: 0)


@pytest.mark.usefixtures("reads_begin_at_the_first_address")
async def test_a_read_goes_on_at_another_node_when_the_one_that_it_asks_is_late(nodes: Sequence[ScriptedNode]) -> None:
    """As one does that is cut off from the leader: it has not applied what the read must see."""
    nodes[0].listing = late_answer(5)
    async with client_of(*nodes[:2]) as client:
        await client.list_topics(min_applied_end_offset=7)
        await client.list_topics(min_applied_end_offset=7)
    assert [node.reads for node in nodes] == [1, 2, 0]


async def test_if_all_nodes_are_late_the_error_says_how_far_the_best_one_is(nodes: Sequence[ScriptedNode]) -> None:
    for node, applied_end_offset in zip(nodes, (5, 6, 4), strict=True):
        node.listing = late_answer(applied_end_offset)
    async with client_of(*nodes) as client:
        with pytest.raises(NotApplied) as refused:
            await client.list_topics(min_applied_end_offset=7)
    assert refused.value.applied_end_offset == 6
    assert [node.reads for node in nodes] == [1, 1, 1]


async def test_no_other_node_is_asked_for_a_read_that_itself_took_too_long(nodes: Sequence[ScriptedNode]) -> None:
    for node in nodes:
        node.listing = late_answer(7)
    async with client_of(*nodes) as client:
        with pytest.raises(NotApplied):
            await client.list_topics(min_applied_end_offset=7)
    assert sum(node.reads for node in nodes) == 1


def late_answer(applied_end_offset: int) -> admin_pb2.ListTopicsResponse:
    return admin_pb2.ListTopicsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, applied_end_offset=applied_end_offset)


async def test_clients_with_the_same_addresses_spread_over_the_nodes(nodes: Sequence[ScriptedNode]) -> None:
    for _ in range(40):
        async with client_of(*nodes) as client:
            await client.list_topics()
    assert all(node.reads for node in nodes)


async def test_reads_go_to_the_first_address_that_answers(nodes: Sequence[ScriptedNode]) -> None:
    async with AdminClient([nobody(), nodes[1].endpoint]) as client:
        await asyncio.gather(*(client.list_topics() for _ in range(5)))


@pytest.mark.usefixtures("reads_begin_at_the_first_address")
async def test_a_read_does_not_begin_again_with_a_node_that_hangs(nodes: Sequence[ScriptedNode]) -> None:
    """Also when the first read had no time left to try another."""
    for node in nodes[:2]:
        node.hold_reads = asyncio.Event()
    async with client_of(*nodes[:2], timeout_ms=1_000) as client:
        with pytest.raises(NotSent):
            await client.list_topics()
        nodes[1].hold_reads = None
        await client.list_topics()
    assert nodes[0].reads == 1


@pytest.mark.usefixtures("reads_begin_at_the_first_address")
@pytest.mark.parametrize("read", [AdminClient.list_topics, lambda client: client.query("SELECT 1")])
async def test_a_read_goes_on_at_another_node_when_the_one_that_it_asks_stops(
    nodes: Sequence[ScriptedNode], read: Callable[[AdminClient], Awaitable[object]]
) -> None:
    nodes[0].cancels_reads = True
    async with client_of(*nodes[:2]) as client:
        await read(client)
    assert [node.reads for node in nodes] == [1, 1, 0]
