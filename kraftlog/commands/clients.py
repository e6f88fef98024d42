"""How a command gets an admin client, and which offset its reads wait for.

Any node answers reads, from what it has applied; to see everything acknowledged to any client so far, a read names the
leader's high watermark. Without a leader, reads are answered from what the node has applied, with a notice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import describe_any, describe_node, find_leader
from kraftlog.admin.client.leader_finder import LeaderFinder
from kraftlog.admin.client.time_limit import allowed_seconds
from kraftlog.commands.user_messages import show_to_user

TIMEOUT_MS: Final = 10_000
"""How long a command keeps trying, through a change of leaders."""

QUERY_TIMEOUT_MS: Final = 30_000
"""The same for a user's SQL statement: longer than a node's own limit, so that the node's error arrives."""

UNCONFIRMED: Final = (
    "no leader has confirmed this answer: it shows what the answering node has applied, and may be old;"
    " check that a majority of the voters runs"
)


def allowed_ms(timeout_ms: int) -> int:
    """How long the command may still take, if `--timeout` was given."""
    return max(1, round(allowed_seconds(timeout_ms / 1000) * 1000))


@asynccontextmanager
async def connected_client(endpoints: Sequence[Endpoint], timeout_ms: int = TIMEOUT_MS) -> AsyncIterator[AdminClient]:
    """A client, if any node answers. The client waits for a leader, but a wrong address is reported at once.

    Raises ApiError(BROKER_NOT_AVAILABLE) if no node answers.
    """
    await describe_any(endpoints)
    async with AdminClient(endpoints, timeout_ms=allowed_ms(timeout_ms)) as client:
        yield client


async def committed_end_offset(endpoints: Sequence[Endpoint]) -> Offset:
    """The leader's high watermark; 0, with a notice to the user, if there is no leader to ask.

    Raises ApiError if no node answers.
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
