"""DescribeQuorum: the voters and observers, as the leader of the metadata log sees them (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.refusals import text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from kraftlog.kafka.notation import ZERO_UUID
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1 import quorum_pb2
from statemachine.words.names import METADATA_TOPIC, quoted

FIRST_VERSION_WITH_NODES: Final = 2
"""From this version on replicas have directory ids, and the answer has the voters' addresses."""

LISTENER_NAME: Final = "CONTROLLER"
"""Kafka's usual name. Nodes have one address each, without a name."""


class DescribeQuorumApi:
    """Handles DescribeQuorum."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the leader has answered; at once for other partitions than the metadata log."""
        body = cast(DescribeQuorumRequest, request.body)
        if [
            (topic.topic_name, [part.partition_index for part in topic.partitions[:2]]) for topic in body.topics[:2]
        ] != [(METADATA_TOPIC, [0])]:
            request.slices.run(_answer_unknown(body, reply))
            return

        def answer(described: quorum_pb2.DescribeQuorumResponse | ApiError) -> None:
            if isinstance(described, ApiError):
                reply(DescribeQuorumResponse(error_code=described.code, error_message=text_of(described), topics=()))
            else:
                reply(_response(described, has_nodes=request.version >= FIRST_VERSION_WITH_NODES))

        self._controller.describe_quorum(answer)


def _response(described: quorum_pb2.DescribeQuorumResponse, *, has_nodes: bool) -> DescribeQuorumResponse:
    leader = described.current_leader
    partition = ResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        high_watermark=described.high_watermark,
        current_voters=_states(described.current_voters, has_directories=has_nodes),
        observers=_states(described.observers, has_directories=has_nodes),
    )
    nodes = tuple(
        Node(
            node_id=voter.replica_key.node_id,
            listeners=(Listener(name=LISTENER_NAME, host=voter.endpoint.host, port=voter.endpoint.port),),
        )
        for voter in described.current_voters
    )
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=(ResponseTopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=nodes if has_nodes else (),
    )


def _states(replicas: Iterable[quorum_pb2.ReplicaState], *, has_directories: bool) -> tuple[ReplicaState, ...]:
    return tuple(
        ReplicaState(
            replica_id=replica.replica_key.node_id,
            replica_directory_id=(replica.replica_key.directory_id or ZERO_UUID) if has_directories else ZERO_UUID,
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=replica.last_fetch_timestamp,
            last_caught_up_timestamp=replica.last_caught_up_timestamp,
        )
        for replica in replicas
    )


def _answer_unknown(body: DescribeQuorumRequest, reply: Reply) -> Steps:
    topics = []
    for topic in body.topics:
        message = f"{quoted(topic.topic_name)} has no quorum; ask for {METADATA_TOPIC}-0 alone"
        partitions = []
        for part in topic.partitions:
            partitions.append(
                ResponsePartitionData(
                    partition_index=part.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=message,
                    leader_id=0,
                    leader_epoch=0,
                    high_watermark=0,
                    current_voters=(),
                    observers=(),
                )
            )
            yield
        topics.append(ResponseTopicData(topic_name=topic.topic_name, partitions=tuple(partitions)))
    reply(DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message=None, topics=tuple(topics)))
