"""A real quorum, a real broker that follows it, and the handlers of administration, asked as from the wire."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.api_table import ADMINISTRATION, handlers
from kraftlog.broker.broker import Broker
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.controller_link import ChannelLink
from kraftlog.broker.metadata.configs_in_effect import ConfigsInEffect
from kraftlog.broker.running import running
from kraftlog.broker.settings import BrokerSettings
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.codec import decode, encode
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, Handler, RequestContext
from statemachine.query.descriptions import BrokerListener
from tests.kraftlog.admin.admin_nodes import AdminCluster, admin_cluster
from tests.kraftlog.broker.services import services
from tests.statemachine.waiting import until

ME = 1
OTHER = 2
"""A broker that is registered and alive, without a process."""

FILE = {"log.retention.ms": "70000", "connections.max.idle.ms": "500000"}
"""What the broker's own file says."""

LONG_SESSIONS = ControllerConfig(broker_session_timeout_ms=3_600_000)

Answer = TypeVar("Answer", bound=Message)


def channel_to(client: AdminClient, endpoints: Sequence[Endpoint] = (), **bounds: int) -> ControllerChannel:
    """A way to the controller by `client`; a bug in one of its callbacks goes to the loop."""

    def fail(error: BaseException) -> None:
        raise error

    return ControllerChannel(ChannelLink(client, endpoints, fail), AsyncioRuntime(), **bounds)


class AdministrationWorld:
    """What the tests of a module share: each has its own topics."""

    def __init__(self, cluster: AdminCluster, client: AdminClient, broker: Broker, channel: ControllerChannel) -> None:
        self.cluster = cluster
        self.client = client
        self.broker = broker
        self.channel = channel
        self.handlers: Mapping[str, Handler] = handlers(
            ADMINISTRATION,
            services(
                runtime=AsyncioRuntime(),
                broker_id=broker.settings.broker_id,
                cluster=broker.cluster,
                configs=ConfigsInEffect(broker.settings, broker.cluster),
                controller=channel,
            ),
        )
        self.throttles: list[int] = []
        """Of each answer."""

    def asking(self, channel: ControllerChannel) -> AdministrationWorld:
        """The same world, with another way to the controller."""
        return AdministrationWorld(self.cluster, self.client, self.broker, channel)

    async def answer(self, body: Message, version: int, kind: type[Answer], client_id: str = "") -> Answer:
        """The answer to a request, both as they are on the wire."""
        api = api_of(body.KEY)
        received = decode(api.request, version, bytearray(encode(body, version)))
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def reply(response: Message | None, throttle_ms: int = 0) -> None:
            try:
                assert response is not None
                answered.set_result(decode(api.response, version, encode(response, version)))
            except Exception as error:  # here, and not in who replies
                answered.set_exception(error)
            self.throttles.append(throttle_ms)

        request = ClientRequest(api, version, received, RequestContext("127.0.0.1", "PLAINTEXT", client_id), 100)
        self.handlers[api.name](request, reply)
        response = await answered
        assert isinstance(response, kind)
        return response

    async def settle(self) -> None:
        """Wait until the broker has applied what the leader has; a view is not told of records that change nothing."""
        leader = self.cluster.nodes[await self.cluster.leader()]
        end_offset = leader.machine.applied_end_offset
        await until(lambda: self.broker.machine.applied_end_offset >= end_offset)


@contextlib.asynccontextmanager
async def administration_world(
    base: Path, config: ControllerConfig = LONG_SESSIONS
) -> AsyncIterator[AdministrationWorld]:
    """One voter, broker `ME` with its own file, and `OTHER`."""
    async with admin_cluster(base / "nodes", config=config) as cluster:
        endpoints = list(cluster.endpoints.values())
        settings = BrokerSettings(
            broker_id=ME, directory=base / "broker", listeners=(BrokerListener("PLAINTEXT", "127.0.0.1", 0),),
            configs=FILE,
        )  # fmt: skip
        async with running(settings, endpoints) as broker, AdminClient(endpoints) as client:
            epoch = await client.register_broker(OTHER, [("PLAINTEXT", "localhost", 9_999)])
            await client.broker_heartbeat(OTHER, epoch, epoch + 1)
            channel = channel_to(client, endpoints)
            world = AdministrationWorld(cluster, client, broker, channel)
            await world.settle()
            try:
                yield world
            finally:
                await awaited(channel.close)
                with contextlib.suppress(ApiError):  # a test may have done so
                    await client.unregister_broker(OTHER)  # the broker's shutdown waits until others know of it
