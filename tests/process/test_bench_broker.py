"""`bench broker` and `bench replication` with sizes that take a moment: every figure runs, and is written.

Nothing is timed here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kraftlog.bench.broker import measures
from kraftlog.bench.broker.comparison import KAFKA, OWN
from kraftlog.bench.broker.measure import Measures
from kraftlog.bench.broker.run import CHANGES, HOSTILE
from kraftlog.bench.peers.installed import find_peers
from kraftlog.bench.replication import measures as replication
from kraftlog.cli.testing.bench import MUST_BE_MET
from tests.kraftlog.command_line import kraftlog
from tests.paths import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]  # brokers start, some again after SIGKILL: a minute

PEERS = find_peers(ROOT / "build" / "peers")
ONE = (
    *("broker", "--pairs", 1, "--bytes", 300_000, "--cold-bytes", 300_000, "--records", 5, "--connections", 5),
    *("--seconds", 0.3, "--partitions", 3, "--idle-seconds", 0.3, "--hostile-seconds", 0.1),
    *("--changed-partitions", 10, "--started-partitions", 3),
)
THREE = (
    *("replication", "--pairs", 1, "--rounds", 1, "--bytes", 300_000, "--flushed-bytes", 300_000, "--records", 5),
    *("--partitions", 3, "--behind-bytes", 3_000_000),
)
Words = Sequence[object]
SOON = [name for name in measures.MEASURES if name not in (HOSTILE, CHANGES)]


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ((*ONE, "--only", ",".join(SOON)), {name: measures.MEASURES[name] for name in SOON}),
        ((*ONE, "--only", HOSTILE), {HOSTILE: measures.MEASURES[HOSTILE]}),
        ((*ONE, "--only", CHANGES), {CHANGES: measures.MEASURES[CHANGES]}),
        (THREE, replication.MEASURES),
    ],
    ids=["broker", "hostile", "metadata-changes", "replication"],
)
def test_every_figure_of_ours_is_measured_without_a_kafka_which_is_named_as_missing(
    words: Words, known: Measures, tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    finished = kraftlog(
        *("bench", *words, "--peers", tmp_path, "--dir", tmp_path, "--output", "json", "--json", file), timeout=280
    )
    assert "Kafka is left out" in finished.errors
    result = json.loads(finished.output)
    assert result == json.loads(file.read_text())
    assert result["systems"].keys() == {OWN}
    assert result["figures"].keys() == known.keys()
    for figure, found in result["figures"].items():
        assert found["medians"][OWN].keys() == {measure.key for measure in known[figure]}
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    must_be_met = [result["figures"][name]["targets"] for name in MUST_BE_MET if name in result["figures"]]
    met = all(target["met"] for targets in must_be_met for target in targets.values())
    assert finished.code == (0 if met else 1), finished.errors


@pytest.mark.skipif(PEERS.kafka is None, reason=f"Kafka is not installed: {PEERS.missing.get('Kafka')}")
@pytest.mark.parametrize(
    ("words", "only", "targets"),
    [(ONE, "produce-64k,one-record-flushed", [1, 3]), (THREE, "produce-10,one-record", [1, 2])],
    ids=["broker", "replication"],
)
def test_a_pair_with_kafka_has_its_ratios_and_targets(
    words: Words, only: str, targets: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    finished = kraftlog(*("bench", *words, "--only", only, "--json", file, "--dir", tmp_path), timeout=280)
    assert (finished.code, finished.errors) == (0, "")
    figures = json.loads(file.read_text())["figures"]
    for found in figures.values():
        (pair,) = found["pairs"]
        assert pair.keys() == {OWN, KAFKA}
    assert [len(found["targets"]) for found in figures.values()] == targets
