"""What resolves a pending operation: every state with every event (CT-10, CT-11, CT-15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftbase.types import Offset
from kraftlog.controller.pending_operations import OperationState, PendingOperation, PreparedAppend
from tests.kraftlog.controller.pending_desk import LOST, Desk, say

END = Offset(104)
"""Where the append ends that the operation depends on. Everything below 100 is applied."""


class Case:
    """One operation in one state."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.desk.machine.applied_end_offset = Offset(100)
        self.append = PreparedAppend(END)
        self.operation: PendingOperation

    # --- states -------------------------------------------------------------------------------------------------------

    def pages(self) -> None:
        """None of its records is appended yet."""
        self.operation = self.desk.operation()
        self.desk.pending.add_paged(self.operation)

    def more_pages(self) -> None:
        """A page is appended; others are to come."""
        self.pages()
        self.operation.result.end_offset = END

    def commit(self) -> None:
        """Its records are appended."""
        self.operation = self.desk.waiting(self.append)

    def commit_of_others(self) -> None:
        """It wrote nothing, and depends on another operation's records."""
        self.operation = self.desk.waiting(self.append, writes=False)

    def state_machine(self) -> None:
        """Its records are committed."""
        self.commit()
        self.desk.pending.append_settled(self.append, None)

    def state_machine_of_others(self) -> None:
        """It wrote nothing, and the records that it depends on are committed."""
        self.commit_of_others()
        self.desk.pending.append_settled(self.append, None)

    def late_before_commit(self) -> None:
        """It has timed out, and its records are not committed."""
        self.commit()
        self.desk.runtime.advance(1_000)
        self.desk.answers.clear()

    def late_before_applied(self) -> None:
        """It has timed out, and its records are committed."""
        self.state_machine()
        self.desk.runtime.advance(1_000)
        self.desk.answers.clear()

    def late_in_pages(self) -> None:
        """It has timed out between two pages."""
        self.more_pages()
        self.desk.runtime.advance(1_000)
        self.desk.answers.clear()

    # --- events -------------------------------------------------------------------------------------------------------

    def committed(self) -> None:
        self.desk.pending.append_settled(self.append, None)

    def uncertain(self) -> None:
        self.desk.pending.append_settled(self.append, LOST)

    def less_in_hand(self) -> None:
        assert self.desk.pending.in_hand(Offset(END - 1)) is False

    def in_hand(self) -> None:
        before = len(self.desk.answers)
        assert self.desk.pending.in_hand(END) is (len(self.desk.answers) > before)

    def pages_appended(self) -> None:
        self.desk.pending.pages_appended(self.operation, self.append)

    def pages_applied(self) -> None:
        """The last page is appended, and applied already."""
        self.desk.machine.applied_end_offset = END
        self.desk.pending.pages_appended(self.operation, None)

    def pages_failed(self) -> None:
        self.desk.pending.pages_failed(self.operation, ApiError(ErrorCode.STALE_BROKER_EPOCH, "as the test says"))

    def leadership_lost(self) -> None:
        self.desk.pending.leadership_lost()

    def time_out(self) -> None:
        self.desk.runtime.advance(1_000)

    def close(self) -> None:
        self.desk.pending.close()


LOST_UNKNOWN = "NOT_CONTROLLER at 104: unknown"
LOST_NOTHING = "NOT_CONTROLLER at -1: nothing written"
LATE_UNKNOWN = "REQUEST_TIMED_OUT at 104: unknown"
LATE_NOTHING = "REQUEST_TIMED_OUT at -1: nothing written"
NO_SUCH_EVENT = "no such event"
NOTHING: dict[str, str] = {}

