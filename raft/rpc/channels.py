"""How this package connects to a node: the one place to add TLS to; the servers' is `raft.rpc.listening`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import grpc.aio

from kraftbase.endpoint import Endpoint
from raft.rpc.options import CHANNEL_OPTIONS

Option: TypeAlias = tuple[str, int]


def channel_to(endpoint: Endpoint, options: Sequence[Option] = CHANNEL_OPTIONS) -> grpc.aio.Channel:
    """A channel to the node at `endpoint`; nothing is connected yet."""
    return grpc.aio.insecure_channel(str(endpoint), options=tuple(options))
