"""The order in which a shell notifies listeners, clients and replicas of a commit."""

from __future__ import annotations

from kraftbase.types import Epoch, Offset
from raft.core.events import RequestReceived, ResponseReceived, ShutdownRequested
from raft.core.messages import FetchRequest
from raft.core.types import Batch
from raft.storage.batch import encode_batch, encode_body
from tests.raft.core.builders import begin_quorum_epoch, fetch_response
from tests.raft.shell.voter_shell import CLUSTER_ID, OBSERVER, VOTERS, LeadingShell, VoterShell

SLOW_DISK_MS = 5.0
"""With a mean flush as long as this, flushes go to the disk's thread."""


def waiting_for_fetches() -> LeadingShell:
    """All of the log is committed, and every replica's fetch is parked."""
    leader = LeadingShell()
    leader.acknowledge(2, 3)
    leader.ask(OBSERVER)
    leader.runtime.run()
    assert leader.happened == []
    return leader


def test_the_listener_has_its_turn_before_fetches_are_answered() -> None:
    leader = waiting_for_fetches()
    leader.append()
    leader.runtime.run()
    assert sorted(leader.happened) == ["fetch of 2", "fetch of 3"]
    leader.happened.clear()
    leader.acknowledge(2)
    assert leader.happened == ["settled", "listener woken"]
    leader.runtime.run()
    assert leader.happened == ["settled", "listener woken", "listener", "fetch of 9", "fetch of 2"]


def test_another_voters_fetch_in_the_same_turn_waits_too() -> None:
    leader = waiting_for_fetches()
    leader.append()
    leader.runtime.run()
    leader.happened.clear()
    leader.acknowledge(2, 3)
    leader.runtime.run()
    assert leader.happened == ["settled", "listener woken", "listener", "fetch of 9", "fetch of 2", "fetch of 3"]


def test_fetches_are_answered_at_once_when_there_is_more_to_append() -> None:
    leader = waiting_for_fetches()
    leader.append()
    leader.runtime.run()
    leader.happened.clear()
    leader.append()
    leader.acknowledge(2)
    assert leader.happened == ["settled", "fetch of 9", "fetch of 2", "listener woken"]


def test_voters_are_answered_before_the_leaders_own_flush_is_asked_for() -> None:
    leader = waiting_for_fetches()
    leader.append()
    leader.turns(1)  # it is written
    assert leader.happened == ["fetch of 2", "fetch of 3"]
    assert leader.ready_at_replies == [0, 0]


def test_fetches_that_wait_for_the_listener_are_answered_when_something_is_appended() -> None:
    leader = waiting_for_fetches()
    leader.append()
    leader.runtime.run()
    leader.happened.clear()
    leader.acknowledge(2)
    assert leader.happened == ["settled", "listener woken"]
    leader.append()
    assert leader.happened == ["settled", "listener woken", "fetch of 9", "fetch of 2"]


def test_a_step_that_commits_and_appends_holds_no_answer_back() -> None:
    leader = waiting_for_fetches()
    leader.shell.flusher.recent_flush_ms = SLOW_DISK_MS
    leader.append()
    leader.turns(2)  # it is written, and its flush is in the disk's thread
    leader.happened.clear()
    leader.acknowledge(2)
    assert leader.happened == []
    leader.append()
    leader.turns(1)
    leader.runtime.run_disk_work()  # now both: the first is committed, the second is written
    assert leader.happened == ["settled", "fetch of 9", "fetch of 2", "listener woken"]


def test_what_is_committed_before_it_is_on_the_leaders_disk_holds_no_answer_back() -> None:
    leader = waiting_for_fetches()
    leader.shell.flusher.recent_flush_ms = SLOW_DISK_MS
    leader.append()
    leader.turns(2)
    leader.happened.clear()
    leader.acknowledge(2, 3)  # the listener is notified when the flush is done
    assert leader.happened == ["settled", "fetch of 9", "fetch of 2", "fetch of 3"]


def test_a_flush_that_tells_listeners_what_was_committed_before_holds_no_later_answer_back() -> None:
    leader = waiting_for_fetches()
    leader.shell.flusher.recent_flush_ms = SLOW_DISK_MS
    leader.append()
    leader.turns(2)
    leader.acknowledge(2, 3)  # committed by the two others, but not on this disk yet
    leader.runtime.run()
    assert "listener" in leader.happened
    leader.happened.clear()
    leader.ask(OBSERVER, Offset(0))
    assert leader.happened == ["fetch of 9"]


def test_a_shell_that_is_closed_answers_nothing_more() -> None:
    leader = waiting_for_fetches()
    leader.append()
    leader.runtime.run()
    leader.acknowledge(2)
    leader.happened.clear()
    leader.shell.close()
    leader.runtime.run()
    assert leader.happened == ["listener"]


def test_a_shutdown_is_complete_when_answers_that_wait_have_left() -> None:
    leader = LeadingShell(voter_count=1)
    leader.ask(OBSERVER)
    leader.append()
    leader.turns(2)  # it is written and committed
    assert leader.happened == ["settled", "listener woken"]
    leader.shell.step(ShutdownRequested())
    assert leader.happened == ["settled", "listener woken"]
    leader.runtime.run()
    assert leader.happened == ["settled", "listener woken", "listener", "fetch of 9", "shutdown complete"]


def test_a_followers_next_fetch_is_on_its_way_before_its_listener_is_woken() -> None:
    follower = VoterShell()
    leader = VOTERS.voters()[1]
    own_key = VOTERS.voters()[0].key
    request = begin_quorum_epoch(
        2, 1, cluster_id=CLUSTER_ID, voter_key=own_key, leader_directory_id=leader.key.directory_id
    )
    follower.shell.step(RequestReceived(follower.shell.new_id(), request))
    follower.runtime.run()

    def answer(*records: Batch, high_watermark: int) -> None:
        fetch_sent = follower.sent[-1]
        assert isinstance(fetch_sent.request, FetchRequest)
        response = fetch_response(2, 1, *records, high_watermark=high_watermark, leader_endpoint=leader.endpoint)
        follower.shell.outcome(ResponseReceived(fetch_sent.correlation_id, response))

    answer(encode_batch(Offset(0), Epoch(1), encode_body([b"x"]), 1, 0), high_watermark=0)
    follower.runtime.run()
    follower.happened.clear()
    answer(high_watermark=1)
    assert follower.happened == ["sends FetchRequest", "listener woken"]
