"""The operations of brokers and the administrator, and the controller's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftbase.errors import ErrorCode
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from statemachine.words.limits import NOTHING_WRITTEN

CREATED_BY: Final = "retention.ms"
"""The topic config that holds the number of the operation that created the topic."""


@dataclass(slots=True, eq=False)
class Call:
    """One operation, with the answer that its caller got."""

    caller_id: int
    operation: Operation
    invoked_at_us: int
    committed_before: int
    """The end of the committed log when the call was made."""
    result: OperationResult | None = None
    """The answer, if one arrived in time."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether the operation is known to have taken effect as a whole."""
        return self.result is not None and self.result.error_code == ErrorCode.NONE

    @property
    def is_refused(self) -> bool:
        """Whether the operation is known to have no effect."""
        result = self.result
        return result is not None and result.error_code != ErrorCode.NONE and result.end_offset == NOTHING_WRITTEN
