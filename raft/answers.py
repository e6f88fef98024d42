"""How a replica's answers leave its shell: what belongs to them is read, and some give way to the listeners.

While all of the log is committed nothing commits by an answer to a fetch, and whoever waits for an acknowledgement
waits for a listener: such answers leave after the listeners' turn. Under load there is always more to commit, and
every answer leaves at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from raft.core.actions import Reply
from raft.core.errors import ErrorCode
from raft.core.messages import (
    DescribeQuorumResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LogRange,
    LogStartHolder,
    Response,
    SnapshotRange,
)
from raft.outlet import Outlet
from raft.runtime import Runtime
from raft.snapshots import NodeSnapshots
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
        *,
        on_handed_over: Callable[[], None],
    ) -> None:
        """`on_handed_over` is called when answers that gave way have left."""
        self._log = log
        self._snapshots = snapshots
        self._log_start_holders = log_start_holders
        self._runtime = runtime
        self._outlet = outlet
        self._on_handed_over = on_handed_over
        self._giving_way: list[tuple[int, Response, bytes]] = []
        self._closed = False

    @property
    def are_waiting(self) -> bool:
        """Whether some have not left yet; those with a snapshot's bytes, which may take long, do not count."""
        return bool(self._giving_way)

    def give(self, reply: Reply, *, is_all_committed: bool) -> None:
        """Read what belongs to it and let it leave, now or with `release`."""
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
        if is_all_committed and isinstance(response, FetchResponse):
            self._giving_way.append((reply.request_id, response, records))
        else:
            self._outlet.reply(reply.request_id, response, records)

    def release(self, *, listeners_are_woken: bool) -> None:
        """What was ordered with them is carried out: let those that gave way leave, after woken listeners."""
        if self._giving_way and listeners_are_woken:
            self._runtime.call_soon(self._hand_over)
        elif self._giving_way:
            self._hand_over()

    def close(self) -> None:
        """Nothing more leaves."""
        self._closed = True

    def _hand_over(self) -> None:
        if self._closed:
            return
        answers, self._giving_way = self._giving_way, []
        for answer in answers:
            self._outlet.reply(*answer)
        self._on_handed_over()

    def _give_snapshot(self, request_id: int, response: FetchSnapshotResponse, wanted: SnapshotRange) -> None:
        def respond(error: ErrorCode, size: int, data: bytes) -> None:
            if not self._closed:
                self._outlet.reply(request_id, replace(response, error=error, size=size, data=data), data)

        self._snapshots.read(response.snapshot_id, wanted.position, wanted.max_bytes, respond)
