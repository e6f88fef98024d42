"""The port for records that are not on this broker's disks, and come later than the Fetch that asks for them (KIP-405).

The reader of a partition's log may answer a position with a `LaterRead` instead of a slice of a file. The logs of
`kraftlog.storage` never do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kraftbase.errors import ApiError
from kraftlog.storage.formats.indexes import AbortedTransaction
from kraftlog.storage.log_host import LogSlice


class LaterRecords(NamedTuple):
    """What a read has brought."""

    records: bytes
    """Whole batches, the first of which has the offset that was asked for."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions that have records among them; left out of the answer unless it is READ_COMMITTED."""


LaterResult = LaterRecords | ApiError


class LaterRead(Protocol):
    """A read that was found to be necessary, and is not begun before `start`. For one thread."""

    @property
    def byte_count(self) -> int:
        """The most that it may bring, above 0: the request's bytes are shared out before it is begun."""
        ...

    @property
    def max_wait_ms(self) -> float:
        """How long a Fetch waits for it: Kafka's `remote.fetch.max.wait.ms`."""
        ...

    def start(self, on_done: Callable[[LaterResult], None]) -> None:
        """Begin. Never raises: `on_done` gets an error, too. It is called at most once, also within this call."""
        ...

    def cancel(self) -> None:
        """The Fetch has been answered without it. What comes nevertheless is thrown away by the caller."""
        ...


class RecordSource(Protocol):
    """Where the records of a partition are, to one that reads them."""

    def locate(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool
    ) -> LogSlice | LaterRead | None:
        """As `LogReader.locate`; or a read that brings the same later. It begins nothing: it may be asked in vain."""
        ...
