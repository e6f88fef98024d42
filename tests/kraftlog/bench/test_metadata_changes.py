"""`bench broker --only metadata-changes`: which syncs are counted, and what is judged."""

from __future__ import annotations

from pathlib import Path

from kraftbase.types import NodeId
from kraftlog.bench.broker import starts
from kraftlog.bench.broker.comparison import KAFKA, OWN, targets
from kraftlog.bench.broker.metadata_changes import STEPS, SYNCED, measures
from kraftlog.bench.broker.syncs import TracedPlaces

TRACE = """\
101 fsync(7<{logs}/kraftlog-inventory>) = 0
102 fdatasync(8<{logs}/clicks-0/00000000000000000000.log> <unfinished ...>
101 fdatasync(9<{logs}-of-another/clicks-0/00000000000000000000.log>) = 0
102 <... fdatasync resumed>)             = 0
101 fsync(10<{logs}>)                 = 0
101 fdatasync(11<{logs}/../metadata.sqlite-wal>) = 0
"""


def test_syncs_of_the_log_directory_and_of_what_is_below_it_are_counted(tmp_path: Path) -> None:
    places = TracedPlaces("strace", tmp_path)
    logs = tmp_path / "broker-101" / "partitions"
    (tmp_path / "trace-101").write_text(TRACE.format(logs=logs).replace("/partitions/..", ""))
    assert places.count(101, logs) == 3


def test_a_traced_broker_keeps_its_address_and_its_trace(tmp_path: Path) -> None:
    places = TracedPlaces("strace", tmp_path)
    assert places.endpoint(NodeId(101)) == places.endpoint(NodeId(101)) != places.endpoint(NodeId(102))
    command = places.within(NodeId(101), ["python", "-m", "kraftlog"])
    assert command[-4:] == ["--", "python", "-m", "kraftlog"]
    assert {"-D", "-A", str(tmp_path / "trace-101")} <= set(command)


def test_turns_fencings_and_syncs_have_limits_and_without_strace_there_are_no_syncs() -> None:
    figures = {measure.key: 50.0 if "turn" in measure.key else 0.0 for measure in measures()}
    found = targets("metadata-changes", measures(), [{OWN: figures}])
    assert len(found) == 2 * len(STEPS) + len(SYNCED)
    assert all(target.is_met for target in found)
    worse = {**figures, "created_turn_processor_ms": 50.1, "moved_fenced": 1.0, "killed_syncs": 21.0}
    missed = [target for target in targets("metadata-changes", measures(), [{OWN: worse}]) if not target.is_met]
    assert len(missed) == 3
    untraced = {key: value for key, value in figures.items() if not key.endswith("_syncs")}
    assert len(targets("metadata-changes", measures(), [{OWN: untraced}])) == 2 * len(STEPS)


def test_a_start_is_compared_with_kafka_and_judged_by_itself_if_kafka_does_not_come_up() -> None:
    own = {"few_start_seconds": 5.0, "many_start_seconds": 41.0}
    few = {KAFKA: {"few_start_seconds": 10.0}}
    with_kafka, by_itself = targets("starts", starts.measures(), [{OWN: own, **few}])
    assert (with_kafka.measured, with_kafka.is_met) == (0.5, True)
    assert (by_itself.measured, by_itself.is_met) == (41.0, False)
