"""Changes of leaders and replicas: one line for every partition that gets another leader or other replicas.

    python -m examples.partition_moves localhost:9092

The program keeps the metadata in a database that it deletes at the end, and receives the changes of each commit. It
begins with the log's first record, so the first lines show earlier moves.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from kraftbase.ids import id_to_bytes
from kraftlog import Offset, observe, parse_endpoint
from kraftlog.admin.client.connection import describe_any
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.apply.machine_listener import MachineListener, machine_on_loop
from statemachine.apply.publishers import MetadataPublisher
from statemachine.replay.deltas import MetadataDelta
from statemachine.store.store import MetadataStore


class PartitionMoves:
    """Writes a line for each partition that moves."""

    def __init__(self, write: Callable[[str], None] = print) -> None:
        self._write = write
        self._names: dict[bytes, str] = {}

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Learn the names of all topics."""
        topics = metadata.execute("SELECT topic_id, name FROM topics")
        self._names = {id_to_bytes(topic_id): name for topic_id, name in topics}

    def on_delta(self, delta: MetadataDelta) -> None:
        """Write a line for each partition that existed before and after the change and has moved."""
        for topic in delta.topics:
            if topic.after is not None:
                self._names[topic.after.topic_id] = topic.after.name
        for partition in delta.partitions:
            before, after = partition.before, partition.after
            if before is None or after is None:
                continue
            moves = ", ".join(_moves(before, after))
            if moves:
                self._write(f"{self._names[after.topic_id]}-{after.partition_id}: {moves}")


def _moves(before: PartitionRecord, after: PartitionRecord) -> Iterator[str]:
    if before.leader != after.leader:
        yield f"leader {_leader(before)} -> {_leader(after)}"
    if before.replicas != after.replicas:
        yield f"replicas {list(before.replicas)} -> {list(after.replicas)}"


def _leader(partition: PartitionRecord) -> str:
    return "none" if partition.leader < 0 else str(partition.leader)


async def follow_metadata(
    address: str, publisher: MetadataPublisher, directory: Path, end_offset: Offset | None = None
) -> None:
    """Call `publisher` with what each commit of a cluster changes. `directory` keeps the metadata.

    A later call with the same directory continues where this one ended. Without `end_offset` it never ends.
    """
    cluster_id = (await describe_any([parse_endpoint(address)])).cluster_id
    with closing(MetadataStore.open(directory / "metadata.db", cluster_id)) as store, machine_on_loop(store) as machine:
        machine.install_publisher(publisher)
        await observe(
            address,
            MachineListener(machine),
            start_offset=store.applied_end_offset,
            end_offset=end_offset,
            cluster_id=cluster_id,
        )


def main() -> None:
    """Follow the cluster until interrupted."""
    if len(sys.argv) != 2:
        print("usage: python -m examples.partition_moves HOST:PORT", file=sys.stderr)
        sys.exit(2)
    try:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(follow_metadata(sys.argv[1], PartitionMoves(), Path(directory)))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
