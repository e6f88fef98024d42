"""Counts with strace how often a broker's process syncs the files of its log directory."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId
from kraftlog.local.brokers import HOST
from kraftlog.local.cluster_directory import free_endpoints

_SYNC: Final = re.compile(r"\b(?:fsync|fdatasync)\(\d+<([^>]*)>")


def find_strace() -> str | None:
    """Return the path of strace; None if it is not installed."""
    return shutil.which("strace")


class TracedPlaces:
    """Traces each broker from its start on. strace is not the broker's parent, so that signals reach the broker."""

    def __init__(self, strace: str, directory: Path) -> None:
        """The traces are written in `directory`, which exists."""
        self._strace = strace
        self._directory = directory
        self._endpoints: dict[NodeId, Endpoint] = {}

    def endpoint(self, node_id: NodeId, /) -> Endpoint:
        """Where a broker listens: at the same port after each start."""
        if node_id not in self._endpoints:
            (free,) = free_endpoints(1)
            self._endpoints[node_id] = Endpoint(HOST, free.port)
        return self._endpoints[node_id]

    def within(self, node_id: NodeId, /, command: Sequence[str]) -> list[str]:
        """Return the command line that runs another one in strace; a later start appends to the file."""
        path = str(self._trace(node_id))
        traced = "trace=fsync,fdatasync"
        return [self._strace, "-D", "-f", "-y", "--seccomp-bpf", "-e", traced, "-A", "-o", path, "--", *command]

    def count(self, broker_id: int, log_directory: Path) -> int:
        """Return how often a log directory, and files below it, were synced so far."""
        path = str(log_directory.resolve())
        synced = _SYNC.findall(self._trace(NodeId(broker_id)).read_text(encoding="utf-8", errors="replace"))
        return sum(name == path or name.startswith(f"{path}/") for name in synced)

    def _trace(self, node_id: NodeId) -> Path:
        return self._directory / f"trace-{node_id}"
