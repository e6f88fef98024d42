"""`tools/processor_time.py`: what it reads, and what it makes of that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tools.processor_time import Cost, Pair, Spread, broker_id, exported, processor_ns, result, spread


def test_a_ratio_is_this_version_s_part_of_the_other_s() -> None:
    pairs = [
        Pair(against=Cost(100.0, 40.0), this=Cost(110.0, 20.0)),
        Pair(against=Cost(200.0, 40.0), this=Cost(180.0, 40.0)),
        Pair(against=Cost(100.0, 40.0), this=Cost(104.0, 50.0)),
    ]
    figures = result(pairs, 2_500)
    assert figures["leader_ratio"] == {"median": 1.04, "min": 0.9, "max": 1.1}
    assert figures["follower_ratio"] == {"median": 1.0, "min": 0.5, "max": 1.25}
    assert figures["pairs"][0] == {
        "against": {"leader": 100.0, "follower": 40.0},
        "this": {"leader": 110.0, "follower": 20.0},
    }


def test_the_median_of_two_ratios_is_between_them() -> None:
    assert spread([1.0, 1.5]) == Spread(1.25, 1.0, 1.5)


def test_the_processor_time_of_all_tasks_is_counted() -> None:
    assert processor_ns(["1500 7 3\n", "20 900 1\n"]) == 1520


def test_a_broker_is_found_by_its_command() -> None:
    command = ["python", "-P", "-m", "kraftlog", "brokers", "run", "--id", "101", "--stop-at-eof", ""]
    assert broker_id(command) == 101
    assert broker_id(["python", "-P", "-m", "kraftlog", "start", "--config", "node-1.toml", ""]) is None
    assert broker_id([""]) is None


def test_what_up_exports_is_read() -> None:
    output = (
        "Cluster 5pzg_aSJT0-dJN8DKtFzXw is up. Ctrl-C stops it. In another terminal:\n"
        "  export KRAFTLOG_BOOTSTRAP_SERVER=127.0.0.1:18477\n"
        "  export KRAFTLOG_BROKERS=localhost:31700,localhost:31701\n"
        "  kraftlog topics create events --replication-factor 2\n"
    )
    assert exported(output) == {
        "KRAFTLOG_BOOTSTRAP_SERVER": "127.0.0.1:18477",
        "KRAFTLOG_BROKERS": "localhost:31700,localhost:31701",
    }


@pytest.mark.parametrize(
    ("files", "told"),
    [((), "has no kraftlog/__main__.py"), (("kraftlog/__main__.py",), "run `make install` there")],
)
def test_a_checkout_that_cannot_run_is_refused(tmp_path: Path, files: tuple[str, ...], told: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    command = [sys.executable, ROOT / "tools" / "processor_time.py", "--against", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
