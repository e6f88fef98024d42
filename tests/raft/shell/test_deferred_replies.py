"""How answers leave a replica's shell: at once, or after the listeners have run while all is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.actions import LogRange, Reply, SnapshotRange
from raft.core.messages import FetchSnapshotResponse, Response, VoteResponse
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch
from raft.shell.deferred_replies import DeferredReplies
from tests.raft.by_hand import HandRuntime
from tests.raft.core.builders import fetch_response

RECORDS = b"encoded batches"
Respond: TypeAlias = Callable[[ErrorCode, int, bytes], None]


class FakeLog:
    """A log that has `RECORDS` at offset 7."""

    def read(self, start_offset: Offset, max_bytes: int) -> bytes:
        assert (start_offset, max_bytes) == (7, 100)
        return RECORDS


@dataclass
class Stage:
    """Answers on a runtime that the test drives; sent answers and other events, in order."""

    runtime: HandRuntime = field(default_factory=HandRuntime)
    happened: list[object] = field(default_factory=list)
    fatal: list[BaseException] = field(default_factory=list)
    reads: list[Respond] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replies = DeferredReplies(
            cast(Any, FakeLog()),
            cast(Any, self),
            tuple,
            self.runtime,
            cast(Any, self),
            on_released=lambda: self.happened.append("handed over"),
            on_fatal=self.fatal.append,
        )

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        self.happened.append((request_id, records))

    def read(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int, respond: Respond) -> None:
        """As the node's snapshots do: the bytes arrive later."""
        self.reads.append(respond)

    def listeners(self) -> None:
        """They run with the next iteration of the loop."""
        self.runtime.call_soon(lambda: self.happened.append("listeners"))


def piece_of_a_snapshot(request_id: int) -> Reply:
    response = FetchSnapshotResponse(
        leader=LeaderAndEpoch(NodeId(1), Epoch(1)),
        snapshot_id=OffsetAndEpoch(offset=Offset(7), epoch=Epoch(1)),
    )
    return Reply(request_id, response, SnapshotRange(position=0, max_bytes=100))


def fetch_reply(request_id: int, *, with_records: bool = False) -> Reply:
    records = LogRange(start_offset=Offset(7), max_bytes=100)
    return Reply(request_id, fetch_response(1, 1, high_watermark=7), records if with_records else None)


def test_an_answer_to_a_fetch_does_not_wait_while_something_is_not_committed() -> None:
    stage = Stage()
    stage.replies.send(fetch_reply(1, with_records=True), may_defer=False)
    assert stage.happened == [(1, RECORDS)]
    assert not stage.replies.has_deferred
    stage.replies.release(may_defer=True, listeners_are_woken=True)
    assert not stage.runtime.soon


def test_answers_to_fetches_leave_in_their_order_after_the_listeners_turn_while_all_is_committed() -> None:
    stage = Stage()
    stage.replies.send(fetch_reply(1, with_records=True), may_defer=True)
    stage.replies.send(fetch_reply(2), may_defer=True)
    stage.listeners()
    stage.replies.release(may_defer=True, listeners_are_woken=True)
    assert stage.replies.has_deferred
    assert stage.happened == []
    stage.runtime.run()
    assert stage.happened == ["listeners", (1, RECORDS), (2, b""), "handed over"]
    assert not stage.replies.has_deferred


def test_answers_to_fetches_wait_for_no_turn_of_listeners_that_have_nothing_new() -> None:
    stage = Stage()
    stage.replies.send(fetch_reply(1), may_defer=True)
    assert stage.happened == []
    stage.replies.release(may_defer=True, listeners_are_woken=False)
    assert stage.happened == [(1, b"")]


def test_answers_that_wait_for_listeners_wait_on_while_something_else_happens() -> None:
    stage = Stage()
    stage.replies.send(fetch_reply(1), may_defer=True)
    stage.listeners()
    stage.replies.release(may_defer=True, listeners_are_woken=True)
    stage.replies.send(fetch_reply(2), may_defer=True)
    stage.replies.release(may_defer=True, listeners_are_woken=False)
    stage.replies.release(may_defer=True, listeners_are_woken=True)
    assert stage.happened == []
    stage.runtime.run()
    assert stage.happened == ["listeners", (1, b""), (2, b""), "handed over"]


def test_answers_that_wait_for_listeners_leave_at_once_when_there_is_something_to_commit() -> None:
    stage = Stage()
    stage.replies.send(fetch_reply(1), may_defer=True)
    stage.listeners()
    stage.replies.release(may_defer=True, listeners_are_woken=True)
    stage.replies.release(may_defer=False, listeners_are_woken=False)
    assert stage.happened == [(1, b"")]
    stage.replies.send(fetch_reply(2), may_defer=True)
    stage.replies.release(may_defer=False, listeners_are_woken=True)
    assert stage.happened == [(1, b""), (2, b"")]


def test_listeners_are_waited_for_again_when_there_is_more_for_them() -> None:
    stage = Stage()
    for request_id in (1, 2):
        stage.replies.send(fetch_reply(request_id), may_defer=True)
        stage.listeners()
        stage.replies.release(may_defer=True, listeners_are_woken=True)
        stage.runtime.run()
    assert stage.happened == ["listeners", (1, b""), "handed over", "listeners", (2, b""), "handed over"]


def test_an_answer_that_cannot_be_handed_over_is_fatal() -> None:
    stage = Stage()
    failure = RuntimeError("the host is broken")

    def fail(*answer: object) -> None:
        raise failure

    stage.reply = fail  # type: ignore[method-assign]
    stage.replies.send(fetch_reply(1), may_defer=True)
    stage.replies.release(may_defer=True, listeners_are_woken=True)
    stage.runtime.run()
    assert stage.fatal == [failure]


def test_another_answer_gives_way_to_nobody() -> None:
    stage = Stage()
    response = VoteResponse(leader=LeaderAndEpoch(NodeId(1), fetch_response(1, 1).leader.epoch), vote_granted=True)
    stage.replies.send(Reply(1, response), may_defer=True)
    assert stage.happened == [(1, b"")]


def test_no_piece_of_a_snapshot_leaves_once_they_are_closed() -> None:
    stage = Stage()
    for request_id in (1, 2):
        stage.replies.send(piece_of_a_snapshot(request_id), may_defer=True)
    first, second = stage.reads
    first(ErrorCode.NONE, 2, b"ab")
    stage.replies.close()
    second(ErrorCode.NONE, 2, b"ab")
    assert stage.happened == [(1, b"ab")]


@pytest.mark.parametrize("is_released", [False, True])
def test_nothing_leaves_once_they_are_closed(is_released: bool) -> None:
    stage = Stage()
    stage.replies.send(fetch_reply(1), may_defer=True)
    if is_released:
        stage.replies.release(may_defer=True, listeners_are_woken=True)
    stage.replies.close()
    stage.runtime.run()
    assert stage.happened == []


def test_a_step_that_closes_them_releases_nothing() -> None:
    """An action may end the process while it is carried out; then there is no host."""
    stage = Stage()
    stage.replies.send(fetch_reply(1), may_defer=True)
    stage.replies.close()
    stage.replies.release(may_defer=False, listeners_are_woken=False)
    assert stage.happened == []
