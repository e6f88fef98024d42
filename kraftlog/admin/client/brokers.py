"""The admin client's calls about brokers: to register, fence and list them, and their heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraftbase.ids import id_to_bytes
from kraftbase.uuids import random_uuid
from kraftlog.admin.client.core import ClientCore
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, SupportedFeature
from statemachine.query.conversions import broker_from_record
from statemachine.query.descriptions import BrokerListener, ListedBrokers
from statemachine.words.features import SUPPORTED


class BrokerCalls(ClientCore):
    """Registration, heartbeats and fencing of brokers."""

    async def register_broker(
        self,
        broker_id: int,
        listeners: Iterable[BrokerListener | tuple[str, str, int]],
        *,
        rack: str | None = None,
        cluster_id: str | None = None,
        incarnation_id: str | None = None,
        log_dirs: Sequence[str] | None = None,
        previous_broker_epoch: int | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """As `registration`, and return the broker's epoch. Raises ApiError."""
        answer = await self.registration(
            broker_id,
            listeners,
            rack=rack,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            log_dirs=log_dirs,
            previous_broker_epoch=previous_broker_epoch,
            timeout_ms=timeout_ms,
        )
        return answer.broker_epoch

    async def registration(
        self,
        broker_id: int,
        listeners: Iterable[BrokerListener | tuple[str, str, int]],
        *,
        rack: str | None = None,
        cluster_id: str | None = None,
        incarnation_id: str | None = None,
        log_dirs: Sequence[str] | None = None,
        previous_broker_epoch: int | None = None,
        log_dir_epochs: Sequence[int] = (),
        timeout_ms: int | None = None,
    ) -> admin_pb2.RegisterBrokerResponse:
        """Register a broker; it is fenced until it sends heartbeats. Raises ApiError.

        The call may take `timeout_ms` if that is less than the client's. Ids that are not given are generated.
        `previous_broker_epoch` is what a broker found on its disk after a clean shutdown; without it, a broker that was
        registered before may have lost records (KIP-966). `log_dir_epochs` are what a broker that keeps its epoch in
        its log directories found in each of them, -1 for none; the answer names the directories that are older copies
        (CT-38).
        """
        request = admin_pb2.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=random_uuid().bytes if incarnation_id is None else id_to_bytes(incarnation_id),
            listeners=[
                BrokerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
                for at in (BrokerListener(*listener) for listener in listeners)
            ],
            rack=rack,
            log_dirs=[random_uuid().bytes] if log_dirs is None else map(id_to_bytes, log_dirs),
            features=[
                SupportedFeature(name=found.name, min_level=found.min_level, max_level=found.max_level)
                for found in SUPPORTED
            ],
            previous_broker_epoch=previous_broker_epoch,
            log_dir_epochs=log_dir_epochs,
        )
        result = await self.change(admin_pb2.Operation(register_broker=request), timeout_ms)
        return result.register_broker

    async def broker_heartbeat(
        self,
        broker_id: int,
        broker_epoch: int,
        metadata_offset: int,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: Iterable[str] = (),
        log_dir_space: Iterable[admin_pb2.LogDirSpace] = (),
        timeout_ms: int | None = None,
    ) -> admin_pb2.BrokerHeartbeatResponse:
        """Send a heartbeat: the broker is alive, the end offset of the metadata that it has applied, and the state that
        it wants.

        `offline_log_dirs` are the ids of its log directories that have failed, `log_dir_space` is the room in the
        others.

        It may take `timeout_ms` if that is less than the client's: a heartbeat that waits for a hung node delays the
        next one, which could go to another node. Raises ApiError; sending it twice does no harm.
        """
        request = admin_pb2.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            current_metadata_offset=metadata_offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=map(id_to_bytes, offline_log_dirs),
            log_dir_space=log_dir_space,
        )
        result = await self.change(admin_pb2.Operation(broker_heartbeat=request), timeout_ms)
        return result.broker_heartbeat

    async def fence_broker(self, broker_id: int) -> None:
        """Take a broker out of every ISR and leadership, until its next heartbeat. Raises ApiError."""
        await self.change(admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=broker_id)))

    async def unregister_broker(self, broker_id: int) -> None:
        """Unregister a broker: it is fenced and leaves every ISR, and its registration is deleted. Raises ApiError."""
        request = admin_pb2.UnregisterBrokerRequest(broker_id=broker_id)
        await self.change(admin_pb2.Operation(unregister_broker=request))

    async def list_brokers(self, *, min_applied_end_offset: int = 0) -> ListedBrokers:
        """All registered brokers by id. Raises ApiError."""
        request = admin_pb2.ListBrokersRequest(consistency=self._consistency(min_applied_end_offset))
        response = await self._reader.read(lambda stub: stub.ListBrokers, request, self._timeout_ms)
        return ListedBrokers(response.applied_end_offset, tuple(map(broker_from_record, response.brokers)))
