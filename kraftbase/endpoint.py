"""Where a node or a broker listens, and what a connection to it finds."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Endpoint(NamedTuple):
    """Where a replica listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Reply(Enum):
    """What the kernel of a machine replies to a connection."""

    ACCEPTED = auto()
    REFUSED = auto()
    """No process listens there, by the word of the kernel."""
    UNKNOWN = auto()
    """Anything else: no reply in time, no way there, an unknown name. It says nothing of the process."""
