"""A client that begins a message on each of many streams and ends none: `unfinished_messages.py HOST:PORT COUNT BYTES`.

gRPC's own clients send whole messages, so this one writes the frames of HTTP/2 itself. It says "under way" when
everything is sent that the node's flow control lets it send, and goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import Final

STREAMS_PER_CONNECTION: Final = 500
FRAME_BYTES: Final = 16_384
WINDOW_BYTES: Final = 65_535
QUIET_SECONDS: Final = 1.0
"""Nothing was sent for this long: the node lets nothing more in."""

DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE, RESET = 0, 1, 4, 6, 8, 3
INITIAL_WINDOW_SIZE: Final = 4
CANCELLED: Final = b"grpc-status\x011"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def headers(path: str) -> bytes:
    pairs = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
    pairs["content-type"] = "application/grpc"
    texts = [(name.encode(), value.encode()) for name, value in pairs.items()]
    return b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in texts)


class Connection:
    """Some streams, each with a message of which the last byte is kept back. `sent_bytes` is what the node may hold."""

    def __init__(self, streams: int, message_bytes: int) -> None:
        self._streams = streams
        self._message = b"\0" + struct.pack(">I", message_bytes) + bytes(message_bytes - 1)
        self._opened = 0
        self._windows: dict[int, int] = {}
        """Of each stream, beyond the initial one."""
        self._sent: dict[int, int] = {}
        self._initial = self._window = WINDOW_BYTES
        self._changed = asyncio.Event()
        self.sent_bytes = 0

    async def run(self, host: str, port: int) -> None:
        """Send, for ever."""
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
        for _ in range(self._streams):
            self._open(writer)
        await asyncio.gather(self._send(writer), self._receive(reader, writer))

    def _open(self, writer: asyncio.StreamWriter) -> None:
        stream = 2 * self._opened + 1
        self._opened += 1
        self._windows[stream] = self._sent[stream] = 0
        writer.write(frame(HEADERS, 4, stream, headers("/kraftpb.v1.AdminService/Execute")))

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            self._changed.clear()
            for stream in list(self._windows):
                await self._fill(writer, stream)
            await self._changed.wait()

    async def _fill(self, writer: asyncio.StreamWriter, stream: int) -> None:
        while stream in self._windows:
            sent = self._sent[stream]
            room = min(self._window, self._initial + self._windows[stream] - sent, len(self._message) - sent)
            if room <= 0:
                return
            data = self._message[sent : sent + min(room, FRAME_BYTES)]
            self._sent[stream] += len(data)
            self._window -= len(data)
            self.sent_bytes += len(data)
            writer.write(frame(DATA, 0, stream, data))
            await writer.drain()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(9)
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if kind == SETTINGS and not flags & 1:
                settings = dict(struct.iter_unpack(">HI", payload))
                self._initial = settings.get(INITIAL_WINDOW_SIZE, self._initial)
                writer.write(frame(SETTINGS, 1, 0))
            elif kind == PING and not flags & 1:
                writer.write(frame(PING, 1, 0, payload))
            elif kind == WINDOW_UPDATE and stream == 0:
                self._window += int.from_bytes(payload, "big")
            elif kind == WINDOW_UPDATE and stream in self._windows:
                self._windows[stream] += int.from_bytes(payload, "big")
            elif (kind == RESET or (kind == HEADERS and flags & 1)) and self._windows.pop(stream, None) is not None:
                self.sent_bytes -= self._sent.pop(stream)
                if CANCELLED in payload:  # gRPC itself refuses some of too many that are opened at once
                    self._open(writer)
            self._changed.set()


async def main(address: str, count: int, message_bytes: int) -> None:
    """Do it."""
    host, _, port = address.rpartition(":")
    rest = range(0, count, STREAMS_PER_CONNECTION)
    connections = [Connection(min(STREAMS_PER_CONNECTION, count - start), message_bytes) for start in rest]
    running = [asyncio.create_task(connection.run(host, int(port))) for connection in connections]
    before = -1
    while (sent := sum(connection.sent_bytes for connection in connections)) != before:
        before = sent
        await asyncio.sleep(QUIET_SECONDS)
    print(f"under way: {sent}", flush=True)  # noqa: T201
    await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
