"""What a broker refuses before it asks the controller: what would harm coordinators, and what nothing serves.

Kafka leaves internal topics to those who are authorized (DB-114); here everybody is.
"""

from __future__ import annotations

from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from statemachine.words.config_definitions import CLEANUP_POLICY, REMOTE_STORAGE_ENABLE, invalid_config
from statemachine.words.config_kinds import trimmed
from statemachine.words.names import INTERNAL_TOPICS

_ON: Final = "true"

GUARDED_CONFIGS: Final = frozenset({CLEANUP_POLICY, REMOTE_STORAGE_ENABLE})
"""The configs of topics that `check_changed_config` looks at."""


def check_not_internal(topic: str) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) for a topic that only coordinators may delete or make larger."""
    if topic in INTERNAL_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic} is internal: coordinators find in it what was committed, by its number of partitions",
        )


def check_new_config(name: str, value: str | None) -> None:
    """Raise ApiError(INVALID_CONFIG) if no topic may be made with this config."""
    if name == REMOTE_STORAGE_ENABLE and value is not None and trimmed(value).lower() == _ON:
        raise invalid_config(f"{REMOTE_STORAGE_ENABLE}={_ON}: this cluster has no tiered storage")


def check_changed_config(topic: str, name: str, value: str | None) -> None:
    """Raise ApiError(INVALID_CONFIG) if a client may not give a topic's config this value; None is none of its own."""
    check_new_config(name, value)
    if name == CLEANUP_POLICY and topic in INTERNAL_TOPICS:
        raise invalid_config(f"{topic} is internal: its {CLEANUP_POLICY} stays as it is, or what was committed is lost")
