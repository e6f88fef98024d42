"""A follower without room drops the records of its leader's answer, and logs it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kraftbase.files.memory import MemoryFileSystem
from raft.core.events import ResponseReceived
from raft.shell.full_disk import without_records
from raft.shell.log_writer import LogWriter
from tests.raft.by_hand import HandRuntime
from tests.raft.core.builders import batch, fetch_response, leader_and_epoch
from tests.raft.storage.builders import data_batch, open_accepting


def test_what_there_is_no_room_for_is_dropped_and_the_rest_of_the_answer_stays() -> None:
    answer = fetch_response(2, 5, batch(10, 3, 5), high_watermark=9)
    dropped = without_records(ResponseReceived(7, answer))
    assert dropped == ResponseReceived(7, fetch_response(2, 5, high_watermark=9), is_without_room=True)
    assert dropped.response.leader == leader_and_epoch(2, 5)


def test_a_follower_says_once_that_there_is_no_room_and_once_that_there_is() -> None:
    files = MemoryFileSystem()
    writer = LogWriter(open_accepting(files), HandRuntime(), on_fatal=pytest.fail)
    large = [data_batch(0, size=5_000)]
    with capture_logs() as said:
        files.space_limit = files.used_bytes()
        assert [writer.has_room(large) for _ in range(20)] == [False] * 20
        files.space_limit = None
        assert writer.has_room(large)
        assert writer.has_room(large)
    assert [(line["log_level"], line["event"][:19]) for line in said] == [
        ("error", "cannot follow the l"), ("info", "room to follow the ")
    ]  # fmt: skip
    assert "make room" in said[0]["event"]
