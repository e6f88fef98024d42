"""A node with a listener that says when it was given which offsets: `python -m bench.probe --config FILE --to SOCKET`.

Nothing else differs from `kraftlog start`. The listener sends one datagram per commit to a Unix socket: node id, the
offset after the last record, and CLOCK_MONOTONIC in nanoseconds, which is the same for all processes of a machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

from raft.core.errors import ErrorCode, ProtocolError
from raft.listener import BatchReader, Listener

VISIBLE: Final = Struct(">iqq")
"""Node id, end offset, time in nanoseconds."""


class ProbeListener(Listener):
    """Sends when commits were handed to it."""

    def __init__(self, node_id: int, path: str) -> None:
        self._node_id = node_id
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.connect(path)

    async def handle_commit(self, reader: BatchReader) -> None:
        """Take the time first."""
        now_ns = time.monotonic_ns()
        with reader:
            self._socket.send(VISIBLE.pack(self._node_id, reader.end_offset, now_ns))


class Visibility:
    """Collects what probes send: for each node, when which offsets were visible there."""

    def __init__(self, path: str, node_ids: frozenset[int], inbox: socket.socket) -> None:
        self.path = path
        self._inbox = inbox
        self._seen: dict[int, tuple[int, int]] = dict.fromkeys(node_ids, (0, 0))
        self._changed = asyncio.Event()

    @classmethod
    @contextmanager
    def listening(cls, node_ids: frozenset[int]) -> Iterator[Visibility]:
        """Listen to these nodes' probes within the block, on the running loop. Others' messages are ignored."""
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
        """When the last of the nodes was given everything below `end_offset`, in nanoseconds of CLOCK_MONOTONIC.

        Exact if nothing else is committed meanwhile. Raises ProtocolError REQUEST_TIMED_OUT.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not all(seen >= end_offset for seen, _ in self._seen.values()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ProtocolError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"offset {end_offset - 1} is not visible everywhere after {timeout_seconds:g} s: {self._behind()}",
            ) from None
        return max(time_ns for _, time_ns in self._seen.values())

    def _behind(self) -> Mapping[int, int]:
        return {node_id: seen for node_id, (seen, _) in self._seen.items()}


def probe_command(socket_path: str) -> Callable[[Path], list[str]]:
    """Runs a node with a probe: hand it to LocalCluster."""
    return lambda config: [sys.executable, "-m", "bench.probe", "--config", str(config), "--to", socket_path]


def main() -> None:
    """Run the node until it is told to stop or its parent dies."""
    import uvloop

    from kraftlog.child import stop_at_end_of_input
    from kraftlog.config import load_config
    from kraftlog.logs import configure_logging
    from kraftlog.server import serve

    parser = argparse.ArgumentParser(description="A node that says when commits are visible to its listeners.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--to", required=True)
    arguments = parser.parse_args()
    config = load_config(arguments.config)
    configure_logging(config.log_level)
    stop_at_end_of_input()
    uvloop.run(serve(config, extra_listeners=[ProbeListener(config.node_id, os.fspath(arguments.to))]))


if __name__ == "__main__":
    main()
