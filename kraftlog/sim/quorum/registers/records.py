"""Registers in the log: each is a config of a topic that has the register's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlog.sim.quorum.registers.oracle import CommittedWrite
from kraftpb.v1.metadata_pb2 import MetadataBatch
from raft.core.types import Batch
from raft.storage.batch import batch_body

CONFIG_NAME: Final = "value"


def committed_writes(batch: Batch) -> Iterator[CommittedWrite]:
    """Yield the writes of registers in a batch of the log."""
    if batch.is_control:
        return
    for offset, record in enumerate(MetadataBatch.FromString(bytes(batch_body(batch))).records, batch.base_offset):
        if record.WhichOneof("record") == "config" and record.config.name == CONFIG_NAME:
            yield CommittedWrite(offset, record.config.resource_name, record.config.value)
