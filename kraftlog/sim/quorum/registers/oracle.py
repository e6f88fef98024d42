"""The offset oracle: compares the answers to clients with the committed log, in linear time.

Every answer names an offset of the log, so no search is needed: the log shows what each operation must have seen. The
invariants, by number (docs/faults/invariants.md):

33. Every value was written by a client. Each operation is at one offset at most, and each offset has one operation.
    Refused operations are not in the log.
34. An acknowledged operation is at the offset in its answer. A read returns the newest write below its offset. An
    operation that begins after an acknowledgement is above it. No client goes back.
35. The previous value in an answer is the newest one below its offset, and so is the value that a successful
    compare-and-set expected.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.quorum.registers.history import History, Kind, Operation, Outcome


class HistoryViolation(Violation):
    """The log and the answers to clients contradict each other. The message describes both."""


class CommittedWrite(NamedTuple):
    """A record of the committed log that sets a register."""

    offset: int
    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value} at offset {self.offset}"


_Newest = tuple[str, int] | tuple[None, None]
"""A value and its offset, or None and None."""


class _Register:
    """The committed writes of one key."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[str] = []

    def append(self, write: CommittedWrite) -> None:
        self._offsets.append(write.offset)
        self._values.append(write.value)

    def below(self, offset: int) -> _Newest:
        index = bisect_left(self._offsets, offset) - 1
        return (self._values[index], self._offsets[index]) if index >= 0 else (None, None)


