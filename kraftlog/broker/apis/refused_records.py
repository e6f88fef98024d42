"""Logs why records are refused, since librdkafka gives the producer only the name of the error, without the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.line_rate import TEXT_CHARACTERS_MAX, LineRate
from kraftbase.partition import TopicPartition
from kraftlog.network.requests import ClientRequest
from kraftlog.storage.produced_records import RecordsRefused

LOGGED: Final = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.CORRUPT_MESSAGE})
"""Errors of a producer, or of the network. Other errors are common, and their names say enough."""

logger = structlog.get_logger(__name__)


class RefusedRecords:
    """Logs refused records, a few lines a minute for each error."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._rate = LineRate(lambda: now_ms() / 1_000)

    def log(self, request: ClientRequest, partition: TopicPartition, error: ApiError) -> None:
        """Log that a client's records for a partition are refused."""
        if error.code not in LOGGED:
            return
        left_out = self._rate.left_out(error.code)
        if left_out is None:
            return
        more: dict[str, Any] = {}
        if isinstance(error, RecordsRefused):
            more["record"] = error.record_errors[0].batch_index
        if left_out:
            more["left_out_before"] = left_out
        logger.warning(
            "records refused",
            topic=partition.topic,
            partition=partition.partition_id,
            error=error.code.name,
            reason=str(error)[:TEXT_CHARACTERS_MAX],
            address=request.context.address,
            client_id=request.context.client_id[:TEXT_CHARACTERS_MAX],
            **more,
        )
