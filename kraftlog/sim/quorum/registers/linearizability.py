"""A search for an order of a register's operations that explains every answer. It does not use offsets.

The search is Wing and Gong's, with Lowe's memory of visited states (Testing for Linearizability, 2017). A list holds an
entry for the call and one for the return of each operation, in order of time. The operations whose call comes before
the first return are tried in turn. One that fits is lifted out of the list; when none fits, the last one is put back.
The search is independent of the offset oracle and confirms it.

An operation with unknown outcome has no return: it may take effect at any time after its call, or never.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kraftlog.sim.quorum.registers.history import History, Kind, Operation, Outcome, in_words

_TOLD_OF_MAX = 8


class CheckResult(StrEnum):
    """The result of the search."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided"
    """The search stopped at its limit of steps."""


class Finding(NamedTuple):
    """A result and, unless it is LINEARIZABLE, a text about how far the search got."""

    result: CheckResult
    story: str


def check_history(history: History, steps_max: int) -> dict[str, Finding]:
    """Return the result for each key. At most `steps_max` operations are tried for one key."""
    return {key: check_operations(operations, steps_max) for key, operations in history.by_key().items()}


def check_operations(operations: Iterable[Operation], steps_max: int) -> Finding:
    """Return the result for operations on one key, which has no value at first."""
    return _Search(_that_matter(list(operations))).run(steps_max)


def _that_matter(operations: Sequence[Operation]) -> list[Operation]:
    """Leave out operations without effect, and unknown writes of values that no operation names; see `_is_of_use`."""
    relevant = [
        operation for operation in operations if operation.outcome is Outcome.ACKNOWLEDGED or operation.may_have_written
    ]
    if any(_fails_over_anything(operation) for operation in relevant):
        return relevant
    named = {operation.found for operation in relevant} | {operation.expected for operation in relevant}
    return [operation for operation in relevant if not operation.may_have_written or operation.value in named]


def _fails_over_anything(operation: Operation) -> bool:
    """Whether a compare-and-set is known to have failed, but not which value it found."""
    failed = operation.kind is Kind.COMPARE_AND_SET and operation.outcome is Outcome.ACKNOWLEDGED
    return failed and not operation.swapped and not operation.is_found_known


def fits(operation: Operation, value: str | None) -> bool:
    """Whether the operation's answer is possible if the register held `value`."""
    if operation.outcome is not Outcome.ACKNOWLEDGED:
        return True
    if operation.is_found_known and operation.found != value:
        return False
    return operation.kind is not Kind.COMPARE_AND_SET or operation.swapped == (value == operation.expected)


def value_after(operation: Operation, value: str | None) -> str | None:
    """Return the register's value after an operation on `value`."""
    if operation.kind is Kind.READ or (operation.kind is Kind.COMPARE_AND_SET and value != operation.expected):
        return value
    return operation.value


@dataclass(slots=True, eq=False)
class _Entry:
    """The call or the return of an operation, in a list linked both ways."""

    index: int
    """The operation's index; -1 for the list's head."""
    is_return: bool
    returned: _Entry | None = None
    """A call's return; None if it has none."""
    before: _Entry | None = None
    after: _Entry | None = None

    def unlink(self) -> None:
        if self.before is not None:
            self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def relink(self) -> None:
        if self.before is not None:
            self.before.after = self
        if self.after is not None:
            self.after.before = self

    def lift(self) -> None:
        """Remove a call and its return from the list."""
        self.unlink()
        if self.returned is not None:
            self.returned.unlink()

    def unlift(self) -> None:
        """Undo `lift`. Calls must be undone in reverse order."""
        if self.returned is not None:
            self.returned.relink()
        self.relink()


class _Search:
    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._every_value_matters = any(_fails_over_anything(operation) for operation in operations)
        self._head = _Entry(-1, is_return=False)
        self._longest: list[int] = []
        self._stuck_at = -1
        self._owed = 0
        """The number of operations with a return that are still in the list."""
        self._build()

    def _build(self) -> None:
        """Link the entries. At equal times calls come first: such operations overlap."""
        timed: list[tuple[int, bool, _Entry]] = []
        for index, operation in enumerate(self._operations):
            call = _Entry(index, is_return=False)
            timed.append((operation.invoked_at, False, call))
            if operation.outcome is Outcome.ACKNOWLEDGED and operation.completed_at is not None:
                call.returned = _Entry(index, is_return=True)
                timed.append((operation.completed_at, True, call.returned))
                self._owed += 1
        last = self._head
        for _, _, entry in sorted(timed, key=lambda item: item[:2]):
            last.after, entry.before = entry, last
            last = entry

    def run(self, steps_max: int) -> Finding:
        """Search. A step is one operation tried."""
        value: str | None = None
        lifted = 0
        seen: set[tuple[int, str | None]] = {(lifted, value)}
        stack: list[tuple[_Entry, str | None]] = []
        entry = self._head.after
        steps = 0
        while self._owed > 0:
            if entry is None or entry.is_return:
                self._note(stack, entry)
                if not stack:
                    return Finding(CheckResult.NOT_LINEARIZABLE, self._story())
                call, value = stack.pop()
                lifted ^= 1 << call.index
                self._owed += call.returned is not None
                call.unlift()
                entry = call.after
                continue
            steps += 1
            if steps > steps_max:
                return Finding(CheckResult.UNDECIDED, f"stopped after {steps_max} steps; {self._story()}")
            operation = self._operations[entry.index]
            if fits(operation, value) and self._is_of_use(operation):
                state = (lifted | 1 << entry.index, value_after(operation, value))
                if state not in seen:
                    seen.add(state)
                    stack.append((entry, value))
                    lifted, value = state
                    self._owed -= entry.returned is not None
                    entry.lift()
                    entry = self._head.after
                    continue
            entry = entry.after
        return Finding(CheckResult.LINEARIZABLE, "")

    def _is_of_use(self, operation: Operation) -> bool:
        """Whether an operation that may be left out could change anything.

        If no possible next operation found or expected its value, the order is as good without it. A next operation is
        one whose call comes before the first return.
        """
        if not operation.may_have_written or self._every_value_matters:
            return True
        entry = self._head.after
        while entry is not None and not entry.is_return:
            other = self._operations[entry.index]
            if operation.value in (other.found, other.expected) and other is not operation:
                return True
            entry = entry.after
        return False

    def _note(self, stack: Sequence[tuple[_Entry, str | None]], entry: _Entry | None) -> None:
        """Keep the longest order found, and the operation that did not fit after it."""
        if len(stack) >= len(self._longest) and entry is not None:
            self._longest = [call.index for call, _ in stack]
            self._stuck_at = entry.index

    def _story(self) -> str:
        ordered = [self._operations[index] for index in self._longest]
        text = f"{len(ordered)} of {len(self._operations)} operations can be put in order"
        if ordered:
            text += f", the last of them:\n{in_words(ordered[-_TOLD_OF_MAX:])}"
        if self._stuck_at >= 0:
            text += f"\nand then this one has no place:\n{in_words([self._operations[self._stuck_at]])}"
        return text
