"""Pending operations with events in any order: one answer each, none too early, in the order of the log (CT-10).

The model knows for each operation which append it depends on, what the log said of that append, and what the state
machine said that it has. It knows no queues and no states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.controller.pending_operations import PendingOperation, PreparedAppend
from kraftpb.v1.admin_pb2 import OperationResult
from tests.effort import examples
from tests.kraftlog.controller.pending_desk import LOST, Desk

TIMEOUTS = st.sampled_from([10.0, 25.0, 1_000.0])


@dataclass(eq=False)
class Appended:
    """An append, as the test's log has it."""

    append: PreparedAppend
    said: str = "nothing"
    """Or "committed", or "uncertain"."""


@dataclass(eq=False)
class Asked:
    """An operation, as its caller sees it."""

    operation: PendingOperation
    rests_on: Appended | None = None
    """None: on what is applied, or its pages are to come."""
    is_paged: bool = False
    is_in_hand: bool = False
    """The state machine said so when the commit was known, or later."""
    has_failed: bool = False
    answers: list[OperationResult] = field(default_factory=list)


class Life(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        self.desk = Desk()
        self.desk.on_answer = self._answered
        self.asked: dict[int, Asked] = {}
        self.in_flight: list[Appended] = []
        """Not settled, in the order of the log."""
        self.log_end = Offset(0)
        self.committed_end = Offset(0)
        self.last: Appended | None = None
        """As `Controller.last_append`."""
        self.succeeded_to = Offset(0)
        self.is_leading, self.is_open = True, True

    # --- the controller -----------------------------------------------------------------------------------------------

    def _append(self, records: int) -> Appended:
        self.log_end = Offset(self.log_end + records)
        self.last = Appended(PreparedAppend(self.log_end))
        self.in_flight.append(self.last)
        return self.last

    def _note(self, operation: PendingOperation, **what: Any) -> Asked:
        return self.asked.setdefault(operation.result.correlation_id, Asked(operation, **what))

    def _add(self, asked: Asked) -> None:
        asked.rests_on = self.last
        asked.is_in_hand = self.last is None or self._is_applied(self.last)

    def _is_applied(self, appended: Appended) -> bool:
        return appended.said == "committed" and appended.append.end_offset <= self.desk.machine.applied_end_offset

    @precondition(lambda self: self.is_leading)
    @rule(records=st.integers(0, 3), timeout_ms=TIMEOUTS)
    def submit(self, records: int, timeout_ms: float) -> None:
        """An operation that writes some records, or none."""
        if records:
            self._append(records)
        operation = self.desk.operation(self.log_end if records else -1, timeout_ms)
        self._add(self._note(operation))
        self.desk.pending.add(operation, None if self.last is None else self.last.append)

    @precondition(lambda self: self.is_leading)
    @rule(timeout_ms=TIMEOUTS)
    def submit_paged(self, timeout_ms: float) -> None:
        operation = self.desk.operation(-1, timeout_ms)
        self._note(operation, is_paged=True)
        self.desk.pending.add_paged(operation)

    def _paged(self) -> list[Asked]:
        return [asked for asked in self.asked.values() if asked.is_paged]

    @precondition(lambda self: self.is_leading and self._paged())
    @rule(data=st.data(), records=st.integers(1, 3))
    def page(self, data: st.DataObject, records: int) -> None:
        asked = data.draw(st.sampled_from(self._paged()))
        asked.operation.result.end_offset = self._append(records).append.end_offset

    @precondition(lambda self: self.is_leading and self._paged())
    @rule(data=st.data(), is_refused=st.booleans())
    def pages_end(self, data: st.DataObject, is_refused: bool) -> None:
        asked = data.draw(st.sampled_from(self._paged()))
        asked.is_paged = False
        if is_refused:
            asked.has_failed = True
            self.desk.pending.pages_failed(asked.operation, ApiError(ErrorCode.STALE_BROKER_EPOCH, "refused"))
        else:
            self._add(asked)
            self.desk.pending.pages_appended(asked.operation, None if self.last is None else self.last.append)

    # --- the log and the state machine --------------------------------------------------------------------------------

    def _settle(self, appended: Appended, said: str) -> None:
        appended.said = said
        for asked in self.asked.values():
            asked.is_in_hand |= asked.rests_on is appended and self._is_applied(appended)
        self.desk.pending.append_settled(appended.append, None if said == "committed" else LOST)

    @precondition(lambda self: self.is_leading and self.in_flight)
    @rule(count=st.integers(1, 3), is_applied_first=st.booleans())
    def commit(self, count: int, is_applied_first: bool) -> None:
        for appended in self.in_flight[:count]:
            self.in_flight.remove(appended)
            self.committed_end = appended.append.end_offset
            if is_applied_first:
                self._reach(self.committed_end, is_applied=True)
            self._settle(appended, "committed")

    @rule(is_applied=st.booleans(), share=st.floats(0, 1))
    def in_hand(self, is_applied: bool, share: float) -> None:
        """The state machine has in hand, or has applied, more of what is committed; or the same again."""
        applied = self.desk.machine.applied_end_offset
        self._reach(Offset(applied + round(share * (self.committed_end - applied))), is_applied=is_applied)

    @rule()
    def nothing_is_in_flight(self) -> None:
        """The controller notices that everything is applied, maybe some time after it is."""
        if self.last is not None and self._is_applied(self.last):
            self.last = None

    def _reach(self, end_offset: Offset, *, is_applied: bool) -> None:
        if is_applied:
            self.desk.machine.applied_end_offset = end_offset
        for asked in self.asked.values():
            rests_on = asked.rests_on
            if rests_on is not None and rests_on.said == "committed" and rests_on.append.end_offset <= end_offset:
                asked.is_in_hand = True
        before = sum(len(asked.answers) for asked in self.asked.values())
        has_answered = self.desk.pending.in_hand(end_offset)
        assert has_answered == (sum(len(asked.answers) for asked in self.asked.values()) > before)

    @precondition(lambda self: self.is_leading)
    @rule(
        is_told_first=st.booleans(), is_applied_first=st.booleans(), others=st.integers(0, 9), leads_again=st.booleans()
    )
    def lose_leadership(self, is_told_first: bool, is_applied_first: bool, others: int, leads_again: bool) -> None:
        """The log settles what is in flight and the controller learns of the new leader, in either order."""
        lost, self.in_flight = self.in_flight, []
        self.is_leading, self.last = False, None
        # Another leader writes at the same offsets, and this node may apply that before anything else here happens.
        self.committed_end = Offset(self.committed_end + others)
        if is_applied_first:
            self._reach(self.committed_end, is_applied=True)
        if is_told_first:
            self._leadership_lost()
        for appended in lost:
            self._settle(appended, "uncertain")
        if not is_told_first:
            self._leadership_lost()
        self.log_end = self.committed_end
        self.is_leading = leads_again

    def _leadership_lost(self) -> None:
        for asked in self.asked.values():
            is_committed = asked.rests_on is not None and asked.rests_on.said == "committed"
            if not asked.answers and not is_committed:
                asked.has_failed = True
            asked.is_paged = False
        self.desk.pending.leadership_lost()

    @precondition(lambda self: not self.is_leading and self.is_open)
    @rule()
    def lead_again(self) -> None:
        self.is_leading = True

    # --- time, and the end --------------------------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([5.0, 10.0, 1_000.0]))
    def wait(self, milliseconds: float) -> None:
        self.desk.runtime.advance(milliseconds)

    @precondition(lambda self: self.is_open)
    @rule()
    def close(self) -> None:
        self.is_leading = self.is_open = False
        for asked in self.asked.values():
            asked.has_failed |= not asked.answers
        self.desk.pending.close()

    # --- what holds ---------------------------------------------------------------------------------------------------

    def _answered(self, result: OperationResult) -> None:
        asked = self.asked[result.correlation_id]
        asked.answers.append(result)
        assert len(asked.answers) == 1, "one answer"
        if result.error_code:
            return
        assert asked.is_in_hand and not asked.has_failed, "success only of what is committed and in hand"
        if asked.rests_on is not None:
            assert asked.rests_on.said == "committed", "a later leader's offsets commit nothing of this one's"
            assert asked.rests_on.append.end_offset >= self.succeeded_to, "success comes in the order of the log"
            self.succeeded_to = asked.rests_on.append.end_offset

    @invariant()
    def nobody_waits_for_what_is_known(self) -> None:
        now_ms = self.desk.runtime.now_ms()
        for asked in self.asked.values():
            is_uncertain = asked.rests_on is not None and asked.rests_on.said == "uncertain"
            is_late = asked.operation.deadline_ms <= now_ms
            is_known = is_late or is_uncertain or asked.is_in_hand or asked.has_failed
            assert bool(asked.answers) == is_known, asked

    @invariant()
    def those_that_wait_are_counted(self) -> None:
        waiting = sum(not asked.answers for asked in self.asked.values())
        assert waiting <= len(self.desk.pending) <= len(self.asked)

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        for asked in self.asked.values():
            asked.has_failed |= not asked.answers
        self.desk.pending.close()
        assert [len(asked.answers) for asked in self.asked.values()] == [1] * len(self.asked)
        assert len(self.desk.pending) == 0


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
