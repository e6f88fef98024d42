"""A node whose listener stops on a signal: `python -m kraftlog.bench.slow_listener --config FILE --to SOCKET`.

Otherwise it is the node of `kraftlog start`. After SIGUSR1 the listener reads nothing and closes no reader; after
SIGUSR2 it continues. For each reader that it has closed it sends one datagram to a Unix socket: how many snapshots it
has received so far, and the offset after the last record that it has read.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

from kraftbase.types import Offset
from raft.listener import BatchReader, Listener, LoadSnapshotReader

TAKEN: Final = Struct(">qq")
"""The number of received snapshots, and the end offset."""

STOP: Final = signal.SIGUSR1
GO_ON: Final = signal.SIGUSR2


class SlowListener(Listener):
    """Reads everything that it receives, but not while it is stopped."""

    def __init__(self, path: str) -> None:
        """Datagrams are sent to the socket at `path`."""
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._snapshots = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.connect(path)

    def stop(self) -> None:
        """Read nothing, until `go_on`."""
        self._may_read.clear()

    def go_on(self) -> None:
        """Read again."""
        self._may_read.set()

    async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
        """Read a snapshot in a thread, since it may be large."""
        with reader:
            await self._may_read.wait()
            await asyncio.to_thread(_read, reader)
        self._snapshots += 1
        self._tell(reader.end_offset)

    async def handle_commit(self, reader: BatchReader) -> None:
        """Read the records."""
        with reader:
            await self._may_read.wait()
            _read(reader)
        self._tell(reader.end_offset)

    def _tell(self, end_offset: Offset) -> None:
        self._socket.send(TAKEN.pack(self._snapshots, end_offset))


def _read(reader: BatchReader | LoadSnapshotReader) -> None:
    for batch in reader:
        len(batch.records)


class Tally:
    """The last datagram of the slow listener."""

    def __init__(self, path: str, inbox: socket.socket) -> None:
        self.path = path
        self.snapshots = 0
        """How many snapshots the listener has received since its process started."""
        self.end_offset = 0
        """The listener has read everything below this offset."""
        self._inbox = inbox

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Tally]:
        """Receive datagrams within the block, on the running loop."""
        loop = asyncio.get_running_loop()
        with (
            tempfile.TemporaryDirectory(prefix="kraftlog-") as directory,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox,
        ):
            path = str(Path(directory) / "taken")
            inbox.setblocking(False)
            inbox.bind(path)
            tally = cls(path, inbox)
            loop.add_reader(inbox, tally._receive)
            try:
                yield tally
            finally:
                loop.remove_reader(inbox)

    def _receive(self) -> None:
        while True:
            try:
                self.snapshots, self.end_offset = TAKEN.unpack(self._inbox.recv(TAKEN.size))
            except BlockingIOError:
                break


def slow_listener_command(socket_path: str) -> Callable[[Path], list[str]]:
    """Return the command, for LocalCluster, of a node with a slow listener."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "kraftlog.bench.slow_listener",
    ]  # -P: without modules of the working directory
    return lambda config: [*command, "--config", str(config), "--to", socket_path]


def main() -> None:
    """Run the node until it is stopped or its parent dies."""
    import uvloop

    from kraftlog.config.config import load_config
    from kraftlog.local.child import stop_at_end_of_input
    from kraftlog.process.logs import configure_logging
    from kraftlog.process.server import serve

    parser = argparse.ArgumentParser(description="A node whose listener stops on a signal.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--to", required=True)
    arguments = parser.parse_args()
    config = load_config(arguments.config)
    configure_logging(config.log_level)
    stop_at_end_of_input()

    async def serve_slowly() -> None:
        listener = SlowListener(os.fspath(arguments.to))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(STOP, listener.stop)
        loop.add_signal_handler(GO_ON, listener.go_on)
        await serve(config, extra_listeners=[listener])

    uvloop.run(serve_slowly())


if __name__ == "__main__":
    main()
