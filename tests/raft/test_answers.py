"""How answers leave a replica's shell: at once, or after the listeners' turn while all is committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from raft.answers import Answers
from raft.core.actions import Reply
from raft.core.messages import LogRange, Response, VoteResponse
from raft.core.types import LeaderAndEpoch, NodeId, Offset
from tests.raft.by_hand import HandRuntime
from tests.raft.core.builders import fetch_response

RECORDS = b"encoded batches"


class FakeLog:
    """A log that has `RECORDS` at offset 7."""

    def read(self, start_offset: Offset, max_bytes: int) -> bytes:
        assert (start_offset, max_bytes) == (7, 100)
        return RECORDS


@dataclass
class Stage:
    """Answers on a runtime that is moved by hand; what left, and what else happened, in order."""

    runtime: HandRuntime = field(default_factory=HandRuntime)
    happened: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers = Answers(
            cast(Any, FakeLog()),
            cast(Any, None),
            tuple,
            self.runtime,
            cast(Any, self),
            on_handed_over=lambda: self.happened.append("handed over"),
        )

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        self.happened.append((request_id, records))

    def listeners(self) -> None:
        """Their turn comes with the next turn of the loop."""
        self.runtime.call_soon(lambda: self.happened.append("listeners"))


def fetch_reply(request_id: int, *, with_records: bool = False) -> Reply:
    response = fetch_response(1, 1, high_watermark=7)
    records = LogRange(start_offset=Offset(7), max_bytes=100)
    return Reply(request_id, fetch_response(1, 1, high_watermark=7, records=records) if with_records else response)


def test_an_answer_to_a_fetch_leaves_at_once_while_something_is_not_committed() -> None:
    stage = Stage()
    stage.answers.give(fetch_reply(1, with_records=True), is_all_committed=False)
    assert stage.happened == [(1, RECORDS)]
    assert not stage.answers.are_waiting
    stage.answers.release(listeners_are_woken=True)
    assert not stage.runtime.soon


def test_answers_to_fetches_leave_in_their_order_after_the_listeners_turn_while_all_is_committed() -> None:
    stage = Stage()
    stage.answers.give(fetch_reply(1, with_records=True), is_all_committed=True)
    stage.answers.give(fetch_reply(2), is_all_committed=True)
    stage.listeners()
    stage.answers.release(listeners_are_woken=True)
    assert stage.answers.are_waiting
    assert stage.happened == []
    stage.runtime.run()
    assert stage.happened == ["listeners", (1, RECORDS), (2, b""), "handed over"]
    assert not stage.answers.are_waiting


def test_answers_to_fetches_wait_for_no_turn_of_listeners_that_have_nothing_new() -> None:
    stage = Stage()
    stage.answers.give(fetch_reply(1), is_all_committed=True)
    assert stage.happened == []
    stage.answers.release(listeners_are_woken=False)
    assert stage.happened == [(1, b""), "handed over"]


def test_another_answer_gives_way_to_nobody() -> None:
    stage = Stage()
    response = VoteResponse(leader=LeaderAndEpoch(NodeId(1), fetch_response(1, 1).leader.epoch), vote_granted=True)
    stage.answers.give(Reply(1, response), is_all_committed=True)
    assert stage.happened == [(1, b"")]


@pytest.mark.parametrize("is_released", [False, True])
def test_nothing_leaves_once_they_are_closed(is_released: bool) -> None:
    stage = Stage()
    stage.answers.give(fetch_reply(1), is_all_committed=True)
    if is_released:
        stage.answers.release(listeners_are_woken=True)
    stage.answers.close()
    stage.runtime.run()
    assert stage.happened == []
