"""Admission at a real server: places of replicas, limits by name, budgets of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1 import common_pb2, log_pb2, log_pb2_grpc, quorum_pb2, quorum_pb2_grpc
from raft.rpc import admission
from raft.rpc.admission import Admission
from raft.rpc.calls import SMALL_ANSWER_BYTES, AnswerBudget
from raft.rpc.errors import ERROR_KEY
from raft.rpc.limits import ServiceLimits
from tests.raft.nodes import Cluster, running_cluster

VOTER = common_pb2.ReplicaKey(node_id=1, directory_id=b"\1" * 16)
OBSERVER = common_pb2.ReplicaKey(node_id=9, directory_id=b"\1" * 16)


async def refusal_of(call: Any) -> str:
    """The message with which a call ended, which must be that of a limit."""
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await asyncio.wait_for(call, 100)
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    named = (ERROR_KEY, str(int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)))
    assert named in tuple(refusal.value.trailing_metadata() or ())
    return refusal.value.details() or ""


def fetch(key: common_pb2.ReplicaKey | None, **fields: int) -> quorum_pb2.FetchRequest:
    return quorum_pb2.FetchRequest(
        correlation_id=1, replica_key=key, current_leader_epoch=1, max_bytes=1_000_000, max_wait_ms=0, **fields
    )


class Caller:
    """A connection of its own to node 1, and the node's admission."""

    def __init__(self, cluster: Cluster, number: int = 0) -> None:
        options = (("kraftlog.test", number),)
        self.channel = grpc.aio.insecure_channel(str(cluster.nodes[1].identity.endpoint), options=options)
        self.quorum = quorum_pb2_grpc.QuorumServiceStub(self.channel)
        self.log = log_pb2_grpc.LogServiceStub(self.channel)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Admission]]:
    """Has the nodes that start have other limits; the list gets the admission of each."""

    def limit(**limits: int) -> list[Admission]:
        made: list[Admission] = []

        class Limited(Admission):
            def __init__(self, _: ServiceLimits, *arguments: Any) -> None:
                super().__init__(ServiceLimits(**limits), *arguments)
                made.append(self)

        monkeypatch.setattr("raft.host.Admission", Limited)
        return made

    return limit


async def test_streams_without_a_message_give_way_and_voters_are_answered(
    tmp_path: Path, limited: Callable[..., list[Admission]]
) -> None:
    made = limited(replica_streams_max=5)
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await cluster.leader()
        caller = Caller(cluster)
        voter = caller.quorum.Fetch()
        await voter.write(fetch(VOTER))
        await voter.read()
        empty = [caller.quorum.Fetch() for _ in range(2 * admission.UNNAMED_CALLS_MAX)]
        await asyncio.wait_for(asyncio.gather(*(call.wait_for_connection() for call in empty)), 100)
        words = await refusal_of(empty[0].read())
        assert "the oldest was ended" in words
        for _ in range(20):
            await voter.write(fetch(VOTER))
            assert isinstance(await asyncio.wait_for(voter.read(), 100), quorum_pb2.FetchResponse)
        late = caller.quorum.Fetch()
        await late.write(fetch(VOTER))
        assert isinstance(await asyncio.wait_for(late.read(), 100), quorum_pb2.FetchResponse)
        assert len(made[0]._unnamed) <= admission.UNNAMED_CALLS_MAX
        assert made[0].refused["replica_streams_max"] >= admission.UNNAMED_CALLS_MAX
        await caller.channel.close()


async def test_replicas_that_do_not_vote_have_a_limit_which_voters_have_not(
    tmp_path: Path, limited: Callable[..., list[Admission]]
) -> None:
    limited(replica_streams_max=3)
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await cluster.leader()
        caller = Caller(cluster)
        for key in (OBSERVER, None, OBSERVER):
            call = caller.quorum.Fetch()
            await call.write(fetch(key))
            await call.read()
        refused = caller.quorum.Fetch()
        await refused.write(fetch(OBSERVER))
        assert "service.replica.streams.max = 3" in await refusal_of(refused.read())
        for _ in range(5):
            call = caller.quorum.Fetch()
            await call.write(fetch(VOTER))
            assert isinstance(await call.read(), quorum_pb2.FetchResponse)
        await caller.channel.close()


