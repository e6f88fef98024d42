"""The batches in the files of replicas. Segments that have not changed since the last read are not parsed again."""

from __future__ import annotations

from typing import Final

from kraftbase.files.files import FileSystem, join, read_whole
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches
from kraftlog.sim.broker_log.checkers.rules import OFFSETS
from kraftlog.sim.engine.violation import Violation

_SUFFIX: Final = ".log"
_DIGITS: Final = 20


class ReplicaFiles:
    """The files of one broker's disk."""

    def __init__(self) -> None:
        self._segments: dict[str, tuple[bytes, list[Batch]]] = {}

    def read(self, files: FileSystem, directory: str) -> tuple[list[Batch], list[Batch]]:
        """Return every batch of a partition, in order, and those of the changed segments. Raises Violation."""
        found: list[Batch] = []
        changed: list[Batch] = []
        for name in files.list_directory(directory):
            if not name.endswith(_SUFFIX) or len(name) != _DIGITS + len(_SUFFIX):
                continue
            path = join(directory, name)
            data = bytes(read_whole(files, path))
            known = self._segments.get(path)
            if known is None or known[0] != data:
                batches = whole_batches(data)
                self._segments[path] = (data, batches)
                changed += batches
            else:
                batches = known[1]
            if found and batches and batches[0].base_offset <= found[-1].last_offset:
                raise Violation(f"{OFFSETS}: {path} begins before offset {found[-1].last_offset + 1}")
            found += batches
        return found, changed
