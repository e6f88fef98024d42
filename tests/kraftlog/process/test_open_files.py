"""A node may have as many files and connections open as the system lets it, not as many as a login gives it."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

from kraftbase.types import NodeId
from kraftlog.local.cluster import LocalCluster, start_command
from kraftlog.local.cluster_directory import open_or_create

SOFT_LIMIT = 256


@pytest.mark.process
async def test_a_node_raises_its_limit_of_open_files(tmp_path: Path) -> None:
    def limited(config_path: Path) -> list[str]:
        return ["bash", "-c", f'ulimit -Sn {SOFT_LIMIT}; exec "$@"', "bash", *start_command(config_path)]

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with LocalCluster(open_or_create(tmp_path / "cluster", voters=1), limited).running() as cluster:
        limits = Path(f"/proc/{cluster.pid(NodeId(1))}/limits").read_text()
    (soft,) = re.findall(r"^Max open files +(\S+)", limits, re.MULTILINE)
    assert int(soft) == hard > SOFT_LIMIT
