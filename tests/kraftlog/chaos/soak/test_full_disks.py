"""What may fill a disk."""

from __future__ import annotations

import pytest

from kraftlog.chaos.soak.full_disks import FULL_FREE_BYTES, FullDisk, not_worth_keeping
from kraftlog.chaos.soak.samples import FileKind
from tests.kraftlog.chaos.soak.samples import sample


def disk(wal_percent: int, free_bytes: int = 0) -> FullDisk:
    kept = 100 - wal_percent
    return FullDisk(
        sample({FileKind.WAL: wal_percent, FileKind.LOG: kept - 20, FileKind.DATABASE: 15, FileKind.SNAPSHOTS: 5}),
        free_bytes,
    )


@pytest.mark.parametrize("wal_percent", [0, 25])
def test_log_database_and_snapshots_may_fill_a_disk(wal_percent: int) -> None:
    assert not_worth_keeping([disk(wal_percent), disk(0, free_bytes=1 << 30)]) == []


def test_what_could_be_forgotten_may_not() -> None:
    (story,) = not_worth_keeping([disk(0), disk(26)])
    assert "only 74% of its contents is log, database and snapshots" in story
    assert "metadata.db-wal 26" in story


def test_a_disk_with_room_may_have_anything() -> None:
    assert not_worth_keeping([disk(0), disk(60, free_bytes=FULL_FREE_BYTES)]) == []


def test_a_cluster_that_stands_still_although_there_is_room_is_wrong() -> None:
    (story,) = not_worth_keeping([disk(0, free_bytes=FULL_FREE_BYTES)])
    assert "no disk is full: node 1 has 2,097,152 bytes" in story
