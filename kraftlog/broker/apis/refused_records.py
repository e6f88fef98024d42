"""A line in the log for records that are refused: librdkafka tells the producer the error's name, and no reason."""

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
"""What a producer has done wrong, or the network; other errors are common, and say themselves what they are."""

logger = structlog.get_logger(__name__)


class RefusedRecords:
    """Logs them, a few lines for each error in a minute."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._rate = LineRate(lambda: now_ms() / 1_000)

    def log(self, request: ClientRequest, partition: TopicPartition, error: ApiError) -> None:
        """A client's records for a partition are refused with an error."""
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
            "records are refused",
            topic=partition.topic,
            partition=partition.partition_id,
            error=error.code.name,
            reason=str(error)[:TEXT_CHARACTERS_MAX],
            address=request.context.address,
            client_id=request.context.client_id[:TEXT_CHARACTERS_MAX],
            **more,
        )
