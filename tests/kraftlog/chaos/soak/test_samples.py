"""Which file is of which kind, and what the kernel reports about a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftbase.types import NodeId
from kraftlog.chaos.soak.samples import FileKind, kind_of, process_sample, take_sample
from kraftlog.local.cluster_directory import open_or_create
from tests.kraftlog.chaos.soak.samples import ONE

CHECKPOINT = "snapshots/00000000000000000500-0000000003"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("log/00000000000000000000.log", FileKind.LOG),
        ("log/00000000000000000000.log.damaged", FileKind.DAMAGED),
        ("log/log-start", FileKind.SMALL),
        ("log/log-start.tmp", FileKind.UNFINISHED),
        ("log/recovering", FileKind.SMALL),
        (f"{CHECKPOINT}.checkpoint", FileKind.SNAPSHOTS),
        (f"{CHECKPOINT}-0a1b.checkpoint.part", FileKind.UNFINISHED),
        (f"{CHECKPOINT}.checkpoint.deleted", FileKind.UNFINISHED),
        ("metadata.db", FileKind.DATABASE),
        ("metadata.db-wal", FileKind.WAL),
        ("metadata.db-shm", FileKind.SMALL),
        ("metadata.db.new", FileKind.UNFINISHED),
        ("metadata.db.new-wal", FileKind.UNFINISHED),
        ("metadata.db.damaged", FileKind.DAMAGED),
        ("metadata.db.damaged-wal", FileKind.DAMAGED),
        ("meta.properties", FileKind.SMALL),
        ("quorum-state-0", FileKind.SMALL),
        ("something new", FileKind.SMALL),
    ],
)
def test_every_file_has_a_kind(path: str, kind: FileKind) -> None:
    assert kind_of(Path(path)) is kind


def test_a_directory_is_added_up_by_kind(tmp_path: Path) -> None:
    data = open_or_create(tmp_path / "cluster", voters=1).data_path(ONE)
    (data / "log").mkdir(exist_ok=True)
    (data / "snapshots").mkdir(exist_ok=True)
    before = take_sample(0.0, NodeId(1), data, None)  # the identity, the mark of a new directory, the voters
    for name, size in {
        "log/00000000000000000000.log": 4096,
        "log/00000000000000000009.log": 100,
        f"{CHECKPOINT}.checkpoint": 70,
        "metadata.db-wal": 9,
    }.items():
        (data / name).write_bytes(b"x" * size)
    found = take_sample(3.5, NodeId(1), data, os.getpid())
    assert found.file_bytes[FileKind.LOG] == 4196
    assert found.file_bytes[FileKind.SNAPSHOTS] - before.file_bytes[FileKind.SNAPSHOTS] == 70
    assert found.snapshots - before.snapshots == 1
    assert found.file_bytes[FileKind.WAL] == 9
    assert (
        found.file_bytes[FileKind.SMALL]
        == before.file_bytes[FileKind.SMALL]
        > (data / "meta.properties").stat().st_size
    )
    assert found.total_bytes == sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    assert found.process is not None


def test_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    found = take_sample(0.0, NodeId(1), tmp_path / "nothing", None)
    assert found.total_bytes == 0
    assert found.process is None


def test_what_a_process_takes_is_what_it_took() -> None:
    before = process_sample(os.getpid())
    assert before is not None
    with Path("/dev/null").open("wb", buffering=0) as sink:
        sink.write(b"x" * 100_000)
        after = process_sample(os.getpid())
    assert after is not None
    assert after.written_bytes - before.written_bytes >= 100_000
    assert after.descriptors == before.descriptors + 1
    assert after.resident_bytes > 1024 * 1024
    assert after.threads >= 1


def test_a_process_that_has_ended_takes_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_sample(process.pid) is None
    process.wait()
    assert process_sample(process.pid) is None
