"""Exactly once, whatever crashes when (rule CT-10's other half: a commit takes effect on every node once)."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from statemachine.store.store import MetadataStore
from tests.paths import ROOT
from tests.statemachine.builders import CLUSTER_ID, broker, config, log_of, partition, remove_topic, topic

RUNS = [
    [topic("a", 1), config("a", "retention.ms", "1"), partition(1, 0), partition(1, 1)],
    [broker(1), config("a", "retention.ms", None), config("a", "segment.ms", "5")],
    [remove_topic(1), topic("a", 2), partition(2)],
]
TABLES = ("topics", "partitions", "brokers", "configs", "applied")


def content(database: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table."""
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        return {table: store.reader.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}


def copies_of_every_moment(store: MetadataStore, apply: int, directory: Path) -> list[Path]:
    """Apply one run, and copy the files as a crash would leave them before each SQL statement."""
    moments: list[Path] = []

    def copy(statement: str) -> None:
        moment = directory / f"run-{apply}-moment-{len(moments)}"
        moment.mkdir()
        for suffix in ("", "-wal"):
            source = store.path.with_name(store.path.name + suffix)
            if source.exists():
                shutil.copy(source, moment / source.name)
        moments.append(moment)

    store._tables.connection.set_trace_callback(copy)
    store.apply([log_of(RUNS)[apply]])
    store._tables.connection.set_trace_callback(None)
    copy("after")
    return moments


def test_a_crash_at_any_moment_of_a_transaction_leaves_all_of_it_or_nothing(database: Path, tmp_path: Path) -> None:
    log = log_of(RUNS)
    states = []
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        moments = []
        for apply in range(len(log)):
            states.append(store.applied)
            moments.append(copies_of_every_moment(store, apply, tmp_path))
        states.append(store.applied)
    complete = content(database)
    for apply, copies in enumerate(moments):
        assert len(copies) >= 4  # BEGIN, at least one change, the applied offset, COMMIT
        for moment in copies:
            with closing(MetadataStore.open(moment / database.name, CLUSTER_ID)) as survivor:
                assert survivor.applied in (states[apply], states[apply + 1])
                survivor.apply(log)
            assert content(moment / database.name) == complete
        with closing(MetadataStore.open(copies[-1] / database.name, CLUSTER_ID)) as survivor:
            assert survivor.applied.end_offset == log[-1].end_offset


CHILD = """
import sys
from pathlib import Path
from statemachine.store.store import MetadataStore
from tests.statemachine.builders import CLUSTER_ID
from tests.statemachine.store.test_store_crash import long_log
store = MetadataStore.open(Path(sys.argv[1]), CLUSTER_ID)
for batch in long_log():
    store.apply([batch])
    if batch.base_offset % 300 == 0:
        print(batch.end_offset, flush=True)
"""


def long_log() -> list:  # type: ignore[type-arg]
    """Configs set over and over, topics that are created and deleted."""
    runs = []
    for number in range(1_000):
        runs.append([topic(f"t{number % 7}", number), partition(number), config(f"t{number % 7}", "retention.ms", "1")])
        runs.append([config("x", "retention.ms", str(number)), remove_topic(number)])
    return log_of(runs)


def test_a_process_killed_again_and_again_ends_where_one_does_that_never_dies(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed.db", tmp_path / "whole.db"
    for lines in (1, 2, 3):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(killed)], stdout=subprocess.PIPE, cwd=ROOT)
        assert child.stdout is not None
        for _ in range(lines):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    log = long_log()
    for path, runs in ((killed, [log]), (whole, [[batch] for batch in log])):
        with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
            for run in runs:
                store.apply(run)
    assert content(killed) == content(whole)
