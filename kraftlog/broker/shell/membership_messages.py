"""Messages about a broker's membership: each wait and its end is reported once, not at each attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from kraftbase.errors import ApiError

REGISTERED: Final = "broker registered"
"""The log event of each registration."""
CONTROLLER_LOST: Final = (
    "no controller answers: this broker still serves what it leads, but topics, leaders and ISRs cannot change until a"
    " majority of the voters is up"
)
CONTROLLER_BACK: Final = "the controller answers again"
CONTROLLER_LOST_MS: Final = 5_000
"""Without an answer for this long the controller counts as lost: longer than a change of controllers takes."""

logger = structlog.get_logger(__name__)


class MembershipMessages:
    """The messages of one membership. Not thread-safe."""

    def __init__(self, broker_id: int, tell: Callable[[str], None], now_ms: Callable[[], float]) -> None:
        """`tell` passes a message to the user who started the broker."""
        self._broker_id = broker_id
        self._tell = tell
        self._now_ms = now_ms
        self._waits_for_another = False
        self._waits_for_nodes = False
        self._unanswered_since_ms: float | None = None
        """The time of the first failed request since the last answer."""
        self._has_lost_controller = False

    def registered(self, broker_epoch: int) -> None:
        """The broker has registered."""
        logger.info(REGISTERED, broker_id=self._broker_id, epoch=broker_epoch)
        if self._waits_for_another:
            self._waits_for_another = False
            self._tell(f"The other incarnation's session has expired: broker {self._broker_id} is registered.")

    def wait_for_another(self) -> None:
        """The broker waits for another incarnation's session to expire: report it once, with what the user can do."""
        if not self._waits_for_another:
            self._waits_for_another = True
            self._tell(
                f"Broker {self._broker_id} waits: another incarnation of it runs, or ran a moment ago. If it still"
                " runs, stop it, or use another id; when its session expires, this one registers by itself."
            )

    def wait_for_nodes(self, error: ApiError) -> None:
        """The broker waits for the nodes of its cluster: report it once."""
        if not self._waits_for_nodes:
            self._waits_for_nodes = True
            self._tell(f"Broker {self._broker_id} waits for its cluster: {error}. It registers when a node answers.")

    def answered(self) -> None:
        """The controller has answered a heartbeat."""
        self._unanswered_since_ms = None
        if self._has_lost_controller:
            self._has_lost_controller = False
            logger.warning(CONTROLLER_BACK, broker_id=self._broker_id)

    def unanswered(self, error: ApiError, *, was_registered: bool) -> None:
        """An attempt got no answer; report once that a registered broker has lost the controller."""
        logger.info("registration or heartbeat failed", broker_id=self._broker_id, reason=str(error))
        now_ms = self._now_ms()
        if self._unanswered_since_ms is None:
            self._unanswered_since_ms = now_ms
        is_lost = was_registered and now_ms - self._unanswered_since_ms >= CONTROLLER_LOST_MS
        if is_lost and not self._has_lost_controller:
            self._has_lost_controller = True
            logger.warning(CONTROLLER_LOST, broker_id=self._broker_id, reason=str(error))
