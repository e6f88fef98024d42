"""The settings of a partition's log from the configs that apply to its topic, by Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlog.broker.log.config import PartitionLogConfig

FLUSH_BEFORE_ACK: Final = "flush.before.ack"


def _is_true(value: str) -> bool:
    return value == "true"


_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    FLUSH_BEFORE_ACK: ("flush_before_ack", _is_true),
    "flush.messages": ("flush_messages", int),
    "flush.ms": ("flush_ms", int),
    "index.interval.bytes": ("index_interval_bytes", int),
    "max.message.bytes": ("max_message_bytes", int),
    "message.timestamp.after.max.ms": ("timestamp_after_max_ms", int),
    "message.timestamp.before.max.ms": ("timestamp_before_max_ms", int),
    "message.timestamp.type": ("has_log_append_time", lambda value: value == "LogAppendTime"),
    "preallocate": ("preallocates", _is_true),
    "retention.bytes": ("retention_bytes", int),
    "retention.ms": ("retention_ms", int),
    "segment.bytes": ("segment_bytes", int),
    "segment.index.bytes": ("segment_index_bytes", int),
    "segment.jitter.ms": ("segment_jitter_ms", int),
    "segment.ms": ("segment_ms", int),
}

CLEANUP_POLICY: Final = "cleanup.policy"


def partition_log_config(configs: Mapping[str, str]) -> PartitionLogConfig:
    """The settings for these values; PartitionLogConfig's own for what is not among them.

    Raises ConfigurationError for a value that is out of range, ValueError for one that is none.
    """
    fields = {field: parse(configs[name]) for name, (field, parse) in _FIELDS.items() if name in configs}
    policy = configs.get(CLEANUP_POLICY, "delete").split(",")
    return PartitionLogConfig(**fields, is_deleted="delete" in policy, is_compacted="compact" in policy)
