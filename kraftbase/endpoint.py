"""Where a node listens."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """Where a replica listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
