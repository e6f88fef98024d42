"""Observes logs and snapshots of a running cluster, through its files, its log lines and its leader."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError
from kraftbase.types import NodeId, Offset
from kraftlog.admin.client.connection import describe_quorum
from kraftlog.local.cluster import LocalCluster
from kraftpb.v1 import quorum_pb2
from raft.storage.directory import LOG_NAME, SNAPSHOTS_NAME
from snapshot.log_start_policy import LogStartPolicy
from snapshot.names import parse_snapshot_name

SAMPLE_SECONDS: Final = 0.1

_LOADING: Final = re.compile(r"event='loading a snapshot' end_offset=(\d+)")
_STARTS_OVER: Final = re.compile(r"event='the log starts over where a snapshot ends' start=(\d+)")
_TAKEN: Final = re.compile(r"event='snapshot taken' path=\S*?(\d{20})-\d{10}\.checkpoint")


class NodeLog:
    """A node's log lines since this object was created."""

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        """Only lines from now on count, unless `whole` is set."""
        self._path = path
        self._position = 0 if whole else path.stat().st_size

    def loaded(self) -> list[Offset]:
        """The end offsets of the snapshots that its state machine loaded."""
        return _offsets(_LOADING, self._text())

    def taken(self) -> list[Offset]:
        """The end offsets of the snapshots that it took itself."""
        return _offsets(_TAKEN, self._text())

    def downloaded(self) -> list[Offset]:
        """The end offsets of the snapshots that replaced its log and that it had not taken itself."""
        own = set(NodeLog(self._path, whole=True).taken())
        return [offset for offset in _offsets(_STARTS_OVER, self._text()) if offset not in own]

    def _text(self) -> str:
        with self._path.open("rb") as file:
            file.seek(self._position)
            return file.read().decode("utf-8", "replace")


def _offsets(pattern: re.Pattern[str], text: str) -> list[Offset]:
    return [Offset(int(found)) for found in pattern.findall(text)]


def snapshot_sizes(cluster: LocalCluster, node_id: NodeId) -> dict[Offset, int]:
    """The node's snapshots by their end offsets."""
    found = {}
    for path, size in _files(cluster.directory.data_path(node_id) / SNAPSHOTS_NAME):
        snapshot_id = parse_snapshot_name(path.name)
        if snapshot_id is not None:
            found[snapshot_id.offset] = size
    return found


def log_bytes(cluster: LocalCluster, node_id: NodeId) -> int:
    """Return the size of all of the node's segments together."""
    files = _files(cluster.directory.data_path(node_id) / LOG_NAME)
    return sum(size for path, size in files if path.suffix == ".log")


def _files(directory: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files of a directory with their sizes. A node may remove files at the same time."""
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            with suppress(FileNotFoundError):
                yield path, path.stat().st_size


class Observation:
    """What was observed of a cluster's logs."""

    def __init__(self, cluster: LocalCluster, policy: LogStartPolicy) -> None:
        self._cluster = cluster
        self._policy = policy
        self.snapshot_bytes: dict[Offset, int] = {}
        """The size of every snapshot that existed, by its end offset. At one offset it is the same on every node."""
        self.log_bytes_max = dict.fromkeys(cluster.node_ids, 0)
        """The largest total size of each node's segments."""
        self.log_records_max = dict.fromkeys(cluster.node_ids, 0)
        """The most records from a log's start to its end."""
        self.leaders: set[int] = set()
        self.overdue_seconds_max = 0.0
        """The longest time for which the leader's log start did not advance although it could."""
        self._due_since: float | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Observe within the block."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            with suppress(ApiError):
                self._look_at_quorum(await describe_quorum(self._cluster.bootstrap_servers))
            for node_id in self._cluster.node_ids:
                self.snapshot_bytes.update(snapshot_sizes(self._cluster, node_id))
                size = log_bytes(self._cluster, node_id)
                self.log_bytes_max[node_id] = max(self.log_bytes_max[node_id], size)
            await asyncio.sleep(SAMPLE_SECONDS)

    def _look_at_quorum(self, quorum: quorum_pb2.DescribeQuorumResponse) -> None:
        leader_id = NodeId(quorum.current_leader.leader_id)
        self.leaders.add(leader_id)
        for state in (*quorum.current_voters, *quorum.observers):
            node_id = NodeId(state.replica_key.node_id)
            if node_id in self.log_records_max and min(state.log_start_offset, state.log_end_offset) >= 0:
                records = state.log_end_offset - state.log_start_offset
                self.log_records_max[node_id] = max(self.log_records_max[node_id], records)
            if node_id == leader_id:
                self._look_at_start(leader_id, state.log_start_offset, quorum)

    def _look_at_start(self, leader_id: NodeId, start: int, quorum: quorum_pb2.DescribeQuorumResponse) -> None:
        """Measure how long the log start is overdue: retention always lets it advance to the next snapshot.

        With the eager policy it may reach the newest snapshot, otherwise the newest but one.
        """
        log = NodeLog(self._cluster.directory.log_path(leader_id), whole=True)
        # A snapshot's file exists before the process that writes it has ended, and only then the node knows of it.
        known = {*log.taken(), *log.downloaded()}
        files = snapshot_sizes(self._cluster, leader_id)
        stored = [offset for offset in sorted(files) if offset >= start and offset in known]
        steps = stored[1:] if self._policy is LogStartPolicy.EAGER else stored[:-1]
        step = next((offset for offset in steps if start < offset <= quorum.high_watermark), None)
        is_due = step is not None and not self._is_held(leader_id, step, quorum)
        now = time.monotonic()
        if not is_due:
            self._due_since = None
        else:
            self._due_since = self._due_since or now
            self.overdue_seconds_max = max(self.overdue_seconds_max, now - self._due_since)

    def _is_held(self, leader_id: NodeId, step: Offset, quorum: quorum_pb2.DescribeQuorumResponse) -> bool:
        """Whether the log start waits for a replica or listener that is below `step`. All replicas are live here."""
        if self._policy is LogStartPolicy.EAGER:
            return False
        replicas = (*quorum.current_voters, *quorum.observers)
        is_behind = any(state.log_end_offset < step for state in replicas if state.replica_key.node_id != leader_id)
        return is_behind or any(holder.listener for holder in quorum.log_start_holders)
