"""The checks after all faults have ended. Each returns its violations as texts, or an empty list."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, CorruptSnapshot
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId, Offset
from kraftlog.admin.client.connection import connect
from kraftlog.chaos.availability import ACKNOWLEDGED_MIN, WINDOW_SECONDS, Window
from kraftlog.chaos.committed import CommittedLog, committed_log
from kraftlog.local.cluster import LocalCluster
from kraftlog.sim.quorum.registers.history import History, Kind, Operation, Outcome
from kraftlog.sim.quorum.registers.linearizability import CheckResult, check_history
from kraftlog.sim.quorum.registers.oracle import HistoryViolation, OffsetOracle
from kraftpb.v1.snapshot_pb2 import CreateSnapshotRequest
from kraftpb.v1.snapshot_pb2_grpc import SnapshotServiceStub
from raft.core.types import OffsetAndEpoch
from raft.storage.directory import METADATA_DATABASE_NAME, SNAPSHOTS_NAME
from snapshot.store import SnapshotStore
from statemachine.query.metadata_queries import applied_end_offset, digest
from statemachine.tables.database import open_reader

LEVEL_TIMEOUT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
SNAPSHOT_TIMEOUT_SECONDS: Final = 60.0
STEPS_MAX: Final = 2_000_000
"""A register whose search for an order takes more steps is undecided."""

STORIES_MAX: Final = 20
"""How many violations of one kind are reported; the rest are counted."""


async def until_level(cluster: LocalCluster) -> Offset:
    """Wait until every node has committed and applied the same, and return its end. Raises ApiError."""
    await cluster.wait_for_leader(LEVEL_TIMEOUT_SECONDS)
    async with asyncio.timeout(LEVEL_TIMEOUT_SECONDS):
        while True:
            nodes = [await cluster.describe(node_id) for node_id in cluster.node_ids]
            ends = {(node.log_end_offset, node.high_watermark, node.applied_end_offset) for node in nodes}
            if len(ends) == 1 and len(set(ends.copy().pop())) == 1:
                return Offset(nodes[0].log_end_offset)
            await asyncio.sleep(POLL_SECONDS)


async def logs_agree(cluster: LocalCluster, followed: CommittedLog, end_offset: Offset) -> list[str]:
    """Check that every node has, from its log start on, the same committed bytes as the follower got during the run."""
    wrong = [f"the follower of the log got gaps: {gap}" for gap in followed.gaps[:STORIES_MAX]]
    if followed.end_offset != end_offset:
        wrong.append(f"the follower is at offset {followed.end_offset}, the nodes are at {end_offset}")
    for node_id in cluster.node_ids:
        try:
            start_offset = Offset((await cluster.describe(node_id)).log_start_offset)
            log = await committed_log(cluster.endpoint(node_id), start_offset, end_offset, cluster.cluster_id)
        except ApiError as error:
            wrong.append(f"the log of node {node_id} cannot be read: {error}")
            continue
        if log.digest() != followed.digest(start_offset):
            difference = _first_difference(log, followed, start_offset)
            wrong.append(f"node {node_id} has another committed log from {start_offset} to {end_offset}: {difference}")
    return wrong


def _first_difference(log: CommittedLog, followed: CommittedLog, start_offset: Offset) -> str:
    writes = [write for write in followed.writes if write.offset >= start_offset]
    for own, other in zip(log.writes, writes, strict=False):
        if own != other:
            return f"{own} instead of {other}"
    return f"{len(log.writes)} writes instead of {len(writes)}, or batches that hold none differ"


async def log_starts(cluster: LocalCluster) -> list[int]:
    """Return the log start offsets of the nodes."""
    return [(await cluster.describe(node_id)).log_start_offset for node_id in cluster.node_ids]


def databases_agree(cluster: LocalCluster) -> list[str]:
    """Check that every node's state machine has the same state, at the same offset."""
    found = {node_id: _state(cluster.directory.data_path(node_id)) for node_id in cluster.node_ids}
    return [] if len(set(found.values())) == 1 else [f"the nodes' databases differ: {_listed(found)}"]


