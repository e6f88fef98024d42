"""What `quorum describe` shows, computed from the leader's answer (OT-02, OT-03). Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.uuids import uuid_to_text
from kraftpb.v1 import quorum_pb2

UNKNOWN: Final = -1
LISTENER_NAME: Final = "CONTROLLER"
NO_DIRECTORY_IDS: Final = (
    "the voters have no directory ids, so a voter with a replaced disk cannot be distinguished from the earlier one;"
    " see docs/operations/voters.md"
)
REPLICATION_COLUMNS: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
    "Condition",
    "LogStartOffset",
    "HoldsLogStart",
)


def status(response: quorum_pb2.DescribeQuorumResponse) -> dict[str, Any]:
    """The fields of `quorum describe --status`, in order (OT-02), and then the kraft.version (RF-80)."""
    leader = _leader(response)
    slowest = min(response.current_voters, key=lambda voter: voter.log_end_offset)
    return {
        "ClusterId": response.cluster_id,
        "LeaderId": response.current_leader.leader_id,
        "LeaderEpoch": response.current_leader.leader_epoch,
        "HighWatermark": response.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - max(slowest.log_end_offset, 0),
        "MaxFollowerLagTimeMs": _lag_time_ms(leader, slowest),
        "CurrentVoters": [_replica(voter) for voter in response.current_voters],
        "CurrentObservers": [_replica(observer) for observer in response.observers],
        "KRaftVersion": response.kraft_version,
        **({"StateAlarm": _alarm(response)} if response.HasField("state_alarm_offset") else {}),
    }


def _alarm(response: quorum_pb2.DescribeQuorumResponse) -> str:
    return (
        f"the voters' metadata differs at offset {response.state_alarm_offset}, and no majority agrees: check each"
        " stopped node with kraftlog verify"
    )


def replication(
    response: quorum_pb2.DescribeQuorumResponse, failed_listeners: Mapping[int, Sequence[str]] | None = None
) -> list[dict[str, Any]]:
    """The rows of `quorum describe --replication`: leader, followers, observers (OT-03).

    The last three columns are kraftlog's own. `Condition` is `diverged` if the replica's state machine differs from the
    quorum's; `recovering` if it fetches again what its disk lost; `LEADER_LACKS_COMMITTED` if it knows of committed
    records that the leader lacks, and so does not follow the leader, with the offset up to which their logs may agree
    and the replica's high watermark; else empty. `LogStartOffset` is where the replica's log starts. `HoldsLogStart`
    shows that the leader's log would start later if this replica, or a listener on the leader, had read further
    (KAFKA-14932); `LogStartHolders` is the same for programs. `failed_listeners` are the names of listeners that
    raised, by node id, as the nodes report them; they are a condition, too.
    """
    leader = _leader(response)
    followers = [voter for voter in response.current_voters if voter is not leader]
    rows = [
        _row(leader, leader, "Leader"),
        *(_row(voter, leader, "Follower") for voter in followers),
        *(_row(observer, leader, "Observer") for observer in response.observers),
    ]
    for row in rows:
        held = [holder for holder in response.log_start_holders if _is_of(row, holder, leader)]
        failed = [failed_listener(name) for name in (failed_listeners or {}).get(row["NodeId"], ())]
        row["Condition"] = ", ".join([*filter(None, [row["Condition"]]), *failed])
        row["HoldsLogStart"] = "; ".join(map(_held, held))
        row["LogStartHolders"] = [
            {"listener": holder.listener or None, "nextOffset": holder.next_offset, "heldMs": holder.held_ms}
            for holder in held
        ]
    return rows


def failed_listener(name: str) -> str:
    """The condition of a node with a listener that raised (LI-08)."""
    return f"listener {name} failed"


def _is_of(row: dict[str, Any], holder: quorum_pb2.LogStartHolder, leader: quorum_pb2.ReplicaState) -> bool:
    """Whether the holder is the row's replica, or a listener on it: only the leader's own listeners hold its log."""
    is_listener = holder.WhichOneof("reader") == "listener"
    return bool(row["NodeId"] == (leader.replica_key.node_id if is_listener else holder.replica_id))


def _held(holder: quorum_pb2.LogStartHolder) -> str:
    who = f"{holder.listener} " if holder.listener else ""
    return f"{who}at {holder.next_offset} for {holder.held_ms} ms"


def human_readable(rows: Sequence[dict[str, Any]], now_ms: int) -> list[dict[str, Any]]:
    """The rows with "N ms ago" in place of timestamps; unknown ones stay -1 (OT-03).

    Raises ApiError INVALID_REQUEST for a timestamp from the future: the clocks disagree, so no age is true.
    """
    return [
        {
            **row,
            "LastFetchTimestamp": _age(row["LastFetchTimestamp"], now_ms),
            "LastCaughtUpTimestamp": _age(row["LastCaughtUpTimestamp"], now_ms),
        }
        for row in rows
    ]


def _age(timestamp_ms: int, now_ms: int) -> str | int:
    if timestamp_ms == UNKNOWN:
        return UNKNOWN
    if timestamp_ms <= 0 or timestamp_ms > now_ms:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"timestamp {timestamp_ms} is not in the past ({now_ms} now): the leader's clock and this machine's differ;"
            " set them right, or leave --human-readable out",
        )
    return f"{now_ms - timestamp_ms} ms ago"


def _leader(response: quorum_pb2.DescribeQuorumResponse) -> quorum_pb2.ReplicaState:
    for voter in response.current_voters:
        if voter.replica_key.node_id == response.current_leader.leader_id:
            return voter
    raise ApiError(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"leader {response.current_leader.leader_id} is not among the voters that it lists; try again",
    )


def _lag_time_ms(leader: quorum_pb2.ReplicaState, slowest: quorum_pb2.ReplicaState) -> int:
    if slowest.log_end_offset == leader.log_end_offset:
        return 0
    if UNKNOWN in (leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp):
        return UNKNOWN
    return leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp


def _directory_id(state: quorum_pb2.ReplicaState) -> str | None:
    data = state.replica_key.directory_id
    return uuid_to_text(UUID(bytes=data)) if len(data) == 16 else None


def _replica(state: quorum_pb2.ReplicaState) -> dict[str, Any]:
    endpoint = Endpoint(state.endpoint.host, state.endpoint.port)
    return {
        "id": state.replica_key.node_id,
        "directoryId": _directory_id(state),
        "endpoints": [f"{LISTENER_NAME}://{endpoint}"] if state.HasField("endpoint") else [],
    }


def condition(state: quorum_pb2.ReplicaState) -> str:
    """What is wrong with the replica, as the leader sees it; empty if nothing."""
    conditions = {"diverged": state.state_diverged, "recovering": state.recovering}
    names = [name for name, applies in conditions.items() if applies]
    if state.HasField("leader_lacks"):
        gap = state.leader_lacks
        names.append(f"LEADER_LACKS_COMMITTED: agrees to {gap.agreed_offset}, committed {gap.committed_offset}")
    return ", ".join(names)


def _row(state: quorum_pb2.ReplicaState, leader: quorum_pb2.ReplicaState, status: str) -> dict[str, Any]:
    values = (
        state.replica_key.node_id,
        _directory_id(state),
        state.log_end_offset,
        leader.log_end_offset - max(state.log_end_offset, 0),
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
        status,
        condition(state),
        state.log_start_offset,
        "",
    )
    return dict(zip(REPLICATION_COLUMNS, values, strict=True))
