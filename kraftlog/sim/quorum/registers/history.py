"""The clients' history: every operation that they started on a register, and its answer.

A register is a key that holds a value or nothing. Values are unique per key, so that a value names the operation that
wrote it. Times are integers of any unit; only their order matters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """What an operation does."""

    WRITE = "write"
    READ = "read"
    COMPARE_AND_SET = "compare_and_set"
    """Write, if the value is the expected one."""


class Outcome(StrEnum):
    """What the client knows of its operation."""

    PENDING = "pending"
    """Nothing yet. It may have taken effect all the same."""
    ACKNOWLEDGED = "acknowledged"
    """It was carried out, with the result that the operation holds."""
    REFUSED = "refused"
    """It certainly has no effect, now or later."""
    UNKNOWN = "unknown"
    """It may take effect, at any later time, or never: the answer was lost, or the leader was."""


@dataclass(slots=True)
class Operation:
    """One operation of one client."""

    operation_id: int
    client_id: int
    kind: Kind
    key: str
    value: str | None
    """What it writes; None for a read."""
    expected: str | None
    """What a compare-and-set wants to find; None: that there is no value."""
    invoked_at: int
    completed_at: int | None = None
    """When the client got its answer, or gave up."""
    outcome: Outcome = Outcome.PENDING
    offset: int | None = None
    """Acknowledged: a write's own record, else a bound: the operation saw everything below this offset, and no more."""
    found: str | None = None
    """Acknowledged: the value that the operation read, replaced or did not replace; None: there was none."""
    is_found_known: bool = False
    """Whether the answer has the value found."""
    swapped: bool = False
    """Acknowledged: whether a compare-and-set took place."""

    @property
    def has_written(self) -> bool:
        """Whether it certainly put its value into the register."""
        return self.outcome is Outcome.ACKNOWLEDGED and (self.kind is Kind.WRITE or self.swapped)

    @property
    def may_have_written(self) -> bool:
        """Whether it may take effect, or may have done so, without an acknowledgement."""
        return self.kind is not Kind.READ and self.outcome in (Outcome.PENDING, Outcome.UNKNOWN)

    @property
    def seen_end_offset(self) -> int:
        """Acknowledged: everything that begins after this was acknowledged must be at or above this offset."""
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
        told = f"operation {self.operation_id} of client {self.client_id}, {what}, {times}: {self.outcome.value}"
        if self.outcome is not Outcome.ACKNOWLEDGED:
            return told
        done = f", {'done' if self.swapped else 'not done'}" if self.kind is Kind.COMPARE_AND_SET else ""
        found = f", found {self.found}" if self.is_found_known else ""
        return f"{told}{done}{found}, {'at' if self.has_written else 'sees below'} offset {self.offset}"


class History:
    """Every operation of one run. Not bounded: it is made for runs that end.

    `writes_tell_found` is whether answers to writes and compare-and-sets name the value that was there before.
    """

    def __init__(self, *, writes_tell_found: bool = True) -> None:
        self._writes_tell_found = writes_tell_found
        self._writers: dict[tuple[str, str], Operation] = {}
        self.operations: list[Operation] = []
        """In the order in which they began; the first one's id is 1."""
        self.completed: list[Operation] = []
        """In the order in which their clients got the answers or gave up."""
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
        """An operation begins. Raises ValueError if its value is missing, is superfluous or was used before."""
        if (value is None) is not (kind is Kind.READ):
            raise ValueError(f"a {kind.value} of {key!r} has the value {value!r}: a read has none, all else has one")
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
        """It was carried out. Raises ValueError if its client knew its outcome already."""
        self._complete(operation, now, Outcome.ACKNOWLEDGED)
        self.acknowledged_count += 1
        operation.offset = offset
        operation.is_found_known = self._writes_tell_found or operation.kind is Kind.READ
        operation.found = found if operation.is_found_known else None
        operation.swapped = swapped

    def refuse(self, operation: Operation, now: int) -> None:
        """It has no effect. Raises ValueError if its client knew its outcome already."""
        self._complete(operation, now, Outcome.REFUSED)

    def lose_track(self, operation: Operation, now: int) -> None:
        """Its client gives up on it. Raises ValueError if its client knew its outcome already."""
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
        """The operation that writes this value; None if there is none."""
        return self._writers.get((key, value))

    def by_key(self) -> dict[str, list[Operation]]:
        """The operations on each key, in the order in which they began."""
        found: dict[str, list[Operation]] = {}
        for operation in self.operations:
            found.setdefault(operation.key, []).append(operation)
        return found

    def save(self, path: Path) -> None:
        """Write one JSON object a line and operation. Raises OSError."""
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(asdict(operation))}\n" for operation in self.operations)


def load(path: Path) -> Sequence[Operation]:
    """The operations that `History.save` wrote. Raises OSError, and ValueError for anything else."""
    with path.open(encoding="utf-8") as file:
        return [_operation(number, line) for number, line in enumerate(file, 1)]


def _operation(number: int, line: str) -> Operation:
    try:
        fields = json.loads(line)
        return Operation(**{**fields, "kind": Kind(fields["kind"]), "outcome": Outcome(fields["outcome"])})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"line {number} is not an operation of a saved history: {error!r}") from error


def in_words(operations: Iterable[Operation]) -> str:
    """One line each."""
    return "\n".join(f"  {operation}" for operation in operations)
