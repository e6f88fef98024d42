"""How a call ends with one of Kafka's errors: its number is in a trailer, its message in the details."""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio

from kraftbase.errors import ApiError, ErrorCode

STATUS_OF_ERROR: Final = {
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.OFFSET_OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    ErrorCode.INCONSISTENT_CLUSTER_ID: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.INVALID_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.SNAPSHOT_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.CORRUPT_MESSAGE: grpc.StatusCode.DATA_LOSS,
    ErrorCode.KAFKA_STORAGE_ERROR: grpc.StatusCode.INTERNAL,
}

ERROR_KEY: Final = "kraftlog-error"
"""The trailer that carries the number of Kafka's error when a call ends with one."""


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: ApiError) -> None:
    """End a call with Kafka's error: its number in the trailer `kraftlog-error`, its message in the details."""
    await context.abort(
        STATUS_OF_ERROR.get(error.code, grpc.StatusCode.UNKNOWN),
        error.args[0],
        trailing_metadata=((ERROR_KEY, str(int(error.code))),),
    )
