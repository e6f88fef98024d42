"""What a broker's shell needs of the outside, beside time, the disk's thread (`Runtime`) and files (`FileSystem`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from kraftbase.errors import ApiError
from kraftpb.v1.admin_pb2 import Operation, OperationResult

Answer = TypeVar("Answer")
OnAnswer = Callable[[Answer | ApiError], None]
"""Called once: with the answer, or why there is none."""
OnResult = OnAnswer[OperationResult]
"""The result has no error as a whole; its parts may have."""


class ControllerPort(Protocol):
    """The broker's own way to the controller. What is asked is answered once, but never within the call."""

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        """Have the controller carry out an operation. An error may leave it open whether that was done.

        `retry_unknown` is for operations that do no harm when done twice: then one of these is that the time is up.
        """
        ...

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        """Ask for the id of the cluster. BROKER_NOT_AVAILABLE: no node answers."""
        ...


class OperationsPort(Protocol):
    """A way to the controller, too; its errors are as clients of Kafka's protocol are to see them."""

    def submit(
        self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False
    ) -> None:
        """As `ControllerPort.ask`; `on_result` may be called at once."""
        ...