class OffsetOracle:
    """Follows the committed log as it grows, and checks the operations of `history` as they complete.

    An operation is checked once the committed log reaches its offset. The cost is one bisection for each operation.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._end_offset = 0
        self._writes: dict[int, CommittedWrite] = {}
        self._offset_of: dict[int, int] = {}
        """By operation id: the offset of its record."""
        self._registers: dict[str, _Register] = {}
        self._completed_count = 0
        self._waiting: list[tuple[int, int, Operation]] = []
        """A heap of acknowledged operations above the committed log: the end offset that a check needs, id, operation.
        """
        self._completion_times: list[int] = []
        self._highest_seen: list[Operation] = []
        """For each of these times: of all operations acknowledged by then, the one with the highest offset seen."""
        self._sessions: dict[int, Operation] = {}
        """By client: its last acknowledged operation."""

    def committed(self, writes: Iterable[CommittedWrite], end_offset: int) -> None:
        """Continue the committed log up to `end_offset`; `writes` are its records that set registers.

        Raises HistoryViolation, and ValueError if the offsets do not continue those of the last call.
        """
        self._hear()
        for write in writes:
            if write.offset in self._writes:
                _violated(f"one offset holds two operations: {self._writes[write.offset]}, and {write}")
            if not self._end_offset <= write.offset < end_offset:
                raise ValueError(
                    f"{write} is not from offset {self._end_offset} to below {end_offset}: pass the log in order"
                )
            self._take(write)
            self._end_offset = write.offset + 1
        if end_offset < self._end_offset:
            raise ValueError(
                f"the committed log cannot end at offset {end_offset}: it already reached {self._end_offset}"
            )
        self._end_offset = end_offset
        while self._waiting and self._waiting[0][0] <= end_offset:
            self._check(heapq.heappop(self._waiting)[2])

    def at_end(self) -> None:
        """Check that the log given so far is complete. Raises HistoryViolation."""
        self.committed((), self._end_offset)
        if self._waiting:
            _violated(
                f"an acknowledged operation is not in the committed log, which ends at offset {self._end_offset}",
                self._waiting[0][2],
            )

    # --- the log ------------------------------------------------------------------------------------------------------

    def _take(self, write: CommittedWrite) -> None:
        operation = self._history.writer_of(write.key, write.value)
        if operation is None:
            _violated(f"a phantom: {write} is committed, and no operation wrote that")
        if operation.operation_id in self._offset_of:
            first = self._offset_of[operation.operation_id]
            _violated(f"one operation took effect at two offsets, {first} and {write.offset}", operation)
        if operation.outcome is Outcome.REFUSED:
            _violated(f"a refused operation is committed at offset {write.offset}", operation)
        register = self._registers.setdefault(write.key, _Register())
        if operation.kind is Kind.COMPARE_AND_SET:
            before, before_offset = register.below(write.offset)
            if before != operation.expected:
                _violated(
                    f"a compare-and-set took effect at offset {write.offset} over"
                    f" {_named(before, before_offset)}, which is not what it expected",
                    operation,
                )
        if operation.outcome is Outcome.ACKNOWLEDGED and (
            not operation.has_written or operation.offset != write.offset
        ):
            _violated(f"its record is at offset {write.offset}, and its client got another answer", operation)
        self._writes[write.offset] = write
        self._offset_of[operation.operation_id] = write.offset
        register.append(write)

    # --- the answers --------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Process the answers since the last call."""
        news = self._history.completed[self._completed_count :]
        self._completed_count += len(news)
        for operation in news:
            if operation.outcome is Outcome.REFUSED:
                self._check_refused(operation)
            elif operation.outcome is Outcome.ACKNOWLEDGED:
                self._check_order(operation)
                self._check_session(operation)
                if operation.seen_end_offset <= self._end_offset:
                    self._check(operation)
                else:
                    heapq.heappush(self._waiting, (operation.seen_end_offset, operation.operation_id, operation))

    def _check_refused(self, operation: Operation) -> None:
        if operation.operation_id in self._offset_of:
            offset = self._offset_of[operation.operation_id]
            _violated(f"an operation was refused, and is committed at offset {offset}", operation)

    def _check_order(self, operation: Operation) -> None:
        """Check that an operation that began after an acknowledgement is above it."""
        offset, completed_at = _acknowledged(operation)
        index = bisect_left(self._completion_times, operation.invoked_at) - 1
        if index >= 0 and offset < self._highest_seen[index].seen_end_offset:
            _violated(
                "an operation began after another one was acknowledged, and is not after it in the log",
                self._highest_seen[index],
                operation,
            )
        highest = self._highest_seen[-1] if self._highest_seen else operation
        self._highest_seen.append(max(highest, operation, key=lambda known: known.seen_end_offset))
        self._completion_times.append(completed_at)

    def _check_session(self, operation: Operation) -> None:
        """Check that no client goes back, not even at the same moment."""
        offset, _ = _acknowledged(operation)
        before = self._sessions.get(operation.client_id)
        if before is not None and _acknowledged(before)[1] <= operation.invoked_at and offset < before.seen_end_offset:
            _violated("a client's operation is not after its operation before", before, operation)
        self._sessions[operation.client_id] = operation

    def _check(self, operation: Operation) -> None:
        """Check an operation that is entirely below the end of the committed log."""
        offset, _ = _acknowledged(operation)
        register = self._registers.get(operation.key)
        before, before_offset = register.below(offset) if register is not None else (None, None)
        if operation.has_written:
            write = self._writes.get(offset)
            if write is None or (write.key, write.value) != (operation.key, operation.value):
                _violated(f"an acknowledged operation is not at the offset of its answer: there is {write}", operation)
        elif operation.operation_id in self._offset_of:
            _violated(f"its record is at offset {self._offset_of[operation.operation_id]}", operation)
        if operation.is_found_known and operation.found != before:
            _violated(f"the newest value below its offset is {_named(before, before_offset)}", operation)
        if operation.kind is Kind.COMPARE_AND_SET and operation.swapped != (before == operation.expected):
            _violated(f"a compare-and-set was answered wrongly, over {_named(before, before_offset)}", operation)


def _acknowledged(operation: Operation) -> tuple[int, int]:
    """Return the offset and the time of an acknowledgement."""
    if operation.offset is None or operation.completed_at is None:
        raise ValueError(f"{operation} has no offset or no time of completion")
    return operation.offset, operation.completed_at


def _named(value: str | None, offset: int | None) -> str:
    return "nothing" if value is None else f"{value} (offset {offset})"


def _violated(message: str, *operations: Operation) -> NoReturn:
    raise HistoryViolation(f"history (33 to 35): {'; '.join([message, *map(str, operations)])}")