def _state(data_directory: Path) -> tuple[int, str]:
    with closing(open_reader(data_directory / METADATA_DATABASE_NAME)) as connection:
        return applied_end_offset(connection), digest(connection)


async def snapshots_agree(cluster: LocalCluster) -> tuple[int, list[str]]:
    """Let every node take a snapshot, when all have applied the same; return the number of snapshots and violations.

    All snapshots must be whole, and snapshots with one id equal. So the rows of the databases are compared, too.
    """
    wrong, last = [], set()
    for node_id in cluster.node_ids:
        try:
            async with connect(cluster.endpoint(node_id)) as channel:
                stub = SnapshotServiceStub(channel)
                taken = await stub.CreateSnapshot(CreateSnapshotRequest(), timeout=SNAPSHOT_TIMEOUT_SECONDS)
        except ApiError as error:
            wrong.append(f"node {node_id} takes no snapshot: {error}")
        else:
            last.add((taken.snapshot.snapshot_id.end_offset, taken.snapshot.snapshot_id.epoch))
    if len(last) > 1:
        wrong.append(f"the nodes have applied the same, but their snapshots end at {sorted(last)}")
    digests: dict[OffsetAndEpoch, dict[NodeId, str]] = {}
    for node_id in cluster.node_ids:
        store = SnapshotStore(PosixFileSystem(), str(cluster.directory.data_path(node_id) / SNAPSHOTS_NAME))
        for snapshot_id in store.ids():
            try:
                with store.open(snapshot_id) as reader:
                    digests.setdefault(snapshot_id, {})[node_id] = reader.verify().digest.hex()
            except CorruptSnapshot as error:
                wrong.append(f"node {node_id}: {error}")
    for snapshot_id, by_node in digests.items():
        if len(set(by_node.values())) > 1:
            wrong.append(f"the nodes' snapshots that end at {snapshot_id.offset} differ: {by_node}")
    return sum(map(len, digests.values())), wrong


def _listed(found: Mapping[NodeId, tuple[int, str]]) -> str:
    return ", ".join(f"node {node_id} at offset {end} {value}" for node_id, (end, value) in found.items())


def nothing_lost(operations: Iterable[Operation], log: CommittedLog) -> list[str]:
    """Check that every acknowledged operation is at the offset in its answer."""
    at = {write.offset: write for write in log.writes}
    lost = []
    for operation in operations:
        if operation.kind is Kind.WRITE and operation.outcome is Outcome.ACKNOWLEDGED:
            write = at.get(operation.offset if operation.offset is not None else -1)
            if write is None or (write.key, write.value) != (operation.key, operation.value):
                lost.append(f"acknowledged and lost: {operation}; the log has {write} there")
    return lost


def answers_agree(history: History, log: CommittedLog) -> list[str]:
    """Check that every answer follows from the log at the offset that it names, and that their order is possible."""
    oracle = OffsetOracle(history)
    try:
        oracle.committed(log.writes, log.end_offset)
        oracle.at_end()
    except HistoryViolation as violation:
        return [f"an answer and the log contradict each other: {violation}"]
    return []


def linearizable(history: History) -> tuple[Counter[CheckResult], list[str]]:
    """Check without the log that each register's operations are linearizable; return the counts and the violations."""
    results: Counter[CheckResult] = Counter()
    wrong = []
    for key, (result, story) in check_history(history, STEPS_MAX).items():
        results[result] += 1
        if result is CheckResult.NOT_LINEARIZABLE:
            wrong.append(f"the operations on {key} have no order: {story}")
    return results, wrong


def windows_served(windows: Sequence[Window], began: float) -> list[str]:
    """Check that every window in which service was owed was served."""
    return [
        f"only {window.acknowledged} writes were acknowledged in the {WINDOW_SECONDS:g} s from"
        f" {window.start - began:.1f} s, although a majority was up and connected; {ACKNOWLEDGED_MIN} are required"
        for window in windows
        if not window.is_served
    ]
