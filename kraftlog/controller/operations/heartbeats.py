"""BrokerHeartbeat: from a broker's wish and the latest state to the transition and the answer (CT-34, CT-35).

A heartbeat that changes no state makes no record. The caller makes the records of a transition, many if the broker is
in many ISRs, and reports when the last of them is appended: `executed`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import ID_BYTES
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftlog.controller.operations.brokers import LOG_DIRS_MAX, check_broker_epoch, registered_broker
from kraftlog.controller.rules.broker_heartbeats import BrokerHeartbeats, BrokerState, next_state, state_of
from kraftpb.v1.admin_pb2 import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord
from statemachine.metadata.state import MetadataState


class Transition(Enum):
    """The change of the broker's state."""

    NONE = auto()
    FENCE = auto()
    """`fence_record`; it leaves every ISR and leads nothing."""
    UNFENCE = auto()
    """`unfence_record`; it is elected where there is no leader."""
    CONTROLLED_SHUTDOWN = auto()
    """`controlled_shutdown_record`; it leaves every ISR and leads nothing."""


class Heartbeat(NamedTuple):
    """The result of a heartbeat."""

    transition: Transition
    """The transition that the caller must carry out."""
    response: BrokerHeartbeatResponse
    """The answer, if the transition's records are committed."""


def broker_heartbeat(
    state: MetadataState, heartbeats: BrokerHeartbeats, request: BrokerHeartbeatRequest, now_ms: float
) -> Heartbeat:
    """Decide on the broker's next state, by the table of CT-35.

    Notes in `heartbeats` that an unfenced broker is alive, and nothing else: a session begins and ends when the records
    are appended. Raises ApiError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, INVALID_REQUEST; then nothing is
    noted.
    """
    registered_broker(state, request.broker_id)
    broker = check_broker_epoch(state, request.broker_id, request.broker_epoch)
    _check(request)
    current = state_of(broker)
    is_caught_up = _is_caught_up(broker, request.current_metadata_offset)
    is_going = current is BrokerState.CONTROLLED_SHUTDOWN
    following = next_state(
        current,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        is_caught_up=is_caught_up,
        # These two are computed only where the table needs them: one needs a query, the other reads every session.
        leads_any=(is_going or request.want_shut_down) and state.leads_any(broker.broker_id),
        lowest_active_offset=heartbeats.lowest_active_metadata_offset() if is_going else None,
        controlled_shutdown_offset=heartbeats.controlled_shutdown_offset(broker.broker_id),
    )
    if current is not BrokerState.FENCED:
        heartbeats.touch(broker.broker_id, request.current_metadata_offset, now_ms)
    is_fenced = following in _FENCED
    response = BrokerHeartbeatResponse(
        is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=following is BrokerState.SHUTDOWN_NOW
    )
    return Heartbeat(_transition(current, following), response)


def executed(
    heartbeats: BrokerHeartbeats,
    request: BrokerHeartbeatRequest,
    transition: Transition,
    end_offset: int,
    now_ms: float,
) -> None:
    """Update the broker's session after a transition appended below `end_offset`; fences may have overtaken it.

    To be called with the record itself for FENCE and UNFENCE, with the last of all records for CONTROLLED_SHUTDOWN,
    and then only if the broker still is in that state.
    """
    match transition:
        case Transition.FENCE:
            heartbeats.remove(request.broker_id)
        case Transition.UNFENCE:
            heartbeats.touch(request.broker_id, request.current_metadata_offset, now_ms)
        case Transition.CONTROLLED_SHUTDOWN:
            heartbeats.begin_controlled_shutdown(request.broker_id, end_offset)


_FENCED: Final = (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


def _transition(current: BrokerState, following: BrokerState) -> Transition:
    """The transition from one state to the other; a broker that should shut down now is fenced first."""
    if following in _FENCED:
        return Transition.NONE if current is BrokerState.FENCED else Transition.FENCE
    if following is current:
        return Transition.NONE
    return Transition.UNFENCE if following is BrokerState.UNFENCED else Transition.CONTROLLED_SHUTDOWN


def _is_caught_up(broker: RegisterBrokerRecord, metadata_end_offset: int) -> bool:
    """Whether the broker has applied its own registration, whose offset is its epoch.

    Kafka's brokers name the last offset that they have applied, which must be no lower; kraftlog's brokers name the
    offset after it.
    """
    return metadata_end_offset > broker.broker_epoch


def _check(request: BrokerHeartbeatRequest) -> None:
    who = f"broker {request.broker_id}"
    if request.current_metadata_offset < UNKNOWN_OFFSET:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{who} says that it has applied the metadata below offset {request.current_metadata_offset}; that must be"
            f" 0 or more, or {UNKNOWN_OFFSET} if it does not know",
        )
    if len(request.offline_log_dirs) > LOG_DIRS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{who} names {len(request.offline_log_dirs)} failed log directories; it can have at most {LOG_DIRS_MAX}",
        )
    if len(request.log_dir_space) > LOG_DIRS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{who} reports the room in {len(request.log_dir_space)} log directories; it can have at most"
            f" {LOG_DIRS_MAX}",
        )
    for log_dir in request.offline_log_dirs:
        if len(log_dir) != ID_BYTES:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{who} names {log_dir[:32].hex()!r} as a failed log directory; an id has {ID_BYTES} bytes",
            )
