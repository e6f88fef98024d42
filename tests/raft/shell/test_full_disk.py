"""A follower without room drops the records of its leader's answer, and says so."""

from __future__ import annotations

from raft.core.events import ResponseReceived
from raft.shell.full_disk import without_records
from tests.raft.core.builders import batch, fetch_response, leader_and_epoch


def test_what_there_is_no_room_for_is_dropped_and_the_rest_of_the_answer_stays() -> None:
    answer = fetch_response(2, 5, batch(10, 3, 5), high_watermark=9)
    dropped = without_records(ResponseReceived(7, answer))
    assert dropped == ResponseReceived(7, fetch_response(2, 5, high_watermark=9), is_without_room=True)
    assert dropped.response.leader == leader_and_epoch(2, 5)
