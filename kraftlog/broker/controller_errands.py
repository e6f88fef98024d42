"""What a broker has the controller do for its clients, while they wait: ids for producers, topics that are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.producer_ids import Block, ProducerIds
from kraftpb.v1 import admin_pb2
from statemachine.query.descriptions import NewTopic

TIMEOUT_MS: Final = 4_500
CREATED_AT_ONCE_MAX: Final = 100
"""Topics that are made because clients ask for them; a client asks again for what is left out."""

logger = structlog.get_logger(__name__)


class ControllerErrands:
    """For one event loop."""

    def __init__(self, client: AdminClient, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._client = client
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._creating: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.producer_ids = ProducerIds(lambda: self._begin(self._allocate()))

    async def close(self) -> None:
        """Give up what is not done."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _allocate(self) -> None:
        request = admin_pb2.AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        try:
            # A block that was allocated and not heard of is lost, which does no harm.
            result = await self._client.execute(
                admin_pb2.Operation(allocate_producer_ids=request), retry_unknown=True, timeout_ms=TIMEOUT_MS
            )
            if result.error_code:
                raise ApiError(ErrorCode(result.error_code), result.error_message)
        except ApiError as error:
            logger.warning("the controller gave no producer ids", reason=str(error))
            self.producer_ids.refused(error)
            return
        block = result.allocate_producer_ids
        self.producer_ids.allocated(Block(block.producer_id_start, block.producer_id_count))

    def create(self, name: str) -> None:
        """Make a topic with the defaults of the cluster, some time later."""
        if name not in self._creating and len(self._creating) < CREATED_AT_ONCE_MAX:
            self._creating.add(name)
            self._begin(self._create(name))

    async def _create(self, name: str) -> None:
        try:
            await self._client.create_topics([NewTopic(name)])
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.warning("a topic was not made", topic=name, reason=str(error))
        finally:
            self._creating.discard(name)
