"""The settings of a broker: its identity, its listeners and directories, and its configs.

Configs that can be changed while it runs are Kafka's configs of brokers (`statemachine.words.config_definitions`): a
value given here applies where the cluster's metadata has none. The others are listed here, with Kafka's names and
defaults.
"""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, ConfigurationError
from kraftlog.broker.log_configs import ACTING_TOPIC_CONFIGS
from kraftlog.kafka.connections import REQUEST_HEADER_BYTES_MIN
from statemachine.query.descriptions import BrokerListener
from statemachine.words.config_definitions import (
    BROKER_CONFIGS,
    CONNECTIONS_MAX,
    FOLLOWER_RATE,
    LEADER_RATE,
    MAX_CONNECTIONS_PER_IP,
    NUM_PARTITIONS,
    PRODUCER_EXPIRATION,
    REPLICATION_FACTOR,
    TOPIC_CONFIGS,
    UNCLEAN_ELECTION,
    check_config,
)
from statemachine.words.config_kinds import Flag, Kind, OneOf, Text, Whole
from statemachine.words.resources import ResourceType

ALLOW_PLAINTEXT: Final = "allow.plaintext"
AUTO_CREATE_TOPICS: Final = "auto.create.topics.enable"
CHECKPOINT_INTERVAL: Final = "log.flush.offset.checkpoint.interval.ms"
CONNECTIONS_MAX_IDLE: Final = "connections.max.idle.ms"
HEARTBEAT_INTERVAL: Final = "broker.heartbeat.interval.ms"
HIGH_WATERMARK_CHECKPOINT_INTERVAL: Final = "replica.high.watermark.checkpoint.interval.ms"
INTER_BROKER_LISTENER: Final = "inter.broker.listener.name"
LOOP_REPORT_INTERVAL: Final = "loop.report.interval.ms"
PRODUCER_EXPIRATION_CHECK_INTERVAL: Final = "producer.id.expiration.check.interval.ms"
QUEUED_BYTES: Final = "queued.max.request.bytes"
REPLICA_FETCH_BACKOFF: Final = "replica.fetch.backoff.ms"
REPLICA_FETCH_BYTES: Final = "replica.fetch.max.bytes"
REPLICA_FETCH_BYTES_MIN: Final = "replica.fetch.min.bytes"
REPLICA_FETCH_RESPONSE_BYTES: Final = "replica.fetch.response.max.bytes"
REPLICA_FETCH_WAIT_MAX: Final = "replica.fetch.wait.max.ms"
REPLICA_LAG_MAX: Final = "replica.lag.time.max.ms"
REPLICA_SELECTOR: Final = "replica.selector.class"
REPLICA_SOCKET_TIMEOUT: Final = "replica.socket.timeout.ms"
REQUEST_BYTES: Final = "socket.request.max.bytes"
RETENTION_CHECK_INTERVAL: Final = "log.retention.check.interval.ms"

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

PARTITIONS_NAME: Final = "partitions"
"""The log directory within the broker's own directory, for a broker without `log_dirs`."""

_INT_MAX: Final = 2**31 - 1
_DAY_MS: Final = 86_400_000
_LOOP_REPORT_INTERVAL_MAX: Final = 60_000


@dataclass(frozen=True, slots=True)
class StaticConfig:
    """A config that is fixed from a broker's start to its end."""

    kind: Kind
    default: str
    meaning: str


