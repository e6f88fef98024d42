"""How a follower with a full disk handles its leader's answers: it drops batches, and fetches again after a pause."""

from __future__ import annotations

from typing import Final

from raft.core.config import QuorumConfig
from raft.core.events import ResponseReceived
from raft.core.messages import FetchResponse

PAUSE_MS_MAX: Final = 500


def pause_ms(config: QuorumConfig) -> float:
    """How long it waits before it requests the same batches again: short enough to keep its leader."""
    return min(PAUSE_MS_MAX, min(config.request_timeout_ms, config.fetch_timeout_ms) / 2)


def without_records(outcome: ResponseReceived) -> ResponseReceived:
    """The same answer to a fetch, as if the leader had no records for it."""
    response = outcome.response
    if not isinstance(response, FetchResponse):
        return outcome
    # The leader has answered: a full disk starts no election. An answer without records is legal (RF-55).
    return ResponseReceived(
        outcome.correlation_id,
        FetchResponse(
            leader=response.leader,
            leader_endpoint=response.leader_endpoint,
            high_watermark=response.high_watermark,
            log_start_offset=response.log_start_offset,
            expected_state_digest=response.expected_state_digest,
        ),
        is_without_room=True,
    )
