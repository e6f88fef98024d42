"""Bounds on the requests that the controller accepts, and the check that operations share."""

from __future__ import annotations

from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset

RECORDS_PER_BATCH_MAX: Final = 10_000
"""An operation that needs more records is refused as a whole (CT-12)."""

OPERATIONS_WAITING_MAX: Final = 5_000
"""At most this many operations wait for their commit; more are refused with THROTTLING_QUOTA_EXCEEDED (CT-20)."""

NOTHING_WRITTEN: Final = Offset(-1)
"""The end offset of an operation that wrote nothing. A failed one with another offset may still be committed."""

STATEMENT_SECONDS_MAX: Final = 10.0
"""How long an SQL statement may run on a node, where other statements wait for it."""

STATEMENT_START_SECONDS_MAX: Final = 10.0
"""How long a node's process for SQL statements may take until it is ready, which counts against no statement."""

OPERATION_TIMEOUT_MS_DEFAULT: Final = 30_000
OPERATION_TIMEOUT_MS_MAX: Final = 600_000


def check_record_count(count: int) -> None:
    """Raise ApiError(RECORD_LIST_TOO_LARGE) if one operation needs too many records (CT-12)."""
    if count > RECORDS_PER_BATCH_MAX:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the operation needs {count} records or more; at most {RECORDS_PER_BATCH_MAX} fit one batch: divide it",
        )
