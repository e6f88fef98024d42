"""The commands in docs/operations/ do what the page says, in its order, on a cluster of one voter."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftlog.cli.topics.acls import NOT_ENFORCED
from kraftlog.config.settings import SETTING_BY_KEY
from snapshot.log_start_policy import LogStartConfig
from statemachine.store.snapshot_generator import SnapshotConfig
from tests.kraftlog.command_line import Run, kraftlog
from tests.paths import ROOT
from tests.process.test_restore_cluster import write_config
from tests.process.test_up import up
from tests.shells import run_block

pytestmark = pytest.mark.process

PAGE = (ROOT / "docs" / "operations" / "snapshots.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


BROKERS_CLIENT = re.compile(r"kraftlog (?:produce|consume|log-dirs) ")


def brokers_of(addresses: str) -> str:
    """What `kraftlog up` prints for KRAFTLOG_BROKERS."""
    listed = kraftlog("brokers", "list", "--bootstrap-server", addresses, "--output", "json").json()
    return ",".join(broker["Endpoints"][0].partition("://")[2] for broker in listed if not broker["Fenced"])


def shell(block: str, directory: Path, addresses: str, cluster: Path) -> str:
    """Run one block as a user does; what it printed."""
    servers = {"KRAFTLOG_BROKERS": brokers_of(addresses)} if BROKERS_CLIENT.search(block) else {}
    finished = run_block(block, directory, KRAFTLOG_BOOTSTRAP_SERVER=addresses, CLUSTER=str(cluster), **servers)
    told = [line for line in finished.stderr.splitlines() if line != NOT_ENFORCED]  # by each `acls add`
    assert (finished.returncode, told) == (0, []), block
    return finished.stdout


def test_snapshots(tmp_path: Path, run: Run) -> None:
    cluster, directory = tmp_path / "cluster", tmp_path / "elsewhere"
    directory.mkdir()
    with up(cluster, "--voters", 1, "--brokers", 1) as (process, addresses):
        at = ("--bootstrap-server", addresses)
        assert run("topics", "create", "orders", *at, "--config", "retention.ms=5").code == 0
        created, described, saved, verified, looked, live, present = (
            shell(block, directory, addresses, cluster) for block in BLOCKS[:7]
        )
        process.send_signal(signal.SIGINT)
        process.communicate()  # its node has ended: `verify` refuses a directory that is in use
    checked, restored = (shell(block, directory, addresses, cluster) for block in BLOCKS[7:9])
    (copy,) = (directory / "backup").iterdir()
    assert copy.name in created
    assert "LogStartOffset" in described
    assert copy.name in saved
    assert "sound" in verified
    assert "retention.ms" in looked
    assert "orders" in looked
    assert "orders" in live
    assert live.splitlines()[-1].isdigit()
    assert "orders" in present
    assert copy.name in checked
    assert restored.endswith("Start it: kraftlog up --dir restored\n")
    assert BLOCKS[9] == "kraftlog up --dir restored\n"
    with up(directory / "restored") as (_, addresses):
        assert "orders" in shell(BLOCKS[10], directory, addresses, cluster)
    for node_id in (1, 2, 3):
        voters = {voter: Endpoint("localhost", 9090 + voter) for voter in (1, 2, 3)}
        write_config(directory / f"node-{node_id}.toml", node_id, voters[node_id], voters)
    by_hand, sound = (shell(block, directory, addresses, cluster) for block in BLOCKS[11:])
    assert len(re.findall(r"^Digest: .*$", by_hand, re.MULTILINE)) == 3
    assert len(set(re.findall(r"^(?:ClusterId|Digest): .*$", by_hand, re.MULTILINE))) == 2
    assert "node-1 is sound" in sound


def test_the_settings_on_the_page_are_the_codes() -> None:
    documented = dict(re.findall(r"^\| `([a-z.]+)` \| (\d+) \|", PAGE, re.MULTILINE))
    taken, start = SnapshotConfig(), LogStartConfig()
    assert {SETTING_BY_KEY[key].field: int(value) for key, value in documented.items()} == {
        "max_bytes_between": taken.max_bytes_between,
        "max_interval_ms": taken.max_interval_ms,
        "retention_bytes": start.retention_bytes,
        "retention_ms": start.retention_ms,
        "lag_time_max_ms": start.lag_time_max_ms,
        "replica_session_timeout_ms": start.replica_session_timeout_ms,
        "replica_restart_grace_ms": start.replica_restart_grace_ms,
    }