STATIC_CONFIGS: Final[Mapping[str, StaticConfig]] = {
    ALLOW_PLAINTEXT: StaticConfig(
        Flag(), "false", "Listen at addresses that other machines can reach, although nothing is encrypted. Our own."
    ),
    AUTO_CREATE_TOPICS: StaticConfig(Flag(), "false", "Create a topic that a client asks for and that does not exist."),
    HEARTBEAT_INTERVAL: StaticConfig(Whole(1, _DAY_MS), "2000", "How often the broker sends a heartbeat."),
    CONNECTIONS_MAX_IDLE: StaticConfig(
        Whole(1, 2**63 - 1), "600000", "A connection on which nothing happens for this long is closed."
    ),
    CHECKPOINT_INTERVAL: StaticConfig(
        Whole(1, _DAY_MS), "60000", "How often the broker writes down how far its logs are flushed."
    ),
    HIGH_WATERMARK_CHECKPOINT_INTERVAL: StaticConfig(
        Whole(1, _DAY_MS), "5000", "How often the broker writes down the high watermarks of its logs."
    ),
    INTER_BROKER_LISTENER: StaticConfig(
        Text(), "", "The listener over which brokers fetch from each other; empty: the first one."
    ),
    LOOP_REPORT_INTERVAL: StaticConfig(
        Whole(0, _LOOP_REPORT_INTERVAL_MAX),
        "0",
        "How often the broker logs how long the turns of its event loop have taken; 0 is never. Our own.",
    ),
    PRODUCER_EXPIRATION_CHECK_INTERVAL: StaticConfig(
        Whole(1, _INT_MAX), "600000", "How often the broker checks for producers that have been idle for too long."
    ),
    REPLICA_FETCH_BACKOFF: StaticConfig(
        Whole(0, _INT_MAX), "1000", "How long a follower waits after an error before it fetches again."
    ),
    REPLICA_FETCH_BYTES: StaticConfig(
        Whole(0, _INT_MAX), "1048576", "Bytes of one partition in an answer to a follower; a larger batch comes whole."
    ),
    REPLICA_FETCH_BYTES_MIN: StaticConfig(
        Whole(0, _INT_MAX), "1", "Bytes that a leader waits for before it answers a follower."
    ),
    REPLICA_FETCH_RESPONSE_BYTES: StaticConfig(
        Whole(0, _INT_MAX), "10485760", "Bytes of all partitions in an answer to a follower."
    ),
    REPLICA_FETCH_WAIT_MAX: StaticConfig(
        Whole(0, _INT_MAX), "500", "How long a leader waits for these bytes before it answers a follower."
    ),
    REPLICA_LAG_MAX: StaticConfig(
        Whole(1, _DAY_MS), "30000", "A follower that was not caught up for longer than this leaves the ISR."
    ),
    REPLICA_SELECTOR: StaticConfig(
        OneOf(("", RACK_AWARE_SELECTOR)),
        "",
        f"Which replica consumers are sent to: the leader, or with {RACK_AWARE_SELECTOR} one in their rack.",
    ),
    REPLICA_SOCKET_TIMEOUT: StaticConfig(
        Whole(1, _INT_MAX),
        "30000",
        "How long a follower waits for an answer, in addition to the time that its leader may wait.",
    ),
    RETENTION_CHECK_INTERVAL: StaticConfig(
        Whole(1, _DAY_MS), "300000", "How often the broker checks for segments that retention no longer keeps."
    ),
    QUEUED_BYTES: StaticConfig(
        Whole(1, 2**63 - 1), "104857600", "Bytes of requests in progress, of all connections; then no more are read."
    ),
    REQUEST_BYTES: StaticConfig(
        Whole(REQUEST_HEADER_BYTES_MIN, _INT_MAX), "104857600", "A larger request closes its connection."
    ),
}
"""Kafka's configs, and our own. `queued.max.request.bytes` is unlimited in Kafka."""


MADE_TOPICS_CONFIGS: Final = (NUM_PARTITIONS, REPLICATION_FACTOR)
"""Configs of topics that the broker creates because a client asks for them."""

