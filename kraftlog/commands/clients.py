"""How a command comes to an admin client, and from which offset on it reads.

Reads are answered by any node, from what it has applied; to see what was acknowledged to anybody before, they name the
leader's high watermark. Without a leader they are answered all the same, from what the node has, and that is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import describe_any, describe_node, find_leader
from kraftlog.admin.client.leader_finder import LeaderFinder
from kraftlog.admin.client.time_limit import allowed_seconds
from kraftlog.commands.user_messages import show_to_user
from raft.core.types import Offset

TIMEOUT_MS: Final = 10_000
"""How long a command goes on trying, through a change of leaders."""

QUERY_TIMEOUT_MS: Final = 20_000
"""The same for an SQL statement of the user's own: more than a node is given for one, so that its words arrive."""

UNCONFIRMED: Final = (
    "no leader has confirmed what is shown: it is what the node that answers has, and may be old;"
    " see whether a majority of the voters runs"
)


def allowed_ms(timeout_ms: int) -> int:
    """What the command may still take, where it was given a `--timeout`."""
    return max(1, round(allowed_seconds(timeout_ms / 1000) * 1000))


@asynccontextmanager
async def connected_client(endpoints: Sequence[Endpoint], timeout_ms: int = TIMEOUT_MS) -> AsyncIterator[AdminClient]:
    """A client, if anybody answers: it waits for a leader, but an address that is wrong is told at once.

    Raises ApiError(BROKER_NOT_AVAILABLE) if nobody does.
    """
    await describe_any(endpoints)
    async with AdminClient(endpoints, timeout_ms=allowed_ms(timeout_ms)) as client:
        yield client


async def committed_end_offset(endpoints: Sequence[Endpoint]) -> Offset:
    """The leader's high watermark, 0 if there is no leader to ask, which is told as a notice.

    Raises ApiError if nobody answers.
    """
    end_offset, is_confirmed = Offset(0), False
    try:
        leader = await find_leader(LeaderFinder(endpoints))
    except ApiError as error:
        if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
            raise
    else:
        with suppress(ApiError):
            node = await describe_node(leader)
            end_offset = Offset(max(0, node.high_watermark))
            is_confirmed = node.current_leader.leader_id == node.replica_key.node_id  # else it did lead
    if not is_confirmed:
        show_to_user(UNCONFIRMED)
    return end_offset
