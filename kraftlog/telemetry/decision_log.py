"""The debug log of a broker's decisions: why a Fetch is parked, why a replica stays out of the ISR, who leads.

It has one line for each decision that has no line of a higher level: the deciding modules themselves log requested and
refused ISR changes, and a controlled shutdown that takes too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from kraftbase.line_rate import LineRate
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_to_text
from kraftlog.telemetry.observer import (
    BrokerStateEntered,
    CleanShutdownMarked,
    Decision,
    DirectoryLost,
    FencingChanged,
    FetchEnd,
    IsrChanged,
    LeadershipBegun,
    LeadershipEnded,
    LeadershipRefused,
    LogsClosed,
    LogStartedOver,
    LogTruncated,
    Registered,
    RegistrationAsked,
    RegistrationLost,
    RegistrationRefused,
    ReplicaStaysOut,
    ShutdownAllowed,
    ShutdownAsked,
)

REPLICAS_MAX: Final = 10_000
"""The most replicas of which the last logged reasons are remembered."""

logger = structlog.get_logger(__name__)


class BrokerDecisionLog:
    """A `BrokerObserver` that logs. Fetches and registrations, which may be frequent, are logged at the rate of
    `LineRate`; a replica is logged when its reasons have changed."""

    wants_details: Final = True

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the time in seconds."""
        self._rate = LineRate(now)
        self._reasons: dict[tuple[TopicPartition, int], tuple[str, ...]] = {}

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """Log that a Fetch waits for bytes."""
        reason = f"{byte_count} bytes are available, of {min_bytes} to wait for"
        self._log_at_rate("fetch parked", replica_id=replica_id, wait_ms=max_wait_ms, reason=reason)

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """Log that a Fetch waits for later reads."""
        reason = "some records are not on this broker's disks"
        self._log_at_rate("fetch parked", read_count=read_count, wait_ms=max_wait_ms, reason=reason)

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """Log the end of a wait, and its reason."""
        self._log_at_rate("fetch completed", replica_id=replica_id, byte_count=byte_count, reason=why.value)

    def _log_at_rate(self, what: str, **values: object) -> None:
        left_out = self._rate.left_out(what)
        if left_out is not None:
            logger.debug(what, **values, **({"left_out_before": left_out} if left_out else {}))

    def decided(self, decision: Decision) -> None:
        """Log a decision that has no line of a higher level."""
        match decision:
            case BrokerStateEntered(left, entered):
                logger.debug("broker state entered", left=left, entered=entered)
            case Registered(broker_epoch):
                logger.debug("registration accepted", broker_epoch=broker_epoch)
            case RegistrationAsked() | RegistrationRefused() | RegistrationLost():
                self._log_registration(decision)
            case FencingChanged(is_fenced):
                logger.debug("broker fenced" if is_fenced else "broker unfenced")
            case ShutdownAsked(timeout_ms):
                logger.debug("controlled shutdown asked for", timeout_ms=timeout_ms)
            case ShutdownAllowed():
                logger.debug("controlled shutdown allowed")
            case LogsClosed(is_clean):
                logger.debug("log directories closed", is_clean=is_clean)
            case CleanShutdownMarked(broker_epoch):
                logger.debug("clean shutdown marked", broker_epoch=broker_epoch)
            case DirectoryLost(path, reason):
                logger.debug("log directory lost", path=path, reason=reason)
            case LeadershipBegun(partition, epoch, offset):
                logger.debug("leadership begun", partition=_text(partition), leader_epoch=epoch, start_offset=offset)
            case LeadershipRefused(partition, epoch, reason):
                logger.debug("leadership refused", partition=_text(partition), leader_epoch=epoch, reason=reason)
            case LeadershipEnded(partition, epoch):
                logger.debug("leadership ended", partition=_text(partition), leader_epoch=epoch)
            case ReplicaStaysOut():
                self._log_replica(decision)
            case IsrChanged(name, isr, changed):
                logger.debug("ISR changed", partition=name, isr=list(isr), changed=list(changed))
            case LogTruncated(partition, epoch, start, end):
                logger.debug(
                    "log truncated", partition=_text(partition), leader_epoch=epoch, from_offset=start, to_offset=end
                )
            case LogStartedOver(partition, epoch, start, end):
                logger.debug(
                    "log started over", partition=_text(partition), leader_epoch=epoch, from_offset=start, to_offset=end
                )
            case _:
                pass

    def _log_registration(self, decision: RegistrationAsked | RegistrationRefused | RegistrationLost) -> None:
        match decision:
            case RegistrationAsked(incarnation_id, epoch):
                incarnation = uuid_to_text(incarnation_id)
                self._log_at_rate("registration asked for", incarnation_id=incarnation, previous_broker_epoch=epoch)
            case RegistrationRefused(incarnation_id, error, reason, is_final):
                incarnation = uuid_to_text(incarnation_id)
                self._log_at_rate(
                    "registration refused", incarnation_id=incarnation, error=error, reason=reason, is_final=is_final
                )
            case RegistrationLost(broker_epoch, error):
                self._log_at_rate("registration lost", broker_epoch=broker_epoch, error=error)

    def _log_replica(self, decision: ReplicaStaysOut) -> None:
        """Log once for each change of the reasons, since a replica fetches many times a second."""
        key = (decision.partition, decision.replica)
        if self._reasons.get(key) == decision.reasons:
            return
        if len(self._reasons) >= REPLICAS_MAX:
            self._reasons.clear()
        self._reasons[key] = decision.reasons
        logger.debug(
            "replica stays out of the ISR", partition=_text(decision.partition), replica=decision.replica,
            reasons=list(decision.reasons),
        )  # fmt: skip


def _text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition_id}"
