"""The port for records that are not on this broker's disks and must be read from elsewhere (KIP-405).

The reader of a partition's log may return a `LaterRead` for an offset instead of a slice of a file. The logs of
`kraftlog.storage` never do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kraftbase.errors import ApiError
from kraftlog.storage.formats.indexes import AbortedTransaction
from kraftlog.storage.log_host import LogSlice


class LaterRecords(NamedTuple):
    """The result of a later read."""

    records: bytes
    """Whole batches; the first one contains the requested offset."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions with records among these; used only for READ_COMMITTED."""


LaterResult = LaterRecords | ApiError


class LaterRead(Protocol):
    """A read that is needed, but does not begin before `start`. For one thread."""

    @property
    def byte_count(self) -> int:
        """The most bytes that it may return, above 0: the request's bytes are distributed before the read begins."""
        ...

    @property
    def max_wait_ms(self) -> float:
        """The longest time that a Fetch waits for the read: Kafka's `remote.fetch.max.wait.ms`."""
        ...

    def start(self, on_done: Callable[[LaterResult], None]) -> None:
        """Begin the read. Never raises: `on_done` also gets errors. It is called at most once, perhaps at once."""
        ...

    def cancel(self) -> None:
        """Cancel the read: the Fetch was answered without it. The caller ignores a result that comes all the same."""
        ...


class RecordSource(Protocol):
    """Locates the records of a partition."""

    def locate(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool
    ) -> LogSlice | LaterRead | None:
        """Like `LogReader.locate`, or return a later read, which must not begin yet: it may never be started."""
        ...
