"""CreateTopics, DeleteTopics and CreatePartitions, forwarded to the controller (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar, cast

from kraftbase.errors import ApiError, ErrorCode, invalid_request
from kraftbase.runtime import Runtime, Timer
from kraftlog.broker.apis.guards import check_not_internal
from kraftlog.broker.apis.refusals import message_of, reply_within_quota, text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.controller_channel import TIMEOUT_MS_MAX
from kraftlog.broker.metadata.cluster_view import ClusterView, Departures
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
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1 import admin_pb2

FIRST_VERSION_WITH_CONFIGS: Final = 5
"""From this version of CreateTopics on the answer describes the topic (KIP-525)."""
FIRST_VERSION_WITH_STATES: Final = 6
"""From this version of DeleteTopics on topics may be named by id (KIP-516)."""
FIRST_VERSION_WITH_DISABLED: Final = 3
"""From this version of DeleteTopics on clients know TOPIC_DELETION_DISABLED (KIP-322)."""

FIRST_VERSION_WITH_QUOTA: Final[Mapping[int, int]] = {
    CreateTopicsRequest.KEY: 6, DeleteTopicsRequest.KEY: 5, CreatePartitionsRequest.KEY: 3,
}  # fmt: skip
"""By the key of the API, the version from which on clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


_TopicKey = tuple[str | None, bytes]
"""A topic as a request names it: its name, and its id."""


class _Named(Protocol):
    name: str


Named = TypeVar("Named", bound=_Named)


