"""Samples of nodes that there never were."""

from __future__ import annotations

from kraftbase.types import NodeId
from kraftlog.chaos.soak.samples import FileKind, ProcessSample, Sample

ONE = NodeId(1)


def sample(
    file_bytes: dict[FileKind, int] | None = None,
    *,
    at_seconds: float = 0.0,
    node_id: NodeId = ONE,
    snapshots: int = 0,
    process: ProcessSample | None = None,
) -> Sample:
    return Sample(at_seconds, node_id, {**dict.fromkeys(FileKind, 0), **(file_bytes or {})}, snapshots, process)


def process(
    *, pid: int = 7, resident_bytes: int = 0, descriptors: int = 0, threads: int = 0, written_bytes: int = 0
) -> ProcessSample:
    return ProcessSample(pid, resident_bytes, descriptors, threads, written_bytes)
