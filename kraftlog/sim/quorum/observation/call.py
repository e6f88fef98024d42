"""The operations of brokers and the administrator, and the controller's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftbase.errors import ErrorCode
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from statemachine.words.limits import NOTHING_WRITTEN

CREATED_BY: Final = "retention.ms"
"""The config of a topic that holds the number of the operation that created it."""


@dataclass(slots=True, eq=False)
class Call:
    """One operation, and what its caller knows of it."""

    caller_id: int
    operation: Operation
    invoked_at_us: int
    committed_before: int
    """Where the committed log ended when it was made."""
    result: OperationResult | None = None
    """The answer, if one came in time."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was carried out, as a whole."""
        return self.result is not None and self.result.error_code == ErrorCode.NONE

    @property
    def is_refused(self) -> bool:
        """Whether it certainly has no effect."""
        result = self.result
        return result is not None and result.error_code != ErrorCode.NONE and result.end_offset == NOTHING_WRITTEN
