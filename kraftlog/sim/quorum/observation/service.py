"""What a node's upper half was asked for, and what it answered: operations and reads of its admin service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftbase.types import Offset

BEGINNING: Final = Offset(0)


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation or a read that a process has taken."""

    number: int
    """Of this process's own."""
    deadline_us: int
    """When it should have been answered, if the process's clock runs as fast as the world's."""
    is_read: bool = False
    min_applied_end_offset: Offset = BEGINNING
    """What the caller of a read wants to be applied."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to it."""

    number: int
    acknowledged_end_offset: Offset = BEGINNING
    """What must be committed for the operation to be carried out; 0: that is not claimed."""
    applied_end_offset: Offset | None = None
    """How much was applied to the rows of a read; None: it is no read, or was refused."""
    is_fenced: bool = False
    """Whether the state machine had stopped for good then."""


@dataclass(frozen=True, slots=True)
class FencedByEvidence:
    """A broker that a controller has fenced because its process has ended, as it says (CT-65)."""

    broker_id: int
    incarnation_id: bytes
    is_clock_right: bool
    """Whether the node's clock runs no faster than the world's, and has not leapt: evidence is a matter of 100 ms."""


@dataclass(slots=True)
class Watched:
    """What a publisher of a process knows: the topics that it was shown, with the changes since."""

    end_offset: Offset
    topics: dict[bytes, str]
    """Names, by the id."""
    is_out_of_order: bool = False
    """Whether a change came that does not follow on those before."""
