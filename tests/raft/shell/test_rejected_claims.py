"""How a shell handles claims that it rejects: a truncation within a batch, and a flood of log lines."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kraftbase.types import Epoch, NodeId, Offset
from raft.core.events import RequestReceived, ResponseReceived
from raft.core.messages import FetchRequest, FetchResponse
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch
from raft.storage.batch import decode_batches, encode_batch, encode_body
from tests.raft.core.builders import begin_quorum_epoch, vote
from tests.raft.shell.voter_shell import CLUSTER_ID, VOTERS, VoterShell

EPOCH = Epoch(3)
LEADER = LeaderAndEpoch(NodeId(2), EPOCH)


def answer(node: VoterShell, **changes: object) -> None:
    """The leader's answer to the last fetch."""
    fetch = [send for send in node.sent if isinstance(send.request, FetchRequest)][-1]
    values = {"leader": LEADER, "high_watermark": Offset(0), "log_start_offset": Offset(0), **changes}
    node.shell.outcome(ResponseReceived(fetch.correlation_id, FetchResponse(**values)))  # type: ignore[arg-type]
    node.runtime.advance(1_000)


@pytest.fixture
def following() -> VoterShell:
    """It follows node 2 and has one batch of three records."""
    node = VoterShell()
    key = VOTERS.voters()[1].key
    request = begin_quorum_epoch(2, EPOCH, cluster_id=CLUSTER_ID, leader_directory_id=key.directory_id)
    node.shell.step(RequestReceived(node.shell.new_id(), request))
    node.runtime.advance(10)
    data = encode_batch(Offset(0), EPOCH, encode_body([b"r"] * 3), 3, 1).data
    answer(node, records=decode_batches(data))
    assert node.end_offset == 3
    return node


@pytest.mark.parametrize(("offset", "end_offset"), [(0, 0), (1, 3), (2, 3), (3, 3)])
def test_a_log_is_cut_between_batches_only_whatever_the_leader_says(
    following: VoterShell, offset: int, end_offset: int
) -> None:
    answer(following, diverging_epoch=OffsetAndEpoch(epoch=EPOCH, offset=Offset(offset)))
    assert following.end_offset == end_offset
    assert following.shell.replica.log_end_offset == end_offset


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_rf111_a_leader_whose_log_ends_within_a_committed_batch_is_refused(following: VoterShell, offset: int) -> None:
    answer(following, high_watermark=Offset(3))
    answer(following, diverging_epoch=OffsetAndEpoch(epoch=EPOCH, offset=Offset(offset)))
    assert following.end_offset == 3
    refused = following.shell.replica.refused_leader
    assert refused is not None
    assert (refused.leader, refused.gap.agreed_offset, refused.gap.committed_offset) == (LEADER, offset, 3)


def test_a_stranger_does_not_fill_the_log() -> None:
    node = VoterShell()
    node.runtime.run()
    with capture_logs() as lines:
        for _ in range(1_000):
            request = vote(8, 5, last_epoch=1, last_offset=1, cluster_id=CLUSTER_ID)
            node.shell.step(RequestReceived(node.shell.new_id(), request))
        told = [line for line in lines if "reason" in line]
        assert [(line["count"], line["others_not_told"]) for line in told] == [(1, 0)]
        node.runtime.advance(10_000)
        node.shell.step(RequestReceived(node.shell.new_id(), request))
    told = [line for line in lines if "reason" in line]
    assert [(line["count"], line["others_not_told"]) for line in told] == [(1, 0), (1_001, 999)]
    assert "8/" in told[0]["reason"] and "not a voter" in told[0]["reason"]