async def test_the_oldest_of_too_many_streams_of_one_voter_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "VOTER_CALLS_MAX", 2)
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await cluster.leader()
        caller = Caller(cluster)
        calls = [caller.quorum.Fetch() for _ in range(3)]
        for call in calls:
            await call.write(fetch(VOTER))
            await call.read()
        assert "the oldest was ended" in await refusal_of(calls[0].read())
        for call in calls[1:]:
            await call.write(fetch(VOTER))
            assert isinstance(await call.read(), quorum_pb2.FetchResponse)
        await caller.channel.close()


async def test_watches_are_limited_and_a_place_is_free_again_when_one_ends(
    tmp_path: Path, limited: Callable[..., list[Admission]]
) -> None:
    made = limited(watch_streams_max=2)
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await cluster.leader()
        caller = Caller(cluster)
        kept = [caller.log.Watch(log_pb2.WatchRequest()) for _ in range(2)]
        for call in kept:
            await call.read()
        refused = caller.log.Watch(log_pb2.WatchRequest())
        assert "service.watch.streams.max = 2" in await refusal_of(refused.read())
        assert made[0].refused == {"watch_streams_max": 1}
        kept[0].cancel()
        async with asyncio.timeout(100):
            while made[0]._calls["watch_streams_max", ""] > 1:
                await asyncio.sleep(0.01)
        assert isinstance(await caller.log.Watch(log_pb2.WatchRequest()).read(), log_pb2.WatchResponse)
        await caller.channel.close()


async def test_calls_in_all_are_limited_and_replicas_are_not_among_them(
    tmp_path: Path, limited: Callable[..., list[Admission]]
) -> None:
    made = limited(calls_max=3)
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        await cluster.leader()
        caller = Caller(cluster)
        kept = [caller.log.Watch(log_pb2.WatchRequest()) for _ in range(3)]
        for call in kept:
            await call.read()
        words = await refusal_of(caller.log.DescribeNode(log_pb2.DescribeNodeRequest()))
        assert "service.calls.max = 3" in words
        assert not (
            await caller.quorum.Vote(quorum_pb2.VoteRequest(replica_key=OBSERVER, replica_epoch=1))
        ).vote_granted
        for call in kept:
            call.cancel()
        async with asyncio.timeout(100):
            while made[0]._calls["calls_max", ""]:
                await asyncio.sleep(0.01)
        assert await caller.log.DescribeNode(log_pb2.DescribeNodeRequest())
        await caller.channel.close()


def test_a_budget_is_of_all_and_of_each_connection() -> None:
    refused: list[str] = []
    large = 2 * SMALL_ANSWER_BYTES
    budget = AnswerBudget({"answer_bytes_max": 3 * large, "connection_answer_bytes_max": 2 * large}, refused.append)
    assert [budget.take(name, large) for name in "aab"] == [large] * 3
    assert budget.room("b", large) == SMALL_ANSWER_BYTES
    assert budget.take("a", SMALL_ANSWER_BYTES) == 0
    for name, limit in (("a", "service.answer.bytes.max"), ("c", "service.answer.bytes.max")):
        with pytest.raises(ApiError, match=limit):
            budget.take(name, large)
    budget.give_back("b", large)
    assert (budget.room("a", large), budget.room("b", large)) == (SMALL_ANSWER_BYTES, large)
    with pytest.raises(ApiError, match=r"service\.connection\.answer\.bytes\.max"):
        budget.take("a", large)
    assert refused == ["answer_bytes_max", "answer_bytes_max", "connection_answer_bytes_max"]
    for _ in range(2):
        budget.give_back("a", large)
    assert (budget.taken_bytes, dict(budget._by_connection)) == (0, {})
