"""A node's log of leaders: each change, and in plain words that no leader is known, or that one is known again."""

from __future__ import annotations

import structlog

logger = structlog.get_logger(__name__)

LOST = "no leader is known: nothing can be changed until a majority of the voters has elected one"
FOUND = "there is a leader again"


class LeaderLog:
    """The log of one node. A starting node has not lost a leader, so its first leader is not logged as found again."""

    def __init__(self) -> None:
        self._has_lost = False
        self._had_one = False

    def note(self, leader_id: int | None, epoch: int, role: str) -> None:
        """Log the current leader; None: this node knows of none."""
        logger.info("leader", leader=leader_id, epoch=epoch, role=role)
        if leader_id is None:
            if self._had_one and not self._has_lost:
                self._has_lost = True
                logger.warning(LOST, epoch=epoch)
            return
        self._had_one = True
        if self._has_lost:
            self._has_lost = False
            logger.warning(FOUND, leader=leader_id, epoch=epoch)