class CreateTopicsApi:
    """Handles CreateTopics."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller
        self._configs = services.configs

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered. A name that is given several times is answered once."""
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
        operation = admin_pb2.Operation(client_id=request.context.client_id, create_topics=creation)
        self._controller.submit(
            operation, body.timeout_ms, lambda result: request.slices.run(self._answer(request, reply, result))
        )

    def _answer(self, request: ClientRequest, reply: Reply, result: admin_pb2.OperationResult | ApiError) -> Steps:
        given = _by_name(cast(CreateTopicsRequest, request.body).topics)
        topics = []
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

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller
        self._cluster = services.cluster
        self._runtime = services.runtime

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has deleted the topics, and this broker no longer shows them (DB-113).

        A topic that is named several times in the same way is answered once.
        """
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DeleteTopicsRequest, request.body)
        states = body.topics
        if request.version < FIRST_VERSION_WITH_STATES:
            states = tuple(DeleteTopicState(name=name) for name in body.topic_names)
        deadline_ms = self._runtime.now_ms() + min(body.timeout_ms, TIMEOUT_MS_MAX)
        refused: dict[_TopicKey, ApiError] = {}
        deletion = admin_pb2.DeleteTopicsRequest()
        passed_on: list[DeleteTopicState] = []
        for state in states:
            try:
                self._check(state)
            except ApiError as error:
                is_repeated = (state.name, state.topic_id) in refused
                again = invalid_request("a topic is in the request more than once")
                refused[state.name, state.topic_id] = again if is_repeated else error
            else:
                passed_on.append(state)
                topic_id = b"" if state.topic_id == ZERO_UUID else state.topic_id
                deletion.topics.add(name=state.name or "", topic_id=topic_id)
            yield

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            answers: dict[_TopicKey, DeletableTopicResult] = {}
            for (name, topic_id), error in refused.items():
                answers[name, topic_id] = _undeleted(name, topic_id, error, request.version)
                yield
            departures = Departures()
            self._cluster.watch(departures)
            delayed: _DelayedAnswer | None = None
            try:
                for number, state in enumerate(passed_on):
                    key = (state.name, state.topic_id)
                    if isinstance(result, ApiError):
                        answers[key] = _undeleted(*key, result, request.version)
                    else:
                        topic = result.delete_topics.topics[number]
                        answers[key] = _deleted(*key, topic)
                        if not topic.error_code and self._cluster.topic_name(topic.topic_id) is not None:
                            departures.topic_ids.add(topic.topic_id)
                    yield
                topics = tuple(answers.values())
                response = DeleteTopicsResponse(responses=topics)
                knows_quota = request.version >= FIRST_VERSION_WITH_QUOTA[request.api.key]
                finish = partial(reply_within_quota, reply, response, topics, knows_quota=knows_quota)
                delayed = _DelayedAnswer(self._cluster, departures, finish)
                delayed.begin(request, self._runtime, deadline_ms)
            finally:
                if delayed is None:
                    self._cluster.watch_no_more(departures)

        if passed_on or not refused:
            operation = admin_pb2.Operation(client_id=request.context.client_id, delete_topics=deletion)
            self._controller.submit(operation, body.timeout_ms, lambda result: request.slices.run(answer(result)))
        else:
            yield from answer(admin_pb2.OperationResult(delete_topics=admin_pb2.DeleteTopicsResponse()))

    def _check(self, state: DeleteTopicState) -> None:
        """Raise ApiError for a topic that is not forwarded: one with an empty name, or an internal one."""
        if state.name == "" and state.topic_id == ZERO_UUID:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic name is empty")
        name = state.name
        if not name and state.topic_id != ZERO_UUID:
            name = self._cluster.topic_name(state.topic_id)
        check_not_internal(name or "")


class _DelayedAnswer:
    """An answer that waits until this broker no longer shows the deleted topics, or until its deadline.

    Consider a client that asks for the metadata as soon as its topic is deleted. This broker applies the deletion a
    moment after the controller has committed it, and until then the topic would seem to exist.
    """

    def __init__(self, cluster: ClusterView, departures: Departures, finish: Callable[[], None]) -> None:
        self._cluster = cluster
        self._departures = departures
        self._finish: Callable[[], None] | None = finish
        self._timer: Timer | None = None

    def begin(self, request: ClientRequest, runtime: Runtime, deadline_ms: float) -> None:
        """Answer when the topics are gone, at the deadline, or when the client is gone."""
        left_ms = deadline_ms - runtime.now_ms()
        if not self._departures.topic_ids or left_ms <= 0:
            self.end()
            return
        self._departures.on_gone = self.end
        self._timer = runtime.call_later(left_ms, self.end)
        request.on_client_done.append(self.end)

    def end(self) -> None:
        """Answer now, unless the request is answered already."""
        finish, self._finish = self._finish, None
        if finish is not None:
            self._cluster.watch_no_more(self._departures)
            if self._timer is not None:
                self._timer.cancel()
            finish()


class CreatePartitionsApi:
    """Handles CreatePartitions."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered. A name that is given several times is answered once."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(CreatePartitionsRequest, request.body)

        refused: dict[str, ApiError] = {}

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            results = [
                CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=text_of(error))
                for name, error in refused.items()
            ]
            if isinstance(result, ApiError):
                for name in (name for name in _by_name(body.topics) if name not in refused):
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
            try:
                check_not_internal(topic.name)
            except ApiError as error:
                refused[topic.name] = error
                continue
            growing = growth.topics.add(name=topic.name, count=topic.count)
            for given in topic.assignments or ():
                growing.assignments.add(ids=given.broker_ids)
                yield
            if topic.assignments == ():
                # An empty assignment is not the same as none, which leaves it to the controller. Send one without
                # replicas, which the controller refuses.
                growing.assignments.add()
            yield
        if growth.topics or not refused:
            operation = admin_pb2.Operation(client_id=request.context.client_id, create_partitions=growth)
            self._controller.submit(operation, body.timeout_ms, lambda result: request.slices.run(answer(result)))
        else:
            yield from answer(admin_pb2.OperationResult(create_partitions=admin_pb2.CreatePartitionsResponse()))


def _by_name(parts: Iterable[Named]) -> Mapping[str, Named]:
    """Return the parts by topic name, in their order."""
    return {part.name: part for part in parts}


def _undeleted(name: str | None, topic_id: bytes, error: ApiError, version: int) -> DeletableTopicResult:
    code = error.code
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_VERSION_WITH_DISABLED:
        code = ErrorCode.INVALID_REQUEST
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=text_of(error))


def _deleted(name: str | None, topic_id: bytes, topic: admin_pb2.DeletedTopic) -> DeletableTopicResult:
    """Return a topic's part of the answer: after an error named as in the request, else with its name and id."""
    if not topic.error_code:
        name, topic_id = topic.name, topic.topic_id
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=topic.error_code, error_message=message_of(topic)
    )
