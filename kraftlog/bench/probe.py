"""A node with a listener that reports when it received which offsets:
`python -m kraftlog.bench.probe --config FILE --to SOCKET`.

With `--applied-to SOCKET` it also reports when its state machine has stored them in SQLite. Otherwise it is the node of
`kraftlog start`. For each commit it sends one datagram to the Unix socket: node id, the offset after the last record,
and CLOCK_MONOTONIC in nanoseconds, which is the same for all processes of a machine.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from raft.core.types import LeaderAndEpoch
from raft.listener import BatchReader, Listener

VISIBLE: Final = Struct(">iqq")
"""Node id, end offset, time in nanoseconds."""


class _Sender:
    """Sends the end offset of a node, and since when it has it."""

    def __init__(self, node_id: int, path: str) -> None:
        self._node_id = node_id
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.connect(path)

    def send(self, end_offset: Offset, time_ns: int) -> None:
        """Report that everything below `end_offset` was visible at that time."""
        self._socket.send(VISIBLE.pack(self._node_id, end_offset, time_ns))


class ProbeListener(Listener):
    """Reports when it received commits. The state machine receives them at the same time, and may not have applied
    them yet."""

    def __init__(self, node_id: int, path: str) -> None:
        self._sender = _Sender(node_id, path)

    async def handle_commit(self, reader: BatchReader) -> None:
        """Report the commit, with the time at the start of the call."""
        now_ns = time.monotonic_ns()
        with reader:
            self._sender.send(reader.end_offset, now_ns)


class ProbeSubscriber:
    """Reports when commits were stored: from then on reads and SQL at the node show them."""

    def __init__(self, node_id: int, path: str) -> None:
        self._sender = _Sender(node_id, path)

    def applied(self, end_offset: Offset) -> None:
        """Report the end offset after the transaction."""
        self._sender.send(end_offset, time.monotonic_ns())

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Does nothing."""

    def shut_down(self) -> None:
        """Does nothing."""


class Visibility:
    """Collects the reports of probes at one socket: for each node, its last end offset and since when it has it."""

    def __init__(self, path: str, node_ids: frozenset[int], inbox: socket.socket) -> None:
        self.path = path
        self._inbox = inbox
        self._seen: dict[int, tuple[int, int]] = dict.fromkeys(node_ids, (0, 0))
        self._changed = asyncio.Event()

    @classmethod
    @contextmanager
    def listening(cls, node_ids: frozenset[int]) -> Iterator[Visibility]:
        """Receive the reports of these nodes within the block, on the running loop. Other nodes are ignored."""
        loop = asyncio.get_running_loop()
        with (
            tempfile.TemporaryDirectory(prefix="kraftlog-") as directory,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox,
        ):
            path = str(Path(directory) / "visible")
            inbox.setblocking(False)
            inbox.bind(path)
            visibility = cls(path, node_ids, inbox)
            loop.add_reader(inbox, visibility._receive)
            try:
                yield visibility
            finally:
                loop.remove_reader(inbox)

    def _receive(self) -> None:
        while True:
            try:
                node_id, end_offset, time_ns = VISIBLE.unpack(self._inbox.recv(VISIBLE.size))
            except BlockingIOError:
                break
            if node_id in self._seen:
                self._seen[node_id] = (end_offset, time_ns)
        self._changed.set()

    async def wait_for(self, end_offset: int, timeout_seconds: float = 10.0) -> int:
        """Return when the last of the nodes had everything below `end_offset`, in nanoseconds of CLOCK_MONOTONIC.

        Exact if nothing else is committed before this returns. Raises ApiError REQUEST_TIMED_OUT.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not all(seen >= end_offset for seen, _ in self._seen.values()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"offset {end_offset - 1} is not visible everywhere after {timeout_seconds:g} s: {self._behind()}",
            ) from None
        return max(time_ns for _, time_ns in self._seen.values())

    def _behind(self) -> Mapping[int, int]:
        return {node_id: seen for node_id, (seen, _) in self._seen.items()}


def probe_command(visible: Visibility, applied: Visibility | None = None) -> Callable[[Path], list[str]]:
    """Return the command, for LocalCluster, of a node with a probe.

    It reports the commits of its listener to `visible`, and the stored ones to `applied`.
    """
    to = ["--to", visible.path, *([] if applied is None else ["--applied-to", applied.path])]
    command = [sys.executable, "-P", "-m", "kraftlog.bench.probe"]  # -P: without modules of the working directory
    return lambda config: [*command, "--config", str(config), *to]


def main() -> None:
    """Run the node until it is stopped or its parent dies."""
    import uvloop

    from kraftlog.config.config import load_config
    from kraftlog.local.child import stop_at_end_of_input
    from kraftlog.process.logs import configure_logging
    from kraftlog.process.server import serve

    parser = argparse.ArgumentParser(description="A node that reports when commits are visible to its listeners.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--applied-to")
    arguments = parser.parse_args()
    config = load_config(arguments.config)
    configure_logging(config.log_level)
    stop_at_end_of_input()
    listener = ProbeListener(config.node_id, arguments.to)
    subscribers = [ProbeSubscriber(config.node_id, arguments.applied_to)] if arguments.applied_to else []
    uvloop.run(serve(config, extra_listeners=[listener], subscribers=subscribers))


if __name__ == "__main__":
    main()
