"""Whether a history could be that of registers that change at one moment each."""

import itertools
import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kraftlog.sim.quorum.registers.history import History, Kind, Operation, Outcome
from kraftlog.sim.quorum.registers.linearizability import (
    CheckResult,
    check_history,
    check_operations,
    fits,
    value_after,
)
from tests.effort import examples
from tests.kraftlog.sim.quorum.registers.builders import AtomicRegisters

ENOUGH_STEPS = 1_000_000


def _verdict(operations: Iterable[Operation]) -> CheckResult:
    return check_operations(operations, ENOUGH_STEPS).result


def _operation(
    kind: Kind,
    invoked_at: int,
    completed_at: int | None,
    value: str | None = None,
    *,
    found: str | None = None,
    tells: bool = False,
    expected: str | None = None,
    swapped: bool = False,
    outcome: Outcome = Outcome.ACKNOWLEDGED,
) -> Operation:
    is_found_known = outcome is Outcome.ACKNOWLEDGED and (tells or kind is Kind.READ)
    return Operation(
        operation_id=invoked_at,
        client_id=1,
        kind=kind,
        key="k",
        value=value,
        expected=expected,
        invoked_at=invoked_at,
        completed_at=completed_at,
        outcome=outcome,
        offset=0,
        found=found if is_found_known else None,
        is_found_known=is_found_known,
        swapped=swapped and kind is Kind.COMPARE_AND_SET and outcome is Outcome.ACKNOWLEDGED,
    )


def _write(value: str, invoked_at: int, completed_at: int, outcome: Outcome = Outcome.ACKNOWLEDGED) -> Operation:
    return _operation(Kind.WRITE, invoked_at, completed_at, value, outcome=outcome)


def _read(found: str | None, invoked_at: int, completed_at: int) -> Operation:
    return _operation(Kind.READ, invoked_at, completed_at, found=found)


def _swap(expected: str | None, value: str, invoked_at: int, completed_at: int, *, swapped: bool) -> Operation:
    return _operation(Kind.COMPARE_AND_SET, invoked_at, completed_at, value, expected=expected, swapped=swapped)


UNKNOWN = Outcome.UNKNOWN

ACCEPTED = {
    "nothing": [],
    "nothing is there at first": [_read(None, 1, 2)],
    "a read after a write": [_write("a", 1, 2), _read("a", 3, 4)],
    "reads beside a write, in its order": [_write("a", 1, 9), _read(None, 2, 3), _read("a", 4, 5)],
    "a touching read may come first": [_write("a", 1, 2), _read(None, 2, 3)],
    "an unknown write never happens": [_write("a", 1, 2), _write("b", 3, 4, UNKNOWN), _read("a", 5, 6)],
    "an unknown write happens late": [
        _write("b", 1, 2, UNKNOWN),
        _write("a", 3, 4),
        _read("a", 5, 6),
        _read("b", 7, 8),
    ],
    "a refused write": [_write("a", 1, 2, Outcome.REFUSED), _read(None, 3, 4)],
    "a swap": [_write("a", 1, 2), _swap("a", "b", 3, 4, swapped=True), _read("b", 5, 6)],
    "a swap that fails": [_write("a", 1, 2), _swap(None, "b", 3, 4, swapped=False), _read("a", 5, 6)],
    "one of two swaps": [_swap(None, "a", 1, 5, swapped=False), _swap(None, "b", 2, 4, swapped=True)],
    "an unknown swap happens": [
        _operation(Kind.COMPARE_AND_SET, 1, 2, "a", outcome=UNKNOWN),
        _read("a", 3, 4),
    ],
}

REJECTED = {
    "a phantom": [_read("a", 1, 2)],
    "a stale read": [_write("a", 1, 2), _write("b", 3, 4), _read("a", 5, 6)],
    "a lost write": [_write("a", 1, 2), _read(None, 3, 4)],
    "a read that goes back": [_write("a", 1, 9), _read("a", 2, 3), _read(None, 4, 5)],
    "a refused write is seen": [_write("a", 1, 2, Outcome.REFUSED), _read("a", 3, 4)],
    "a write is seen before it begins": [_read("a", 1, 2), _write("a", 3, 4)],
    "an unknown write happens twice": [
        _write("b", 1, 2, UNKNOWN),
        _read("b", 3, 4),
        _write("a", 5, 6),
        _read("b", 7, 8),
    ],
    "both swaps": [_swap(None, "a", 1, 5, swapped=True), _swap(None, "b", 2, 4, swapped=True)],
    "a swap over another value": [_write("a", 1, 2), _swap(None, "b", 3, 4, swapped=True)],
    "a swap that fails over what it expects": [_write("a", 1, 2), _swap("a", "b", 3, 4, swapped=False)],
    "an unknown swap over another value": [
        _write("b", 1, 2),
        _operation(Kind.COMPARE_AND_SET, 3, 4, "a", expected="c", outcome=UNKNOWN),
        _read("a", 5, 6),
    ],
    "a write that tells another predecessor": [
        _write("a", 1, 2),
        _operation(Kind.WRITE, 3, 4, "b", found=None, tells=True),
    ],
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    assert _verdict(ACCEPTED[name]) is CheckResult.LINEARIZABLE


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str) -> None:
    assert _verdict(REJECTED[name]) is CheckResult.NOT_LINEARIZABLE


