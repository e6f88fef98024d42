"""gRPC channel and server options, each with its reason."""

from __future__ import annotations

from typing import Final

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest message that a node sends. A fetch carries whole batches of up to 8 MiB; gRPC's own limit is 4 MiB."""

REQUEST_BYTES_MAX: Final = 64 * 1024
"""The largest message that a node accepts; it refuses a longer one by its header. A client may begin a message on each
of thousands of streams and end none, and gRPC keeps what has arrived. A larger operation is sent in pieces.
"""

REQUEST_WINDOW_BYTES: Final = 32 * 1024
"""How much a client may send on a stream that the node does not read."""

_COMMON: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # A dead peer is noticed although nothing is sent: a connection that was silent for ten seconds is pinged, and ends
    # five seconds later. The documentation says that the keepalive timeout applies. In fact the timeout of all pings
    # applies, and its default is a minute.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # gRPC's bandwidth probe sends pings for received data, which delays small messages.
    ("grpc.http2.bdp_probe", 0),
)

CHANNEL_OPTIONS: Final = (
    *_COMMON,
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # There is no bandwidth probe, so the window is large from the start.
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
    # By default the wait between attempts grows to two minutes: a restarted peer would not be reached.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Despite its name, how long one attempt may take, up to the peer's greeting. A shorter time fails over a slow link,
    # or on a machine without processor time for a moment; with a much longer one, a peer behind a healed link is not
    # reached.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
)

SERVER_OPTIONS: Final = (
    *_COMMON,
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.http2.lookahead_bytes", REQUEST_WINDOW_BYTES),
    # Otherwise the server closes connections of clients that ping as often as ours do.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # On Linux two processes could otherwise share a port without an error.
    ("grpc.so_reuseport", 0),
)
