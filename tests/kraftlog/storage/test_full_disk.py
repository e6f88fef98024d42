"""When a log directory counts as full (CT-66)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ApiError, ErrorCode, OutOfSpace
from kraftbase.files.files import Space
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.full_disk import LOW_WATER_BYTES, LOW_WATER_DIVISOR, FullDisk
from tests.kraftlog.storage.builders import append, batch, log_in, open_directory

LARGE = LOW_WATER_BYTES * LOW_WATER_DIVISOR * 10
LOW = LOW_WATER_BYTES


def a_disk() -> tuple[FullDisk, list[bool]]:
    """A disk, and what it has said."""
    disk, said = FullDisk("data", lambda: Space(0, LARGE)), list[bool]()
    disk.on_change = lambda: said.append(disk.is_full)
    return disk, said


def test_it_is_full_below_the_low_water_mark_until_twice_as_much_is_free() -> None:
    disk, said = a_disk()
    found = []
    with capture_logs() as lines:
        for free_bytes in (LARGE, LOW, LOW - 1, LOW - 2, LOW, 2 * LOW - 1, 2 * LOW, LOW):
            disk.measured(Space(free_bytes, LARGE))
            found.append(disk.is_full)
    assert found == [False, False, True, True, True, True, False, False]
    assert said == [True, False]
    assert [line["event"][:31] for line in lines] == [
        "a log directory has little room",
        "a log directory has room again",
    ]
    assert {line["log_level"] for line in lines} == {"warning"}  # both are shown at the level of `brokers run`


@pytest.mark.parametrize(
    ("total_bytes", "low_water_bytes"), [(LARGE, LOW), (LOW * LOW_WATER_DIVISOR - LOW_WATER_DIVISOR, LOW - 1), (60, 3)]
)
def test_the_low_water_mark_of_a_small_disk_is_a_part_of_it(total_bytes: int, low_water_bytes: int) -> None:
    disk, _ = a_disk()
    disk.measured(Space(total_bytes, total_bytes))
    assert disk.low_water_bytes == low_water_bytes


def test_what_is_refused_with_much_room_makes_it_full_until_nothing_is_refused() -> None:
    """Such as by a quota of the file system."""
    disk, said = a_disk()
    disk.measured(Space(LARGE, LARGE))
    disk.refused(OutOfSpace("quota"))
    disk.refused(OutOfSpace("quota"))
    disk.measured(Space(LARGE, LARGE))
    assert said == [True]
    disk.measured(Space(LARGE, LARGE))
    assert said == [True, False]


def test_records_do_not_take_the_room_of_the_brokers_own_files() -> None:
    """Nor between two measurements."""
    disk, said = a_disk()
    disk.reserve(LARGE * 2)
    disk.measured(Space(LOW, LARGE))
    disk.reserve(LOW // 2)
    disk.reserve(LOW // 4)
    with pytest.raises(OutOfSpace, match="has 0 bytes free, of which 16,777,216 are kept"):
        disk.reserve(1)
    disk.measured(Space(LOW, LARGE))
    disk.reserve(1)
    assert said == []


def test_an_append_that_would_take_that_room_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, batch(2))
    free_bytes = LOW // 4
    monkeypatch.setattr(files, "space", lambda path: Space(free_bytes, LARGE))
    directory.full_disk.measured(directory.space())
    used_bytes = files.used_bytes()
    with pytest.raises(ApiError, match="kept for the broker's own files") as refused:
        append(log, batch(1))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, files.used_bytes()) == (2, used_bytes)
    assert directory.full_disk.is_full
    assert not directory.offline_reason
    free_bytes = LARGE
    append(log, batch(1))
    assert log.log_end_offset == 3
