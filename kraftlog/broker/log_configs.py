"""The settings of a partition's log from the configs that apply to its topic, by Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftlog.storage.config import PartitionLogConfig
from statemachine.words.config_definitions import CLEANUP_POLICY, FLUSH_BEFORE_ACK, MIN_ISR, VALIDATE_RECORDS
from statemachine.words.config_kinds import split_elements

INDEX_BYTES_MIN: Final = 24
"""Two entries of the index of timestamps."""


def _is_true(value: str) -> bool:
    return value.lower() == "true"


def _is_not_false(value: str) -> bool:
    """Whether a flag is on. An invalid value counts as on, the safe side: a Kafka does not check our own configs."""
    return value.lower() != "false"


def _index_bytes(value: str) -> int:
    """Return a size of at least `INDEX_BYTES_MIN`: Kafka accepts 4 and more, too few for an entry."""
    return max(INDEX_BYTES_MIN, int(value))


_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    FLUSH_BEFORE_ACK: ("flush_before_ack", _is_not_false),
    VALIDATE_RECORDS: ("validates_records", _is_not_false),
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
    "segment.index.bytes": ("segment_index_bytes", _index_bytes),
    "segment.jitter.ms": ("segment_jitter_ms", int),
    "segment.ms": ("segment_ms", int),
}

ACTING_TOPIC_CONFIGS: Final = (*_FIELDS, CLEANUP_POLICY, MIN_ISR)
"""The configs of topics that change what a broker does; the others are only stored."""


def partition_log_config(configs: Mapping[str, str]) -> PartitionLogConfig:
    """Return the settings for these values, with PartitionLogConfig's defaults for the others.

    Raises ConfigurationError for a value that is out of range, ValueError for an invalid one.
    """
    fields = {field: parse(configs[name]) for name, (field, parse) in _FIELDS.items() if name in configs}
    policy = split_elements(configs.get(CLEANUP_POLICY, "delete"))
    return PartitionLogConfig(**fields, is_deleted="delete" in policy, is_compacted="compact" in policy)
