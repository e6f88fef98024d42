"""The way to the controller: its bounds, its deadlines and its end, over a real client and no or a real quorum."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest_asyncio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import OnDone, awaited
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.shell.ports import OnAnswer, OnResult
from kraftpb.v1 import admin_pb2
from kraftpb.v1.quorum_pb2 import DescribeQuorumResponse
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.broker.administration.world import channel_to
from tests.raft.by_hand import HandRuntime
from tests.raft.nodes import free_port
from tests.statemachine.waiting import turns

LONG_MS = 60_000
Outcome = admin_pb2.OperationResult | ApiError


def creation(name: str) -> admin_pb2.Operation:
    topic = admin_pb2.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return admin_pb2.Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=[topic]))


@pytest_asyncio.fixture
async def nobody() -> AsyncIterator[AdminClient]:
    """A client of a cluster of which no node runs."""
    async with AdminClient([Endpoint("127.0.0.1", free_port())]) as client:
        yield client


def refusal(outcome: Outcome) -> tuple[ErrorCode, str]:
    assert isinstance(outcome, ApiError)
    return outcome.code, outcome.args[0]


async def test_more_than_are_allowed_are_refused_at_once_and_the_rest_at_the_end(nobody: AdminClient) -> None:
    outcomes: dict[int, Outcome] = {}

    def keep(number: int) -> Callable[[Outcome], None]:
        def note(outcome: Outcome) -> None:
            assert number not in outcomes
            outcomes[number] = outcome

        return note

    channel = channel_to(nobody, [], in_flight_max=1, waiting_max=2)
    for number in range(4):
        channel.submit(creation("clicks"), LONG_MS, keep(number))
    code, message = refusal(outcomes.pop(3))
    assert (code, "3 requests" in message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    await turns()
    assert (len(channel), outcomes) == (3, {})
    await awaited(channel.close)
    channel.submit(creation("clicks"), LONG_MS, keep(4))
    assert sorted(outcomes) == [0, 1, 2, 4]
    assert {refusal(outcome)[0] for outcome in outcomes.values()} == {ErrorCode.REQUEST_TIMED_OUT}
    assert len(channel) == 0


async def test_the_time_is_up_in_flight_and_in_the_queue(nobody: AdminClient) -> None:
    channel = channel_to(nobody, [], in_flight_max=1)
    outcomes: list[tuple[str, Outcome]] = []
    both = asyncio.Event()

    def note(which: str, outcome: Outcome) -> None:
        outcomes.append((which, outcome))
        if len(outcomes) == 2:
            both.set()

    channel.submit(creation("clicks"), 300, lambda outcome: note("in flight", outcome))
    channel.submit(creation("clicks"), 1, lambda outcome: note("queued", outcome))
    await both.wait()
    assert [which for which, _ in outcomes] == ["queued", "in flight"]
    assert {refusal(outcome)[0] for _, outcome in outcomes} == {ErrorCode.REQUEST_TIMED_OUT}
    assert "nothing was sent" in refusal(outcomes[0][1])[1]
    await awaited(channel.close)


async def test_no_time_is_told_at_once(nobody: AdminClient) -> None:
    channel = channel_to(nobody, [])
    outcomes: list[Outcome] = []
    for timeout_ms in (0, -1):
        channel.submit(creation("clicks"), timeout_ms, outcomes.append)
    assert [refusal(outcome)[0] for outcome in outcomes] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    await awaited(channel.close)


async def test_who_fails_to_take_an_answer_is_told_so(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster:
        endpoints = list(cluster.endpoints.values())
        async with AdminClient(endpoints) as client:
            channel = channel_to(client, endpoints)
            told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

            def take(outcome: Outcome) -> None:
                if isinstance(outcome, ApiError):
                    told.set_result(outcome)
                    return
                raise ValueError(outcome.create_topics.topics[0].name)

            channel.submit(creation("clicks"), LONG_MS, take)
            assert refusal(await told)[0] == ErrorCode.UNKNOWN_SERVER_ERROR
            assert len(channel) == 0
            await awaited(channel.close)


async def test_an_operation_outlives_a_change_of_leader(tmp_path: Path) -> None:
    """That no node leads for a while is no business of clients."""
    async with admin_cluster(tmp_path, voter_count=3) as cluster:
        endpoints = list(cluster.endpoints.values())
        async with AdminClient(endpoints) as client:
            channel = channel_to(client, endpoints)
            await cluster.stop(await cluster.leader())
            answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            channel.submit(creation("clicks"), LONG_MS, answered.set_result)
            result = await answered
            assert not isinstance(result, ApiError)
            (topic,) = result.create_topics.topics
            assert topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR, "there are no brokers"
            await awaited(channel.close)


# --- in virtual time --------------------------------------------------------------------------------------------------


class Port:
    """Keeps what is asked, for the test to answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, OnResult]] = []

    def ask(self, operation: admin_pb2.Operation, timeout_ms: int, on_result: OnResult, **_: bool) -> None:
        self.asked.append((timeout_ms, on_result))

    def describe_quorum(self, timeout_ms: int, on_described: OnAnswer[DescribeQuorumResponse]) -> None:
        raise NotImplementedError

    def close(self, on_closed: OnDone) -> None:
        on_closed(None)


def test_a_request_that_waited_has_the_rest_of_its_time() -> None:
    port, runtime = Port(), HandRuntime()
    channel = ControllerChannel(port, runtime, in_flight_max=1)
    outcomes: list[tuple[str, Outcome]] = []
    for name in ("first", "second", "third"):
        channel.submit(creation(name), 10_000, lambda outcome, name=name: outcomes.append((name, outcome)))  # type: ignore[misc]
    assert [timeout_ms for timeout_ms, _ in port.asked] == [10_000]
    runtime.advance(4_000)
    port.asked[0][1](admin_pb2.OperationResult(end_offset=1))
    assert [timeout_ms for timeout_ms, _ in port.asked] == [10_000, 6_000]
    runtime.advance(6_000)
    assert [name for name, _ in outcomes] == ["first", "third"], "the port answers the second one in time"
    port.asked[1][1](ApiError(ErrorCode.NOT_CONTROLLER, "no leader"))
    assert refusal(outcomes[-1][1]) == (ErrorCode.REQUEST_TIMED_OUT, "no leader")
    assert (len(channel), len(port.asked)) == (0, 2)


def test_what_is_answered_after_the_end_is_told_to_no_client() -> None:
    port, closed = Port(), list[BaseException | None]()
    channel = ControllerChannel(port, HandRuntime())
    outcomes: list[Outcome] = []
    channel.submit(creation("clicks"), 10_000, outcomes.append)
    channel.close(closed.append)
    port.asked[0][1](admin_pb2.OperationResult(end_offset=1))
    assert [refusal(outcome)[0] for outcome in outcomes] == [ErrorCode.REQUEST_TIMED_OUT]
    assert closed == [None]
