"""Coverage marks of the clusters' world: a sweep that misses one has tested less than it claims."""

from __future__ import annotations

from typing import Final, get_args

from kraftbase.errors import ErrorCode
from raft.core import actions, events, transitions
from raft.core.decisions import StateEntered
from raft.core.edge_checks import HIGHER, NEXT, SAME
from raft.core.states import Role

ERRORS: Final = (
    ErrorCode.NONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_VOTER_KEY,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.SNAPSHOT_NOT_FOUND,
    ErrorCode.POSITION_OUT_OF_RANGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""The errors that the quorum answers with. Most errors of the controller are covered by the controller's own tests."""


SNAPSHOTS: Final = (
    "killed while a snapshot is written",
    "killed while a snapshot is received",
    "killed while the log starts over",
    "killed while the log start moves on",
    "killed while the state machine loads a snapshot",
    "no room while a snapshot is written",
    "no room while a snapshot is received",
    "network: a transfer of a snapshot was cut",
    "network: a piece of a snapshot was corrupted",
    "recovery: a damaged snapshot was deleted",
    "recovery: a log started over behind a snapshot that had come before",
    "the state machine loaded a snapshot",
    "a metadata transaction was aborted",
    "the slow listener loaded a snapshot",
    "a transfer of a snapshot resumed with another leader",
)
"""What must happen to snapshots, and to nodes that write, send, receive or load one."""


COMMITTED: Final = (
    "a log was rolled back below what was applied",
    "recovery: a log behind what was applied is fetched again",
    "a leader was refused",
    "a leader that was refused is followed again",
)
"""Faults below the applied end offset, and leaders whose log lacks committed records."""


BROKERS: Final = (
    "a broker vanished",
    "a broker hung",
    "a broker continued after a hang",
    "a broker was cut off",
    "a broker began to shut down",
    "a broker shut down",
    "a broker registered again",
    "a broker's connections were reset",
    "a broker's listener refused connections",
    "a broker out of reach hung",
    "a broker was fenced by evidence",
    "a reassignment was asked for over another one",
    "a reassignment was asked for over another one, with unclean elections on",
    "a partition was altered: NONE",
    "a partition was altered: INVALID_UPDATE_VERSION",
    "a partition was altered: FENCED_LEADER_EPOCH",
    "a partition was altered: INELIGIBLE_REPLICA",
    "the controller was killed between two appends",
    "an operation was acknowledged before it was applied",
    "a run was too much to acknowledge before it was applied",
    "killed between an acknowledgement and its application",
    "a database could not be written for a while",
    "a read was answered",
    "a read was refused",
    "a segment was copied",
    "a segment of several leader epochs was copied",
    "a copy took another's place",
    "a finished copy was described again",
    "a copy that failed was deleted",
    "a segment was deleted",
    "the remote data of a deleted partition was deleted",
    "answer: NOT_CONTROLLER",
    "answer: REQUEST_TIMED_OUT",
    "answer: KAFKA_STORAGE_ERROR",
    "answer: DUPLICATE_BROKER_REGISTRATION",
    "answer: STALE_BROKER_EPOCH",
    "answer: BROKER_ID_NOT_REGISTERED",
    "answer: INVALID_REQUEST",
)
"""What must happen to brokers, and the answers that they must get, in the runs with brokers."""


def edge_name(left: Role, entered: Role, relation: str) -> str:
    """Return the mark of an edge of the transition table."""
    return f"edge: {left.value} to {entered.value} in {relation}"


def edge_taken(edge: StateEntered) -> str:
    """Return the mark of the edge that a replica took."""
    relation = SAME
    if edge.epoch > edge.left_epoch:
        allowed = transitions.EDGES[edge.left][edge.entered]
        relation = HIGHER if HIGHER in allowed else NEXT
    return edge_name(edge.left, edge.entered, relation)


def required(fault_kinds: tuple[str, ...]) -> list[str]:
    """Return every mark that a sweep must hit."""
    names = [kind.__name__ for kind in (*get_args(actions.Action), *get_args(events.Event))]
    names += [f"error: {code.name}" for code in ERRORS]
    names += [
        edge_name(left, entered, relation)
        for left, targets in transitions.EDGES.items()
        for entered, relations in targets.items()
        for relation in relations
    ]
    names += [f"fault: {kind}" for kind in fault_kinds]
    names += (*SNAPSHOTS, *COMMITTED, *BROKERS)
    return names
