"""CreateTopics, DeleteTopics and CreatePartitions: passed on to the controller (KIP-590)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.refusals import message_of, reply_within_quota, text_of
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.metadata.configs_in_effect import ConfigsInEffect
from kraftlog.broker.requests import ClientRequest, Reply, Steps
from kraftlog.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kraftlog.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftlog.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kraftlog.kafka.notation import ZERO_UUID
from kraftpb.v1 import admin_pb2

FIRST_VERSION_WITH_CONFIGS: Final = 5
"""Of CreateTopics: from here on the answer shows the topic (KIP-525)."""
FIRST_VERSION_WITH_STATES: Final = 6
"""Of DeleteTopics: from here on topics may be named by their ids (KIP-516)."""
FIRST_VERSION_WITH_DISABLED: Final = 3
"""Of DeleteTopics: from here on clients know TOPIC_DELETION_DISABLED (KIP-322)."""

FIRST_VERSION_WITH_QUOTA: Final[Mapping[int, int]] = {
    CreateTopicsRequest.KEY: 6, DeleteTopicsRequest.KEY: 5, CreatePartitionsRequest.KEY: 3,
}  # fmt: skip
"""From here on clients know THROTTLING_QUOTA_EXCEEDED (KIP-599), by the key of the API."""


class _Named(Protocol):
    name: str


Named = TypeVar("Named", bound=_Named)


class CreateTopicsApi:
    """Handles CreateTopics."""

    def __init__(self, controller: ControllerChannel, configs: ConfigsInEffect) -> None:
        self._controller = controller
        self._configs = configs

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has. A name that is given several times is answered once."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(CreateTopicsRequest, request.body)
        creation = admin_pb2.CreateTopicsRequest(validate_only=body.validate_only)
        for topic in body.topics:
            made = creation.topics.add(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                configs=[admin_pb2.ConfigEntry(name=config.name, value=config.value) for config in topic.configs],
            )
            for given in topic.assignments:
                made.assignments.add(partition_id=given.partition_index, broker_ids=given.broker_ids)
                yield
            yield
        operation = admin_pb2.Operation(client_id=request.client_id, create_topics=creation)
        self._controller.submit(
            operation, body.timeout_ms, lambda result: request.slices.run(self._answer(request, reply, result))
        )

    def _answer(self, request: ClientRequest, reply: Reply, result: admin_pb2.OperationResult | ApiError) -> Steps:
        given = _by_name(cast(CreateTopicsRequest, request.body).topics)
        topics: list[CreatableTopicResult] = []
        if isinstance(result, ApiError):
            for name in given:
                topics.append(CreatableTopicResult(name=name, error_code=result.code, error_message=text_of(result)))
                yield
        else:
            for topic in _by_name(result.create_topics.topics).values():
                topics.append(self._created(given[topic.name], topic, request.version))
                yield
        response = CreateTopicsResponse(topics=tuple(topics))
        knows_quota = request.version >= FIRST_VERSION_WITH_QUOTA[request.api.key]
        reply_within_quota(reply, response, topics, knows_quota=knows_quota)

    def _created(self, given: CreatableTopic, topic: admin_pb2.CreatedTopic, version: int) -> CreatableTopicResult:
        if topic.error_code:
            return CreatableTopicResult(name=topic.name, error_code=topic.error_code, error_message=message_of(topic))
        own = {config.name: config.value or "" for config in given.configs}
        shown = self._configs.of_topic(own) if version >= FIRST_VERSION_WITH_CONFIGS else ()
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            configs=tuple(
                CreatableTopicConfigs(
                    name=config.name,
                    value=config.value,
                    read_only=config.is_read_only,
                    config_source=config.source,
                    is_sensitive=config.is_sensitive,
                )
                for config in shown
            ),
        )


class DeleteTopicsApi:
    """Handles DeleteTopics."""

    def __init__(self, controller: ControllerChannel) -> None:
        self._controller = controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has. A topic that is named several times the same way is answered once."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DeleteTopicsRequest, request.body)
        states = body.topics
        if request.version < FIRST_VERSION_WITH_STATES:
            states = tuple(DeleteTopicState(name=name) for name in body.topic_names)

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            answers: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
            if isinstance(result, ApiError):
                code = result.code
                if code is ErrorCode.TOPIC_DELETION_DISABLED and request.version < FIRST_VERSION_WITH_DISABLED:
                    code = ErrorCode.INVALID_REQUEST
                for state in states:
                    answers[state.name, state.topic_id] = DeletableTopicResult(
                        name=state.name, topic_id=state.topic_id, error_code=code, error_message=text_of(result)
                    )
                    yield
            else:
                for state, topic in zip(states, result.delete_topics.topics, strict=True):
                    answers[state.name, state.topic_id] = _deleted(state.name, state.topic_id, topic)
                    yield
            topics = tuple(answers.values())
            response = DeleteTopicsResponse(responses=topics)
            knows_quota = request.version >= FIRST_VERSION_WITH_QUOTA[request.api.key]
            reply_within_quota(reply, response, topics, knows_quota=knows_quota)

        deletion = admin_pb2.DeleteTopicsRequest()
        for state in states:
            deletion.topics.add(name=state.name or "", topic_id=b"" if state.topic_id == ZERO_UUID else state.topic_id)
            yield
        operation = admin_pb2.Operation(client_id=request.client_id, delete_topics=deletion)
        self._controller.submit(operation, body.timeout_ms, lambda result: request.slices.run(answer(result)))


class CreatePartitionsApi:
    """Handles CreatePartitions."""

    def __init__(self, controller: ControllerChannel) -> None:
        self._controller = controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has. A name that is given several times is answered once."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(CreatePartitionsRequest, request.body)

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            results: list[CreatePartitionsTopicResult] = []
            if isinstance(result, ApiError):
                for name in _by_name(body.topics):
                    results.append(
                        CreatePartitionsTopicResult(name=name, error_code=result.code, error_message=text_of(result))
                    )
                    yield
            else:
                for topic in _by_name(result.create_partitions.topics).values():
                    results.append(
                        CreatePartitionsTopicResult(
                            name=topic.name, error_code=topic.error_code, error_message=message_of(topic)
                        )
                    )
                    yield
            response = CreatePartitionsResponse(results=tuple(results))
            knows_quota = request.version >= FIRST_VERSION_WITH_QUOTA[request.api.key]
            reply_within_quota(reply, response, results, knows_quota=knows_quota)

        growth = admin_pb2.CreatePartitionsRequest(validate_only=body.validate_only)
        for topic in body.topics:
            growing = growth.topics.add(name=topic.name, count=topic.count)
            for given in topic.assignments or ():
                growing.assignments.add(ids=given.broker_ids)
                yield
            if topic.assignments == ():
                # To assign none is not to leave it to the controller. One without replicas is refused in any case.
                growing.assignments.add()
            yield
        operation = admin_pb2.Operation(client_id=request.client_id, create_partitions=growth)
        self._controller.submit(operation, body.timeout_ms, lambda result: request.slices.run(answer(result)))


def _by_name(parts: Iterable[Named]) -> Mapping[str, Named]:
    """The parts by the names of their topics, in their order."""
    return {part.name: part for part in parts}


def _deleted(name: str | None, topic_id: bytes, topic: admin_pb2.DeletedTopic) -> DeletableTopicResult:
    """An error shows a topic as the request does, a success with its name and its id."""
    if not topic.error_code:
        name, topic_id = topic.name, topic.topic_id
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=topic.error_code, error_message=message_of(topic)
    )
