"""The pending appends of a node: each is settled once, and never while it is prepared."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from raft.shell.appends import PendingAppends
from tests.raft.by_hand import HandRuntime
from tests.raft.shell.voter_shell import LeadingShell

LOST = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "as the test says")


class Bench:
    """Pending appends, and their outcomes."""

    def __init__(self) -> None:
        self.runtime = HandRuntime()
        self.appends = PendingAppends(self.runtime.call_soon)
        self.settled: list[tuple[int, ErrorCode | None]] = []

    def note(self, append_id: int, error: ApiError | None) -> None:
        self.settled.append((append_id, None if error is None else error.code))

    def prepare(self, append_id: int) -> None:
        end = self.appends.prepare(append_id, lambda error: self.note(append_id, error), lambda: Offset(7))
        assert end == 7


def test_each_is_settled_once_and_at_once() -> None:
    bench = Bench()
    for append_id in (1, 2):
        bench.prepare(append_id)
    assert 1 in bench.appends and 3 not in bench.appends
    bench.appends.settle(1, None)
    assert bench.settled == [(1, None)]
    assert 1 not in bench.appends
    with pytest.raises(KeyError):
        bench.appends.settle(1, None)
    bench.appends.settle(2, LOST)
    assert bench.settled[1:] == [(2, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_an_append_that_is_refused_is_never_settled() -> None:
    bench = Bench()

    def refuse() -> Offset:
        raise LOST

    with pytest.raises(ApiError):
        bench.appends.prepare(1, lambda error: bench.note(1, error), refuse)
    assert 1 not in bench.appends
    bench.appends.fail_all("the node stops")
    assert bench.settled == []


def test_a_node_that_stops_settles_all_of_them_in_order() -> None:
    bench = Bench()
    for append_id in (1, 2, 3):
        bench.prepare(append_id)
    bench.appends.settle(2, None)
    bench.appends.fail_all("the node stops")
    assert bench.settled[1:] == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (3, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_an_append_that_fails_while_it_is_prepared_is_settled_afterwards() -> None:
    bench = Bench()
    bench.prepare(1)

    def prepare() -> Offset:
        bench.appends.settle(1, LOST)
        bench.appends.settle(2, LOST)
        assert [append_id for append_id, _ in bench.settled] == [1]
        return Offset(9)

    assert bench.appends.prepare(2, lambda error: bench.note(2, error), prepare) == 9
    assert len(bench.settled) == 1
    bench.runtime.run()
    assert len(bench.settled) == 2


def test_a_leader_whose_time_is_over_fails_the_append_that_it_prepares() -> None:
    """The case above, of a real replica: its timer has not fired yet, and no majority has fetched for too long."""
    leading = LeadingShell()
    appends = PendingAppends(leading.runtime.call_soon)
    leading.append_completed = appends.settle  # type: ignore[method-assign]
    settled: list[ErrorCode | None] = []
    shell, epoch = leading.shell, leading.shell.replica.leader_and_epoch.epoch
    deadline_ms = shell.replica.next_deadline_ms
    assert deadline_ms is not None
    leading.runtime.time_ms = 10 * deadline_ms
    appends.prepare(
        1,
        lambda error: settled.append(None if error is None else error.code),
        lambda: shell.prepare_append(1, epoch, b"body", 1),
    )
    assert not shell.replica.is_leader
    assert settled == []
    while leading.runtime.soon:
        leading.runtime.soon.popleft()()
    assert settled == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
