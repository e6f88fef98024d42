"""Incarnation ids of brokers in a cluster that was restored from a snapshot, until they register in it (CT-39).

They are not random uuids of version 4, as those of processes are, so the two cannot be confused.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

_PREFIX: Final = b"restored"
_ID_BYTES: Final = 8

LEFT_OUT: Final = _PREFIX + bytes(_ID_BYTES)
"""For a broker whose disks were unknown when the cluster was restored."""


def adopted_as(disk_id: UUID) -> bytes:
    """For a broker that was adopted with these disks."""
    return _PREFIX + disk_id.bytes[:_ID_BYTES]


def is_awaited(incarnation_id: bytes) -> bool:
    """Whether the id is of a broker that has not registered since the cluster was restored."""
    return incarnation_id.startswith(_PREFIX)
