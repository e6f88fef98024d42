"""IncrementalAlterConfigs and AlterConfigs: checked as Kafka's brokers do, then forwarded to the controller.

Each resource gets an answer, in the order of the request, even if it is named several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from kraftbase.errors import ApiError, ErrorCode, invalid_request
from kraftlog.broker.apis.configs import check_this_broker
from kraftlog.broker.apis.guards import check_changed_configs
from kraftlog.broker.apis.refusals import message_of, text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.controller_channel import TIMEOUT_MS_DEFAULT
from kraftlog.kafka.messages import alter_configs, incremental_alter_configs
from kraftlog.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftlog.kafka.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1 import admin_pb2
from statemachine.metadata.config_resources import check_resource
from statemachine.query.reads import state_of
from statemachine.words.names import quoted
from statemachine.words.repeats import repeats
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

SET, DELETE = admin_pb2.ConfigAlteration.SET, admin_pb2.ConfigAlteration.DELETE

Resource = tuple[int, str]
"""The type and the name of a resource."""


Answered = TypeVar("Answered")


@dataclass(slots=True)
class _Change:
    """The changes that a request asks for in one resource, and their result."""

    resource: Resource
    configs: Sequence[tuple[str, int, str | None]]
    """For each config: its name, the kind of alteration, and the value."""
    code: int = ErrorCode.NONE
    message: str | None = None

    def refuse(self, error: ApiError) -> None:
        """Set the error of the answer."""
        self.code, self.message = error.code, text_of(error)


def _answers(kind: Callable[..., Answered], changes: Sequence[_Change]) -> Generator[None, None, tuple[Answered, ...]]:
    """Return the result of each change, as `kind`, the API's own message."""
    answers = []
    for change in changes:
        answers.append(
            kind(
                error_code=change.code,
                error_message=change.message,
                resource_type=change.resource[0],
                resource_name=change.resource[1],
            )
        )
        yield
    return tuple(answers)


class ConfigChanges:
    """Has the controller alter configs, for both APIs."""

    def __init__(self, services: BrokerServices) -> None:
        self._broker_id = services.broker_id
        self._cluster = services.cluster
        self._controller = services.controller

    def execute(
        self, request: ClientRequest, changes: Sequence[_Change], validate_only: bool, answered: Callable[[], Steps]
    ) -> Steps:
        """Check the changes and forward the valid ones, in slices. `answered` runs when every change has its result."""
        counts = Counter(change.resource for change in changes)
        for change in changes:
            yield
            try:
                if counts[change.resource] > 1:
                    raise invalid_request(f"{quoted(change.resource[1])} is in the request more than once")
                self._check(change)
            except ApiError as error:
                change.refuse(error)
        requested = {change.resource: change for change in changes if not change.code and change.configs}
        if not requested:
            yield from answered()
            return

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            if isinstance(result, ApiError):
                for change in requested.values():
                    change.refuse(result)
                    yield
            else:
                for resource in result.alter_configs.resources:
                    change = requested[resource.resource_type, resource.resource_name]
                    change.code, change.message = _code(resource), message_of(resource)
                    yield
            yield from answered()

        alterations = admin_pb2.AlterConfigsRequest(validate_only=validate_only)
        for change in requested.values():
            for alteration in _alterations(change):
                alterations.alterations.append(alteration)
                yield
        operation = admin_pb2.Operation(alter_configs=alterations)
        self._controller.submit(
            operation, TIMEOUT_MS_DEFAULT, lambda result: request.slices.run(answer(result)), retry_unknown=True
        )

    def _check(self, change: _Change) -> None:
        """Raise ApiError: INVALID_REQUEST for a change that Kafka's brokers refuse, INVALID_CONFIG if only ours do."""
        for name in repeats([name for name, _, _ in change.configs]):
            raise invalid_request(f"config {quoted(name)} is given more than once")
        for name, kind, value in change.configs:
            if value is None and kind != DELETE:
                raise invalid_request(f"config {quoted(name)} has no value; give one, or delete the config")
        resource_type, resource_name = change.resource
        if resource_type == ResourceType.TOPIC:
            check_changed_configs(resource_name, change.configs)
        if resource_type == ResourceType.BROKER and resource_name != CLUSTER_DEFAULT:
            check_this_broker(resource_name, self._broker_id)
        if not change.configs:  # the controller is not asked about it
            check_resource(state_of(self._cluster.metadata), resource_type, resource_name)


def _code(resource: admin_pb2.AlteredResource) -> int:
    """Return the error code. Kafka's brokers check their own configs, and use INVALID_REQUEST for a wrong one."""
    is_broker = resource.resource_type == ResourceType.BROKER
    return (
        ErrorCode.INVALID_REQUEST
        if is_broker and resource.error_code == ErrorCode.INVALID_CONFIG
        else (resource.error_code)
    )


def _alterations(change: _Change) -> Iterator[admin_pb2.ConfigAlteration]:
    resource_type, resource_name = change.resource
    for name, kind, value in change.configs:
        yield admin_pb2.ConfigAlteration(
            resource_type=resource_type,
            resource_name=resource_name,
            name=name,
            kind=kind,  # type: ignore[arg-type]  # the numbers are Kafka's
            value="" if kind == DELETE or value is None else value,
        )


class IncrementalAlterConfigsApi:
    """Handles IncrementalAlterConfigs (KIP-339)."""

    def __init__(self, services: BrokerServices) -> None:
        self._changes = ConfigChanges(services)

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(IncrementalAlterConfigsRequest, request.body)
        changes = []
        for resource in body.resources:
            configs = [(config.name, config.config_operation, config.value) for config in resource.configs]
            changes.append(_Change((resource.resource_type, resource.resource_name), configs))
            yield

        def answered() -> Steps:
            responses = yield from _answers(incremental_alter_configs.AlterConfigsResourceResponse, changes)
            reply(IncrementalAlterConfigsResponse(responses=responses))

        yield from self._changes.execute(request, changes, body.validate_only, answered)


class AlterConfigsApi:
    """Handles AlterConfigs, which sets all configs of a resource: configs that it does not name are removed.

    The removed configs are those that this broker has applied, so one that is set at the same moment may stay. Kafka's
    clients used this API before IncrementalAlterConfigs existed, and some still do.
    """

    def __init__(self, services: BrokerServices) -> None:
        self._changes = ConfigChanges(services)
        self._configs = services.configs

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(AlterConfigsRequest, request.body)
        changes = []
        for resource in body.resources:
            changes.append(self._change(resource))
            yield

        def answered() -> Steps:
            responses = yield from _answers(alter_configs.AlterConfigsResourceResponse, changes)
            reply(AlterConfigsResponse(responses=responses))

        yield from self._changes.execute(request, changes, body.validate_only, answered)

    def _change(self, resource: alter_configs.AlterConfigsResource) -> _Change:
        configs: list[tuple[str, int, str | None]] = [(config.name, SET, config.value) for config in resource.configs]
        if resource.resource_type in tuple(ResourceType):
            given = {config.name for config in resource.configs}
            present = self._configs.stored(ResourceType(resource.resource_type), resource.resource_name)
            configs += [(name, DELETE, None) for name in present if name not in given]
        return _Change((resource.resource_type, resource.resource_name), configs)
