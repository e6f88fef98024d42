"""An audit trail of a running cluster: one line for every committed metadata record, from any node's address.

python -m examples.audit localhost:9092
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from google.protobuf import json_format

from kraftlog import BatchReader, LeaderAndEpoch, Listener, observe
from kraftpb.v1 import metadata_pb2


class AuditListener(Listener):
    """Writes each metadata record with its time and the epoch of the leader that appended it."""

    def __init__(self, write: Callable[[str], None] = print) -> None:
        self._write = write

    async def handle_commit(self, reader: BatchReader) -> None:
        """Write one line for each record."""
        with reader:
            for batch in reader:
                if batch.is_control:
                    continue
                when = datetime.fromtimestamp(batch.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
                records = metadata_pb2.MetadataBatch.FromString(batch.body).records
                for offset, record in enumerate(records, start=batch.base_offset):
                    kind = record.WhichOneof("record") or "unknown"
                    details = json_format.MessageToDict(getattr(record, kind)) if kind != "unknown" else {}
                    self._write(f"{when} offset={offset} epoch={batch.epoch} {kind} {details}")

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Write a line for each new leader."""
        self._write(f"leader={leader_and_epoch.leader_id} epoch={leader_and_epoch.epoch}")


def main() -> None:
    """Follow the cluster until interrupted."""
    if len(sys.argv) != 2:
        print("usage: python -m examples.audit HOST:PORT", file=sys.stderr)
        sys.exit(2)
    try:
        asyncio.run(observe(sys.argv[1], AuditListener()))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
