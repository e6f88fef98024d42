"""Operations that arrived together, passed to the controller slice by slice, so that others are served, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kraftbase.runtime import Runtime
from kraftlog.controller.paged_writes import SLICE_MS
from kraftlog.controller.pending_operations import OnResult
from kraftpb.v1.admin_pb2 import Operation


class OperationProcessor(Protocol):
    """The part of the controller that submissions use."""

    def process(self, operation: Operation, on_result: OnResult, arrived_ms: float) -> None:
        """Carry out one operation, which arrived at `arrived_ms`."""
        ...

    def schedule(self) -> None:
        """Write what was appended."""
        ...


class Submission:
    """See the module. Used on the event loop only."""

    def __init__(
        self,
        controller: OperationProcessor,
        runtime: Runtime,
        operations: Iterable[Operation],
        on_result: OnResult,
        on_taken: Callable[[], None],
    ) -> None:
        """`take_slice` must follow; `on_taken` is called when all of `operations` are taken."""
        self._controller = controller
        self._runtime = runtime
        self._operations = iter(operations)
        self._on_result = on_result
        self._on_taken = on_taken
        self._arrived_ms = runtime.now_ms()
        self._is_cancelled = False

    def cancel(self) -> None:
        """Drop the operations that are left: no caller waits for their answers."""
        self._is_cancelled = True

    # Consider a message with 1,000 operations, of 0.1 ms each. Fifty of them are taken and appended together. Then the
    # ready answers are sent, and the followers' fetches that have arrived are answered, with the fifty records. Without
    # the breaks the followers would hear nothing for 100 ms, and this leader would not hear from them.
    def take_slice(self) -> None:
        """Take operations for `SLICE_MS`; the rest after the ready answers are sent."""
        if self._is_cancelled:
            return
        slice_end_ms = self._runtime.now_ms() + SLICE_MS
        for operation in self._operations:
            self._controller.process(operation, self._on_result, self._arrived_ms)
            if self._runtime.now_ms() >= slice_end_ms:
                self._controller.schedule()
                self._runtime.call_after_requests(self.take_slice)
                return
        self._controller.schedule()
        self._on_taken()
