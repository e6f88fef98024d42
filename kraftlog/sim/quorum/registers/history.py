"""The clients' history: every operation on a register that they started, and its answer.

A register is a key that holds a value or nothing. Values are unique per key, so a value identifies the operation that
wrote it. Times are integers of any unit; only their order matters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """The kind of an operation."""

    WRITE = "write"
    READ = "read"
    COMPARE_AND_SET = "compare_and_set"
    """Write if the present value is the expected one."""


class Outcome(StrEnum):
    """What the client knows about its operation."""

    PENDING = "pending"
    """No answer yet. The operation may have taken effect."""
    ACKNOWLEDGED = "acknowledged"
    """The operation took effect, with the result in its fields."""
    REFUSED = "refused"
    """The operation has no effect, now or later."""
    UNKNOWN = "unknown"
    """The answer or the leader was lost. The operation may take effect at any later time, or never."""


@dataclass(slots=True)
class Operation:
    """One operation of one client."""

    operation_id: int
    client_id: int
    kind: Kind
    key: str
    value: str | None
    """The value that it writes; None for a read."""
    expected: str | None
    """The value that a compare-and-set expects; None: no value."""
    invoked_at: int
    completed_at: int | None = None
    """When the client got its answer or stopped waiting."""
    outcome: Outcome = Outcome.PENDING
    offset: int | None = None
    """If acknowledged: the offset of the write's record.

    For other operations, one that saw exactly what is below it.
    """
    found: str | None = None
    """If acknowledged: the value that the operation read, replaced or failed to replace; None: no value."""
    is_found_known: bool = False
    """Whether the answer contained the value found."""
    swapped: bool = False
    """If acknowledged: whether a compare-and-set wrote its value."""

    @property
    def has_written(self) -> bool:
        """Whether the operation is known to have written its value."""
        return self.outcome is Outcome.ACKNOWLEDGED and (self.kind is Kind.WRITE or self.swapped)

    @property
    def may_have_written(self) -> bool:
        """Whether the operation may take effect, or have done so, without an acknowledgement."""
        return self.kind is not Kind.READ and self.outcome in (Outcome.PENDING, Outcome.UNKNOWN)

    @property
    def seen_end_offset(self) -> int:
        """If acknowledged: operations that begin after the acknowledgement must be at or above this offset."""
        offset = -1 if self.offset is None else self.offset
        return offset + 1 if self.has_written else offset

    def __str__(self) -> str:
        match self.kind:
            case Kind.WRITE:
                what = f"write {self.key} = {self.value}"
            case Kind.READ:
                what = f"read {self.key}"
            case Kind.COMPARE_AND_SET:
                what = f"set {self.key} = {self.value} if it is {self.expected}"
        times = f"{self.invoked_at} to {'?' if self.completed_at is None else self.completed_at}"
        text = f"operation {self.operation_id} of client {self.client_id}, {what}, {times}: {self.outcome.value}"
        if self.outcome is not Outcome.ACKNOWLEDGED:
            return text
        done = f", {'done' if self.swapped else 'not done'}" if self.kind is Kind.COMPARE_AND_SET else ""
        found = f", found {self.found}" if self.is_found_known else ""
        return f"{text}{done}{found}, {'at' if self.has_written else 'sees below'} offset {self.offset}"


class History:
    """Every operation of one run. It is not bounded, because runs end.

    `writes_tell_found`: whether answers to writes and compare-and-sets contain the previous value.
    """

    def __init__(self, *, writes_tell_found: bool = True) -> None:
        self._writes_tell_found = writes_tell_found
        self._writers: dict[tuple[str, str], Operation] = {}
        self.operations: list[Operation] = []
        """In the order of their start; the first one's id is 1."""
        self.completed: list[Operation] = []
        """In the order in which the clients got the answers or stopped waiting."""
        self.acknowledged_count = 0
        self._now: int = -(2**63)

    def begin(
        self,
        *,
        client_id: int,
        kind: Kind,
        key: str,
        value: str | None = None,
        expected: str | None = None,
        invoked_at: int,
    ) -> Operation:
        """Begin an operation. Raises ValueError if its value is missing, superfluous or was used before."""
        if (value is None) is not (kind is Kind.READ):
            raise ValueError(
                f"a {kind.value} of {key!r} has the value {value!r}: only writes and compare-and-sets have one"
            )
        operation = Operation(len(self.operations) + 1, client_id, kind, key, value, expected, invoked_at)
        if value is not None:
            if (key, value) in self._writers:
                raise ValueError(f"{value!r} was written to {key!r} before: each write needs a value of its own")
            self._writers[key, value] = operation
        self.operations.append(operation)
        return operation

    def acknowledge(
        self, operation: Operation, now: int, *, offset: int, found: str | None = None, swapped: bool = False
    ) -> None:
        """Acknowledge an operation. Raises ValueError if its client knew its outcome already."""
        self._complete(operation, now, Outcome.ACKNOWLEDGED)
        self.acknowledged_count += 1
        operation.offset = offset
        operation.is_found_known = self._writes_tell_found or operation.kind is Kind.READ
        operation.found = found if operation.is_found_known else None
        operation.swapped = swapped

    def refuse(self, operation: Operation, now: int) -> None:
        """Refuse an operation, which has no effect. Raises ValueError if its client knew its outcome already."""
        self._complete(operation, now, Outcome.REFUSED)

    def lose_track(self, operation: Operation, now: int) -> None:
        """Record that the client stopped waiting. Raises ValueError if it knew the operation's outcome already."""
        self._complete(operation, now, Outcome.UNKNOWN)

    def _complete(self, operation: Operation, now: int, outcome: Outcome) -> None:
        if operation.outcome is not Outcome.PENDING:
            raise ValueError(f"{operation} cannot become {outcome.value}: its client knows its outcome already")
        earliest = max(operation.invoked_at, self._now)
        if now < earliest:
            raise ValueError(f"{operation} cannot complete at {now}: it is {earliest} already")
        self._now = now
        operation.outcome = outcome
        operation.completed_at = now
        self.completed.append(operation)

    def writer_of(self, key: str, value: str) -> Operation | None:
        """Return the operation that writes this value; None if there is none."""
        return self._writers.get((key, value))

    def by_key(self) -> dict[str, list[Operation]]:
        """Return the operations on each key, in the order of their start."""
        found: dict[str, list[Operation]] = {}
        for operation in self.operations:
            found.setdefault(operation.key, []).append(operation)
        return found

    def save(self, path: Path) -> None:
        """Write one line with a JSON object for each operation. Raises OSError."""
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(asdict(operation))}\n" for operation in self.operations)


def load(path: Path) -> Sequence[Operation]:
    """Return the operations that `History.save` wrote. Raises OSError, and ValueError if the content is invalid."""
    with path.open(encoding="utf-8") as file:
        return [_operation(number, line) for number, line in enumerate(file, 1)]


def _operation(number: int, line: str) -> Operation:
    try:
        fields = json.loads(line)
        return Operation(**{**fields, "kind": Kind(fields["kind"]), "outcome": Outcome(fields["outcome"])})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"line {number} is not an operation of a saved history: {error!r}") from error


def in_words(operations: Iterable[Operation]) -> str:
    """Return one line for each operation."""
    return "\n".join(f"  {operation}" for operation in operations)
