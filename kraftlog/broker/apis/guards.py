"""What a broker refuses before it asks the controller: what would harm coordinators.

Kafka leaves internal topics to those who are authorized (DB-114); here everybody is.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.errors import ApiError, ErrorCode
from statemachine.words.config_definitions import CLEANUP_POLICY, invalid_config
from statemachine.words.names import INTERNAL_TOPICS


def check_not_internal(topic: str) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) for a topic that only coordinators may delete or make larger."""
    if topic in INTERNAL_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic} is internal: coordinators find in it what was committed, by its number of partitions",
        )


def check_changed_configs(topic: str, changes: Sequence[tuple[str, int, str | None]]) -> None:
    """Raise ApiError(INVALID_CONFIG) if a client may not change one of these configs of a topic; names come first."""
    if topic in INTERNAL_TOPICS and any(name == CLEANUP_POLICY for name, *_ in changes):
        raise invalid_config(f"{topic} is internal: its {CLEANUP_POLICY} stays as it is, or what was committed is lost")
