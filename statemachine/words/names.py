"""Kafka's rules for the names of topics (CT-21), and how messages show any name from a request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kraftbase.errors import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Longer names, with a partition number appended, would not be valid file names."""

METADATA_TOPIC: Final = "__cluster_metadata"

INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__share_group_state", "__transaction_state"))
"""Topics that coordinators write to, and clients only read."""

NAME_LENGTH_TAKEN_MAX: Final = 1_000
"""Names are repeated in answers. A request with a longer name is refused as a whole."""

QUOTED_LENGTH_MAX: Final = 100

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def quoted(name: str) -> str:
    """`name` as a message shows it: in quotes, and cut if it is long."""
    return repr(name) if len(name) <= QUOTED_LENGTH_MAX else f"{name[:QUOTED_LENGTH_MAX]!r}..."


def check_name_lengths(names: Iterable[str]) -> None:
    """Raise ApiError(INVALID_REQUEST) if a name is too long to be repeated in an answer, let alone valid."""
    for name in names:
        if len(name) > NAME_LENGTH_TAKEN_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the name {quoted(name)} has {len(name)} characters; at most {NAME_LENGTH_TAKEN_MAX} are accepted",
            )


def check_topic_name(name: str) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) unless a topic may have that name."""
    if not name:
        raise _invalid_topic_name("a topic needs a name")
    if name in (".", ".."):
        raise _invalid_topic_name(f"a topic cannot be named {quoted(name)}")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise _invalid_topic_name(
            f"the topic name {quoted(name)} has {len(name)} characters; at most {TOPIC_NAME_LENGTH_MAX} are allowed"
        )
    if not _LEGAL.match(name):
        raise _invalid_topic_name(
            f"the topic name {quoted(name)} is illegal; use only ASCII letters, digits, '.', '_' and '-'"
        )
    if name == METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is the log of the metadata itself; choose another name")


def may_collide(name: str) -> bool:
    """Whether another name can collide with this one: metrics are named with '_' for '.', so both cannot exist."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """The common form of colliding names."""
    return name.replace(".", "_")


def _invalid_topic_name(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
