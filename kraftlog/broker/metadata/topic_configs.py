"""The configs in effect for topics on this broker: a publisher of its state machine.

The first value in this order applies: topic, this broker, all brokers, the broker's own file, Kafka's default.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kraftbase.types import Offset
from kraftlog.broker.log_configs import partition_log_config
from kraftlog.replicas.replication.throttle import NONE_THROTTLED, ThrottledReplicas
from kraftlog.storage.config import PartitionLogConfig
from statemachine.replay.deltas import MetadataDelta
from statemachine.tables.cluster_tables import CONFIGS
from statemachine.tables.database import open_reader
from statemachine.words.config_definitions import (
    BROKER_CONFIGS,
    FOLLOWER_RATE,
    LEADER_RATE,
    MIN_ISR,
    THROTTLED_FOLLOWERS,
    THROTTLED_LEADERS,
    TOPIC_CONFIGS,
)
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

_KEPT_TOPICS_MAX: Final = 10_000


class _Throttled(NamedTuple):
    """The throttled replicas of a topic on this broker, as followers and as leaders."""

    followers: ThrottledReplicas
    leaders: ThrottledReplicas


class TopicConfigs:
    """Looks configs up in the broker's copy of the metadata, and keeps them until a config changes."""

    def __init__(self, broker_id: int, own: Mapping[str, str]) -> None:
        """`own` are the configs of brokers in this broker's file."""
        self._broker_id = broker_id
        self._own = own
        self._metadata: sqlite3.Connection | None = None
        self._brokers: Mapping[str, str] | None = None
        self._log_configs: dict[str, PartitionLogConfig] = {}
        self._min_isr: dict[str, int] = {}
        self._throttled: dict[str, _Throttled] = {}
        self._rates: dict[str, int] = {}

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Forget all values: the state is a new one."""
        self._metadata = metadata
        self._clear_cache()

    def on_delta(self, delta: MetadataDelta) -> None:
        """Forget all values if a config has changed."""
        if delta.configs:
            self._clear_cache()

    def _clear_cache(self) -> None:
        self._brokers = None
        self._log_configs.clear()
        self._min_isr.clear()
        self._throttled.clear()
        self._rates.clear()

    def effective(self, topic: str) -> dict[str, str]:
        """Return the value of every config of a topic."""
        if self._brokers is None:
            of_this = self._stored(ResourceType.BROKER, str(self._broker_id))
            self._brokers = {**self._own, **self._stored(ResourceType.BROKER, CLUSTER_DEFAULT), **of_this}
        brokers = self._brokers
        inherited = {
            name: brokers[definition.broker_config]
            for name, definition in TOPIC_CONFIGS.items()
            if definition.broker_config is not None and definition.broker_config in brokers
        }
        defaults = {name: definition.default for name, definition in TOPIC_CONFIGS.items()}
        return {**defaults, **inherited, **self._stored(ResourceType.TOPIC, topic)}

    def _stored(self, resource_type: ResourceType, name: str) -> dict[str, str]:
        if self._metadata is None:
            return {}
        return {record.name: record.value for _, record in CONFIGS.find(self._metadata, (int(resource_type), name))}

    def log_config(self, topic: str) -> PartitionLogConfig:
        """Return the settings of the logs of a topic's partitions."""
        config = self._log_configs.get(topic)
        if config is None:
            if len(self._log_configs) >= _KEPT_TOPICS_MAX:
                self._log_configs.clear()
            config = self._log_configs[topic] = partition_log_config(self.effective(topic))
        return config

    def min_insync_replicas(self, topic: str) -> int:
        """Return how many replicas must be in sync for acks=all."""
        count = self._min_isr.get(topic)
        if count is None:
            if len(self._min_isr) >= _KEPT_TOPICS_MAX:
                self._min_isr.clear()
            count = self._min_isr[topic] = int(self.effective(topic)[MIN_ISR])
        return count

    # --- throttled replication (KIP-73) -------------------------------------------------------------------------------

    def throttled_followers(self, topic: str) -> ThrottledReplicas:
        """This broker's replicas in `follower.replication.throttled.replicas` of a topic."""
        return (self._throttled.get(topic) or self._look_up_throttled(topic)).followers

    def throttled_leaders(self, topic: str) -> ThrottledReplicas:
        """This broker's replicas in `leader.replication.throttled.replicas` of a topic."""
        return (self._throttled.get(topic) or self._look_up_throttled(topic)).leaders

    def _look_up_throttled(self, topic: str) -> _Throttled:
        if len(self._throttled) >= _KEPT_TOPICS_MAX:
            self._throttled.clear()
        stored = self._stored(ResourceType.TOPIC, topic)
        throttled = self._throttled[topic] = _Throttled(
            ThrottledReplicas.parse(stored.get(THROTTLED_FOLLOWERS, ""), self._broker_id) or NONE_THROTTLED,
            ThrottledReplicas.parse(stored.get(THROTTLED_LEADERS, ""), self._broker_id) or NONE_THROTTLED,
        )
        return throttled

    def follower_rate(self) -> int:
        """`follower.replication.throttled.rate`: bytes per second that this broker may fetch for throttled replicas."""
        return self._rate(FOLLOWER_RATE)

    def leader_rate(self) -> int:
        """`leader.replication.throttled.rate`: bytes per second that this broker may send for throttled replicas."""
        return self._rate(LEADER_RATE)

    def _rate(self, name: str) -> int:
        if name not in self._rates:
            self._rates[name] = int(self.broker_value(name))
        return self._rates[name]

    def broker_value(self, name: str) -> str:
        """Return the value of a config of brokers on this broker."""
        for found in (self._stored(ResourceType.BROKER, str(self._broker_id)),
                      self._stored(ResourceType.BROKER, CLUSTER_DEFAULT), self._own):  # fmt: skip
            if name in found:
                return found[name]
        return BROKER_CONFIGS[name].default


@contextmanager
def last_known_configs(path: Path, broker_id: int, own: Mapping[str, str]) -> Iterator[TopicConfigs]:
    """The configs in a database of metadata, to open logs before the broker follows the metadata. Raises StorageError.

    Consider the log of a compacted topic, in which offsets are missing at the end of a segment. If the start after a
    crash did not know that the topic is compacted, it would take these offsets for lost, and truncate everything after
    them.
    """
    configs = TopicConfigs(broker_id, own)
    with closing(open_reader(path)) as metadata:
        configs.on_snapshot(Offset(0), metadata)
        yield configs
