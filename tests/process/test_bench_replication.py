"""`bench replication` with sizes that take a moment: every figure runs, and is written. Nothing is timed here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlog.bench.broker.comparison import KAFKA, OWN
from kraftlog.bench.peers.installed import find_peers
from kraftlog.bench.replication.measures import MEASURES
from tests.kraftlog.command_line import kraftlog
from tests.paths import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]  # brokers are killed, and wait for their sessions to end

PEERS = find_peers(ROOT / "build" / "peers")
SIZES = (
    *("--pairs", 1, "--rounds", 1, "--bytes", 300_000, "--flushed-bytes", 300_000, "--records", 5),
    *("--partitions", 3, "--behind-bytes", 3_000_000),
)


def test_every_figure_of_ours_is_measured_without_a_kafka_which_is_named_as_missing(tmp_path: Path) -> None:
    file = tmp_path / "replication.json"
    finished = kraftlog(
        *("bench", "replication", *SIZES, "--peers", tmp_path, "--dir", tmp_path, "--output", "json", "--json", file),
        timeout=280,
    )
    assert finished.code == 0, finished.errors
    assert "Kafka is left out" in finished.errors
    result = json.loads(finished.output)
    assert result == json.loads(file.read_text())
    assert result["figures"].keys() == MEASURES.keys()
    for figure, found in result["figures"].items():
        assert found["medians"][OWN].keys() == {measure.key for measure in MEASURES[figure]}
    assert [path.name for path in tmp_path.iterdir()] == ["replication.json"]


@pytest.mark.skipif(PEERS.kafka is None, reason=f"Kafka is not installed: {PEERS.missing.get('Kafka')}")
def test_a_pair_with_kafka_has_its_ratios_and_targets(tmp_path: Path) -> None:
    file = tmp_path / "replication.json"
    finished = kraftlog(
        *("bench", "replication", *SIZES, "--only", "produce-10,one-record", "--json", file, "--dir", tmp_path),
        timeout=280,
    )
    assert (finished.code, finished.errors) == (0, "")
    figures = json.loads(file.read_text())["figures"]
    for found in figures.values():
        (pair,) = found["pairs"]
        assert pair.keys() == {OWN, KAFKA}
    assert [len(found["targets"]) for found in figures.values()] == [1, 2]
