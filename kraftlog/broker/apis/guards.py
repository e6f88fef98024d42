"""Changes that a broker refuses before it asks the controller, because they would harm coordinators.

Kafka lets authorized clients change internal topics (DB-114). Here, without authorization, every client could.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftbase.errors import ApiError, ErrorCode
from statemachine.words.config_definitions import CLEANUP_POLICY, invalid_config
from statemachine.words.names import INTERNAL_TOPICS


def check_not_internal(topic: str) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) for a topic that only coordinators may delete or enlarge."""
    if topic in INTERNAL_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic} is internal: its number of partitions decides where coordinators find committed offsets",
        )


def check_changed_configs(topic: str, changes: Sequence[tuple[str, int, str | None]]) -> None:
    """Raise ApiError(INVALID_CONFIG) if clients may not change one of these configs of a topic, given by name first."""
    if topic in INTERNAL_TOPICS and any(name == CLEANUP_POLICY for name, *_ in changes):
        raise invalid_config(f"{topic} is internal: another {CLEANUP_POLICY} would lose committed data; keep it")
