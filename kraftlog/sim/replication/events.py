"""What must happen in a sweep of worlds of replication, or the sweep proves less than it says."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.replication.parameters import FAULT_KINDS, LATER_KINDS, ROT

REQUIRED: Final = (
    *(f"fault: {kind}" for kind in (*FAULT_KINDS, ROT, *LATER_KINDS)),
    "a damaged log was copied anew",
    *(f"damaged {kind}" for kind in DAMAGES),
    *(f"as it was, after '{kind}'" for kind in DAMAGES),
    "a log with damaged files was copied anew",
    "an operator put files back",
    *(f"ended: {crash}" for crash in Crash),
    "a broker started",
    "killed between two operations",
    "killed at its start",
    "killed at its end",
    "asked to end at its start",
    "shut down cleanly",
    "an operation failed",
    "an ISR shrank",
    "an ISR grew",
    "an ISR was changed: NONE",
    "an ISR was changed: FENCED_LEADER_EPOCH",
    "an ISR was changed: INVALID_UPDATE_VERSION",
    "an ISR was changed: NEW_LEADER_ELECTED",
    "an ISR was not changed: REQUEST_TIMED_OUT",
    "a leader was elected",
    "an unclean leader was elected",
    "a partition lost its leader",
    "a broker began to lead",
    "a replica out of the ISR is eligible",
    "a replica was removed",
    "a follower cut its log",
    "a fetch of an old broker epoch came",
    "what was acknowledged may be lost with the power",
    "network: clogged",
    "network: lost on a cut link",
    "produce: acks=1",
    "produce: acks=-1",
    "produce: acks=1, idempotent",
    "produce: acks=-1, idempotent",
    "produce: NONE",
    "produce: sent again",
    "a producer raised its epoch",
    "produce: NOT_LEADER_OR_FOLLOWER",
    "produce: NOT_ENOUGH_REPLICAS",
    "produce: KAFKA_STORAGE_ERROR",
    "produce: REQUEST_TIMED_OUT",
    "produce: BROKER_NOT_AVAILABLE",
    "produce: OUT_OF_ORDER_SEQUENCE_NUMBER",
    "a duplicate was acknowledged",
    "transaction: ABORT",
    "transaction: COMMIT",
    "a transaction was left open",
    "fetch: NONE",
    "fetch: NOT_LEADER_OR_FOLLOWER",
    "fetch: OFFSET_OUT_OF_RANGE",
    "a reader got records",
    "a follower gave records",
    "a reader was sent to a follower",
    "a broker had to register again",
    "elect preferred: NONE",
    "elect uncleanly: NONE",
    "reassign: NONE",
    "cancel: NONE",
    "min.insync.replicas: NONE",
    "delete topic: NONE",
    "delete records: NONE",
    "fence: NONE",
    "throttle: NONE",
    "unregister: NONE",
    "a disk became an older copy",
    "an older copy of a disk was found",
    "an operator had an older copy, or another replica, elected",
    *(f"a node without a leader was asked: {name}" for name in ("register_broker", "broker_heartbeat")),
    "a node without a leader was asked: alter_partition",
    "a disk was not there",
    "a disk was there again",
)  # fmt: skip


def missing_events(marks: Marks) -> list[str]:
    """Those that did not happen."""
    return [name for name in REQUIRED if not marks.counts[name]]
