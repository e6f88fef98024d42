"""An answer by which the log would be cut within a batch ends no process: no log has such an end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raft.core.events import RequestReceived, ResponseReceived
from raft.core.messages import FetchRequest
from raft.core.states import Role
from raft.core.types import Epoch, Offset
from raft.storage.batch import decode_batches, encode_batch, encode_body
from tests.raft.core.builders import begin_quorum_epoch, fetch_response
from tests.raft.core.fetching import point
from tests.raft.voter_shell import CLUSTER_ID, VOTERS, VoterShell


class FollowingShell(VoterShell):
    """It follows node 2 in epoch 3; its log has two batches of two records."""

    def __init__(self) -> None:
        super().__init__()
        endpoint = VOTERS.voters()[1].endpoint
        request = begin_quorum_epoch(2, 3, cluster_id=CLUSTER_ID, leader_endpoint=endpoint)
        self.shell.step(RequestReceived(self.shell.new_id(), request))
        self.runtime.run()
        body = encode_body([b"a", b"b"])
        records = b"".join(encode_batch(Offset(base), Epoch(1), body, 2, 0).data for base in (0, 2))
        self.answer(records=tuple(decode_batches(records)))

    def answer(self, **changes: object) -> None:
        """The leader answers the fetch that is under way."""
        send = [send for send in self.sent if isinstance(send.request, FetchRequest)][-1]
        response = replace(fetch_response(2, 3), **changes)  # type: ignore[arg-type]
        self.shell.outcome(ResponseReceived(send.correlation_id, response))
        self.runtime.run()


@pytest.mark.parametrize(("offset", "end_offset"), [(1, 4), (2, 2), (3, 4)])
def test_it_is_cut_only_where_a_batch_ends(offset: int, end_offset: int) -> None:
    following = FollowingShell()
    assert following.log.log_end_offset == 4
    following.answer(diverging_epoch=point(1, offset))
    assert following.log.log_end_offset == following.shell.replica.log_end_offset == end_offset
    assert following.shell.replica.role is Role.FOLLOWER
