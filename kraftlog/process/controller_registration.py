"""A controller registers: its endpoints, and which levels of each feature it supports (CT-37, CT-61).

Each start of a node is another incarnation, and registers again at the active controller. Below the metadata.version
that has a record for the registration (3.7-IV0), it waits. While there is no leader, or the active controller refuses,
it tries again without end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId, Offset
from kraftbase.uuids import random_uuid
from kraftlog.admin.client.client import AdminClient
from kraftpb.v1.admin_pb2 import Operation, RegisterControllerRequest
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, SupportedFeature
from raft.core.types import LeaderAndEpoch
from statemachine.query import metadata_queries
from statemachine.store.store import MetadataStore
from statemachine.words.features import CONTROLLER_REGISTRATION, SUPPORTED

LISTENER_NAME: Final = "CONTROLLER"
"""Kafka's name for a controller's listener."""

RETRY_SECONDS_MIN: Final = 0.5
RETRY_SECONDS_MAX: Final = 60.0

logger = structlog.get_logger(__name__)


def registration_of(controller_id: NodeId, endpoint: Endpoint) -> RegisterControllerRequest:
    """The registration of this process as a new incarnation of that controller."""
    return RegisterControllerRequest(
        controller_id=controller_id,
        incarnation_id=random_uuid().bytes,
        end_points=[BrokerEndpoint(name=LISTENER_NAME, host=endpoint.host, port=endpoint.port)],
        features=[
            SupportedFeature(name=found.name, min_level=found.min_level, max_level=found.max_level)
            for found in SUPPORTED
        ],
    )


class ControllerRegistration:
    """The registration of one node. A `Subscriber` of its state machine; `run` returns when it is registered."""

    def __init__(
        self, store: MetadataStore, controllers: Sequence[Endpoint], request: RegisterControllerRequest
    ) -> None:
        """`controllers` are the endpoints of all nodes that may be the active controller, this node's included."""
        self._store = store
        self._controllers = controllers
        self._request = request
        self._applied = asyncio.Event()

    def applied(self, end_offset: Offset) -> None:
        """Read the metadata.version again: it may have changed."""
        self._applied.set()

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Does nothing: the active controller is found when needed."""

    def shut_down(self) -> None:
        """Does nothing: the owner of the task cancels it."""

    async def run(self) -> None:
        """Register, as soon as that is possible."""
        await self._may_register()
        pause_seconds = RETRY_SECONDS_MIN
        async with AdminClient(self._controllers) as client:
            while (refusal := await self._register(client)) is not None:
                logger.warning("this controller is not registered; trying again", reason=refusal, seconds=pause_seconds)
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)
        logger.info("controller registered", controller=self._request.controller_id)

    async def _may_register(self) -> None:
        """Return when the metadata.version that this node has applied allows a registration."""
        while metadata_queries.metadata_version(self._store.reader) < CONTROLLER_REGISTRATION:
            self._applied.clear()
            await self._applied.wait()

    async def _register(self, client: AdminClient) -> str | None:
        """Register; return why the active controller refused, or None. Registering twice does no harm."""
        try:
            result = await client.execute(Operation(register_controller=self._request), retry_unknown=True)
        except ApiError as error:
            return str(error)
        return f"{ErrorCode(result.error_code).name}: {result.error_message}" if result.error_code else None
