"""Why a replica does not take part: its log recovers, or its directory is new."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.types import RecoveringLog, ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.shell.initial_log_state import recovering_log
from raft.shell.shell_host import Identity
from raft.storage.segmented_log import SegmentedLog

NEW = RecoveringLog(Offset(9), Epoch(0), "new", has_forgotten=True, may_found=True)
DAMAGED = RecoveringLog(Offset(5), Epoch(3), "damaged")
AT = Endpoint("node", 1)
VOTERS = VoterSet([Voter(ReplicaKey(NodeId(1)), AT)])


def found(node_id: int, recovering: RecoveringLog | None, new_directory: RecoveringLog | None) -> RecoveringLog | None:
    log = cast(SegmentedLog, SimpleNamespace(recovering=recovering, new_directory=new_directory))
    return recovering_log(log, Identity(cluster_id="c", key=ReplicaKey(NodeId(node_id)), endpoint=AT, voters=VOTERS))


@pytest.mark.parametrize(
    ("recovering", "new_directory", "expected"),
    [
        (None, None, None),
        (DAMAGED, None, DAMAGED),
        (None, NEW, NEW),
        (DAMAGED, NEW, NEW._replace(reason="damaged", may_found=False)),
    ],
)
def test_a_voter_keeps_both(
    recovering: RecoveringLog | None, new_directory: RecoveringLog | None, expected: RecoveringLog | None
) -> None:
    assert found(1, recovering, new_directory) == expected


@pytest.mark.parametrize("new_directory", [None, NEW])
@pytest.mark.parametrize("recovering", [None, DAMAGED])
def test_who_does_not_vote_has_forgotten_nothing_and_keeps_what_its_log_recovers_from(
    recovering: RecoveringLog | None, new_directory: RecoveringLog | None
) -> None:
    assert found(2, recovering, new_directory) == recovering
