"""Every setting of a node: its key, what it sets, and what it means. The one place that knows all three.

Keys are Kafka's where Kafka has them. `SETTINGS` drives reading (`kraftlog.config.config`) and the commented file that
`render_config` writes, so that neither can know a key that the other does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kraftlog.config.endpoints import NODE_ID_MAX
from kraftlog.config.setting_values import (
    bootstrap_servers,
    create_topic_policy,
    directory,
    listener,
    log_start_policy,
    number,
    one_of,
    optional_listener,
    true_or_false,
    voters,
    whole_number,
)

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the configuration file."""

    key: str
    section: str
    """Which object the value belongs to: node, quorum, log, snapshots, log_start, controller or service."""
    field: str
    """The field of that object."""
    parse: Callable[[object], object]
    """Turns the TOML value into the field's; raises ConfigurationError that says what the value must be."""
    meaning: str
    """One sentence for the reader of a configuration file."""
    none: object = None
    """How a file writes None, if the field may be None: TOML has no such value."""


_milliseconds = whole_number(1, 86_400_000)
_bytes = whole_number(1)
_count = whole_number(1, 1_000_000)
_answer_bytes = whole_number(16 * 1024 * 1024, 2**40)
_partitions = number(0.001, 1e9, none=0)

SETTINGS: Final = (
    Setting("node.id", "node", "node_id", whole_number(0, NODE_ID_MAX), "This node's id, unique in the cluster."),
    Setting("log.dir", "node", "directory", directory, "Where this node keeps its data; relative to this file."),
    Setting("listeners", "node", "listener", listener, "Where this node listens, as host:port."),
    Setting(
        "controller.listener",
        "node",
        "controller_listener",
        optional_listener,
        "Where this voter listens, as host:port, for other replicas only; empty: at listeners.",
        none="",
    ),
    Setting(
        "controller.quorum.voters",
        "node",
        "voters",
        voters,
        "The voters, as id@host:port, the same on every node. A node that is not listed is an observer.",
    ),
    Setting(
        "client.listeners",
        "node",
        "client_listeners",
        voters,
        "Where clients reach each voter, as id@host:port, if voters have a controller.listener, which"
        " controller.quorum.voters names then. The same on every node.",
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
        "How long a follower waits without an answer from its leader before it starts an election.",
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
        "How long a replica waits after a failed request before it asks that node again.",
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
        "How much this node requests in one fetch; one batch is always whole.",
    ),
    Setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        "quorum",
        "fetch_snapshot_max_bytes",
        whole_number(1, 8 * 1024 * 1024),
        "How much of a snapshot this node requests at a time.",
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
        "An operation whose records have more bytes than this is refused.",
    ),
    Setting(
        "controller.quorum.pending.append.max.bytes",
        "quorum",
        "pending_append_bytes_max",
        _bytes,
        "How much unflushed data the leader holds; more is refused.",
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
        "A segment of the log that would exceed this is closed, and a new one is started.",
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
        "How much of the log's end stays in memory for fetches.",
    ),
    Setting(
        "metadata.log.max.record.bytes.between.snapshots",
        "snapshots",
        "max_bytes_between",
        whole_number(1),
        "Bytes of records that are applied between two snapshots.",
    ),
    Setting(
        "metadata.log.max.snapshot.interval.ms",
        "snapshots",
        "max_interval_ms",
        whole_number(0, 2**31 - 1),
        "A snapshot is taken when the last one is this old and anything was applied since; 0: never for that reason.",
    ),
    Setting(
        "metadata.read.max.ms",
        "node",
        "read_max_ms",
        _milliseconds,
        "A read or SQL statement that takes longer is ended, because the database's write-ahead log grows during a"
        " read. SQL has 10 s at most.",
    ),
    Setting(
        "metadata.scrub.interval.ms",
        "node",
        "scrub_interval_ms",
        whole_number(0, 2**31 - 1),
        "How long after one check of the whole metadata database for bit rot the next one starts; 0: only"
        " at the start and for each snapshot.",
    ),
    Setting(
        "metadata.log.start.policy",
        "log_start",
        "policy",
        log_start_policy,
        "replicated: the log's start waits until all live replicas and listeners have read past it (KAFKA-14932);"
        " eager: it does not wait; a replica that is behind loads a snapshot.",
    ),
    Setting(
        "metadata.max.retention.bytes",
        "log_start",
        "retention_bytes",
        whole_number(0),
        "The oldest part of the log may be deleted when log and snapshots together take more than this.",
    ),
    Setting(
        "metadata.max.retention.ms",
        "log_start",
        "retention_ms",
        whole_number(0),
        "The oldest part of the log may be deleted when it is older than this.",
    ),
    Setting(
        "metadata.start.offset.lag.time.max.ms",
        "log_start",
        "lag_time_max_ms",
        whole_number(0),
        "How long at most the log's start waits for replicas and listeners, also on followers.",
    ),
    Setting(
        "metadata.start.offset.replica.session.timeout.ms",
        "log_start",
        "replica_session_timeout_ms",
        _milliseconds,
        "How long a new leader waits for its replicas before it moves the log's start.",
    ),
    Setting(
        "metadata.start.offset.replica.restart.grace.ms",
        "log_start",
        "replica_restart_grace_ms",
        whole_number(0, 86_400_000),
        "How long a replica may be silent, to restart, before the log's start no longer waits for it; at"
        " least the session timeout.",
    ),
    Setting(
        "broker.session.timeout.ms",
        "controller",
        "broker_session_timeout_ms",
        _milliseconds,
        "A broker that sends no heartbeat for this long is fenced.",
    ),
    Setting(
        "broker.fence.by.evidence.enable",
        "controller",
        "broker_fence_by_evidence_enable",
        true_or_false,
        "Whether a broker is fenced earlier when its connection has ended and its listeners refuse new ones.",
    ),
    Setting(
        "auto.leader.rebalance.enable",
        "controller",
        "auto_leader_rebalance_enable",
        true_or_false,
        "Whether leadership returns to preferred replicas that are in sync.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        "controller",
        "leader_imbalance_check_interval_seconds",
        whole_number(1, 86_400),
        "How often leadership returns to preferred replicas.",
    ),
    Setting(
        "unclean.leader.election.interval.ms",
        "controller",
        "unclean_election_check_interval_ms",
        _milliseconds,
        "How often partitions without a leader are checked whose topics allow unclean elections.",
    ),
    Setting(
        "metadata.max.idle.interval.ms",
        "controller",
        "metadata_max_idle_interval_ms",
        whole_number(0, 86_400_000),
        "How long the active controller waits without records before it writes a NoOp; 0: never.",
    ),
    Setting(
        "delete.topic.enable",
        "controller",
        "delete_topic_enable",
        true_or_false,
        "Whether topics may be deleted.",
    ),
    Setting(
        "remote.log.storage.system.enable",
        "controller",
        "remote_log_storage_system_enable",
        true_or_false,
        "Whether topics may become tiered; brokers of this version copy nothing. The same on every voter.",
    ),
    Setting(
        "create.topic.policy.class.name",
        "controller",
        "create_topic_policy",
        create_topic_policy,
        "The policy for new topics, as module:name of Python; empty: all are accepted. The same on every voter.",
        none="",
    ),
    Setting(
        "controller.mutation.rate",
        "controller",
        "controller_mutation_rate",
        _partitions,
        "How many partitions per second each client may create and delete; more are refused (KIP-599); 0: any number.",
        none=0,
    ),
    Setting(
        "controller.mutation.burst",
        "controller",
        "controller_mutation_burst",
        _partitions,
        "How many partitions at once, after a pause; 0: 11 seconds of the rate.",
        none=0,
    ),
    Setting(
        "service.calls.max",
        "service",
        "calls_max",
        _count,
        "How many client calls may be open; more are refused. Replicas have a limit of their own.",
    ),
    Setting(
        "service.connection.calls.max",
        "service",
        "connection_calls_max",
        _count,
        "The same over one connection; further calls wait on the client's side.",
    ),
    Setting(
        "service.operation.streams.max",
        "service",
        "operation_streams_max",
        _count,
        "How many clients may have their stream of operations open.",
    ),
    Setting(
        "service.watch.streams.max", "service", "watch_streams_max", _count, "How many clients may follow the log here."
    ),
    Setting("service.reads.max", "service", "reads_max", _count, "How many reads may run or wait for their turn."),
    Setting("service.connection.reads.max", "service", "connection_reads_max", _count, "The same over one connection."),
    Setting(
        "service.snapshot.reads.max",
        "service",
        "snapshot_reads_max",
        _count,
        "How many snapshots may be read at a time.",
    ),
    Setting(
        "service.named.readers.max",
        "service",
        "named_readers_max",
        _count,
        "How many readers outside the nodes may hold the log's start by a lease.",
    ),
    Setting(
        "service.read.share.percent",
        "service",
        "read_share_percent",
        whole_number(1, 100),
        "How much of this node's time reads may take while records are written; connections take turns.",
    ),
    Setting(
        "service.answer.bytes.max",
        "service",
        "answer_bytes_max",
        _answer_bytes,
        "How many bytes of answers of more than 64 KiB may be on their way to clients; more are refused.",
    ),
    Setting(
        "service.connection.answer.bytes.max",
        "service",
        "connection_answer_bytes_max",
        _answer_bytes,
        "The same over one connection; the largest answer has 16 MiB.",
    ),
    Setting(
        "service.replica.streams.max",
        "service",
        "replica_streams_max",
        _count,
        "How many replicas other than voters may fetch here.",
    ),
    Setting(
        "service.replica.answer.bytes.max",
        "service",
        "replica_answer_bytes_max",
        _answer_bytes,
        "How many bytes of answers of more than 64 KiB may be on their way to such replicas.",
    ),
    Setting(
        "log.level",
        "node",
        "log_level",
        one_of(*LOG_LEVELS),
        f"What is logged: {', '.join(LOG_LEVELS)}. debug adds why votes are refused, fetches wait and elections begin.",
    ),
)
"""In the order in which a configuration file shows them."""

SETTING_BY_KEY: Final = {setting.key: setting for setting in SETTINGS}
