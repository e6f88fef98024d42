"""The debug log of a replica's decisions: why a vote is refused, a fetch parked, an election begun or deferred."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT
from raft.core.actions import Action, Reply
from raft.core.decisions import Decision, ElectionBegun, ElectionPutOff, StateEntered, VoteRefused
from raft.core.events import Event, RequestReceived
from raft.core.messages import FetchRequest
from raft.core.replica_view import ReplicaView

logger = structlog.get_logger(__name__)


class DecisionLog:
    """An observer of a shell (`raft.shell.observer`) that logs one line for each decision, at level debug."""

    def __init__(self) -> None:
        self._silent_since_ms: int | None = None
        """The fetch deadline for which the log last said that a voter that may not be elected keeps following."""

    def stepped(self, event: Event | None, actions: Sequence[Action], replica: ReplicaView) -> None:
        """Log what the step decided."""
        for decision in replica.decisions:
            _log(decision, replica)
        if isinstance(event, RequestReceived) and isinstance(event.request, FetchRequest):
            is_answered = any(isinstance(action, Reply) and action.request_id == event.request_id for action in actions)
            if not is_answered:
                _log_parked(event.request, replica)
        self._log_waiting(replica)

    def _log_waiting(self, replica: ReplicaView) -> None:
        """Log once for each silence of the leader that this voter keeps following, since it may not be elected."""
        deadline_ms = replica.fetch_deadline_ms
        if deadline_ms is None or deadline_ms > replica.now_ms or deadline_ms == self._silent_since_ms:
            return
        if not replica.is_voter or replica.may_be_elected:
            return
        self._silent_since_ms = deadline_ms
        why = "its state machine is fenced" if replica.is_fenced else "it recovers what its log has lost"
        leader_id, epoch = replica.leader_and_epoch
        logger.debug(
            "election put off",
            epoch=epoch,
            reason=f"leader {leader_id} is silent, but this voter cannot be elected: {why}",
        )


def _log(decision: Decision, replica: ReplicaView) -> None:
    match decision:
        case StateEntered(left, _, entered, epoch):
            logger.debug("state entered", left=left.value, entered=entered.value, epoch=epoch)
        case VoteRefused(candidate, epoch, pre_vote, reason):
            what = "pre-vote refused" if pre_vote else "vote refused"
            logger.debug(what, candidate=str(candidate), epoch=epoch, reason=reason)
        case ElectionBegun(reason):
            logger.debug("election begun", epoch=replica.epoch, reason=reason)
        case ElectionPutOff(wait_ms, reason):
            logger.debug("election put off", epoch=replica.epoch, wait_ms=wait_ms, reason=reason)


def _log_parked(request: FetchRequest, replica: ReplicaView) -> None:
    if request.leader_lacks is not None:
        reason = "its sender does not follow this leader, which lacks committed records"
    elif request.high_watermark == HIGH_WATERMARK_NOT_SENT:
        reason = f"its sender has everything up to {request.fetch_offset}"
    else:
        reason = f"its sender has everything up to {request.fetch_offset}, and knows the high watermark"
    logger.debug(
        "fetch parked",
        replica=str(request.replica_key),
        wait_ms=request.max_wait_ms,
        log_end_offset=replica.log_end_offset,
        high_watermark=replica.high_watermark,
        reason=reason,
    )
