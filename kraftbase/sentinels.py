"""Kafka's numbers for what is unknown or does not exist, which is -1 nearly everywhere.

A name says which value is missing, so that a reader of a comparison need not know the number.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kraftbase.types import Offset

NO_LEADER: Final = -1
"""For a quorum: its leader is not known. For a partition: it has no leader."""

UNKNOWN_OFFSET: Final = Offset(-1)
"""An offset that is not known, or that does not exist."""

UNKNOWN_HIGH_WATERMARK: Final = Offset(-1)
"""The high watermark of a replica that does not know one yet (KIP-1166)."""

HIGH_WATERMARK_NOT_SENT: Final = Offset(2**63 - 1)
"""What the receiver assumes when a Fetch carries no high watermark, as versions below 18 do (KIP-1166)."""

UNKNOWN_EPOCH: Final = -1
"""A leader's or a broker's epoch that is not known, or that does not exist."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
"""The epoch of a transaction's coordinator if none has written an end marker."""

NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

ZERO_DIRECTORY_ID: Final = UUID(int=0)
"""Stands for "no directory id"; refused as a replica's own (RF-02)."""
