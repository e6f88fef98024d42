"""How clients connect to a node."""

from __future__ import annotations

from typing import Final

import grpc.aio

from kraftbase.endpoint import Endpoint
from raft.rpc.channels import channel_to
from raft.rpc.options import CHANNEL_OPTIONS

_OPTIONS: Final = (
    *CHANNEL_OPTIONS,
    # gRPC shares connections between channels, even closed ones for a while. A new channel must connect again: the
    # node's answer to the handshake shows that it is not stopped.
    ("grpc.use_local_subchannel_pool", 1),
)


def open_channel(endpoint: Endpoint) -> grpc.aio.Channel:
    """A channel of its own to a node; nothing is connected yet."""
    return channel_to(endpoint, _OPTIONS)
