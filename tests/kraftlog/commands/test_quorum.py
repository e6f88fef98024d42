"""`quorum describe`: what is worked out from the leader's answer (OT-02, OT-03)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.uuids import uuid_to_text
from kraftlog.commands import quorum
from kraftpb.v1 import common_pb2, quorum_pb2

DIRECTORY_ID = UUID(int=7)


def replica(node_id: int, log_end_offset: int, fetched: int = -1, caught_up: int = -1) -> quorum_pb2.ReplicaState:
    return quorum_pb2.ReplicaState(
        replica_key=common_pb2.ReplicaKey(node_id=node_id, directory_id=DIRECTORY_ID.bytes),
        endpoint=common_pb2.Endpoint(host="localhost", port=9000 + node_id),
        log_end_offset=log_end_offset,
        last_fetch_timestamp=fetched,
        last_caught_up_timestamp=caught_up,
    )


def response(*voters: quorum_pb2.ReplicaState, observers=(), leader_id: int = 2) -> quorum_pb2.DescribeQuorumResponse:
    return quorum_pb2.DescribeQuorumResponse(
        cluster_id="cluster",
        current_leader=common_pb2.CurrentLeader(leader_id=leader_id, leader_epoch=5),
        high_watermark=90,
        current_voters=voters,
        observers=observers,
    )


LEVEL = response(replica(1, 100, 990, 990), replica(2, 100, 1000, 1000), replica(3, 60, 900, 400))


def test_ot02_status_has_exactly_these_fields_in_this_order() -> None:
    assert list(quorum.status(LEVEL)) == [
        "ClusterId",
        "LeaderId",
        "LeaderEpoch",
        "HighWatermark",
        "MaxFollowerLag",
        "MaxFollowerLagTimeMs",
        "CurrentVoters",
        "CurrentObservers",
        "KRaftVersion",
    ]


def test_ot02_lag_is_the_leaders_end_less_the_slowest_voters() -> None:
    status = quorum.status(LEVEL)
    assert status["MaxFollowerLag"] == 40
    assert status["MaxFollowerLagTimeMs"] == 600


def test_ot02_no_voter_behind_the_leader_is_no_lag() -> None:
    status = quorum.status(response(replica(1, 100), replica(2, 100)))
    assert (status["MaxFollowerLag"], status["MaxFollowerLagTimeMs"]) == (0, 0)


def test_ot02_the_time_is_unknown_when_the_slowest_never_caught_up() -> None:
    status = quorum.status(response(replica(1, -1), replica(2, 100, 1000, 1000)))
    assert (status["MaxFollowerLag"], status["MaxFollowerLagTimeMs"]) == (100, -1)


def test_ot02_replicas_are_shown_with_id_directory_and_endpoints() -> None:
    assert quorum.status(response(replica(2, 1)))["CurrentVoters"] == [
        {"id": 2, "directoryId": uuid_to_text(DIRECTORY_ID), "endpoints": ["CONTROLLER://localhost:9002"]}
    ]


def test_ot02_an_unknown_directory_id_is_null() -> None:
    voter = replica(2, 1)
    voter.replica_key.directory_id = b""
    assert quorum.status(response(voter))["CurrentVoters"][0]["directoryId"] is None


def test_ot03_rows_are_leader_then_followers_then_observers() -> None:
    described = response(replica(1, 90), replica(2, 100), replica(3, 80), observers=[replica(4, 70)])
    rows = quorum.replication(described)
    assert [(row["NodeId"], row["Lag"], row["Status"]) for row in rows] == [
        (2, 0, "Leader"),
        (1, 10, "Follower"),
        (3, 20, "Follower"),
        (4, 30, "Observer"),
    ]
    assert tuple(rows[0]) == (*quorum.REPLICATION_COLUMNS, "LogStartHolders")


def test_a_replica_whose_state_differs_or_whose_log_was_damaged_is_shown() -> None:
    described = response(replica(1, 90), replica(2, 100), replica(3, 80), observers=[replica(4, 70)])
    described.current_voters[0].state_diverged = True
    described.current_voters[2].recovering = True
    described.observers[0].state_diverged = described.observers[0].recovering = True
    described.current_voters[2].leader_lacks.agreed_offset = 70
    described.current_voters[2].leader_lacks.committed_offset = 80
    rows = quorum.replication(described)
    assert {row["NodeId"]: row["Condition"] for row in rows} == {
        1: "diverged",
        2: "",
        3: "recovering, LEADER_LACKS_COMMITTED: agrees to 70, committed 80",
        4: "diverged, recovering",
    }


def test_sn51_rows_show_where_logs_start_and_who_holds_the_leaders_back() -> None:
    described = response(replica(1, 90), replica(2, 100), observers=[replica(4, 70)])
    described.current_voters[0].log_start_offset = 5
    described.current_voters[1].log_start_offset = 10
    described.observers[0].log_start_offset = -1
    holder = quorum_pb2.LogStartHolder
    described.log_start_holders.extend(
        [
            holder(replica_id=1, next_offset=15, held_ms=300),
            holder(listener="tables", next_offset=-1, held_ms=20),
            holder(listener="watch", next_offset=12, held_ms=0),
        ]
    )
    rows = {row["NodeId"]: row for row in quorum.replication(described)}
    assert {node_id: row["LogStartOffset"] for node_id, row in rows.items()} == {2: 10, 1: 5, 4: -1}
    assert {node_id: row["HoldsLogStart"] for node_id, row in rows.items()} == {
        2: "tables at -1 for 20 ms; watch at 12 for 0 ms",
        1: "at 15 for 300 ms",
        4: "",
    }
    assert rows[1]["LogStartHolders"] == [{"listener": None, "nextOffset": 15, "heldMs": 300}]
    assert [held["listener"] for held in rows[2]["LogStartHolders"]] == ["tables", "watch"]
    assert rows[4]["LogStartHolders"] == []


def test_sn51_a_replica_with_the_number_0_that_holds_the_log_start_is_shown_in_its_own_row() -> None:
    described = response(replica(0, 90), replica(2, 100))
    described.log_start_holders.add(replica_id=0, next_offset=15, held_ms=300)
    rows = {row["NodeId"]: row["HoldsLogStart"] for row in quorum.replication(described)}
    assert rows == {0: "at 15 for 300 ms", 2: ""}


def test_ot03_human_readable_gives_ages_and_leaves_unknown_ones() -> None:
    rows = quorum.human_readable(quorum.replication(response(replica(2, 1, 900), replica(1, 1, 700, 600))), 1000)
    assert (rows[0]["LastFetchTimestamp"], rows[0]["LastCaughtUpTimestamp"]) == ("100 ms ago", -1)
    assert (rows[1]["LastFetchTimestamp"], rows[1]["LastCaughtUpTimestamp"]) == ("300 ms ago", "400 ms ago")


@pytest.mark.parametrize("timestamp", [0, 1001])
def test_ot03_a_timestamp_that_is_not_in_the_past_is_an_error(timestamp: int) -> None:
    rows = quorum.replication(response(replica(2, 1, timestamp)))
    with pytest.raises(ApiError) as refused:
        quorum.human_readable(rows, 1000)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_leader_that_is_no_voter_is_an_error() -> None:
    with pytest.raises(ApiError) as refused:
        quorum.status(response(replica(1, 1), leader_id=9))
    assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
