"""The operations and reads that a node's admin service received, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftbase.types import Offset

BEGINNING: Final = Offset(0)


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation or a read that a process received."""

    number: int
    """A number of this process."""
    deadline_us: int
    """When an answer is due, if the process's clock runs as fast as the world's."""
    is_read: bool = False
    min_applied_end_offset: Offset = BEGINNING
    """The end offset up to which the caller of a read requires records to be applied."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to an operation or a read."""

    number: int
    acknowledged_end_offset: Offset = BEGINNING
    """The offset up to which the log must be committed for the operation to take effect; 0: the answer claims nothing.
    """
    applied_end_offset: Offset | None = None
    """The applied end offset of the rows that a read returned; None for an operation and for a refused read."""
    is_fenced: bool = False
    """Whether the state machine was fenced when it answered."""


@dataclass(frozen=True, slots=True)
class FencedByEvidence:
    """A broker that a controller fenced on the evidence that its process has ended (CT-65)."""

    broker_id: int
    incarnation_id: bytes
    is_clock_right: bool
    """Whether the node's clock runs no faster than the world's and has not leapt. The evidence depends on 100 ms."""


@dataclass(slots=True)
class Watched:
    """The state of a publisher in a process: the topics it was shown, with all changes since."""

    end_offset: Offset
    topics: dict[bytes, str]
    """The names of topics, by id."""
    is_out_of_order: bool = False
    """Whether a change arrived that does not follow the earlier ones."""
