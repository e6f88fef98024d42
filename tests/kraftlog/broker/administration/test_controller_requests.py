"""What a broker asks of the controller by itself: ids for producers, and topics that its clients ask for."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ApiError
from kraftbase.runtime import awaited
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.shell.controller_requests import ControllerRequests
from statemachine.words.config_definitions import NUM_PARTITIONS, REPLICATION_FACTOR
from tests.kraftlog.broker.administration.world import ME, AdministrationWorld, channel_to
from tests.statemachine.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def requests_of(world: AdministrationWorld, channel: ControllerChannel, epoch: int | None = None) -> ControllerRequests:
    its_epoch = lambda: world.broker.epoch if epoch is None else epoch  # noqa: E731
    return ControllerRequests(channel, ME, its_epoch, {NUM_PARTITIONS: "3", REPLICATION_FACTOR: "1"}.__getitem__)


async def taken(requests: ControllerRequests) -> tuple[int, ApiError | None]:
    answer: asyncio.Future[tuple[int, ApiError | None]] = asyncio.get_running_loop().create_future()
    requests.producer_ids.allocate(lambda producer_id, error: answer.set_result((producer_id, error)))
    return await answer


async def test_producers_get_ids_unless_the_broker_is_another_incarnation(world: AdministrationWorld) -> None:
    channel = channel_to(world.client)
    requests, stale = requests_of(world, channel), requests_of(world, channel, epoch=0)
    (first, error), (second, _) = await taken(requests), await taken(requests)
    assert (second - first, error) == (1, None)
    producer_id, error = await taken(stale)
    assert producer_id == -1
    assert error is not None
    await awaited(channel.close)


async def test_a_topic_is_made_once_and_a_failure_is_told(world: AdministrationWorld) -> None:
    channel = channel_to(world.client)
    requests = requests_of(world, channel)
    with capture_logs() as logs:
        for name in ("wanted", "wanted", "no/name"):
            requests.create(name)
        assert len(channel) == 2
        await until(lambda: not channel)
        await world.settle()
        wanted = world.broker.cluster.topic_named("wanted")
        assert wanted is not None
        assert len(wanted.partitions) == 3, "as this broker's num.partitions says"
        requests.create("wanted")  # as one does that has not seen it yet
        await until(lambda: not channel)
        await awaited(channel.close)
    assert [log["topic"] for log in logs if log["event"] == "topic not created"] == ["no/name"]
