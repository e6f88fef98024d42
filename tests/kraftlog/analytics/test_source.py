"""The port an export reads from: one contract for the source in memory and the one over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftlog.analytics import source as source_module
from kraftlog.analytics.export import export_from
from kraftlog.analytics.source import CommittedSource, GrpcSource
from tests.kraftlog.analytics.exports import exported_rows
from tests.kraftlog.analytics.logs import CLUSTER_ID, LogServicer, MemorySource, no_op, serving, small_log, topic
from tests.raft.nodes import running_cluster


@pytest.fixture(params=["memory", "grpc"])
async def source(request) -> AsyncIterator[CommittedSource]:
    log = small_log().from_offset(4)
    if request.param == "memory":
        yield MemorySource(log)
        return
    async with serving(LogServicer(log)) as endpoint:
        yield GrpcSource([endpoint])


async def test_contract_describes_the_log(source):
    log = small_log()
    assert await source.describe() == (CLUSTER_ID, 4, log.end_offset, True)


async def test_contract_gives_every_batch_once_in_order(source):
    log = small_log().from_offset(4)
    assert [batch async for batch in source.batches(4, log.end_offset)] == log.batches


async def test_contract_gives_the_whole_batch_that_holds_the_start(source):
    first = await anext(source.batches(5, 10))
    assert (first.base_offset, first.end_offset) == (4, 6)


async def test_contract_gives_no_batch_from_the_end_on(source):
    assert [batch.base_offset async for batch in source.batches(4, 8)] == [4, 6]
    assert [batch.base_offset async for batch in source.batches(4, 9)] == [4, 6, 8]
    assert [batch async for batch in source.batches(4, 4)] == []


async def test_contract_refuses_an_offset_that_is_gone(source):
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE") as refused:
        await anext(source.batches(3, 8))
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_broken_stream_is_resumed_where_it_broke():
    log = small_log()
    servicer = LogServicer(log, batches_per_response=2, responses_before_it_breaks=3)
    async with serving(servicer) as endpoint:
        assert [batch async for batch in GrpcSource([endpoint]).batches(0, log.end_offset)] == log.batches
    assert servicer.watches == [log.batches[index].base_offset for index in range(0, len(log.batches), 6)]


@pytest.fixture
def begins_at_the_first_address(monkeypatch):
    monkeypatch.setattr(source_module.random, "randrange", lambda _: 0)


@pytest.mark.usefixtures("begins_at_the_first_address")
async def test_a_lost_node_is_replaced_by_another():
    log = small_log()
    breaking = LogServicer(log, batches_per_response=1, responses_before_it_breaks=2)
    async with serving(breaking) as first, serving(LogServicer(log)) as second:
        assert [batch async for batch in GrpcSource([first, second]).batches(0, log.end_offset)] == log.batches
    assert breaking.watches == [0]


@pytest.mark.usefixtures("begins_at_the_first_address")
async def test_a_node_that_sends_nothing_is_left_for_another():
    log = small_log()
    stalling = LogServicer(log, stalls=True)
    async with serving(stalling) as first, serving(LogServicer(log)) as second:
        source = GrpcSource(f"{first},{second}", timeout_ms=300)
        assert [batch async for batch in source.batches(0, log.end_offset)] == log.batches
    assert stalling.watches == [0]


@pytest.mark.parametrize("trouble", [{"stalls": True}, {"responses_before_it_breaks": 0}])
async def test_when_no_node_gives_anything_that_is_an_error(trouble):
    async with serving(LogServicer(small_log(), **trouble)) as endpoint:
        source = GrpcSource([endpoint], timeout_ms=300)
        with pytest.raises(ApiError, match=f"BROKER_NOT_AVAILABLE: nothing from offset 2 .* from {endpoint}"):
            await anext(source.batches(2, 5))


async def test_nobody_listening_is_said_so():
    async with serving(LogServicer(small_log())) as endpoint:
        pass
    with pytest.raises(ApiError, match=f"BROKER_NOT_AVAILABLE: {endpoint} does not answer.*check the address"):
        await GrpcSource([endpoint], timeout_ms=2000).describe()


@pytest.mark.usefixtures("begins_at_the_first_address")
async def test_a_node_that_is_behind_is_not_the_one_that_describes_the_log():
    log = small_log()
    behind = LogServicer(log.up_to(1), behind_ms=9_000)
    async with serving(behind) as first, serving(LogServicer(log, behind_ms=100)) as second:
        source = GrpcSource([first, second])
        described = await source.describe()
        assert (described.high_watermark, described.is_level) == (log.end_offset, True)
        assert [batch async for batch in source.batches(0, log.end_offset)] == log.batches
    assert behind.watches == []


async def test_if_no_node_is_level_the_description_says_so():
    log = small_log()
    one, other = LogServicer(log, behind_ms=9_000), LogServicer(log, behind_ms=8_000)
    async with serving(one) as first, serving(other) as second:
        assert not (await GrpcSource([first, second]).describe()).is_level


async def test_the_first_node_that_answers_describes_the_log():
    log = small_log()
    async with serving(LogServicer(log)) as gone:
        pass
    async with serving(LogServicer(log)) as endpoint:
        assert (await GrpcSource([gone, endpoint]).describe()).high_watermark == log.end_offset


async def test_another_cluster_is_refused():
    async with serving(LogServicer(small_log())) as endpoint:
        source = GrpcSource([endpoint], cluster_id="another")
        with pytest.raises(ApiError, match=f"INCONSISTENT_CLUSTER_ID: {endpoint} belongs to cluster {CLUSTER_ID}"):
            await source.describe()
        with pytest.raises(ApiError, match="INCONSISTENT_CLUSTER_ID"):
            await anext(source.batches(0, 5))


async def test_damaged_batches_are_refused():
    async with serving(LogServicer(small_log(), garbles=True)) as endpoint:
        with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
            await anext(GrpcSource([endpoint]).batches(0, 5))


@pytest.mark.parametrize("addresses", ["", "localhost", ":9093", "localhost:0", "localhost:9093,", []])
def test_what_is_no_address_is_refused(addresses):
    with pytest.raises(ConfigurationError, match=r"give .*host:port"):
        GrpcSource(addresses)


async def test_a_real_quorum_is_exported(tmp_path):
    """Three nodes on loopback, through an election: what Spark will read is what they have committed."""
    async with running_cluster(tmp_path / "nodes", 3) as cluster:
        client = await cluster.leader()
        for number in range(20):
            await client.append([topic(f"topic-{number}", number).SerializeToString()] * 3)
        addresses = [voter.endpoint for voter in cluster.voters.voters()]
        first = await export_from(addresses, tmp_path / "export")
        await cluster.stop(client.node_key.node_id)
        client = await cluster.leader()
        await client.append([no_op().SerializeToString()])
        second = await export_from(addresses, tmp_path / "export", cluster_id=cluster.cluster_id)
        assert second.end_offset == client.high_watermark
    rows = exported_rows(tmp_path / "export")
    assert [row["offset"] for row in rows] == list(range(second.end_offset))
    assert second.start_offset == first.end_offset
    named = [row["topic"] for row in rows if row["record_type"] == "TOPIC_RECORD"]
    assert named == [f"topic-{number}" for number in range(20) for _ in range(3)]
    leaders = [row["leader"] for row in rows if row["record_type"] == "LEADER_CHANGE"]
    assert leaders[-1] == client.node_key.node_id
