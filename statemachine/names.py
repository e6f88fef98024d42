"""Kafka's rules for the names of topics."""

from __future__ import annotations

import re
from typing import Final

from raft.core.errors import ErrorCode, ProtocolError

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Longer ones, with a partition number behind, would be no file names."""

METADATA_TOPIC: Final = "__cluster_metadata"

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str) -> None:
    """Raise ProtocolError(INVALID_TOPIC_EXCEPTION) unless a topic may have that name."""
    if not name:
        raise _invalid("a topic needs a name")
    if name in (".", ".."):
        raise _invalid(f"a topic cannot be named {name!r}")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise _invalid(f"the topic name has {len(name)} characters; at most {TOPIC_NAME_LENGTH_MAX} are allowed")
    if not _LEGAL.match(name):
        raise _invalid(f"the topic name {name!r} is illegal; use only ASCII letters and digits, '.', '_' and '-'")
    if name == METADATA_TOPIC:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{name} is the log of the metadata itself; choose another name")


def may_collide(name: str) -> bool:
    """Whether another name can collide with this one: metrics are named with '_' for '.', so both cannot be had."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """What names that collide have in common."""
    return name.replace(".", "_")


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
