"""The answers to clients, compared with the committed log."""

import random
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kraftlog.sim.quorum.registers.history import History, Kind, Operation
from kraftlog.sim.quorum.registers.oracle import CommittedWrite, HistoryViolation, OffsetOracle
from tests.effort import examples
from tests.kraftlog.sim.quorum.registers.builders import AtomicRegisters


class Story:
    """A history and a committed log, built step by step. Every call takes one unit of time."""

    def __init__(self, *, writes_tell_found: bool = True) -> None:
        self.history = History(writes_tell_found=writes_tell_found)
        self.oracle = OffsetOracle(self.history)
        self.now = 0
        self.end_offset = 0

    def write(self, value: str, client_id: int = 1) -> Operation:
        return self._begin(Kind.WRITE, client_id, value)

    def read(self, client_id: int = 1) -> Operation:
        return self._begin(Kind.READ, client_id)

    def swap(self, expected: str | None, value: str, client_id: int = 1) -> Operation:
        return self._begin(Kind.COMPARE_AND_SET, client_id, value, expected)

    def _begin(self, kind: Kind, client_id: int, value: str | None = None, expected: str | None = None) -> Operation:
        self.now += 1
        return self.history.begin(
            client_id=client_id, kind=kind, key="k", value=value, expected=expected, invoked_at=self.now
        )

    def commit(self, *values: str | None) -> None:
        """The log continues with these; None is a record that sets nothing."""
        writes = [
            CommittedWrite(self.end_offset + i, "k", value) for i, value in enumerate(values) if value is not None
        ]
        self.end_offset += len(values)
        self.oracle.committed(writes, self.end_offset)

    def acknowledge(
        self, operation: Operation, offset: int, found: str | None = None, *, swapped: bool = False
    ) -> None:
        self.now += 1
        self.history.acknowledge(operation, self.now, offset=offset, found=found, swapped=swapped)

    def refuse(self, operation: Operation) -> None:
        self.now += 1
        self.history.refuse(operation, self.now)

    def lose_track(self, operation: Operation) -> None:
        self.now += 1
        self.history.lose_track(operation, self.now)


def _writes_and_reads(story: Story) -> None:
    first, second = story.write("a"), story.write("b", client_id=2)
    story.commit("a", "b", None)
    story.acknowledge(first, 0)
    story.acknowledge(second, 1, found="a")
    story.acknowledge(story.read(), 2, found="b")


def _answer_before_the_commit_is_known(story: Story) -> None:
    story.acknowledge(story.write("a"), 0)
    story.acknowledge(story.read(), 1, found="a")
    story.commit("a")


def _late_effect_of_an_unknown_write(story: Story) -> None:
    story.lose_track(story.write("a"))
    story.acknowledge(story.write("b"), 0)
    story.commit("b", "a")
    story.acknowledge(story.read(), 2, found="a")


def _unknown_write_that_never_happens(story: Story) -> None:
    story.lose_track(story.write("a"))
    story.acknowledge(story.read(), 0)


def _refused(story: Story) -> None:
    story.refuse(story.write("a"))
    story.commit(None)


def _swaps(story: Story) -> None:
    story.acknowledge(story.swap(None, "a"), 0, swapped=True)
    story.acknowledge(story.swap("x", "b"), 1, found="a")
    story.acknowledge(story.swap("a", "c"), 2, found="a", swapped=True)
    story.commit("a", None, "c")


def _reads_share_a_bound(story: Story) -> None:
    story.commit(None, None)
    story.acknowledge(story.read(client_id=1), 2)
    story.acknowledge(story.read(client_id=2), 2)


def _overlapping_operations_in_any_order(story: Story) -> None:
    slow, quick = story.write("a", client_id=1), story.write("b", client_id=2)
    story.commit("a", "b")
    story.acknowledge(quick, 1, found="a")
    story.acknowledge(slow, 0)


