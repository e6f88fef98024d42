"""Brokers that the clients' commands are tried on: each gives its address, and makes topics."""

from __future__ import annotations

from itertools import count
from typing import Protocol

from confluent_kafka import Producer

from kraftbase.endpoint import Endpoint
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.config.endpoints import parse_endpoint
from kraftlog.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_numbers = count()


class Broker(Protocol):
    """A running broker."""

    address: str

    def new_topic(self, partitions: int = 1, **configs: object) -> str:
        """The name of a new topic; `max_message_bytes` is `max.message.bytes`."""


class KafkaBroker:
    """Any broker that creates topics as Kafka does: a stock one, or ours."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._endpoint: Endpoint = parse_endpoint(address)

    def new_topic(self, partitions: int = 1, **configs: object) -> str:
        return self.create(f"topic-{next(_numbers)}", partitions, **configs)

    def create(self, name: str, partitions: int, **configs: object) -> str:
        """Create a topic, and wait until the broker knows it; its name."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(
                CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()
            ),
        )
        with BrokerConnection(self._endpoint) as connection:
            answer = connection.call(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
        assert [of.error_code for of in answer.topics] == [0], answer
        while not self._has(name, partitions):
            pass  # the test's time limit ends it
        return name

    def _has(self, name: str, partitions: int) -> bool:
        """Whether the broker, which learns from the controller, knows the topic with all its leaders."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
        with BrokerConnection(self._endpoint) as connection:
            (topic,) = connection.call(request, MetadataResponse).topics
        return [of.error_code for of in topic.partitions] == [0] * partitions


class MockBroker:
    """librdkafka's own: in this process, real sockets, records in memory. Each of its topics has four partitions."""

    PARTITIONS = 4

    def __init__(self) -> None:
        self._owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._owner.list_topics(timeout=30).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def new_topic(self, partitions: int = 1, **configs: object) -> str:
        assert partitions <= self.PARTITIONS
        assert not configs
        name = f"topic-{next(_numbers)}"
        assert len(self._owner.list_topics(name, 30).topics[name].partitions) == self.PARTITIONS
        return name
