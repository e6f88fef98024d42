"""The syncs of a real broker, counted by strace: few for many partitions (DB-95, DB-96)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from kraftlog.local.cluster import LocalCluster
from tests.kraftlog.command_line import Run
from tests.process.broker_process import BrokerProcess
from tests.process.conftest import addresses
from tests.process.shared_voter.test_broker_crashes import Load, check

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]

PARTITIONS: Final = 300
SYNCS_MAX: Final = 20


class TracedBroker(BrokerProcess):
    """Each start has a trace of its own."""

    def start(self) -> None:
        """Start it in strace, which is not its parent: signals go to the broker."""
        self.trace = self.directory.with_name(f"trace-{len(list(self.directory.parent.glob('trace-*')))}")
        untraced = self._command
        self._command = ["strace", "-D", "-f", "-e", "trace=fsync,fdatasync", "-o", str(self.trace), *untraced]
        try:
            super().start()
        finally:
            self._command = untraced

    def syncs(self) -> int:
        """How many there were since the start, of all kinds, with those of the broker's own directory and metadata."""
        return len(re.findall(r" (?:fsync|fdatasync)\(", self.trace.read_text()))


def test_db95_db96_many_partitions_cost_few_syncs(voter: LocalCluster, tmp_path: Path, run: Run) -> None:
    at = ("--bootstrap-server", addresses(voter))
    with TracedBroker(addresses(voter), 64, tmp_path / "broker").running() as broker:
        before = broker.syncs()
        created = run(
            "topics", "create", "many", "--replica-assignment", ",".join(["64"] * PARTITIONS), *at,
        )  # fmt: skip
        assert created.code == 0, created
        assert run("topics", "create", "records", "--replica-assignment", "64,64,64", *at).code == 0
        names = [f"many-{index}" for index in range(PARTITIONS)]
        while not all((broker.partitions / name / f"{0:020d}.log").exists() for name in names):
            pass
        assert broker.syncs() - before <= SYNCS_MAX
        with Load(broker, "records").running() as load:
            pass
        before = broker.syncs()
        trace = broker.trace
        assert broker.stop() == 0
        broker.trace = trace
        ending = broker.syncs() - before
        assert ending <= SYNCS_MAX + 3 * 6, "three logs have records since the last checkpoint"
        broker.start()
        assert broker.syncs() <= SYNCS_MAX
        broker.kill()
        broker.start()
        assert broker.syncs() <= SYNCS_MAX + 3 * 6
        check(broker, "records", load)
        before = broker.syncs()
        assert run("topics", "delete", "many", *at).code == 0
        while any((broker.partitions / name).exists() for name in names):
            pass
        assert broker.syncs() - before <= SYNCS_MAX
        assert "did not turn" not in broker.said.read_text()
