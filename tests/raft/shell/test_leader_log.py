"""What a node logs about leaders."""

from __future__ import annotations

from structlog.testing import capture_logs

from raft.shell.leader_log import FOUND, LOST, LeaderLog


def test_the_loss_of_the_leader_and_its_return_are_each_said_once() -> None:
    log = LeaderLog()
    with capture_logs() as lines:
        for leader_id, epoch in ((None, 0), (None, 1), (2, 1), (None, 2), (None, 3), (3, 3), (3, 4), (None, 5)):
            log.note(leader_id, epoch, "follower")
    told = [(line["event"], line["epoch"]) for line in lines if line["log_level"] == "warning"]
    assert told == [(LOST, 2), (FOUND, 3), (LOST, 5)]
    assert len([line for line in lines if line["log_level"] == "info"]) == 8
