"""Incarnation ids of brokers in a cluster that was restored from a snapshot, until they have come to it (CT-39).

They are no random uuids of version 4, as those of processes are, so none is taken for the other.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

_PREFIX: Final = b"restored"
_ID_BYTES: Final = 8

LEFT_OUT: Final = _PREFIX + bytes(_ID_BYTES)
"""Of a broker whose disks nobody knew when the cluster was restored."""


def adopted_as(disk_id: UUID) -> bytes:
    """Of a broker that was adopted with these disks."""
    return _PREFIX + disk_id.bytes[:_ID_BYTES]


def is_awaited(incarnation_id: bytes) -> bool:
    """Whether it is of a broker that has not registered since the cluster was restored."""
    return incarnation_id.startswith(_PREFIX)
