"""Every setting of a node: its key, what it sets, and what it means. The one place that knows all three.

Keys are Kafka's where Kafka has them. `SETTINGS` drives reading (`kraftlog.config`) and the commented file that
`render_config` writes, so that neither can know a key that the other does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftlog.endpoints import NODE_ID_MAX, parse_endpoint, parse_reachable_endpoint, parse_voter
from raft.core.errors import ConfigurationError
from raft.core.types import Endpoint, NodeId
from snapshot.log_start import LogStartPolicy

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the configuration file."""

    key: str
    section: str
    """Which object the value belongs to: node, quorum, log, snapshots or log_start."""
    field: str
    """The field of that object."""
    parse: Callable[[object], object]
    """Turns the TOML value into the field's; raises ConfigurationError that says what the value must be."""
    meaning: str
    """One sentence for the reader of a configuration file."""


def whole_number(minimum: int, maximum: int = 2**63 - 1) -> Callable[[object], int]:
    """Takes whole numbers from `minimum` to `maximum`."""

    def parse(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            limit = f"from {minimum} to {maximum}" if maximum < 2**31 else f"of at least {minimum}"
            raise ConfigurationError(f"it must be a whole number {limit}")
        return value

    return parse


def one_of(*choices: str | int) -> Callable[[object], str | int]:
    """Takes only these values."""

    def parse(value: object) -> str | int:
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value not in choices:
            raise ConfigurationError(f"it must be one of {', '.join(map(str, choices))}")
        return value

    return parse


def text(value: object) -> str:
    """Takes text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError("it must be text, in quotes")
    return value


def text_list(value: object) -> list[str]:
    """Takes a list of texts, or one text with commas as Kafka writes lists. May be empty."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ConfigurationError("it must be a list of texts, or one text with commas")
    return [part.strip() for part in parts if part.strip()]


def directory(value: object) -> Path:
    """Takes a path."""
    path = text(value)
    if "\0" in path:
        raise ConfigurationError("it must be a path, which has no NUL character")
    return Path(path).expanduser()


def listener(value: object) -> Endpoint:
    """Takes the address to listen on."""
    return parse_endpoint(text(value))


def voters(value: object) -> tuple[tuple[NodeId, Endpoint], ...]:
    """Takes the voters."""
    return tuple(parse_voter(part) for part in text_list(value))


def bootstrap_servers(value: object) -> tuple[Endpoint, ...]:
    """Takes addresses of nodes."""
    return tuple(parse_reachable_endpoint(part) for part in text_list(value))


def _log_start_policy(value: object) -> LogStartPolicy:
    return LogStartPolicy(str(one_of(*(policy.value for policy in LogStartPolicy))(value)))


_milliseconds = whole_number(1, 86_400_000)
_bytes = whole_number(1)

SETTINGS: Final = (
    Setting("node.id", "node", "node_id", whole_number(0, NODE_ID_MAX), "Who this node is; one number per node."),
    Setting("log.dir", "node", "directory", directory, "Where this node keeps its data; relative to this file."),
    Setting("listeners", "node", "listener", listener, "Where this node listens, as host:port."),
    Setting(
        "controller.quorum.voters",
        "node",
        "voters",
        voters,
        "Who votes, as id@host:port, the same on every node. A node that is not in it is an observer.",
    ),
    Setting(
        "controller.quorum.bootstrap.servers",
        "node",
        "bootstrap_servers",
        bootstrap_servers,
        "Where an observer asks for the leader; empty: the voters.",
    ),
    Setting(
        "controller.quorum.election.timeout.ms",
        "quorum",
        "election_timeout_ms",
        _milliseconds,
        "How long a voter without a leader waits before it starts an election; each wait adds up to as much again.",
    ),
    Setting(
        "controller.quorum.fetch.timeout.ms",
        "quorum",
        "fetch_timeout_ms",
        _milliseconds,
        "How long a voter goes on without hearing from its leader before it starts an election.",
    ),
    Setting(
        "controller.quorum.election.backoff.max.ms",
        "quorum",
        "election_backoff_max_ms",
        _milliseconds,
        "Bounds the order of elections after a leader has resigned.",
    ),
    Setting(
        "controller.quorum.request.timeout.ms",
        "quorum",
        "request_timeout_ms",
        _milliseconds,
        "After this a request to another node counts as failed.",
    ),
    Setting(
        "controller.quorum.retry.backoff.ms",
        "quorum",
        "retry_backoff_ms",
        _milliseconds,
        "How long a failed connection is left alone.",
    ),
    Setting(
        "controller.quorum.fetch.max.wait.ms",
        "quorum",
        "fetch_max_wait_ms",
        _milliseconds,
        "How long the leader may hold back the answer to this node's fetch while there is nothing new.",
    ),
    Setting(
        "controller.quorum.fetch.max.bytes",
        "quorum",
        "fetch_max_bytes",
        whole_number(1, 2**31 - 1),
        "How much this node asks for in one fetch; one batch always comes whole.",
    ),
    Setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        "quorum",
        "fetch_snapshot_max_bytes",
        whole_number(1, 8 * 1024 * 1024),
        "How much of a snapshot this node asks for at a time.",
    ),
    Setting(
        "fetch.version",
        "quorum",
        "fetch_version",
        one_of(17, 18),
        "18 sends the high watermark in fetches (KIP-1166), as soon as the cluster's metadata.version is 4.1-IV1 (27);"
        " 17 never does: commits show late.",
    ),
    Setting(
        "controller.quorum.batch.max.bytes",
        "quorum",
        "batch_bytes_max",
        whole_number(1024, 8 * 1024 * 1024),
        "An operation whose records take more than this is refused.",
    ),
    Setting(
        "controller.quorum.pending.append.max.bytes",
        "quorum",
        "pending_append_bytes_max",
        _bytes,
        "How much the leader holds that is not on its disk yet; more is refused.",
    ),
    Setting(
        "controller.quorum.parked.fetches.max",
        "quorum",
        "parked_fetches_max",
        whole_number(1, 1_000_000),
        "How many fetches the leader holds back; further ones are answered at once.",
    ),
    Setting(
        "controller.quorum.observer.expiration.ms",
        "quorum",
        "observer_expiration_ms",
        _milliseconds,
        "The leader forgets an observer that has not fetched for this long.",
    ),
    Setting(
        "metadata.log.segment.bytes",
        "log",
        "segment_bytes",
        whole_number(4096, 2**30),
        "A segment of the log that would grow beyond this is closed and a new one begun.",
    ),
    Setting(
        "metadata.log.preallocate.bytes",
        "log",
        "preallocate_bytes",
        whole_number(4096, 2**29),
        "The file of the last segment grows in steps of this.",
    ),
    Setting(
        "metadata.log.cache.bytes",
        "log",
        "tail_cache_bytes",
        whole_number(0, 2**40),
        "How much of the log's end stays in memory for those who fetch it.",
    ),
    Setting(
        "metadata.log.max.record.bytes.between.snapshots",
        "snapshots",
        "max_bytes_between",
        whole_number(1),
        "A snapshot is taken when records of so many bytes were applied since the last.",
    ),
    Setting(
        "metadata.log.max.snapshot.interval.ms",
        "snapshots",
        "max_interval_ms",
        whole_number(0, 2**31 - 1),
        "A snapshot is taken when the last is so long ago and anything was applied since; 0: never for that reason.",
    ),
    Setting(
        "metadata.log.start.policy",
        "log_start",
        "policy",
        _log_start_policy,
        "replicated: the log's start waits until all live replicas and listeners have read past it (KAFKA-14932);"
        " eager: it waits for nobody, who is behind loads a snapshot.",
    ),
    Setting(
        "metadata.max.retention.bytes",
        "log_start",
        "retention_bytes",
        whole_number(0),
        "The oldest of the log may go when log and snapshots together take more than this.",
    ),
    Setting(
        "metadata.max.retention.ms",
        "log_start",
        "retention_ms",
        whole_number(0),
        "The oldest of the log may go when it is older than this.",
    ),
    Setting(
        "metadata.start.offset.lag.time.max.ms",
        "log_start",
        "lag_time_max_ms",
        whole_number(0),
        "The log's start waits for replicas and listeners for so long at most.",
    ),
    Setting(
        "metadata.start.offset.replica.session.timeout.ms",
        "log_start",
        "replica_session_timeout_ms",
        _milliseconds,
        "A replica that has not fetched for so long is not live: the log's start does not wait for it.",
    ),
    Setting("log.level", "node", "log_level", one_of(*LOG_LEVELS), f"What is logged: {', '.join(LOG_LEVELS)}."),
)
"""In the order in which a configuration file shows them."""

SETTING_BY_KEY: Final = {setting.key: setting for setting in SETTINGS}
