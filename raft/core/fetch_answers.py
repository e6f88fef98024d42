"""The answers to fetches: their contents, and when parked fetches are answered (PK-02 to PK-11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT, UNKNOWN_HIGH_WATERMARK
from raft.core import rebuilding, state_mismatch
from raft.core.actions import LogRange
from raft.core.environment import Environment
from raft.core.log import LogState
from raft.core.messages import FetchRequest, FetchResponse
from raft.core.output import Output
from raft.core.purgatory import ParkedFetch
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""No answer holds more than this and one batch, whatever limit the request names."""

# --- what is in them --------------------------------------------------------------------------------------------------


def fetch_response(
    environment: Environment, replica: ReplicaState, leader: Leader, request: FetchRequest
) -> FetchResponse:
    """The answer in the leader's current state; `records_for` returns the records that go with it.

    The answer does not depend on the high watermark in the fetch (PK-04).
    """
    offset, epoch, log = request.fetch_offset, request.last_fetched_epoch, replica.log
    snapshot_id = log.snapshot_for(offset, epoch)
    if snapshot_id is None and log.is_before_start(offset, epoch):
        # The snapshot was damaged; another one is being taken.
        return error_response(environment, replica, ErrorCode.SNAPSHOT_NOT_FOUND)
    diverging = None if snapshot_id is not None else log.divergence(offset, epoch)
    return FetchResponse(
        leader=replica.leader,
        leader_endpoint=environment.endpoint,
        high_watermark=leader.high_watermark,
        log_start_offset=log.start_offset,
        diverging_epoch=diverging,
        snapshot_id=snapshot_id,
        expected_state_digest=state_mismatch.expected_digest(leader, request.replica_key),
        may_rebuild=rebuilding.may_rebuild(environment, leader, request),
    )


def records_for(log: LogState, request: FetchRequest, response: FetchResponse) -> LogRange | None:
    """The records for the answer, at least one batch, committed or not (PK-09); None if there are none."""
    if request.fetch_offset >= log.end_offset or response.error is not ErrorCode.NONE:
        return None
    if response.snapshot_id is not None or response.diverging_epoch is not None:
        return None
    return LogRange(start_offset=request.fetch_offset, max_bytes=min(request.max_bytes, FETCH_BYTES_MAX))


def is_answered_at_once(request: FetchRequest, response: FetchResponse, records: LogRange | None) -> bool:
    """Whether the answer has something new for the sender; then its fetch is not parked (PK-02, PK-03)."""
    return (
        records is not None
        or request.max_wait_ms == 0
        or response.diverging_epoch is not None
        or response.snapshot_id is not None
        or response.error is not ErrorCode.NONE
        # A replica that knows no high watermark sends -1, and a leader that knows none answers -1. The two are equal,
        # so a new leader parks the fetch, and its first commit releases it. A fetch of version 17 counts as 2^63-1,
        # which is never below.
        or request.high_watermark < response.high_watermark
    )


def error_response(environment: Environment, replica: ReplicaState, error: ErrorCode) -> FetchResponse:
    """The answer to a fetch that is refused, or whose leader has resigned."""
    return FetchResponse(
        error=error,
        leader=replica.leader,
        leader_endpoint=replica.leader_endpoint(environment),
        high_watermark=UNKNOWN_HIGH_WATERMARK,
        log_start_offset=replica.log.start_offset,
    )


# --- when parked fetches are released ---------------------------------------------------------------------------------


def release_voters(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
    """The log end offset moved: answer the parked fetches of voters, whose next fetches commit the new records."""
    voters = leader.voters
    fetches = leader.purgatory.take_if(
        lambda request: request.replica_key is not None and request.replica_key.node_id in voters
    )
    _answer(environment, replica, output, leader, fetches)


def release_unaware(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
    """The log end offset moved: answer the parked fetches without a high watermark, as versions below 18 send.

    An observer that sends one is answered when the high watermark moves, with the records committed by then. Its
    fetches commit nothing: two answers for every append would only take processor time from the voters.
    """
    # Consider 3 voters and 20 observers, all level at 100, and one append. If it released the observers, each would
    # fetch again from 101, be parked, and be released a second time by the commit: 40 answers, 20 of them while the
    # fetch that commits is on its way. Released by the commit alone, they get 20 answers, with record 100 and a high
    # watermark of 101.
    #
    # No observer waits forever. If record 100 is never committed, a parked fetch gets it when its wait expires; a fetch
    # that arrives after the append gets it at once (`is_answered_at_once`).
    fetches = leader.purgatory.take_if(lambda request: request.high_watermark == HIGH_WATERMARK_NOT_SENT)
    _answer(environment, replica, output, leader, fetches)


def release_behind(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
    """The high watermark moved: answer every parked fetch with a lower one (KIP-1166).

    A fetch without a high watermark, as versions below 18 send, waits for data or its timeout.
    """
    high_watermark = leader.high_watermark
    fetches = leader.purgatory.take_if(lambda request: request.high_watermark < high_watermark)
    _answer(environment, replica, output, leader, fetches)


def release_expired(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
    """Answer the parked fetches whose wait has expired."""
    _answer(environment, replica, output, leader, leader.purgatory.take_expired(environment.now_ms))


def _answer(
    environment: Environment, replica: ReplicaState, output: Output, leader: Leader, fetches: Sequence[ParkedFetch]
) -> None:
    """Build the answers of parked fetches and send them, whatever they contain: no fetch is parked twice (PK-07)."""
    for fetch in fetches:
        response = fetch_response(environment, replica, leader, fetch.request)
        output.reply(fetch.request_id, response, records_for(replica.log, fetch.request, response))
