"""What a broker's shell needs of the outside, beside time, the disk's thread (`Runtime`) and files (`FileSystem`)."""

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


class MetadataFeed(Protocol):
    """The broker's copy of the metadata (`MetadataMachine`), and what brings it up to date."""

    @property
    def applied_end_offset(self) -> int:
        """Everything below is applied."""
        ...

    def follow(self) -> None:
        """Apply what is committed from now on."""
        ...

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> object:
        """Call back when everything below `end_offset` is applied: maybe now. REQUEST_TIMED_OUT: the time is up."""
        ...

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Show it the state, now or soon, and then every change."""
        ...

    def stop(self, on_stopped: OnDone) -> None:
        """Follow no more: nobody is shown anything after `on_stopped`."""
        ...


class NetworkPort(Protocol):
    """What clients, and other brokers, reach this one by."""

    def listen(self, on_listening: Callable[[Mapping[str, int]], None]) -> None:
        """Bind the listeners, and call back with the port of each. The broker does not serve yet: requests are refused.

        A port that is taken ends the broker: `BrokerShell.fail`.
        """
        ...

    def answer_pending(self, on_done: OnDone) -> None:
        """Give up what clients have the controller do, and tell them."""
        ...

    def close(self, on_closed: OnDone) -> None:
        """Close listeners and connections."""
        ...

    def close_controller(self, on_closed: OnDone) -> None:
        """Give up what the broker itself asks the controller for, except as its member."""
        ...
