"""Brokers that the clients' commands are tried on: each gives its address, and makes topics."""

from __future__ import annotations

import asyncio
from itertools import count

from kraftbase.endpoint import Endpoint
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.config.endpoints import parse_endpoint, parse_endpoints
from kraftlog.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_numbers = count()


class KafkaBroker:
    """Any broker that creates topics as Kafka does."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._endpoint: Endpoint = parse_endpoint(address)

    def new_topic(self, partitions: int = 1, **configs: object) -> str:
        """The name of a new topic; `max_message_bytes` is `max.message.bytes`."""
        return self.create(f"topic-{next(_numbers)}", partitions, **configs)

    def create(self, name: str, partitions: int, **configs: object) -> str:
        """Create a topic, and wait until the broker knows it; its name."""
        self._create(name, partitions, {key.replace("_", "."): str(value) for key, value in configs.items()})
        while not self._has(name, partitions):
            pass  # the test's time limit ends it
        return name

    def _create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
        )
        with BrokerConnection(self._endpoint) as connection:
            answer = connection.call(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
        assert [of.error_code for of in answer.topics] == [0], answer

    def _has(self, name: str, partitions: int) -> bool:
        """Whether the broker, which learns from the controller, knows the topic with all its leaders."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
        with BrokerConnection(self._endpoint) as connection:
            (topic,) = connection.call(request, MetadataResponse).topics
        return [of.error_code for of in topic.partitions] == [0] * partitions


class OwnBroker(KafkaBroker):
    """One of ours. Its topics are created at the controller."""

    def __init__(self, address: str, controllers: str) -> None:
        super().__init__(address)
        self._controllers = controllers

    def _create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        asyncio.run(self._create_at_the_controller(NewTopic(name, partitions, 1, configs=configs)))

    async def _create_at_the_controller(self, topic: NewTopic) -> None:
        async with AdminClient(parse_endpoints(self._controllers)) as client:
            await client.create_topics([topic])
