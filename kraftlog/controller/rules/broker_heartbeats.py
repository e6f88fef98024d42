"""Which brokers are alive, as the active controller remembers it (CT-30), and how heartbeats change them (CT-35).

Nothing of this is in the log: a controller that becomes active starts over, and gives every unfenced broker a whole
session. Times are arguments: monotonic, in milliseconds, and never lower than an earlier one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord


class BrokerState(Enum):
    """The state of a broker, as the heartbeat table names it."""

    FENCED = auto()
    """The broker is in no ISR and leads nothing."""
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    """The broker is unfenced, and its leaderships are being moved."""
    SHUTDOWN_NOW = auto()
    """The broker is fenced, and instructed to shut down."""


def state_of(broker: RegisterBrokerRecord) -> BrokerState:
    """The state in a registration; never SHUTDOWN_NOW, which is only in answers."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def next_state(
    current: BrokerState,
    *,
    want_fence: bool,
    want_shut_down: bool,
    is_caught_up: bool,
    leads_any: bool,
    controlled_shutdown_offset: int | None,
    lowest_active_offset: int | None,
) -> BrokerState:
    """The state that a heartbeat gives a broker in the state `current`: the table of CT-35.

    `controlled_shutdown_offset` is where its controlled shutdown began, None: not known yet; the broker may stop
    only when every active one has applied that. `lowest_active_offset` is the end offset of the metadata that the
    slowest active broker has applied, None: no broker is active.
    """
    match current:
        case BrokerState.FENCED:
            if want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            return BrokerState.UNFENCED if is_caught_up and not want_fence else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if not want_shut_down:
                return BrokerState.FENCED if want_fence else BrokerState.UNFENCED
            return BrokerState.CONTROLLED_SHUTDOWN if leads_any and not want_fence else BrokerState.SHUTDOWN_NOW
        case BrokerState.CONTROLLED_SHUTDOWN:
            if leads_any or controlled_shutdown_offset is None:
                return BrokerState.CONTROLLED_SHUTDOWN
            # Consider broker 1, whose leaderships were moved by records up to offset 799: its controlled shutdown is at
            # 800. Broker 2 has applied the metadata below 820, broker 3 below 750. Broker 3 may still send fetches, and
            # clients, to broker 1. So broker 1 stays up, and may stop once broker 3 has reported 800 or more.
            is_known = lowest_active_offset is None or controlled_shutdown_offset <= lowest_active_offset
            return BrokerState.SHUTDOWN_NOW if is_known else BrokerState.CONTROLLED_SHUTDOWN
        case BrokerState.SHUTDOWN_NOW:
            return BrokerState.SHUTDOWN_NOW


@dataclass(slots=True)
class _Session:
    """The session of one unfenced broker."""

    last_contact_ms: float
    metadata_offset: int
    controlled_shutdown_offset: int | None = None


class BrokerHeartbeats:
    """The sessions of unfenced brokers. Fenced ones have none (CT-30)."""

    def __init__(self, session_timeout_ms: float) -> None:
        """A broker that is silent for `session_timeout_ms` is to be fenced; ValueError unless that is above 0."""
        if session_timeout_ms <= 0:
            raise ValueError(f"session_timeout_ms is {session_timeout_ms}; it must be above 0")
        self.session_timeout_ms: Final = session_timeout_ms
        self.timeouts = 0
        """How many sessions ended because the broker was silent."""
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        """By broker id, the longest silent first."""

    # --- changes ------------------------------------------------------------------------------------------------------

    def take_over(self, brokers: Iterable[RegisterBrokerRecord], now_ms: float) -> None:
        """Forget everything, and give each unfenced broker a session that begins now.

        To be called when the controller becomes active. The progress of controlled shutdowns is not known then:
        `begin_controlled_shutdown` follows.
        """
        self._sessions.clear()
        for broker in brokers:
            if not broker.fenced:
                self.touch(broker.broker_id, UNKNOWN_OFFSET, now_ms)

    def touch(self, broker_id: int, metadata_offset: int, now_ms: float) -> None:
        """An unfenced broker is alive and has applied metadata below that offset; its session begins or continues."""
        session = self._sessions.get(broker_id)
        if session is None:
            self._sessions[broker_id] = _Session(now_ms, metadata_offset)
            return
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset
        self._sessions.move_to_end(broker_id)

    def begin_controlled_shutdown(self, broker_id: int, end_offset: int) -> None:
        """The record of the shutdown, and those that take leadership from the broker, are below `end_offset`.

        The broker is no longer active; a later call changes nothing, nor does one for a broker whose session has ended.
        """
        session = self._sessions.get(broker_id)
        if session is not None and session.controlled_shutdown_offset is None:
            session.controlled_shutdown_offset = end_offset

    def remove(self, broker_id: int) -> None:
        """The broker was fenced, registered again or unregistered: its session, if it has one, has ended."""
        self._sessions.pop(broker_id, None)

    def expire(self, broker_id: int) -> None:
        """The broker was fenced for its silence: its session has ended, and counts as timed out."""
        if self._sessions.pop(broker_id, None) is not None:
            self.timeouts += 1

    # --- reads --------------------------------------------------------------------------------------------------------

    def last_contact_ms(self, broker_id: int) -> float | None:
        """When the broker's last heartbeat arrived; None if it has no session."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.last_contact_ms

    def has_session(self, broker_id: int, now_ms: float) -> bool:
        """Whether the broker is unfenced and has sent a heartbeat within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms < self._deadline_ms(session)

    def stale_broker(self, now_ms: float) -> int | None:
        """The longest silent broker, if its session has expired. Changes nothing: see `expire`."""
        broker_id = next(iter(self._sessions), None)
        return broker_id if broker_id is not None and not self.has_session(broker_id, now_ms) else None

    @property
    def next_deadline_ms(self) -> float | None:
        """When there will be a stale broker if no heartbeat arrives; None if no broker has a session."""
        oldest = next(iter(self._sessions.values()), None)
        return None if oldest is None else self._deadline_ms(oldest)

    def active_metadata_offsets(self) -> dict[int, int]:
        """The end offset of what each active broker has applied, by broker id: neither fenced nor shutting down."""
        return {
            broker_id: session.metadata_offset
            for broker_id, session in self._sessions.items()
            if session.controlled_shutdown_offset is None
        }

    def lowest_active_metadata_offset(self) -> int | None:
        """The lowest of these, -1 if a broker has not reported its own; None if no broker is active."""
        return min(self.active_metadata_offsets().values(), default=None)

    def controlled_shutdown_offset(self, broker_id: int) -> int | None:
        """Where the broker's controlled shutdown began; None if it did not."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.controlled_shutdown_offset

    def _deadline_ms(self, session: _Session) -> float:
        return session.last_contact_ms + self.session_timeout_ms