ACTING_CONFIGS: Final = frozenset(
    {*(TOPIC_CONFIGS[name].broker_config for name in ACTING_TOPIC_CONFIGS)}
    | {FOLLOWER_RATE, LEADER_RATE, CONNECTIONS_MAX, MAX_CONNECTIONS_PER_IP, PRODUCER_EXPIRATION}
)
"""The `BROKER_CONFIGS` that change what a broker does, beside `MADE_TOPICS_CONFIGS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of a broker. Raises ConfigurationError if a config is unknown, has no effect, or has a bad value."""

    broker_id: int
    directory: Path
    """The broker's own directory: its copy of the metadata, and how it was shut down."""
    listeners: tuple[BrokerListener, ...]
    """Where the broker listens. Port 0: any free port."""
    advertised: tuple[BrokerListener, ...] = ()
    """Where clients reach it; a listener that is not named here is reached where it listens."""
    log_dirs: tuple[Path, ...] = ()
    """Where it keeps partitions; empty: `partitions` in its directory."""
    rack: str | None = None
    configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.listeners:
            raise ConfigurationError("a broker needs a listener, such as PLAINTEXT://localhost:9092")
        names = [listener.name for listener in self.listeners]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"listeners {', '.join(names)}: give each a name of its own")
        for listener in self.listeners:
            if _is_wildcard(listener.host) and listener.name not in {endpoint.name for endpoint in self.advertised}:
                raise ConfigurationError(
                    f"{listener.name} is bound to {listener.host}, which no client can connect to; advertise an address"
                    " for it"
                )
        for listener in self.advertised:
            if listener.name not in names:
                raise ConfigurationError(
                    f"{listener.name} is advertised, but the broker's listeners are {', '.join(names)}; advertise one"
                    " of these"
                )
        inter_broker = self.static_value(INTER_BROKER_LISTENER)
        if inter_broker and inter_broker not in names:
            raise ConfigurationError(
                f"{INTER_BROKER_LISTENER} is {inter_broker}, but the broker's listeners are {', '.join(names)}: name"
                " one of these"
            )
        if len(set(self.log_dirs)) < len(self.log_dirs):
            raise ConfigurationError("a log directory is given twice; give each once")
        for name, value in self.configs.items():
            check_given_config(name, value, self.configs)

    @property
    def log_paths(self) -> tuple[str, ...]:
        """The log directories as absolute paths, as DescribeLogDirs and AlterReplicaLogDirs name them."""
        return tuple(str(path.absolute()) for path in self.log_dirs or (self.directory / PARTITIONS_NAME,))

    @property
    def broker_configs(self) -> dict[str, str]:
        """The given configs that the cluster's metadata may override."""
        return {name: value for name, value in self.configs.items() if name in BROKER_CONFIGS}

    def broker_value(self, name: str) -> str:
        """The value of one of `BROKER_CONFIGS` at the start, where the metadata has none."""
        return self.configs.get(name, BROKER_CONFIGS[name].default)

    def static_value(self, name: str) -> str:
        """The value of one of `STATIC_CONFIGS`."""
        return self.configs.get(name, STATIC_CONFIGS[name].default)

    def whole(self, name: str) -> int:
        """The value of a static config that is a number."""
        return int(self.static_value(name))

    def is_on(self, name: str) -> bool:
        """The value of a static config that is true or false."""
        return self.static_value(name).lower() == "true"

    @property
    def inter_broker_listener(self) -> str:
        """The listener over which brokers fetch from each other; all of them have it."""
        return self.static_value(INTER_BROKER_LISTENER) or self.listeners[0].name

    def advertised_as(self, name: str, port: int) -> BrokerListener:
        """Where clients reach a listener that is bound to `port`."""
        for listener in self.listeners:
            if _is_wildcard(listener.host) and listener.name not in {endpoint.name for endpoint in self.advertised}:
                raise ConfigurationError(
                    f"{listener.name} is bound to {listener.host}, which no client can connect to; advertise an address"
                    " for it"
                )
        for listener in self.advertised:
            if listener.name == name:
                return listener
        bound = next(listener for listener in self.listeners if listener.name == name)
        return bound._replace(port=port)


def _is_wildcard(host: str) -> bool:
    """Whether the host stands for all addresses of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def check_given_config(name: str, value: str, given: Mapping[str, str]) -> None:
    """Raise ConfigurationError if a broker cannot be started with this config and value.

    A config that would have no effect is refused, too. `given` are all configs that the broker is started with.
    """
    static = STATIC_CONFIGS.get(name)
    if static is not None:
        problem = static.kind.problem(value)
        if problem is not None:
            raise ConfigurationError(f"{value!r} is no value for {name}: {problem}")
        return
    if name not in BROKER_CONFIGS:
        near = difflib.get_close_matches(name, [*BROKER_CONFIGS, *STATIC_CONFIGS], 1)
        hint = f"; is {near[0]} meant?" if near else "; docs/operations/brokers.md lists them"
        raise ConfigurationError(f"{name} is no config of a broker{hint}")
    try:
        check_config(ResourceType.BROKER, name, value)
    except ApiError as error:
        raise ConfigurationError(str(error.args[0])) from None
    problem = _why_idle(name, given)
    if problem is not None:
        raise ConfigurationError(problem)


def _why_idle(name: str, given: Mapping[str, str]) -> str | None:
    """Return why a config given to one broker would have no effect, and where to set it instead; None if it has one."""
    set_for_all = f"kraftlog configs alter --entity-type brokers --entity-default --add-config {name}={given[name]}"
    if name in MADE_TOPICS_CONFIGS:
        if given.get(AUTO_CREATE_TOPICS, "").strip().lower() == "true":
            return None
        return (
            f"{name} of one broker is only for topics that it creates itself, and {AUTO_CREATE_TOPICS} is false; set it"
            f" for all topics: {set_for_all}"
        )
    if name == UNCLEAN_ELECTION:
        return f"{name} of one broker has no effect, because the controller decides; set it there: {set_for_all}"
    return None if name in ACTING_CONFIGS else f"{name} has no effect in a broker of kraftlog; leave it out"
