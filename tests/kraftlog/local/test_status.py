"""What `kraftlog up` says when nodes end, without their processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import StringIO
from unittest.mock import Mock

import pytest
from rich.console import Console

from kraftbase.errors import ErrorCode
from kraftlog.local.cluster import NodeDied
from kraftlog.local.status import _tell_of_deaths
from raft.core.types import NodeId


async def test_when_no_node_is_left_it_says_that_everything_is_stopped() -> None:
    """And not only how one of them is started: its brokers are stopped, too."""
    running = {NodeId(1), NodeId(2)}

    async def deaths() -> AsyncIterator[NodeDied]:
        for node_id in sorted(running):
            running.discard(node_id)
            yield NodeDied(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} was ended")

    cluster, out = Mock(node_ids=(NodeId(1), NodeId(2)), is_running=running.__contains__, deaths=deaths), StringIO()
    with pytest.raises(NodeDied, match="everything is stopped"):
        await _tell_of_deaths(cluster, Console(file=out, width=200))
    assert [line.partition(": ")[2] for line in out.getvalue().splitlines()] == ["node 1 was ended", "node 2 was ended"]
