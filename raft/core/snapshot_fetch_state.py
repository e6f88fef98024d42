"""The progress of the fetch of a snapshot (SN-12)."""

from __future__ import annotations

from dataclasses import dataclass

from kraftbase.types import Epoch
from raft.core.types import OffsetAndEpoch


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot that is being fetched. `fetch_id` distinguishes it from other fetches of the same snapshot."""

    fetch_id: int
    snapshot_id: OffsetAndEpoch
    offered_in: Epoch
    """The epoch whose leader last offered it: a later leader is asked for records first."""
    position: int = 0
    """How many of its bytes have arrived."""
    size: int | None = None
    """Its size in bytes; None until the first answer."""
    is_writing: bool = False
    """Whether an AppendSnapshot or FreezeSnapshot is in progress."""
