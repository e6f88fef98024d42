"""The inputs of a replica. Events are facts, in the past tense; `Replica.step` takes one and the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftbase.types import Epoch, Offset
from raft.core.messages import Request, Response
from raft.core.types import OffsetAndEpoch, StateDigest


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A peer sent a request. `request_id` identifies the call in the shell; exactly one Reply answers it."""

    request_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """The call with `request_id` was cancelled: drop its parked fetch; no Reply is needed."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The answer to the Send with that correlation id."""

    correlation_id: int
    response: Response
    is_without_room: bool = False
    """The disk had no room for the records of a fetch: they were dropped, and are not in `response`."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The Send with that correlation id gets no answer: not connected, refused, or a malformed answer."""

    correlation_id: int
    connection_refused: bool = False
    """No process listens at the address, as that machine's kernel reports."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Only time has passed; `next_deadline_ms` was reached."""


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """The log is durable up to `end_offset`: the FlushLog with that end offset has finished."""

    end_offset: Offset


@dataclass(frozen=True, slots=True)
class AppendPrepared:
    """The local client appends `record_count` records to the leader's log, all or none (LI-20, LI-22).

    `body` is an encoded batch body. Bodies of one epoch may be joined byte by byte into one body (their records follow
    each other), so that appends made during a flush become one batch. CompleteAppend or FailAppend answers the append.
    Nothing is written before AppendsScheduled.
    """

    append_id: int
    epoch: Epoch
    body: bytes
    record_count: int


@dataclass(frozen=True, slots=True)
class AppendsScheduled:
    """All prepared appends may be written now (LI-20)."""


@dataclass(frozen=True, slots=True)
class StateDigestReported:
    """The local state machine reached an offset where digests are compared; its digest there is `digest`."""

    digest: StateDigest


@dataclass(frozen=True, slots=True)
class StateMachineFenced:
    """The local state machine has stopped: its data differs from what it applied."""


@dataclass(frozen=True, slots=True)
class FetchVersionAllowed:
    """The cluster has finalized versions of Fetch up to `version`, which may be lower than before (PK-05)."""

    version: int


@dataclass(frozen=True, slots=True)
class SnapshotAppended:
    """The AppendSnapshot of that fetch has finished: the replica has `position` bytes of the snapshot now."""

    fetch_id: int
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotReceived:
    """The FreezeSnapshot of that fetch has finished: the replica has the snapshot, whole and durable."""

    fetch_id: int


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """The fetched snapshot is damaged, or the disk has no room for it: it was removed completely."""

    fetch_id: int


@dataclass(frozen=True, slots=True)
class SnapshotsChanged:
    """This replica's newest snapshot has changed: one was taken, or a damaged one was deleted."""

    latest: OffsetAndEpoch | None


@dataclass(frozen=True, slots=True)
class LogStartAdvanced:
    """The log now starts at `start`; no reader needs the records below."""

    start: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """The local client asks this replica to stop leading `epoch` (RF-102, checked by the shell's client)."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """The process is shutting down: a leader resigns first (RF-100), until `Replica.is_shutdown_complete`."""


Event: TypeAlias = (
    RequestReceived
    | RequestCancelled
    | ResponseReceived
    | RequestFailed
    | TimePassed
    | LogFlushed
    | AppendPrepared
    | AppendsScheduled
    | StateDigestReported
    | StateMachineFenced
    | FetchVersionAllowed
    | SnapshotAppended
    | SnapshotReceived
    | SnapshotRefused
    | SnapshotsChanged
    | LogStartAdvanced
    | ResignRequested
    | ShutdownRequested
)