# What happens to an operation: its answer, or the name of its next state. An event that is not named changes nothing.
TABLE: dict[str, dict[str, str]] = {
    "pages": {
        "pages_appended": "COMMIT",
        "pages_applied": "success at -1",
        "pages_failed": "STALE_BROKER_EPOCH at -1: as the test says",
        "leadership_lost": "NOT_CONTROLLER at 0: unknown",
        "time_out": "REQUEST_TIMED_OUT at 0: unknown",
        "close": "NOT_CONTROLLER at 0: unknown",
    },
    "more_pages": {
        "pages_appended": "COMMIT",
        "pages_applied": "success at 104",
        "pages_failed": "STALE_BROKER_EPOCH at 104: as the test says",
        "leadership_lost": LOST_UNKNOWN,
        "time_out": LATE_UNKNOWN,
        "close": LOST_UNKNOWN,
    },
    "commit": {
        "committed": "STATE_MACHINE",
        "uncertain": LOST_UNKNOWN,
        "leadership_lost": LOST_UNKNOWN,
        "time_out": LATE_UNKNOWN,
        "close": LOST_UNKNOWN,
    },
    "commit_of_others": {
        "committed": "STATE_MACHINE",
        "uncertain": LOST_NOTHING,
        "leadership_lost": LOST_NOTHING,
        "time_out": LATE_NOTHING,
        "close": LOST_NOTHING,
    },
    "state_machine": {
        "committed": NO_SUCH_EVENT,
        "uncertain": NO_SUCH_EVENT,
        "in_hand": "success at 104",
        "time_out": "REQUEST_TIMED_OUT at 104: committed",
        "close": "NOT_CONTROLLER at 104: committed",
    },
    "state_machine_of_others": {
        "committed": NO_SUCH_EVENT,
        "uncertain": NO_SUCH_EVENT,
        "in_hand": "success at -1",
        "time_out": LATE_NOTHING,
        "close": LOST_NOTHING,
    },
    "late_before_commit": NOTHING,
    "late_before_applied": {"committed": NO_SUCH_EVENT, "uncertain": NO_SUCH_EVENT},
    "late_in_pages": NOTHING,
}
EVENTS = [
    "committed",
    "uncertain",
    "less_in_hand",
    "in_hand",
    "pages_appended",
    "pages_applied",
    "pages_failed",
    "leadership_lost",
    "time_out",
    "close",
]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", TABLE)
def test_every_state_with_every_event(state: str, event: str) -> None:
    case = Case()
    getattr(case, state)()
    before = case.operation.state
    if TABLE[state].get(event) == NO_SUCH_EVENT:
        with pytest.raises(InvariantViolation, match="an append is settled once"):
            getattr(case, event)()
        return
    getattr(case, event)()
    found = [say(result) for result in case.desk.answers] or [case.operation.state.name]
    assert found == [TABLE[state].get(event, before.name)]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", TABLE)
def test_after_any_event_all_others_answer_once_more_at_most_and_the_close_forgets_everything(
    state: str, event: str
) -> None:
    """Two events after one another, whatever they are, give one answer."""
    for second in EVENTS:
        case = Case()
        getattr(case, state)()
        is_late = case.operation.state is OperationState.ANSWERED
        for name in (event, second):
            with_no_such_event(getattr(case, name))
        case.desk.pending.close()
        assert len(case.desk.answers) == (0 if is_late else 1), second
        assert len(case.desk.pending) == 0
        case.desk.runtime.advance(10_000)
        assert len(case.desk.answers) == (0 if is_late else 1), second


def with_no_such_event(event: Callable[[], None]) -> None:
    """Cause it, unless it cannot be."""
    try:
        event()
    except InvariantViolation as violation:
        assert "an append is settled once" in str(violation)


# --- what an operation depends on when it comes -----------------------------------------------------------------------


def test_ct11_an_answer_that_rests_on_what_is_applied_comes_at_once() -> None:
    desk = Desk()
    desk.machine.applied_end_offset = Offset(100)
    desk.pending.add(desk.operation(), None)
    assert [(say(result), result.state_end_offset) for result in desk.answers] == [("success at -1", 100)]


def test_ct11_an_answer_that_rests_on_a_settled_append_waits_for_the_state_machine_or_for_nothing() -> None:
    desk = Desk()
    committed, uncertain = PreparedAppend(Offset(10)), PreparedAppend(Offset(12))
    desk.pending.append_settled(committed, None)
    desk.waiting(committed, writes=False)
    assert desk.answers == []
    desk.pending.append_settled(uncertain, LOST)
    desk.waiting(uncertain, writes=False)
    assert [say(result) for result in desk.answers] == [LOST_NOTHING]
    desk.machine.applied_end_offset = Offset(10)
    desk.waiting(committed, writes=False)
    assert [say(result) for result in desk.answers[1:]] == ["success at -1"] * 2
    assert len(desk.pending) == 0


