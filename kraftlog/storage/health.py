"""Whether a log may be used, and the consequences of an error of its files.

A StorageError takes the log directory offline, damage in a segment only this log. A lack of room takes nothing offline:
the operation is refused, and the next one may succeed. The client gets KAFKA_STORAGE_ERROR in each case.
"""

from __future__ import annotations

from types import TracebackType

from kraftbase.errors import ApiError, CorruptLog, ErrorCode, FlushFailed, StorageError
from kraftbase.partition import TopicPartition
from kraftlog.storage.log_host import LogHost


class LogHealth:
    """The health of one log. `with health:` encloses every use of its files for a client or another broker.

    The block raises ApiError(KAFKA_STORAGE_ERROR) if the log is offline, and for every error of a file.
    """

    def __init__(self, partition: TopicPartition, host: LogHost) -> None:
        self._partition = partition
        self._host = host
        self._offline_reason = ""

    def check(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the log, or its directory, is offline."""
        reason = self._host.offline_reason or self._offline_reason
        if reason:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def retire(self, reason: str) -> None:
        """Take the log offline for good."""
        self._offline_reason = reason

    def __enter__(self) -> None:
        self.check()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StorageError | FlushFailed):
            raise self.refusal(error) from error

    def refusal(self, error: StorageError | FlushFailed) -> ApiError:
        """Apply the consequences of a file error; return the ApiError to raise."""
        if isinstance(error, CorruptLog):
            self._offline_reason = str(error)
            self._host.partition_damaged(self._partition, error)
        else:
            return self._host.refusal(error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
