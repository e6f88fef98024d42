"""DescribeConfigs: values and sources, from this broker's applied metadata (KIP-133, KIP-226, KIP-569).

A resource that is named several times with the same configs is answered once. Kafka's brokers answer it each time, and
clients keep one of the answers. In the answer, topics with the same configs share their entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode, invalid_request
from kraftlog.broker.apis.refusals import text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.metadata.configs_in_effect import ConfigInEffect
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from statemachine.metadata.config_resources import check_resource_type, parse_broker_name
from statemachine.words.names import check_topic_name, quoted
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

FIRST_VERSION_WITH_TYPES: Final = 3

_Entries = tuple[DescribeConfigsResourceResult, ...]
_Known = dict[tuple[object, ...], _Entries]
"""The entries made for a request, by what they were made from."""


class DescribeConfigsApi:
    """Handles DescribeConfigs."""

    def __init__(self, services: BrokerServices) -> None:
        self._broker_id = services.broker_id
        self._cluster = services.cluster
        self._configs = services.configs

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without waiting. Only the broker itself knows its configs."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DescribeConfigsRequest, request.body)
        known: _Known = {}
        results: dict[tuple[object, ...], DescribeConfigsResult] = {}
        for described in body.resources:
            keys = None if described.configuration_keys is None else tuple(described.configuration_keys)
            resource = (described.resource_type, described.resource_name, keys)
            if resource not in results:
                results[resource] = self._result(described, body, request.version, known)
            yield
        reply(DescribeConfigsResponse(results=tuple(results.values())))

    def _result(
        self, resource: DescribeConfigsResource, body: DescribeConfigsRequest, version: int, known: _Known
    ) -> DescribeConfigsResult:
        code, message = ErrorCode.NONE, None
        entries: _Entries = ()
        try:
            entries = self._entries(resource, body, version, known)
        except ApiError as error:
            code, message = error.code, text_of(error)
        return DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=entries,
        )

    def _entries(
        self, resource: DescribeConfigsResource, body: DescribeConfigsRequest, version: int, known: _Known
    ) -> _Entries:
        """Return the configs of a resource. Raises ApiError if this broker knows no such resource."""
        name, wanted = resource.resource_name, frozenset(resource.configuration_keys or ())
        made_of: tuple[object, ...] = (resource.resource_type, name, wanted)
        own: dict[str, str] = {}
        is_topic = check_resource_type(resource.resource_type) is ResourceType.TOPIC
        if is_topic:
            check_topic_name(name)
            if self._cluster.topic_named(name) is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {quoted(name)} does not exist")
            own = self._configs.stored(ResourceType.TOPIC, name)
            made_of = (tuple(sorted(own.items())), wanted)
        entries = known.get(made_of)
        if entries is None:
            found = self._configs.of_topic(own) if is_topic else self._of_broker(name)
            entries = tuple(_entry(config, body, version) for config in found if not wanted or config.name in wanted)
            known[made_of] = entries
        return entries

    def _of_broker(self, name: str) -> list[ConfigInEffect]:
        """Return all configs of this broker, or those set for all brokers. Raises ApiError for another broker."""
        if name == CLUSTER_DEFAULT:
            return self._configs.of_all_brokers()
        check_this_broker(name, self._broker_id)
        return self._configs.of_this_broker()


def check_this_broker(name: str, broker_id: int) -> None:
    """Raise ApiError(INVALID_REQUEST) unless `name` is this broker: clients must send the request to that broker."""
    if parse_broker_name(name) != broker_id:
        raise invalid_request(f"this is broker {broker_id}, not {quoted(name)}; ask that broker itself")


def _entry(config: ConfigInEffect, body: DescribeConfigsRequest, version: int) -> DescribeConfigsResourceResult:
    synonyms: Sequence[DescribeConfigsSynonym] = ()
    if body.include_synonyms:
        synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in config.synonyms
        ]
    has_type = version >= FIRST_VERSION_WITH_TYPES
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.source,
        is_sensitive=config.is_sensitive,
        synonyms=tuple(synonyms),
        config_type=config.type if has_type else 0,
        documentation=config.documentation if has_type and body.include_documentation else None,
    )
