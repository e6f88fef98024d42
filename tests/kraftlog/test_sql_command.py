"""`kraftlog sql`: how long it waits for a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlog import admin
from statemachine.client import AdminClient
from statemachine.node_reader import QUERY_SECONDS_MAX
from statemachine.sql import NODE_TIMEOUT_SECONDS
from tests.statemachine.admin_nodes import admin_cluster


async def test_a_query_is_waited_for_longer_than_a_node_lets_it_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts_ms = []
    begin = AdminClient.__init__

    def told(client: AdminClient, *addresses: Any, timeout_ms: int) -> None:
        timeouts_ms.append(timeout_ms)
        begin(client, *addresses, timeout_ms=timeout_ms)

    monkeypatch.setattr(AdminClient, "__init__", told)
    async with admin_cluster(tmp_path) as cluster:
        assert (await admin.query((cluster.endpoints[1],), "SELECT 1 AS one")) == (("one",), ((1,),))
    assert timeouts_ms[0] / 1_000 > QUERY_SECONDS_MAX > NODE_TIMEOUT_SECONDS
