"""The address at which a node or a broker listens, and the reply to a connection to it."""

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
    """No process listens there, as the kernel reports."""
    UNKNOWN = auto()
    """Anything else: no reply in time, no route to it, an unknown name. It proves nothing about the process."""
