"""`bench peers` against peers that are installed, on PATH or by `make peers`; a short run, for what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlog.bench.peers.installed import ETCD_PROGRAM, KAFKA_JARS, find_peers
from kraftlog.bench.peers.ratios import MEASURES
from tests.kraftlog.command_line import kraftlog
from tests.paths import ROOT

pytestmark = pytest.mark.process

PEERS = find_peers(ROOT / "build" / "peers")
KEYS = {measure.key for measure in MEASURES}


@pytest.mark.skipif(PEERS.etcd is None, reason=f"etcd is not installed: {PEERS.missing.get('etcd')}")
def test_a_round_with_etcd_has_every_figure_its_ratio_and_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PEERS.etcd is not None
    monkeypatch.setenv("ETCD_NAME", "of-another-etcd")  # with it a member does not start
    program = tmp_path / "peers" / ETCD_PROGRAM
    program.parent.mkdir(parents=True)
    program.symlink_to(PEERS.etcd.program)
    file = tmp_path / "peers.json"
    finished = kraftlog(
        *("bench", "peers", "--rounds", 1, "--ops", 5, "--seconds", 0.3, "--json", file),
        *("--peers", tmp_path / "peers", "--dir", tmp_path),
        timeout=110,
    )
    assert (finished.code, finished.errors) == (0, "")
    assert "Kafka is left out" in finished.output
    result = json.loads(file.read_text())
    assert result["systems"].keys() == {"kraftlog", "etcd"}
    (found,) = result["rounds"]
    assert {name: set(figures) for name, figures in found.items()} == {"kraftlog": KEYS, "etcd": KEYS}
    for key, ratio in result["ratios"]["etcd"].items():
        assert ratio == pytest.approx(found["kraftlog"][key] / found["etcd"][key], rel=0.01, abs=0.001)
    assert (len(result["targets"]), result["failed"]) == (4, 0)


@pytest.mark.slow
@pytest.mark.skipif(PEERS.kafka is None, reason=f"Kafka is not installed: {PEERS.missing.get('Kafka')}")
def test_a_round_with_kafka_has_every_figure_and_its_ratio(tmp_path: Path) -> None:
    assert PEERS.kafka is not None
    directory = tmp_path / "peers"
    directory.mkdir()
    (directory / KAFKA_JARS).symlink_to(PEERS.kafka.jars.resolve())
    file = tmp_path / "peers.json"
    finished = kraftlog(
        *("bench", "peers", "--rounds", 1, "--ops", 5, "--seconds", 0.3, "--json", file),
        *("--peers", directory, "--dir", tmp_path),
        timeout=110,
    )
    assert (finished.code, finished.errors) == (0, "")
    result = json.loads(file.read_text())
    assert (set(result["ratios"]["Kafka"]), result["failed"]) == (KEYS, 0)
