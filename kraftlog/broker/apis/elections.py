"""ElectLeaders, forwarded to the controller (KIP-183, KIP-460)."""

from __future__ import annotations

from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.refusals import message_of, text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1 import admin_pb2

FIRST_VERSION_WITH_CODE: Final = 1
"""The first version whose answer has an error code for the whole request."""


class ElectLeadersApi:
    """Handles ElectLeaders."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered. A partition that is named several times is answered once."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(ElectLeadersRequest, request.body)
        references = None if body.topic_partitions is None else admin_pb2.PartitionReferences()
        named: list[tuple[str, int]] = []
        for topic in body.topic_partitions or ():
            for index in topic.partitions:
                named.append((topic.topic, index))
                if references is not None:
                    references.partitions.add(topic=topic.topic, partition_id=index)
                yield

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            topics: dict[str, dict[int, PartitionResult]] = {}
            code = ErrorCode.NONE
            if isinstance(result, ApiError):
                code = result.code
                for name, index in named:
                    topics.setdefault(name, {})[index] = PartitionResult(
                        partition_id=index, error_code=code, error_message=text_of(result)
                    )
                    yield
            else:
                for part in result.elect_leaders.partitions:
                    topics.setdefault(part.topic, {})[part.partition_id] = PartitionResult(
                        partition_id=part.partition_id, error_code=part.error_code, error_message=message_of(part)
                    )
                    yield
            results = []
            for name, parts in topics.items():
                results.append(ReplicaElectionResult(topic=name, partition_result=tuple(parts.values())))
                yield
            reply(
                ElectLeadersResponse(
                    error_code=code if request.version >= FIRST_VERSION_WITH_CODE else ErrorCode.NONE,
                    replica_election_results=tuple(results),
                )
            )

        election = admin_pb2.ElectLeadersRequest(
            election_type=body.election_type,  # type: ignore[arg-type]  # the numbers are Kafka's
            partitions=references,
        )
        operation = admin_pb2.Operation(client_id=request.context.client_id, elect_leaders=election)
        self._controller.submit(operation, body.timeout_ms, lambda result: request.slices.run(answer(result)))
