"""The benchmarks run, and write the JSON that is promised. How quick anything is, is not tested here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kraftlog.command_line import kraftlog
from tests.paths import ROOT

pytestmark = pytest.mark.process

FIGURES = {"p50", "p90", "p99", "max", "mean"}
MACHINE = {"cpu_count", "cpu_model", "kernel", "python", "implementation", "fdatasync_ms_p50"}


def test_latency_writes_a_summary_of_each_measure_for_each_fetch_version(tmp_path: Path) -> None:
    file = tmp_path / "latency.json"
    finished = kraftlog(
        *("bench", "latency", "--fetch-version", "18", "--ops", 5, "--json", file, "--dir", tmp_path), timeout=110
    )
    assert (finished.code, finished.errors) == (0, "")
    assert "submit to visible, Fetch 18" in finished.output
    result = json.loads(file.read_text())
    assert result["machine"].keys() == MACHINE
    (version,) = result["fetch_version"].values()
    assert (version["operations"], version["failed"]) == (5, 0)
    for measure in ("submit_to_ack_ms", "ack_to_visible_ms", "submit_to_visible_ms"):
        assert version[measure].keys() == FIGURES
        assert 0 <= version[measure]["p50"] <= version[measure]["max"]


@pytest.mark.slow
def test_throughput_counts_operations_and_records(tmp_path: Path) -> None:
    file = tmp_path / "throughput.json"
    finished = kraftlog("bench", "throughput", "--seconds", 0.5, "--json", file, timeout=110)
    assert (finished.code, finished.errors) == (0, "")
    result = json.loads(file.read_text())
    for mode, records in (("single_operations", 1), ("batches", 500)):
        assert result[mode]["acknowledged"] > 0
        assert result[mode]["failed"] == 0
        assert result[mode]["records_per_operation"] == records
        assert result[mode]["submit_to_ack_ms"].keys() == FIGURES


@pytest.mark.slow
def test_kafka_measures_every_figure_beside_its_target(tmp_path: Path) -> None:
    file = tmp_path / "kafka.json"
    finished = kraftlog("bench", "kafka", "--records", 50, "--partitions", 200, "--json", file, timeout=110)
    assert (finished.code, finished.errors) == (0, "")
    result = json.loads(file.read_text())
    assert result["machine"].keys() == MACHINE
    assert len(result["targets"]) == 10
    for name, target in result["targets"].items():
        assert target["measured"] > 0
        assert name in finished.output


@pytest.mark.slow
def test_crowd_compares_a_writer_alone_with_one_beside_readers(tmp_path: Path) -> None:
    file = tmp_path / "crowd.json"
    finished = kraftlog("bench", "crowd", "--seconds", 0.2, "--json", file, timeout=110)
    assert (finished.code, finished.errors) == (0, "")
    result = json.loads(file.read_text())
    assert {name: len(rates) for name, rates in result["operations_per_second"].items()} == {
        "alone": 5,
        "beside readers": 5,
    }
    assert min(rate for rates in result["operations_per_second"].values() for rate in rates) > 0
    assert result["targets"]["kept beside readers"]["at_least"] == 80


def test_catch_up_tells_when_a_follower_is_level(tmp_path: Path) -> None:
    file = tmp_path / "catch-up.json"
    finished = kraftlog("bench", "catch-up", "--records", 500, "--json", file, timeout=110)
    assert (finished.code, finished.errors) == (0, "")
    result = json.loads(file.read_text())
    assert result["records"] == 500
    assert 0 < result["answers_after_seconds"] <= result["log_level_after_seconds"] <= result["applied_after_seconds"]


@pytest.mark.slow
def test_snapshot_tells_what_one_costs_and_that_all_nodes_make_the_same(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    finished = kraftlog("bench", "snapshot", "--partitions", 300, "--seconds", 0.2, "--json", file, timeout=110)
    assert (finished.code, finished.errors) == (0, "")
    assert "have the same digest" in finished.output
    result = json.loads(file.read_text())
    assert (result["partitions"], result["different_digests"]) == (300, 1)
    assert result["snapshot_bytes"] > 0
    assert {figures.keys() == FIGURES for figures in result["submit_to_ack_ms"].values()} == {True}
    assert result["resident_mib"].keys() == {"1", "2", "3", "4", "5"}
    assert result["transfer"]["bytes"] == result["snapshot_bytes"]
    assert min(result["transfer"]["discarded_mb_per_second"], result["transfer"]["received_mb_per_second"]) > 0
    assert result["empty_observer_log_start_offset"] > 0, "an observer with nothing is given a snapshot"
    assert {target["met"] for target in result["targets"].values()} <= {True, False}


@pytest.mark.slow
def test_reload_tells_who_had_to_load_a_snapshot_under_each_policy(tmp_path: Path) -> None:
    file = tmp_path / "reload.json"
    finished = kraftlog(
        *("bench", "reload", "--seconds", 1, "--pause", 1, "--partitions", 300, "--json", file), timeout=110
    )
    assert (finished.code, finished.errors) == (0, "")
    assert "reloads, slow observer" in finished.output
    eager, replicated = (json.loads(file.read_text())["policies"][policy] for policy in ("eager", "replicated"))
    for result in (eager, replicated):
        assert result["pauses"] == len(result["observer_catch_up_seconds"]) == len(result["listener_catch_up_seconds"])
        assert (result["failed"], result["leaders"]) == (0, 1)
        assert min(result["log_bytes_max"].values()) > 0
    assert eager["reloads_slow_observer"] >= sum(missed >= 2 for missed in eager["snapshots_taken_in_pauses"])
    assert (replicated["reloads_slow_observer"], replicated["reloads_slow_listener"]) == (0, 0)
    assert replicated["snapshot_bytes_shipped"] == 0


@pytest.mark.slow
def test_metadata_measures_every_part_beside_its_target(tmp_path: Path) -> None:
    file = tmp_path / "metadata.json"
    finished = kraftlog(
        *("bench", "metadata", "--topics", 12, "--topic-partitions", 10, "--ops", 3, "--leaders", 40, "--rate", 50),
        *("--seconds", 0.2, "--partitions", 300, "--json", file),
        timeout=110,
    )
    assert (finished.code, finished.errors) == (0, "")
    result = json.loads(file.read_text())
    create, one_by_one, failover, alter, reads, latency = result["parts"].values()
    assert (create["topics"], create["partitions"], create["operations"]) == (12, 120, 2)
    assert create["applied_seconds"].keys() == {"1", "2", "3", "4", "5"}
    assert create["partitions_per_second"] == pytest.approx(120 / max(create["applied_seconds"].values()), rel=0.05)
    assert (one_by_one["topics"], one_by_one["submit_to_ack_ms"].keys()) == (3, FIGURES)
    assert 40 <= failover["partitions_led"] < failover["partitions"] / 2
    assert failover["led_again_seconds"].keys() == {"4", "5"}
    assert max(failover["led_again_seconds"].values()) <= failover["out_of_every_isr_applied_seconds"]
    assert (alter["acknowledged"], alter["failed"], alter["due_to_ack_ms"].keys()) == (10, 0, FIGURES)
    assert (reads["partitions"], reads["topics"], reads["describe_large_topic_ms"].keys()) == (300, 5, FIGURES)
    assert reads["nodes_take_snapshots"] is latency["nodes_take_snapshots"] is False
    assert (latency["operations"], latency["failed"], latency["submit_to_applied_ms"].keys()) == (3, 0, FIGURES)
    assert latency["submit_to_listener_ms"].keys() == FIGURES
    assert "submit_to_visible_ms" not in latency  # with two meanings it would have none
    assert {target["met"] for target in result["targets"].values()} <= {True, False}
    assert len(result["targets"]) == 5


def test_metadata_measures_only_the_parts_that_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "metadata.json"
    finished = kraftlog("bench", "metadata", "--only", "one-by-one", "--ops", 2, "--json", file, timeout=110)
    assert (finished.code, finished.errors) == (0, "")
    assert "create one topic, p50" in finished.output
    assert json.loads(file.read_text())["parts"].keys() == {"one-by-one"}


@pytest.mark.slow
def test_cost_compares_the_leader_with_another_checkouts(tmp_path: Path) -> None:
    file = tmp_path / "cost.json"
    finished = kraftlog(
        *("bench", "cost", "--against", ROOT, "--pairs", 1, "--ops", 20, "--json", file, "--dir", tmp_path), timeout=110
    )
    assert (finished.code, finished.errors) == (0, "")
    result = json.loads(file.read_text())
    assert [len(pair) for pair in result["pairs"]] == [2]
    assert min(result["median_ratio_one_at_a_time"], result["median_ratio_many_callers"]) > 0


@pytest.mark.slow
def test_produce_compares_a_broker_with_another_checkouts(tmp_path: Path) -> None:
    file = tmp_path / "produce.json"
    finished = kraftlog(
        *("bench", "produce", "--against", ROOT, "--pairs", 1, "--bytes", 1_000_000, "--json", file), timeout=110
    )
    assert finished.errors == ""
    assert finished.code in (0, 1), "as the limit holds or not"
    speeds = json.loads(file.read_text())["megabytes_per_second"]
    assert [len(pair) for name in ("flushed", "not_flushed") for pair in speeds[name]] == [2, 2]


def test_cost_refuses_what_is_no_checkout(tmp_path: Path) -> None:
    finished = kraftlog("bench", "cost", "--against", tmp_path, timeout=110)
    assert finished.code == 1
    assert "give a checkout of the project" in finished.errors
