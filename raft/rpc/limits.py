"""The limits of one node's service: the number of calls, their share of its time, the bytes of answers.

All limits are here. A call over a limit ends with THROTTLING_QUOTA_EXCEEDED (RESOURCE_EXHAUSTED for gRPC); the error
names the limit by its setting and its value. Replicas have places of their own, which clients cannot take.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """The settings `service.*`, with their defaults. Raises ConfigurationError when a value is out of range."""

    calls_max: int = 4_096
    """Calls of clients that may be open at a time, including streams and waiting calls."""
    connection_calls_max: int = 2_048
    """The same over one connection; a client's further calls wait on its own side."""
    operation_streams_max: int = 2_000
    """Streams of operations."""
    watch_streams_max: int = 1_000
    """Streams that follow the log."""
    reads_max: int = 256
    """Reads, descriptions and statements that run or wait to run."""
    connection_reads_max: int = 128
    """The same over one connection."""
    snapshot_reads_max: int = 16
    """Snapshots that are read at a time; each is read completely before the first byte is sent."""
    named_readers_max: int = 64
    """Readers outside the nodes that the log's start waits for."""
    read_share_percent: int = 10
    """How much of the time reads may take while records are written."""
    answer_bytes_max: int = 32 * 1024 * 1024
    """Bytes in answers to clients that are being sent, in total; answers of up to 64 KiB always fit."""
    connection_answer_bytes_max: int = 20 * 1024 * 1024
    """The same over one connection; the largest answer has 16 MiB."""
    replica_streams_max: int = 1_000
    """Streams and calls of replicas that are not voters."""
    replica_answer_bytes_max: int = 32 * 1024 * 1024
    """Bytes in answers to them that are being sent; answers to voters are not counted."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ConfigurationError(f"{field.name} is {value}; it must be at least 1")
        if self.read_share_percent > 100:
            raise ConfigurationError(f"read_share_percent is {self.read_share_percent}; it must be at most 100")


def setting_of(field: str) -> str:
    """The name of the setting for a field of `ServiceLimits`."""
    return "service." + field.replace("_", ".")


def over_limit(field: str, value: int) -> ApiError:
    """The error for a call over a limit."""
    return ApiError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"this node is at its limit {setting_of(field)} = {value}; try again later, or ask another node",
    )
