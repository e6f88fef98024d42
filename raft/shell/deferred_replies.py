"""How a replica's answers leave its shell: their records are read, and some leave only after the listeners have run.

While all of the log is committed, no commit depends on an answer to a fetch, and waiting clients depend on a listener:
such answers leave after the woken listeners have run. While the log has uncommitted records, the answers leave at once,
because the next fetches commit it. So the core's order of actions (PK-08) is reversed only where this makes waiting
clients faster and delays no commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kraftbase.errors import ErrorCode
from kraftbase.runtime import Runtime
from raft.core.actions import LogRange, Reply, SnapshotRange
from raft.core.messages import (
    DescribeQuorumResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LogStartHolder,
    Response,
)
from raft.shell.node_snapshots import NodeSnapshots
from raft.shell.shell_host import ShellHost
from raft.storage.segmented_log import SegmentedLog


class DeferredReplies:
    """The answers of one replica that the host has yet to send. The owner calls `close`, and nothing after that."""

    def __init__(
        self,
        log: SegmentedLog,
        snapshots: NodeSnapshots,
        log_start_holders: Callable[[], tuple[LogStartHolder, ...]],
        runtime: Runtime,
        host: ShellHost,
        on_released: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`on_released` is called when deferred answers have been sent; `on_fatal` if this failed."""
        self._log = log
        self._snapshots = snapshots
        self._log_start_holders = log_start_holders
        self._runtime = runtime
        self._host = host
        self._on_released = on_released
        self._on_fatal = on_fatal
        self._deferred: list[tuple[int, Response, bytes]] = []
        self._is_release_scheduled = False
        self._closed = False

    @property
    def has_deferred(self) -> bool:
        """Whether answers are deferred; those with a snapshot's bytes, which may take long, do not count."""
        return bool(self._deferred)

    def send(self, reply: Reply, *, may_defer: bool) -> None:
        """Read the reply's records and send it: at once or, if it answers a fetch and may wait, with `release`.

        "At once" means before a flush that is ordered after the reply.
        """
        records = b""
        response, reads = reply.response, reply.reads
        if isinstance(reads, LogRange):
            records = self._log.read(reads.start_offset, reads.max_bytes)
        elif isinstance(reads, SnapshotRange) and isinstance(response, FetchSnapshotResponse):
            self._send_snapshot(reply.request_id, response, reads)
            return
        elif isinstance(response, DescribeQuorumResponse):
            response = replace(response, log_start_holders=self._log_start_holders())
        # Consider record 100, committed by the fetch of follower 2, with follower 3 parked and a client that waits for
        # its operation. The core orders: the append is complete, 3 is answered, listeners may have 100, 2 is answered.
        # No uncommitted record is left, so the two answers commit nothing: they leave after the state machine, which
        # answers the client, has run.
        #
        # If record 101 is appended before that, they leave at once, in the core's order: the next fetches commit 101.
        # This is the case under load, when there are always uncommitted records.
        if may_defer and isinstance(response, FetchResponse):
            self._deferred.append((reply.request_id, response, records))
        else:
            self._host.reply(reply.request_id, response, records)

    def release(self, *, may_defer: bool, listeners_are_woken: bool) -> None:
        """The actions ordered with them are done: send the deferred answers, now or after the woken listeners have run.

        Answers that already wait for listeners keep waiting, unless they may no longer be deferred.
        """
        if self._closed or not self._deferred:
            return
        if may_defer and listeners_are_woken and not self._is_release_scheduled:
            self._is_release_scheduled = True
            self._runtime.call_soon(self._release_after_listeners)
        elif not (may_defer and self._is_release_scheduled):
            self._send_deferred()

    def close(self) -> None:
        """Stop sending."""
        self._closed = True

    def _release_after_listeners(self) -> None:
        self._is_release_scheduled = False
        if self._closed:
            return
        try:
            self._send_deferred()
            self._on_released()
        except BaseException as error:
            self._on_fatal(error)

    def _send_deferred(self) -> None:
        answers, self._deferred = self._deferred, []
        for answer in answers:
            self._host.reply(*answer)

    def _send_snapshot(self, request_id: int, response: FetchSnapshotResponse, wanted: SnapshotRange) -> None:
        def respond(error: ErrorCode, size: int, data: bytes) -> None:
            if not self._closed:
                self._host.reply(request_id, replace(response, error=error, size=size, data=data), data)

        self._snapshots.read(response.snapshot_id, wanted.position, wanted.max_bytes, respond)
