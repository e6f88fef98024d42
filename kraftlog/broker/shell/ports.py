"""What a broker's shell needs from its environment, beside time and the disk's thread (`Runtime`) and `FileSystem`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from kraftbase.errors import ApiError
from kraftbase.runtime import OnDone
from kraftbase.types import Offset
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from statemachine.apply.publishers import MetadataPublisher

Answer = TypeVar("Answer")
OnAnswer = Callable[[Answer | ApiError], None]
"""Called once, with the answer or with the error."""
OnResult = OnAnswer[OperationResult]
"""The result as a whole has no error; its parts may have errors."""


class ControllerPort(Protocol):
    """The broker's own way to the controller. Each request gets one answer, but never before the call returns."""

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        """Have the controller carry out an operation. After an error it may have been carried out or not.

        `retry_unknown` is for operations that may safely be done twice: an unknown outcome is retried until the
        timeout.
        """
        ...

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        """Ask for the cluster's id. BROKER_NOT_AVAILABLE: no node answers."""
        ...


class OperationsPort(Protocol):
    """Another way to the controller, with errors in the form for clients of Kafka's protocol."""

    def submit(
        self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False
    ) -> None:
        """Like `ControllerPort.ask`, but `on_result` may be called before this returns."""
        ...


class MetadataFeed(Protocol):
    """The broker's copy of the metadata (`MetadataMachine`), and its source."""

    @property
    def applied_end_offset(self) -> int:
        """All records below this offset are applied."""
        ...

    def follow(self) -> None:
        """Apply committed records from now on."""
        ...

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> object:
        """Call back when all records below `end_offset` are applied, perhaps at once, or with REQUEST_TIMED_OUT."""
        ...

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Call `publisher` with the state, now or soon, and then with every change."""
        ...

    def stop(self, on_stopped: OnDone) -> None:
        """Apply nothing more; no publisher is called after `on_stopped`."""
        ...


class NetworkPort(Protocol):
    """How clients and other brokers reach this one."""

    def listen(self, on_listening: Callable[[Mapping[str, int]], None]) -> None:
        """Bind the listeners, and call back with their ports. The broker does not serve yet, so requests are refused.

        A port that is in use ends the broker (`BrokerShell.fail`).
        """
        ...

    def answer_pending(self, on_done: OnDone) -> None:
        """Answer clients' pending requests to the controller with an error, and send no more of them."""
        ...

    def close(self, on_closed: OnDone) -> None:
        """Close listeners and connections."""
        ...

    def close_controller(self, on_closed: OnDone) -> None:
        """Drop the broker's own requests to the controller, except those of its membership."""
        ...
