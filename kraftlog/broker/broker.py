"""A data broker in a process: its shell on an event loop, and coroutines that wait for its changes of state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.files.posix import PosixFileSystem
from kraftbase.runtime import Runtime
from kraftbase.uuids import random_uuid
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.broker_network import BrokerNetwork
from kraftlog.broker.clients import ClientApis
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.controller_link import ChannelLink, ControllerLink
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.followed_metadata import FollowedMetadata
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.settings import REPLICA_SOCKET_TIMEOUT, BrokerSettings
from kraftlog.broker.shell.broker_shell import BrokerShell, ShellPorts, ShellSettings
from kraftlog.broker.shell.parts import Parts
from kraftlog.replicas.leader_connection import BrokerConnections
from kraftlog.storage.log_manager import LogManager
from kraftlog.telemetry.counting import CountingObserver
from kraftlog.telemetry.decision_log import BrokerDecisionLog
from kraftlog.telemetry.observer import BrokerObserver, Observers
from kraftlog.telemetry.registry import Registry
from statemachine.apply.machine import MetadataMachine


class Broker:
    """A running broker on one event loop; it is the host of its shell. Use `running`."""

    def __init__(
        self,
        settings: BrokerSettings,
        shell_settings: ShellSettings,
        *,
        endpoints: Sequence[Endpoint],
        client: AdminClient,
        client_of_clients: AdminClient,
        directory: BrokerDirectory,
        machine: MetadataMachine,
        following: Callable[[], Coroutine[Any, Any, object]],
        runtime: Runtime,
        tell: Callable[[str], None],
        is_debugged: bool,
    ) -> None:
        """`client` is for the broker's own requests, `client_of_clients` for requests of its clients; both go to the
        nodes at `endpoints`, and the caller closes them. `following` feeds `machine` with the metadata of the cluster.
        `is_debugged`: the broker's decisions are logged at level debug."""
        self.settings = settings
        self.machine = machine
        cluster_id = shell_settings.logs.cluster_id
        self.cluster = ClusterView(cluster_id)
        self._configs = TopicConfigs(settings.broker_id, settings.broker_configs)
        self._runtime = runtime
        self._tell = tell
        self._parts: Parts | None = None
        self._is_unfenced = asyncio.Event()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._link = ControllerLink(client, self._fail)
        own_channel = ControllerChannel(ChannelLink(client, endpoints, self._fail), runtime)
        clients_link = ChannelLink(client_of_clients, endpoints, self._fail)
        self._registry = Registry()
        self._network = BrokerNetwork(
            settings,
            self._apis,
            ControllerChannel(clients_link, runtime),
            own_channel,
            self._registry,
            self._fail,
        )
        ports = ShellPorts(
            runtime=runtime,
            files=PosixFileSystem(),
            controller=self._link,
            operations=own_channel,
            connector=BrokerConnections(
                lambda broker_id: self.cluster.node(broker_id, settings.inter_broker_listener),
                client_id=f"broker-{settings.broker_id}-fetcher",
                timeout_ms=shell_settings.parts.fetch.wait_max_ms + settings.whole(REPLICA_SOCKET_TIMEOUT),
                on_fatal=self._fail,
            ),
            metadata=FollowedMetadata(machine, following, self._fail),
            network=self._network,
            registry=self._registry,
            observer=self._observer(is_debugged=is_debugged),
            listeners=(),
        )
        self._shell = BrokerShell(
            shell_settings, ports, self, directory=directory, cluster=self.cluster, configs=self._configs
        )
        # At once, because the controller may suspect that this process has ended (CT-65).
        client.when_disconnected(self._shell.tell_now)

    def _apis(self, controller: ControllerChannel) -> ClientApis:
        return ClientApis(
            self.settings, self.parts, controller, self._runtime, lambda: self._shell.is_serving, self._registry
        )

    def _observer(self, *, is_debugged: bool) -> BrokerObserver:
        counting = CountingObserver(self._registry)
        return Observers(counting, BrokerDecisionLog(time.monotonic)) if is_debugged else counting

    def _fail(self, error: BaseException) -> None:
        self._shell.fail(error)

    @property
    def parts(self) -> Parts:
        """The parts of the broker. Raises LookupError while its logs are not open."""
        if self._parts is None:
            raise LookupError("the broker's logs are not open")
        return self._parts

    @property
    def logs(self) -> LogManager:
        """The broker's logs."""
        return self.parts.logs

    @property
    def ports(self) -> Mapping[str, int]:
        """The bound port, by listener."""
        return self._network.ports

    @property
    def epoch(self) -> int:
        """The epoch of the last registration, -1 before the first."""
        return self._shell.broker_epoch

    # --- start and end ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the shell."""
        self._shell.start()

    async def unfenced(self) -> None:
        """Wait until the controller has unfenced the broker. Raises the error that ended it before."""
        await self.unless_ended(asyncio.create_task(self._wait_unfenced()))

    async def _wait_unfenced(self) -> None:
        await self._is_unfenced.wait()

    async def ended(self) -> None:
        """Wait until the broker has ended. Raises the error that ended it, if any."""
        await asyncio.shield(self._closed)

    async def unless_ended(self, work: asyncio.Task[None]) -> None:
        """Wait for `work`, or until the broker has ended. Raises what ends either of them."""
        try:
            await asyncio.wait((work, self._closed), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
            else:
                await self.ended()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def shut_down(self) -> None:
        """Do a controlled shutdown. Raises what went wrong at the end, such as StorageError."""
        self._shell.shut_down()
        await self.ended()

    async def close(self) -> None:
        """End without a controlled shutdown, unless the broker has ended already."""
        self._shell.close()
        await asyncio.wait((self._closed,))
        await self._link.close()

    # --- called by the shell (`ShellHost`) ----------------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        """Return a new id for a registration."""
        return random_uuid()

    def show_progress(self, message: str) -> None:
        """Pass on a message about a long wait, or its end."""
        self._tell(message)

    def opened(self, parts: Parts) -> None:
        """The logs are open."""
        self._parts = parts

    def serving(self) -> None:
        """The broker answers clients."""

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """The controller has answered a heartbeat."""
        (self._is_unfenced.clear if is_fenced else self._is_unfenced.set)()

    def closed(self, error: BaseException | None, *, is_clean: bool) -> None:
        """The broker has ended."""
        if error is None:
            self._closed.set_result(None)
        else:
            self._closed.set_exception(error)
            self._closed.exception()  # so that asyncio does not log an exception that was never retrieved
