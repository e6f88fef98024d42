"""Known bugs are caught: those that are found soon here, all of them by `kraftlog sim zoo`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftbase.types import Offset
from kraftlog.sim.engine.mutation import MUTATIONS
from kraftlog.sim.zoo.catalogue import NAMES
from kraftlog.sim.zoo.hunt import hunt
from raft.core import high_watermark, vote_refusals
from raft.core.quorum import majority_end_offset

QUICK = [
    "a vote is not made durable",
    "a vote is given twice in an epoch",
    "less than a majority commits",
    "a follower acknowledges what it has not flushed",
    "a record is not applied on one node",
    "reads are answered without asking the quorum",
    "a flush does nothing",
    "a high watermark goes back",
    "retention by size does not look for a snapshot",
    "a snapshot gets its name before its bytes are synced",
    "a log starts over before its snapshot is durable",
    "a snapshot says that it holds one record more",
    "a follower's log starts further on than its leader's",
    "a loaded snapshot's digest is forgotten",
    "the leader epoch is not raised",
    "a fenced broker may come into an ISR",
    "an operation is answered before it is committed",
    "a finished copy is not entered in its epochs",
    "a changed row is not written, but the offset is",
    "a vote request of an unknown id is accepted",
    "a read does not wait for acknowledged records",
    "an operation that timed out is answered again",
    "publishers see an aborted transaction",
    "an append is acknowledged before its group commit",
    "records are deleted before the new start is written",
    "a flush forgets the segments before the last one",
    "a log ends where its index does",
    "batches are appended without a look at their records",
    "a follower counts before it has flushed",
    "a leader shrinks the ISR without the controller",
    "a heartbeat is sent before the log directories have noted the epoch",
    "a broker serves before it has applied its own registration",
]

FIRST_SEEDS = {
    "a follower's log starts further on than its leader's": 5,
    "a log ends where its index does": 3,
    "a fenced broker may come into an ISR": 3,
    "publishers see an aborted transaction": 1,
    "a record is not applied on one node": 2,
    "a log starts over before its snapshot is durable": 1,
    "a loaded snapshot's digest is forgotten": 1,
}
"""What these bugs were not caught by, when it was noted, is left out."""


@pytest.mark.parametrize("name", QUICK)
def test_a_known_bug_is_caught(name: str) -> None:
    catch = hunt(name, seeds_max=20, first_seed=FIRST_SEEDS.get(name, 0))
    assert catch.caught_by is not None


def test_there_are_bugs_enough_and_each_says_where_it_is_known_from() -> None:
    assert len(NAMES) >= 80
    assert all(mutation.origin for mutation in MUTATIONS.values())


def test_a_bug_is_gone_when_the_hunt_is_over() -> None:
    refuse_vote = vote_refusals.refuse_vote
    with MUTATIONS["a vote is given twice in an epoch"].put_in():
        assert vote_refusals.refuse_vote is not refuse_vote
    assert vote_refusals.refuse_vote is refuse_vote
    with MUTATIONS["less than a majority commits"].put_in():
        mutated: Callable[[list[Offset]], Offset] = vars(high_watermark)["majority_end_offset"]
        assert mutated([Offset(1), Offset(2), Offset(3), Offset(4)]) == 3
    assert vars(high_watermark)["majority_end_offset"] is majority_end_offset
