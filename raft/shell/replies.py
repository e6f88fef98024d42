"""How a replica's answers leave its shell: what belongs to them is read, and some give way to the listeners.

While all of the log is committed nothing waits for an answer to a fetch, and whoever waits for an acknowledgement waits
for a listener: such answers leave after woken listeners had their turn. As soon as there is something to commit they
leave at once: what commits it is the fetch that follows. So the order of PK-08, in which the core gives its orders, is
turned round where it makes a difference to nobody but those who wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kraftbase.errors import ErrorCode
from raft.core.actions import Reply
from raft.core.messages import (
    DescribeQuorumResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LogRange,
    LogStartHolder,
    Response,
    SnapshotRange,
)
from raft.shell.node_snapshots import NodeSnapshots
from raft.shell.ports import Outlet
from raft.shell.runtime import Runtime
from raft.storage.segmented_log import SegmentedLog


class Answers:
    """The answers of one replica on their way to the outlet. Whoever owns it calls `close` and then nothing more."""

    def __init__(
        self,
        log: SegmentedLog,
        snapshots: NodeSnapshots,
        log_start_holders: Callable[[], tuple[LogStartHolder, ...]],
        runtime: Runtime,
        outlet: Outlet,
        on_handed_over: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`on_handed_over` is called when answers have left after the listeners; `on_fatal` if that failed."""
        self._log = log
        self._snapshots = snapshots
        self._log_start_holders = log_start_holders
        self._runtime = runtime
        self._outlet = outlet
        self._on_handed_over = on_handed_over
        self._on_fatal = on_fatal
        self._giving_way: list[tuple[int, Response, bytes]] = []
        self._has_appointment = False
        self._closed = False

    @property
    def are_waiting(self) -> bool:
        """Whether some have not left yet; those with a snapshot's bytes, which may take long, do not count."""
        return bool(self._giving_way)

    def give(self, reply: Reply, *, may_wait: bool) -> None:
        """Read what belongs to it and let it leave, now or, if it answers a fetch and may wait, with `release`.

        Now is before a flush that is ordered after it.
        """
        records = b""
        response = reply.response
        match response:
            case FetchSnapshotResponse(data=SnapshotRange() as wanted):
                self._give_snapshot(reply.request_id, response, wanted)
                return
            case FetchResponse(records=LogRange(start_offset=start_offset, max_bytes=max_bytes)):
                records = self._log.read(start_offset, max_bytes)
            case DescribeQuorumResponse():
                response = replace(response, log_start_holders=self._log_start_holders())
        # Consider record 100, committed by the fetch of follower 2, with follower 3 parked and a client that waits for
        # its operation. The core orders: the append is complete, 3 is answered, listeners may have 100, 2 is answered.
        # Nothing is left to commit, so the two answers commit nothing: they leave after the state machine had its turn,
        # by which the client is answered.
        #
        # If record 101 is appended meanwhile, they leave at once, in the core's order: the fetches that follow them are
        # what commits 101. So it is under load, where there is always something to commit.
        if may_wait and isinstance(response, FetchResponse):
            self._giving_way.append((reply.request_id, response, records))
        else:
            self._outlet.reply(reply.request_id, response, records)

    def release(self, *, may_wait: bool, listeners_are_woken: bool) -> None:
        """What was ordered with them is carried out: let them leave, now or after the listeners that it has woken.

        Those that wait for listeners already wait on, unless they may not any more.
        """
        if self._closed or not self._giving_way:
            return
        if may_wait and listeners_are_woken and not self._has_appointment:
            self._has_appointment = True
            self._runtime.call_soon(self._after_listeners)
        elif not (may_wait and self._has_appointment):
            self._hand_over()

    def close(self) -> None:
        """Nothing more leaves."""
        self._closed = True

    def _after_listeners(self) -> None:
        self._has_appointment = False
        if self._closed:
            return
        try:
            self._hand_over()
            self._on_handed_over()
        except BaseException as error:
            self._on_fatal(error)

    def _hand_over(self) -> None:
        answers, self._giving_way = self._giving_way, []
        for answer in answers:
            self._outlet.reply(*answer)

    def _give_snapshot(self, request_id: int, response: FetchSnapshotResponse, wanted: SnapshotRange) -> None:
        def respond(error: ErrorCode, size: int, data: bytes) -> None:
            if not self._closed:
                self._outlet.reply(request_id, replace(response, error=error, size=size, data=data), data)

        self._snapshots.read(response.snapshot_id, wanted.position, wanted.max_bytes, respond)