def test_a_commit_that_is_known_after_it_is_applied_is_answered_at_once() -> None:
    desk = Desk()
    append = PreparedAppend(Offset(10))
    desk.waiting(append)
    desk.machine.applied_end_offset = Offset(10)
    assert not desk.pending.in_hand(Offset(10))
    assert desk.answers == []
    desk.pending.append_settled(append, None)
    assert [say(result) for result in desk.answers] == ["success at 10"]


# --- several ----------------------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_the_log() -> None:
    desk = Desk()
    appends = [PreparedAppend(Offset(end_offset)) for end_offset in (101, 102, 103)]
    for append in appends:
        desk.waiting(append)
        desk.waiting(append, writes=False)
    for append in appends:
        desk.pending.append_settled(append, None)
    assert desk.pending.in_hand(Offset(102))
    assert [result.correlation_id for result in desk.answers] == [1, 2, 3, 4]
    assert desk.pending.in_hand(Offset(103))
    assert [result.correlation_id for result in desk.answers] == [1, 2, 3, 4, 5, 6]


def test_what_another_leader_commits_at_the_same_offsets_is_no_success() -> None:
    """Consider a high watermark of epoch 6 that is above an append of epoch 5 whose failure is not known yet."""
    desk = Desk()
    append = PreparedAppend(Offset(104))
    desk.waiting(append)
    desk.machine.applied_end_offset = Offset(200)
    assert not desk.pending.in_hand(Offset(200))
    desk.pending.append_settled(append, LOST)
    assert [say(result) for result in desk.answers] == [LOST_UNKNOWN]


def test_the_worked_example_of_a_lost_leadership() -> None:
    """The comment above `Controller.renounce`: A, B, C and D are in flight when node 2 is elected."""
    desk = Desk()
    first, second = PreparedAppend(Offset(102)), PreparedAppend(Offset(104))
    desk.waiting(first)
    desk.pending.append_settled(first, None)
    desk.waiting(second)
    desk.waiting(second, writes=False)
    paged = desk.operation()
    desk.pending.add_paged(paged)
    paged.result.end_offset = 304
    desk.pending.leadership_lost()
    assert [(result.correlation_id, say(result)) for result in desk.answers] == [
        (2, "NOT_CONTROLLER at 104: unknown"),
        (3, "NOT_CONTROLLER at -1: nothing written"),
        (4, "NOT_CONTROLLER at 304: unknown"),
    ]
    assert all(result.current_leader.leader_id == 2 for result in desk.answers)
    assert desk.pending.in_hand(Offset(102))
    assert [say(result) for result in desk.answers[3:]] == ["success at 102"]
    desk.pending.append_settled(second, LOST)
    assert len(desk.answers) == 4 and len(desk.pending) == 0


def test_those_that_have_timed_out_count_until_the_log_has_settled_them() -> None:
    desk = Desk()
    append = PreparedAppend(Offset(10))
    desk.waiting(append)
    desk.runtime.advance(1_000)
    assert len(desk.pending) == 1
    desk.pending.append_settled(append, None)
    assert len(desk.pending) == 0


def test_each_times_out_at_its_own_time_and_the_timer_ends_with_the_last() -> None:
    desk = Desk()
    append = PreparedAppend(Offset(10))
    for timeout_ms in (300, 100, 200):
        operation = desk.operation(10, timeout_ms)
        desk.pending.add(operation, append)
    for expected in ([2], [2, 3], [2, 3, 1]):
        desk.runtime.advance(100)
        assert [result.correlation_id for result in desk.answers] == expected
    assert [timer for timer in desk.runtime.timers if not timer.is_cancelled] == []


def test_why_a_committed_operation_is_not_applied_is_in_the_answer() -> None:
    desk = Desk()
    append = PreparedAppend(Offset(10))
    desk.waiting(append)
    desk.pending.append_settled(append, None)
    desk.machine.unavailable_reason = "the database is locked"
    desk.runtime.advance(1_000)
    assert desk.answers[0].error_message == (
        "not done in time; it is committed, but not applied here yet (the database is locked): do not try again"
    )


def test_whoever_appended_is_told_once_it_is_settled() -> None:
    desk = Desk()
    told: list[str] = []
    append = PreparedAppend(Offset(10))
    append.on_settled = lambda: told.append(append.outcome.value)
    desk.pending.append_settled(append, LOST)
    assert told == ["uncertain"]
