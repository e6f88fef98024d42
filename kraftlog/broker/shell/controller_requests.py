"""A broker's requests to the controller: ids for producers, topics that clients ask for, ISRs of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.producer_ids import Block, ProducerIds
from kraftlog.broker.shell.ports import OperationsPort
from kraftpb.v1 import admin_pb2
from raft.rpc import codec
from statemachine.words.config_definitions import NUM_PARTITIONS, REPLICATION_FACTOR

TIMEOUT_MS: Final = 4_500
CREATION_TIMEOUT_MS: Final = 30_000
"""Kafka's `request.timeout.ms`."""
CREATED_AT_ONCE_MAX: Final = 100
"""Topics in creation at the request of clients; beyond that a request is dropped, and the client asks again."""

logger = structlog.get_logger(__name__)


class ControllerRequests:
    """The requests of one broker. Not thread-safe."""

    def __init__(
        self,
        channel: OperationsPort,
        broker_id: int,
        broker_epoch: Callable[[], int],
        config: Callable[[str], str],
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """`channel` is the broker's own, so that clients' requests do not delay these. `config` returns this
        broker's value of a broker config, by name. `timeout_ms` is how long a request may take, except for the
        creation of topics."""
        self._config = config
        self._timeout_ms = timeout_ms
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._creating: set[str] = set()
        self.producer_ids = ProducerIds(self._allocate)

    def _allocate(self) -> None:
        request = admin_pb2.AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        # A block that was allocated without an answer is lost, which does no harm.
        self._channel.submit(
            admin_pb2.Operation(allocate_producer_ids=request), self._timeout_ms, self._allocated, retry_unknown=True
        )

    def _allocated(self, result: admin_pb2.OperationResult | ApiError) -> None:
        if isinstance(result, ApiError):
            logger.warning("no producer ids from the controller", reason=str(result))
            self.producer_ids.refused(result)
            return
        block = result.allocate_producer_ids
        self.producer_ids.allocated(Block(block.producer_id_start, block.producer_id_count))

    def alter_partition(
        self,
        request: admin_pb2.AlterPartitionRequest,
        on_answer: Callable[[admin_pb2.AlterPartitionResponse | ApiError], None],
    ) -> None:
        """Ask for another ISR. The caller retries; a change whose answer was lost shows in the metadata."""

        def answered(result: admin_pb2.OperationResult | ApiError) -> None:
            on_answer(result if isinstance(result, ApiError) else result.alter_partition)

        self._channel.submit(admin_pb2.Operation(alter_partition=request), self._timeout_ms, answered)

    def create(self, name: str) -> None:
        """Create a topic with this broker's defaults for partitions and replicas, some time later."""
        if name in self._creating or len(self._creating) >= CREATED_AT_ONCE_MAX:
            return
        self._creating.add(name)
        partitions, replicas = int(self._config(NUM_PARTITIONS)), int(self._config(REPLICATION_FACTOR))
        topic = admin_pb2.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        operation = admin_pb2.Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=[topic]))
        self._channel.submit(operation, CREATION_TIMEOUT_MS, partial(self._created, name))

    def _created(self, name: str, result: admin_pb2.OperationResult | ApiError) -> None:
        self._creating.discard(name)
        error = result if isinstance(result, ApiError) else None
        if isinstance(result, admin_pb2.OperationResult):
            refused = [topic for topic in result.create_topics.topics if topic.error_code]
            if refused:
                error = ApiError(codec.error_from_proto(refused[0].error_code), refused[0].error_message)
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            logger.warning("topic not created", topic=name, reason=str(error))