@pytest.mark.parametrize(
    "tell",
    [
        _writes_and_reads,
        _answer_before_the_commit_is_known,
        _late_effect_of_an_unknown_write,
        _unknown_write_that_never_happens,
        _refused,
        _swaps,
        _reads_share_a_bound,
        _overlapping_operations_in_any_order,
    ],
)
def test_accepted(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    story.oracle.at_end()


def _phantom(story: Story) -> None:
    story.commit("a")


def _one_operation_at_two_offsets(story: Story) -> None:
    story.lose_track(story.write("a"))
    story.commit("a", None, "a")


def _one_offset_with_two_operations(story: Story) -> None:
    story.write("a", client_id=1)
    story.write("b", client_id=2)
    story.commit("a")
    story.oracle.committed([CommittedWrite(0, "k", "b")], 1)


def _refused_operation_in_the_log(story: Story) -> None:
    story.refuse(story.write("a"))
    story.commit("a")


def _operation_refused_after_it_was_committed(story: Story) -> None:
    operation = story.write("a")
    story.commit("a")
    story.refuse(operation)


def _acknowledged_write_elsewhere(story: Story) -> None:
    operation = story.write("a")
    story.commit(None, "a")
    story.acknowledge(operation, 0)


def _acknowledged_before_it_was_committed_elsewhere(story: Story) -> None:
    story.acknowledge(story.write("a"), 0)
    story.commit(None, "a")


def _acknowledged_write_replaced(story: Story) -> None:
    story.lose_track(story.write("b", client_id=2))
    story.acknowledge(story.write("a"), 0)
    story.commit("b")


def _acknowledged_write_lost(story: Story) -> None:
    story.commit(None)
    story.acknowledge(story.write("a"), 1)


def _stale_read(story: Story) -> None:
    story.acknowledge(story.write("a"), 0)
    story.acknowledge(story.write("b"), 1, found="a")
    story.commit("a", "b")
    story.acknowledge(story.read(), 2, found="a")


def _read_of_a_value_that_is_not_committed(story: Story) -> None:
    story.lose_track(story.write("a"))
    story.acknowledge(story.read(), 0, found="a")


def _write_below_what_was_acknowledged_before_it_began(story: Story) -> None:
    story.write("a", client_id=2)
    first = story.write("b", client_id=1)
    story.commit(None, "b")
    story.acknowledge(first, 1)
    story.acknowledge(story.read(client_id=3), 1)


def _client_that_goes_back_within_a_moment(story: Story) -> None:
    story.commit(None, None)
    first = story.read()
    story.acknowledge(first, 2)
    second = story.history.begin(client_id=1, kind=Kind.READ, key="k", invoked_at=story.now)
    story.acknowledge(second, 1)


def _another_predecessor(story: Story) -> None:
    story.acknowledge(story.write("a"), 0)
    story.acknowledge(story.write("b"), 1, found=None)
    story.commit("a", "b")


def _swap_over_something_else(story: Story) -> None:
    story.lose_track(story.swap("x", "b"))
    story.commit("b")


def _swap_that_should_have_been_done(story: Story) -> None:
    story.commit(None)
    story.acknowledge(story.swap(None, "a"), 1)


def _swap_that_was_done_and_denied(story: Story) -> None:
    operation = story.swap(None, "a")
    story.commit("a")
    story.acknowledge(operation, 0)


def _swap_that_was_denied_and_done_later(story: Story) -> None:
    story.acknowledge(story.swap(None, "a"), 0)
    story.commit("a")


REJECTED: dict[Callable[[Story], None], str] = {
    _phantom: "a phantom: k = a at offset 0",
    _one_operation_at_two_offsets: "took effect at two offsets, 0 and 2",
    _one_offset_with_two_operations: "one offset holds two operations: k = a at offset 0, and k = b at offset 0",
    _refused_operation_in_the_log: "a refused operation is committed at offset 0",
    _operation_refused_after_it_was_committed: "was refused, and is committed at offset 0",
    _acknowledged_write_elsewhere: "is not at the offset of its answer: there is None",
    _acknowledged_before_it_was_committed_elsewhere: "its record is at offset 1, and its client got another answer",
    _acknowledged_write_replaced: "is not at the offset of its answer: there is k = b at offset 0",
    _acknowledged_write_lost: "is not in the committed log, which ends at offset 1",
    _stale_read: r"the newest value below its offset is b \(offset 1\)",
    _read_of_a_value_that_is_not_committed: "the newest value below its offset is nothing",
    _write_below_what_was_acknowledged_before_it_began: "began after another one was acknowledged.*operation 2.*read k",
    _client_that_goes_back_within_a_moment: "a client's operation is not after its operation before",
    _another_predecessor: r"the newest value below its offset is a \(offset 0\)",
    _swap_over_something_else: "over nothing, which is not what it expected",
    _swap_that_should_have_been_done: "answered wrongly, over nothing",
    _swap_that_was_done_and_denied: "its record is at offset 0",
    _swap_that_was_denied_and_done_later: "its client got another answer|answered wrongly",
}


@pytest.mark.parametrize("tell", REJECTED)
def test_rejected(tell: Callable[[Story], None]) -> None:
    story = Story()
    with pytest.raises(HistoryViolation, match=REJECTED[tell]):
        tell(story)
        story.oracle.at_end()


def test_a_predecessor_that_is_not_told_is_not_judged() -> None:
    story = Story(writes_tell_found=False)
    story.acknowledge(story.write("a"), 0)
    story.acknowledge(story.write("b"), 1)
    story.commit("a", "b")
    story.oracle.at_end()


@pytest.mark.parametrize(("offset", "end_offset"), [(0, 5), (3, 3)])
def test_a_log_told_out_of_order_is_no_violation_but_an_error(offset: int, end_offset: int) -> None:
    story = Story()
    story.write("a")
    story.commit(None, None)
    with pytest.raises(ValueError, match="pass the log in order"):
        story.oracle.committed([CommittedWrite(offset, "k", "a")], end_offset)


def test_a_log_that_goes_back_is_an_error() -> None:
    story = Story()
    story.commit(None, None)
    with pytest.raises(ValueError, match="it already reached 2"):
        story.oracle.committed([], 1)


@settings(max_examples=examples(150), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.integers(0, 60), st.booleans(), st.booleans())
def test_what_atomic_registers_answer_is_accepted(
    source: random.Random, clients: int, operations: int, writes_tell_found: bool, log_first: bool
) -> None:
    registers = AtomicRegisters(source, clients=clients, keys=2, writes_tell_found=writes_tell_found)
    oracle = OffsetOracle(registers.history)
    if log_first:  # the log is told as it grows
        for count in range(operations + 1):
            registers.run(count)
            oracle.committed(registers.writes, registers.end_offset)
            registers.writes.clear()
    else:
        registers.run(operations)
        oracle.committed(registers.writes, registers.end_offset)
    oracle.at_end()


@settings(max_examples=examples(150), deadline=None)
@given(st.randoms(use_true_random=False), st.data())
def test_one_changed_answer_is_rejected(source: random.Random, data: st.DataObject) -> None:
    """Whatever is changed in one answer, the log shows it."""
    registers = AtomicRegisters(source, clients=3, keys=2)
    registers.run(30)
    answered = [operation for operation in registers.history.completed if operation.offset is not None]
    assume(answered)
    changed = data.draw(st.sampled_from(answered))
    match data.draw(st.sampled_from(["found", "offset", "swapped"])):
        case "offset" if changed.has_written:
            changed.offset = data.draw(st.integers(0, registers.end_offset + 1).filter(lambda at: at != changed.offset))
        case "swapped" if changed.kind is Kind.COMPARE_AND_SET:
            changed.swapped = not changed.swapped
        case _:
            changed.found = f"not {changed.found}"
    oracle = OffsetOracle(registers.history)
    with pytest.raises(HistoryViolation):
        oracle.committed(registers.writes, registers.end_offset)
        oracle.at_end()
