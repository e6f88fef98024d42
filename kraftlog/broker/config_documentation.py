"""The meaning of each config, as DescribeConfigs returns it on request (KIP-569)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlog.broker.settings import STATIC_CONFIGS
from statemachine.words.config_definitions import TOPIC_CONFIGS

TOPIC_DOCUMENTATION: Final[Mapping[str, str]] = {
    "cleanup.policy": "What happens to old records: delete, compact, both, or nothing if it is empty.",
    "compression.gzip.level": "The compression level of gzip; -1 is its own default.",
    "compression.lz4.level": "The compression level of lz4.",
    "compression.type": "How batches are compressed in the log; producer keeps them as they were sent.",
    "compression.zstd.level": "The compression level of zstd.",
    "delete.retention.ms": "How long compaction keeps tombstones (the marks of deleted keys), in milliseconds.",
    "file.delete.delay.ms": "How long after a segment is deleted its files are removed, in milliseconds.",
    "flush.before.ack": "Whether a record is on disk before it is acknowledged. Kraftlog's own.",
    "flush.messages": "After how many records the log is flushed.",
    "flush.ms": "After how many milliseconds the log is flushed.",
    "follower.replication.throttled.replicas": "Followers that are throttled, as partition:broker, or * for all.",
    "index.interval.bytes": "How many bytes of records lie between two entries of the index.",
    "leader.replication.throttled.replicas": "Replicas whose leader is throttled, as partition:broker, or * for all.",
    "local.retention.bytes": "Bytes that a tiered partition keeps on brokers; -2 is retention.bytes.",
    "local.retention.ms": "Milliseconds that a tiered partition keeps records on brokers; -2 is retention.ms.",
    "max.compaction.lag.ms": "The longest time a record may wait for compaction, in milliseconds.",
    "max.message.bytes": "The size of the largest batch that is accepted.",
    "message.timestamp.after.max.ms": "How far after the broker's clock a record's time may be, in milliseconds.",
    "message.timestamp.before.max.ms": "How far before the broker's clock a record's time may be, in milliseconds.",
    "message.timestamp.type": "Whether a record has the producer's timestamp or that of its append.",
    "min.cleanable.dirty.ratio": "The share of a log that must be new before it is compacted.",
    "min.compaction.lag.ms": "How long a record is not compacted, in milliseconds.",
    "min.insync.replicas": "How many replicas must be in sync for a write with acks=all.",
    "preallocate": "Whether a new segment's file is given its full size at once.",
    "remote.log.copy.disable": "Whether nothing further is copied to remote storage.",
    "remote.log.delete.on.disable": "Whether remote records are deleted when remote storage is turned off.",
    "remote.storage.enable": "Whether the topic has tiered storage.",
    "retention.bytes": "How many bytes a partition keeps; -1 is no bound.",
    "retention.ms": "How long records are kept, in milliseconds; -1 is without limit.",
    "segment.bytes": "The size at which a segment is full.",
    "segment.index.bytes": "The largest size of a segment's index.",
    "segment.jitter.ms": "The longest random time by which a segment is closed earlier, in milliseconds.",
    "segment.ms": "The age at which a segment is closed, in milliseconds.",
    "validate.records": "Whether the records that clients append are read and checked first. Kraftlog's own.",
    "unclean.leader.election.enable": "Whether a replica that is not in sync may lead if no other can. Loses records.",
}
"""The documentation of topics' configs, by name."""

_OF_BROKERS_ONLY: Final[Mapping[str, str]] = {
    "background.threads": "Threads for background work.",
    "default.replication.factor": "The replicas of a new topic whose request gives no number.",
    "follower.replication.throttled.rate": "Bytes per second that throttled followers read.",
    "leader.replication.throttled.rate": "Bytes per second that leaders send to throttled followers.",
    "log.cleaner.backoff.ms": "How long compaction pauses when there is nothing to do, in milliseconds.",
    "log.cleaner.dedupe.buffer.size": "Bytes of memory for the keys of a compaction.",
    "log.cleaner.io.buffer.load.factor": "How full that memory may get.",
    "log.cleaner.io.buffer.size": "Bytes of memory through which compaction reads and writes.",
    "log.cleaner.io.max.bytes.per.second": "Bytes per second that compaction reads and writes.",
    "log.cleaner.threads": "Threads for compaction.",
    "max.connection.creation.rate": "New connections per second.",
    "max.connections": "Connections at a time.",
    "max.connections.per.ip": "Connections at a time from one address.",
    "max.connections.per.ip.overrides": "The same limit for single addresses, as address:count.",
    "metric.reporters": "Classes that metrics are reported to. Known from Kafka; it has no effect here.",
    "num.io.threads": "Threads for requests. Known from Kafka; it has no effect here.",
    "num.network.threads": "Threads for connections. Known from Kafka; it has no effect here.",
    "num.partitions": "The partitions of a new topic whose request gives no number.",
    "num.recovery.threads.per.data.dir": "Threads that recover the logs of a directory at the start.",
    "num.replica.fetchers": "Connections over which a follower reads from each leader's broker.",
    "producer.id.expiration.ms": "How long a producer that appends nothing is remembered, in milliseconds.",
    "remote.fetch.max.wait.ms": "How long a fetch waits for remote records, in milliseconds.",
    "remote.list.offsets.request.timeout.ms": "How long a look-up of remote offsets may take, in milliseconds.",
    "remote.log.index.file.cache.total.size.bytes": "Bytes of remote indexes that are kept on disk.",
    "remote.log.manager.copier.thread.pool.size": "Threads that copy segments to remote storage.",
    "remote.log.manager.copy.max.bytes.per.second": "Bytes per second that are copied to remote storage.",
    "remote.log.manager.expiration.thread.pool.size": "Threads that delete segments from remote storage.",
    "remote.log.manager.fetch.max.bytes.per.second": "Bytes per second that are read from remote storage.",
    "remote.log.reader.threads": "Threads that read from remote storage.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes per second at which replicas move between directories.",
    "transaction.partition.verification.enable": "Whether a transaction's partitions are checked with its coordinator.",
    "broker.id": "The broker's id.",
    "node.id": "The broker's id.",
    "broker.rack": "The rack that the broker is in.",
    "listeners": "Where the broker listens.",
    "advertised.listeners": "Where clients reach the broker.",
    "log.dirs": "The directories with its partitions.",
}

BROKER_DOCUMENTATION: Final[Mapping[str, str]] = {
    **{
        definition.broker_config: f"For topics that have no {name} of their own. {TOPIC_DOCUMENTATION[name]}"
        for name, definition in TOPIC_CONFIGS.items()
        if definition.broker_config is not None
    },
    **_OF_BROKERS_ONLY,
    **{name: config.meaning for name, config in STATIC_CONFIGS.items()},
}
"""The documentation of brokers' configs, by name."""
