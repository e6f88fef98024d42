"""The requests that a replica refuses; a refusal changes nothing, and still names the leader (RF-60, RF-106)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.actions import Reply
from raft.core.events import ShutdownRequested
from raft.core.messages import DescribeQuorumRequest, FetchSnapshotRequest, Request
from raft.core.types import OffsetAndEpoch, ReplicaKey
from tests.raft.core.builders import (
    CLUSTER_ID,
    Harness,
    begin_quorum_epoch,
    election_state,
    end_quorum_epoch,
    endpoint,
    fetch,
    key,
    leader_and_epoch,
    of_type,
    replica,
    vote,
)

EPOCH = 6
LOG = [(3, 4)]


def fetch_snapshot(epoch: int, **changes: Any) -> FetchSnapshotRequest:
    request = FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_key=key(2),
        current_leader_epoch=Epoch(epoch),
        snapshot_id=OffsetAndEpoch(epoch=Epoch(3), offset=Offset(4)),
        position=0,
        max_bytes=1024,
    )
    return replace(request, **changes)


def leader() -> Harness:
    """Replica 1, which leads epoch 6."""
    return replica(log=LOG, election_state=election_state(5)).make_leader()


def follower() -> Harness:
    """Replica 1, which follows replica 3 in epoch 6."""
    return replica(log=LOG, election_state=election_state(EPOCH, leader_id=3))


def resigned() -> Harness:
    """Replica 1, which led epoch 6 and no longer does."""
    return replica(log=LOG, election_state=election_state(EPOCH, leader_id=1))


def pre_vote(epoch: int) -> Request:
    return vote(2, epoch, last_epoch=3, last_offset=4, pre_vote=True)


def real_vote(epoch: int) -> Request:
    return vote(2, epoch, last_epoch=3, last_offset=4)


VOTER_REQUESTS: list[Callable[[int], Request]] = [
    real_vote,
    pre_vote,
    lambda epoch: begin_quorum_epoch(2, epoch),
    lambda epoch: end_quorum_epoch(2, epoch, [1]),
]
LEADER_REQUESTS: list[Callable[[int], Request]] = [lambda epoch: fetch(2, epoch, 5, 3), fetch_snapshot]
ALL_REQUESTS = [*VOTER_REQUESTS, *LEADER_REQUESTS, lambda epoch: DescribeQuorumRequest(cluster_id=CLUSTER_ID)]


def slots(part: Any, *left_out: str) -> dict[str, Any]:
    """The fields of an object, by name."""
    return {name: getattr(part, name) for name in type(part).__slots__ if name not in left_out}


def picture(harness: Harness) -> Any:
    """All data of a replica except its outputs, actions and decisions, and its source of random numbers."""
    environment, known, connections = harness.environment, harness.replica_state, harness.output.connections
    values = slots(environment, "random", "config") | slots(known, "state", "log")
    state = slots(known.state)
    for name in ("accumulator", "purgatory"):
        if name in state:
            state[name] = slots(state[name])
    log = slots(known.log, "epochs") | {"epochs": known.log.epochs.entries()}
    return deepcopy((values, slots(connections), state, log, harness.replica.next_deadline_ms))


def refuse(harness: Harness, request: Request) -> ErrorCode:
    """Deliver `request`, which must change nothing; returns the error in the answer."""
    before, known, known_endpoint = picture(harness), harness.replica.leader_and_epoch, harness.replica.leader_endpoint
    actions = harness.deliver(request)
    (reply,) = of_type(Reply, actions)
    assert actions == [reply]
    assert picture(harness) == before
    assert (reply.response.leader, reply.response.leader_endpoint) == (known, known_endpoint), "RF-60"
    return reply.response.error


ROLES = [leader, follower, resigned]


@pytest.mark.parametrize("receiver", ROLES)
@pytest.mark.parametrize("request_of", ALL_REQUESTS)
@pytest.mark.parametrize("cluster_id", ["another", ""])
@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 3])
def test_a_request_of_another_cluster_is_refused(
    receiver: Callable[[], Harness], request_of: Callable[[int], Request], cluster_id: str, epoch: int
) -> None:
    request = replace(request_of(epoch), cluster_id=cluster_id)
    assert refuse(receiver(), request) is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("receiver", ROLES)
@pytest.mark.parametrize("request_of", VOTER_REQUESTS + LEADER_REQUESTS)
@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 3])
def test_a_replica_that_names_no_cluster_is_refused(
    receiver: Callable[[], Harness], request_of: Callable[[int], Request], epoch: int
) -> None:
    request = replace(request_of(epoch), cluster_id=None)
    assert refuse(receiver(), request) is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("receiver", ROLES)
def test_a_client_may_leave_the_cluster_out(receiver: Callable[[], Harness]) -> None:
    named, unnamed = (receiver().ask(DescribeQuorumRequest(cluster_id=named)) for named in (CLUSTER_ID, None))
    assert unnamed == named
    assert unnamed.error is not ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("receiver", ROLES)
@pytest.mark.parametrize("request_of", VOTER_REQUESTS + LEADER_REQUESTS)
@pytest.mark.parametrize("epoch", [EPOCH - 1, 4])
def test_a_request_of_an_older_epoch_is_fenced(
    receiver: Callable[[], Harness], request_of: Callable[[int], Request], epoch: int
) -> None:
    assert refuse(receiver(), request_of(epoch)) is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("receiver", ROLES)
@pytest.mark.parametrize("request_of", VOTER_REQUESTS)
@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 3])
def test_a_negative_sender_is_an_invalid_request(
    receiver: Callable[[], Harness], request_of: Callable[[int], Request], epoch: int
) -> None:
    request: Any = request_of(epoch)
    if hasattr(request, "replica_key"):
        request = replace(request, replica_key=ReplicaKey(NodeId(-1)))
    else:
        request = replace(request, leader_id=NodeId(-1))
    assert refuse(receiver(), request) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("receiver", ROLES)
@pytest.mark.parametrize("is_pre_vote", [False, True])
def test_rf07_a_vote_that_claims_to_be_this_replicas_own_is_an_invalid_request(
    receiver: Callable[[], Harness], is_pre_vote: bool
) -> None:
    request = vote(1, EPOCH + 1, last_epoch=3, last_offset=100, pre_vote=is_pre_vote)
    assert refuse(receiver(), request) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("receiver", ROLES)
@pytest.mark.parametrize("request_of", LEADER_REQUESTS)
def test_a_fetch_of_a_higher_epoch_does_not_move_the_receiver_there(
    receiver: Callable[[], Harness], request_of: Callable[[int], Request]
) -> None:
    assert refuse(receiver(), request_of(EPOCH + 1)) is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("receiver", [follower, resigned])
@pytest.mark.parametrize("request_of", [*LEADER_REQUESTS, ALL_REQUESTS[-1]])
def test_who_does_not_lead_answers_no_fetch(
    receiver: Callable[[], Harness], request_of: Callable[[int], Request]
) -> None:
    assert refuse(receiver(), request_of(EPOCH)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("request_of", LEADER_REQUESTS)
def test_who_shuts_down_answers_no_fetch(request_of: Callable[[int], Request]) -> None:
    harness = leader()
    harness.step(ShutdownRequested())
    assert refuse(harness, request_of(EPOCH)) is ErrorCode.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize(
    "changes",
    [
        {"max_wait_ms": -1},
        {"max_bytes": -1},
        {"fetch_offset": Offset(-1)},
        {"last_fetched_epoch": Epoch(-1)},
        {"last_fetched_epoch": Epoch(EPOCH + 1)},
        {"high_watermark": Offset(-2)},
    ],
    ids=lambda changes: " ".join(f"{name} {value}" for name, value in changes.items()),
)
@pytest.mark.parametrize("receiver", ROLES)
def test_an_impossible_fetch_is_an_invalid_request(receiver: Callable[[], Harness], changes: dict[str, int]) -> None:
    request = replace(fetch(2, EPOCH, 4, 3), **changes)  # type: ignore[arg-type]
    assert refuse(receiver(), request) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "changes",
    [
        {"max_bytes": -1},
        {"snapshot_id": OffsetAndEpoch(epoch=Epoch(-1), offset=Offset(4))},
        {"snapshot_id": OffsetAndEpoch(epoch=Epoch(3), offset=Offset(-1))},
    ],
    ids=["max_bytes", "epoch", "offset"],
)
def test_an_impossible_snapshot_fetch_is_an_invalid_request(changes: dict[str, Any]) -> None:
    assert refuse(leader(), fetch_snapshot(EPOCH, **changes)) is ErrorCode.INVALID_REQUEST


def test_rf60_a_refusal_says_who_leads_and_where() -> None:
    response = follower().ask(fetch(2, EPOCH))
    assert response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (response.leader, response.leader_endpoint) == (leader_and_epoch(3, EPOCH), endpoint(3))


def test_the_last_epoch_is_invalid_and_changes_nothing() -> None:
    epoch = 2**31 - 1
    for request in (
        vote(2, epoch, last_epoch=epoch - 1, last_offset=100),
        begin_quorum_epoch(2, epoch),
        end_quorum_epoch(2, epoch),
    ):
        assert refuse(replica(election_state=election_state(EPOCH)), request) is ErrorCode.INVALID_REQUEST
