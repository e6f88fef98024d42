"""Coverage marks of the broker-log world: a sweep that misses one has tested less than it claims."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.broker_log.parameters import FAULT_KINDS
from kraftlog.sim.engine.virtual.crash import Crash

REQUIRED: Final = (
    *(f"fault: {kind}" for kind in FAULT_KINDS),
    *(f"damaged {kind}" for kind in DAMAGES),
    *(f"as it was, after '{kind}'" for kind in DAMAGES),
    *(f"ended: {crash}" for crash in Crash),
    *(f"killed before {operation}" for operation in (
        "create", "write_at", "truncate", "fsync", "fdatasync", "fsync_directory", "rename", "remove",
    )),
    "the broker started",
    "killed between two operations",
    "killed at its start",
    "shut down cleanly",
    "shut down with trouble",
    "an operation failed",
    "what was not flushed was lost",
    "produce: acks=0",
    "produce: acks=1",
    "produce: acks=-1",
    "produce: acks=1, idempotent",
    "produce: acks=-1, idempotent",
    "produce: NONE",
    "produce: KAFKA_STORAGE_ERROR",
    "produce: UNKNOWN_TOPIC_OR_PARTITION",
    "produce: OUT_OF_ORDER_SEQUENCE_NUMBER",
    "produce: INVALID_TIMESTAMP",
    "produce: INVALID_RECORD",
    "produce: UNKNOWN_TOPIC_ID",
    "produce: acks=0 refused",
    "produce: sent again",
    "a producer raised its epoch",
    "an answer was lost",
    "a duplicate was acknowledged",
    "fetch: NONE",
    "fetch: OFFSET_OUT_OF_RANGE",
    "fetch: KAFKA_STORAGE_ERROR",
    "a reader got records",
    "delete records: NONE",
    "delete records: KAFKA_STORAGE_ERROR",
    "segments were deleted",
    "a log was rolled",
    "a roll was refused",
    "segments were rewritten",
    "a rewrite was left",
    "a rewrite was refused",
    "a topic was deleted",
    "a leader was elected",
    "transaction: ABORT",
    "transaction: COMMIT",
    "a transaction stayed open",
    "a reader got an aborted transaction",
    "bytes: an answer waited for an earlier one",
    "bytes: a large request or answer took several slices",
    "bytes: acks=0 has no answer",
    "bytes: acks=0 that failed closed the connection",
    "bytes: a client sends nothing more",
    "bytes: a client is gone",
    "bytes: a client left amid a request",
)  # fmt: skip