def test_the_story_names_the_operation_without_a_place() -> None:
    finding = check_operations(REJECTED["a stale read"], ENOUGH_STEPS)
    assert "2 of 3 operations can be put in order" in finding.story
    assert finding.story.index("write k = b") < finding.story.index("no place") < finding.story.index("found a")


def test_a_search_that_is_given_up_says_so() -> None:
    history = [_write(f"value-{number}", 1, 50) for number in range(20)] + [_read("nobody", 2, 50)]
    finding = check_operations(history, 1000)
    assert finding.result is CheckResult.UNDECIDED
    assert "stopped after 1000 steps" in finding.story


def test_keys_are_searched_separately() -> None:
    history = History()
    for key, found in (("good", None), ("bad", "phantom")):
        read = history.begin(client_id=1, kind=Kind.READ, key=key, invoked_at=1)
        history.acknowledge(read, 2, offset=0, found=found)
    results = {key: finding.result for key, finding in check_history(history, ENOUGH_STEPS).items()}
    assert results == {"good": CheckResult.LINEARIZABLE, "bad": CheckResult.NOT_LINEARIZABLE}


@settings(max_examples=examples(200), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.integers(0, 80), st.booleans())
def test_what_an_atomic_register_answers_is_linearizable(
    source: random.Random, clients: int, operations: int, writes_tell_found: bool
) -> None:
    registers = AtomicRegisters(source, clients=clients, keys=2, writes_tell_found=writes_tell_found)
    registers.run(operations)
    assert {finding.result for finding in check_history(registers.history, ENOUGH_STEPS).values()} <= {
        CheckResult.LINEARIZABLE
    }


# --- against brute force ----------------------------------------------------------------------------------------------


def _brute_force(operations: Sequence[Operation]) -> bool:
    """Whether some order of all owed and some of the unknown operations explains everything. For few operations."""
    owed = [operation for operation in operations if operation.outcome is Outcome.ACKNOWLEDGED]
    optional = [operation for operation in operations if operation.outcome is Outcome.UNKNOWN]
    return any(
        _explains(order)
        for count in range(len(optional) + 1)
        for chosen in itertools.combinations(optional, count)
        for order in itertools.permutations([*owed, *chosen])
    )


def _explains(order: Sequence[Operation]) -> bool:
    value: str | None = None
    for index, operation in enumerate(order):
        ended = [later for later in order[index + 1 :] if later.outcome is Outcome.ACKNOWLEDGED]
        if any((later.completed_at or 0) < operation.invoked_at for later in ended) or not fits(operation, value):
            return False
        value = value_after(operation, value)
    return True


_VALUES = st.sampled_from(["a", "b"])
_SMALL_OPERATIONS = st.builds(
    lambda kind, start, length, value, found, expected, tells, swapped, outcome: _operation(
        kind,
        start,
        start + length,
        None if kind is Kind.READ else value,
        found=found,
        tells=tells,
        expected=expected if kind is Kind.COMPARE_AND_SET else None,
        swapped=swapped,
        outcome=outcome,
    ),
    st.sampled_from(Kind),
    st.integers(0, 8),
    st.integers(0, 6),
    _VALUES,
    st.none() | _VALUES,
    st.none() | _VALUES,
    st.booleans(),
    st.booleans(),
    st.sampled_from([Outcome.ACKNOWLEDGED] * 4 + [Outcome.UNKNOWN, Outcome.REFUSED]),
)


@settings(max_examples=examples(1500), deadline=None)
@given(st.lists(_SMALL_OPERATIONS, max_size=6))
def test_the_search_agrees_with_trying_all_orders(operations: list[Operation]) -> None:
    assert (_verdict(operations) is CheckResult.LINEARIZABLE) == _brute_force(operations)


@settings(max_examples=examples(500), deadline=None)
@given(st.randoms(use_true_random=False), st.data())
def test_one_changed_answer_is_judged_as_by_trying_all_orders(source: random.Random, data: st.DataObject) -> None:
    """Histories that are right but for one answer: most are close to the border between right and wrong."""
    registers = AtomicRegisters(source, clients=3)
    registers.run(6)
    operations = registers.history.operations
    answered = [operation for operation in operations if operation.outcome is Outcome.ACKNOWLEDGED]
    assume(answered)
    changed = data.draw(st.sampled_from(answered))
    changed.found = data.draw(st.sampled_from([None, "phantom", *(operation.value for operation in operations)]))
    known = [operation for operation in operations if operation.outcome is not Outcome.PENDING]
    assert (_verdict(known) is CheckResult.LINEARIZABLE) == _brute_force(known)


def test_a_thousand_operations_at_low_concurrency_take_few_steps() -> None:
    registers = AtomicRegisters(random.Random(5), clients=4)
    registers.run(1000)
    assert check_operations(registers.history.operations, 20_000).result is CheckResult.LINEARIZABLE
