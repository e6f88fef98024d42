"""A broker's start waits for nodes, so that broker and nodes can be started at the same time in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kraftbase.errors import ApiError
from kraftlog.admin.client.operation_stream import NotSent

ASK_AGAIN_SECONDS: Final = 1.0


class _Client(Protocol):
    def cluster_id(self) -> Awaitable[str]: ...


async def cluster_id_when_known(client: _Client, tell: Callable[[str], None]) -> str:
    """Return the cluster's id as soon as a node knows a leader. `tell` is called if that takes longer than a moment."""
    is_told = False
    while True:
        try:
            cluster_id = await client.cluster_id()
        except NotSent as error:
            if not is_told:
                tell(f"waiting for the nodes of the cluster: {_reason(error)}")
                is_told = True
            await asyncio.sleep(ASK_AGAIN_SECONDS)
        else:
            if is_told:
                tell("the nodes answer")
            return cluster_id


def _reason(error: ApiError) -> str:
    return str(error.args[0])
