"""Two logs of one history become equal by fetching and truncating, and nothing that they share is lost (RF-50, RF-51).

Leader and follower are real replicas; only the bytes of the leader's log are the test's. Every batch holds the records
of one epoch, and the logs are such as elections leave them: what follows the common part has no epoch in common,
because an epoch has one leader and that leader's log has one history.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.types import Offset
from raft.core.actions import Action, AppendBatches, LogRange, TruncateLog
from raft.core.messages import FetchResponse
from raft.core.types import Batch
from tests.effort import examples
from tests.raft.core.builders import Harness, batch, election_state, endpoint, leader_and_epoch, of_type, replica
from tests.raft.core.fetching import the_fetch

LEADER_ID, FOLLOWER_ID = 2, 1


@dataclass
class Histories:
    """Batches as (epoch, record count): the common beginning of both logs, and the rest of each."""

    common: list[tuple[int, int]]
    leader_rest: list[tuple[int, int]]
    follower_rest: list[tuple[int, int]]


@st.composite
def histories(draw: st.DrawFn) -> Histories:
    runs: dict[str, list[tuple[int, int]]] = {"common": [], "leader": [], "follower": []}
    for epoch in range(1, 3 + draw(st.integers(0, 5))):
        # Once the logs have diverged they stay so; an epoch then belongs to only one of them, or to neither.
        parted = bool(runs["leader"] or runs["follower"])
        owners = ["leader", "follower"] if parted else ["common", "leader", "follower"]
        owner = draw(st.sampled_from(owners))
        for record_count in draw(st.lists(st.integers(1, 4), max_size=3)):
            runs[owner].append((epoch, record_count))
        if owner == "common" and draw(st.booleans()):
            # One of the two missed or never got the rest of the common epoch.
            side = draw(st.sampled_from(["leader", "follower"]))
            runs[side] += [(epoch, record_count) for record_count in draw(st.lists(st.integers(1, 4), max_size=2))]
    return Histories(runs["common"], runs["leader"], runs["follower"])


def batches_of(log: list[tuple[int, int]], start_offset: int = 0) -> list[Batch]:
    made: list[Batch] = []
    for epoch, record_count in log:
        made.append(batch(start_offset, record_count, epoch))
        start_offset = made[-1].end_offset
    return made


class Pair:
    """A leader and a follower of three voters; the follower's actions are applied to `follower_log`."""

    def __init__(self, given: Histories) -> None:
        leader_log, follower_log = given.common + given.leader_rest, given.common + given.follower_rest
        newest = max((epoch for epoch, _ in leader_log + follower_log), default=0)
        self.leader = replica(LEADER_ID, log=leader_log, election_state=election_state(newest)).make_leader()
        self.leader_log = batches_of([*leader_log, (self.leader.epoch, 1)])
        self.follower = replica(FOLLOWER_ID, log=follower_log)
        self.follower_log = batches_of(follower_log)
        self.cut_at: list[int] = []

    def converge(self, fetches_max: int) -> int:
        """Carry fetches and answers until the follower has the leader's records; return how many that took."""
        self.follower.sent.clear()
        self.follower.make_follower(LEADER_ID, self.leader.epoch)
        for fetches in range(1, fetches_max + 1):
            send = the_fetch(self.follower)
            response = self.leader.ask(send.request)
            if response is None:
                return fetches  # parked: there is nothing new
            self.execute(self.follower.answer(send, self.with_batches(response, self.leader.reads)))
        raise AssertionError("the logs do not converge")

    def with_batches(self, response: FetchResponse, reads: object) -> FetchResponse:
        """The batches that arrive at the follower: one or two where the leader named a range."""
        records: tuple[Batch, ...] = ()
        if isinstance(reads, LogRange):
            start_offset = reads.start_offset
            assert any(start_offset == one.base_offset for one in self.leader_log), "batches are sent whole"
            records = tuple(one for one in self.leader_log if one.base_offset >= start_offset)[:2]
        return FetchResponse(
            leader=leader_and_epoch(LEADER_ID, self.leader.epoch),
            leader_endpoint=endpoint(LEADER_ID),
            high_watermark=response.high_watermark,
            log_start_offset=response.log_start_offset,
            diverging_epoch=response.diverging_epoch,
            records=records,
        )

    def execute(self, actions: list[Action]) -> None:
        for action in [*actions, *self.follower.flush()]:
            match action:
                case TruncateLog(end_offset):
                    self.cut_at.append(end_offset)
                    self.follower_log = [one for one in self.follower_log if one.end_offset <= end_offset]
                    assert (self.follower_log[-1].end_offset if self.follower_log else 0) == end_offset
                case AppendBatches(batches):
                    self.follower_log += batches


def log_end(harness: Harness) -> tuple[int, list[tuple[int, int]]]:
    return harness.replica.log_end_offset, [(e, o) for e, o in harness.replica_state.log.epochs.entries()]


@settings(max_examples=examples(300), deadline=None)
@given(histories())
def test_rf51_a_follower_ends_up_with_its_leaders_log_and_loses_nothing_common(given_histories: Histories) -> None:
    common_end = sum(record_count for _, record_count in given_histories.common)
    pair = Pair(given_histories)
    # Their common records may be committed: if they were truncated, the follower would raise.
    pair.follower.replica_state.high_watermark = Offset(common_end)
    pair.converge(fetches_max=2 * len(pair.leader_log) + len(pair.follower_log) + 2)
    assert pair.follower_log == pair.leader_log
    assert log_end(pair.follower) == log_end(pair.leader)
    assert all(point >= common_end for point in pair.cut_at)
    assert pair.cut_at == sorted(set(pair.cut_at), reverse=True)


@given(histories())
def test_rf51_each_truncation_passes_at_least_one_epoch(given_histories: Histories) -> None:
    pair = Pair(given_histories)
    pair.converge(fetches_max=100)
    assert len(pair.cut_at) <= len({epoch for epoch, _ in given_histories.follower_rest})


def test_rf51_logs_that_part_twice_within_the_same_epochs_converge() -> None:
    pair = Pair(Histories([(1, 3)], [(1, 2), (3, 2), (5, 1)], [(2, 4), (4, 3)]))
    pair.converge(fetches_max=20)
    assert pair.cut_at == [7, 3]
    assert pair.follower_log == pair.leader_log
    assert len(of_type(TruncateLog, pair.follower.flush())) == 0
